// Conversations: the documents of an example, pair or prompt, with trained flags (data/chat_source.h).
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"
#include "data/chat_source.h"
#include "prepare/encoder.h"
#include "prepare/prepare.h"

namespace quintet::prepare {
namespace {

// What a folder of tokens holds; its manifest has the word.
enum class Kind : uint8_t { Examples, Pairs, Prompts };
std::string to_string(Kind kind) {
  return kind == Kind::Pairs ? "pairs" : kind == Kind::Prompts ? "prompts" : "examples";
}
Kind kind_of(chat::Format format) {
  if (format == chat::Format::Preference) return Kind::Pairs;
  return format == chat::Format::Prompts ? Kind::Prompts : Kind::Examples;
}

const char* loss_name(chat::Loss loss) {
  return loss == chat::Loss::All ? "all" : loss == chat::Loss::Last ? "last" : "assistant";
}

class ChatEncoder : public Encoder {
 public:
  explicit ChatEncoder(const Options& options)
      : options_(options),
        input_(*options.chat),
        tokenizer_(options.tokenizer, input_.chat_template),
        format_{input_.format, input_.mask, input_.split_turns} {
    for (const std::string& where : options.where) where_.emplace_back(where);
    const std::vector<base::Path> inputs(options.inputs.begin(), options.inputs.end());
    bool any_inside = false;
    for (const base::Path& file : data::chat_files(inputs, &reading_))
      if (is_inside(file, options.out))
        any_inside = true;
      else
        sources_.push_back({file, std::ranges::count(inputs, file) > 0, text::FileKind::Lines});
    require_sources(options, sources_, any_inside);
    for (const Source& source : sources_) add_format(source.path);
  }

  const tokenizer::Tokenizer& tokenizer() const override { return tokenizer_.tokens(); }
  const std::vector<Source>& sources() const override { return sources_; }
  const data::Reading& reading() const override { return reading_; }
  std::vector<std::string> fields() const override { return {}; }
  bool has_flags() const override { return true; }
  bool has_columns() const override { return kind_ == Kind::Prompts; }
  std::string noun() const override {
    return kind_ == Kind::Pairs ? "pair" : kind_ == Kind::Prompts ? "prompt" : "example";
  }

  void encode(const text::Record& record, EncodedRecord& out) const override {
    const auto file = static_cast<size_t>(record.file);
    data::ChatLine line{record.bytes,
                        fmt::format("{}:{}", base::printable(sources_[file].path.string()), record.number),
                        chat::Format::Messages, record.damage};
    try {
      if (line.damage.empty()) line.format = format_of(file, line.text);
      if (line.damage.empty() && !read_fields(line.text, out)) return;
    } catch (const base::UserError& error) {
      line.damage = error.what();
    }
    data::ChatResult result =
        std::move(data::encode_lines(tokenizer_, std::span(&line, 1), format_, 1).front());
    if (!result.problem.empty()) {
      out.outcome = text::Outcome::Damaged;
      out.why = std::move(result.problem);
      return;
    }
    out.together = line.format == chat::Format::Preference;
    for (chat::Encoded& document : result.documents)
      out.documents.push_back({.ids = std::move(document.ids),
                               .trained = std::move(document.trained),
                               .text = std::move(document.text) + '\n',
                               .columns = result.columns,
                               .turns = document.turns,
                               .ended = document.ended,
                               .straddling = document.straddling});
  }

  // Templates may show the time: a run that continues another one shows the same.
  void begin(const base::Path& work) override {
    if (format_.mask.wall_seconds != 0) return;
    const base::Path file = work / "time";
    if (!base::file_exists(file))
      base::write_file_atomically(file, fmt::format("{}\n", base::wall_seconds()));
    const std::string text = base::read_file(file);
    std::from_chars(text.data(), text.data() + text.size(), format_.mask.wall_seconds);
    if (format_.mask.wall_seconds == 0)
      base::fail_user("'{}' is damaged: it holds no time; remove '{}' to start again", file.string(),
                      work.string());
  }

  void check(const Counts& so_far) const override {
    data::TurnEnds ends(format_.mask.end_of_turn);
    ends.add(so_far.turns, so_far.ended);
    ends.require_some();
  }

  void add_to_plan(nlohmann::ordered_json& plan) const override {
    plan["chat"] = {{"templates", fmt::format("{:016x}", tokenizer_.templates_hash())},
                    {"bos", tokenizer_.special("bos_token")},
                    {"eos", tokenizer_.special("eos_token")},
                    {"format", input_.format},
                    {"loss", loss_name(input_.mask.loss)},
                    {"end_of_turn", input_.mask.end_of_turn},
                    {"split_turns", input_.split_turns},
                    {"time", input_.mask.wall_seconds}};
  }

  void add_to_manifest(nlohmann::ordered_json& manifest, const Counts& counts) const override {
    manifest["kind"] = to_string(kind_);
    manifest["chat_template"] = input_.chat_template;
    manifest["loss"] = loss_name(input_.mask.loss);
    manifest["split_turns"] = input_.split_turns;
    manifest["time_of_strftime_now"] = format_.mask.wall_seconds;
    manifest["tokens_across_a_cut"] = counts.straddling;
  }
  void refuse(const std::string& message) const override { base::fail_user("{}", message); }

 private:
  // A file's format is that of its first example. With none, each line is judged by itself.
  void add_format(const base::Path& file) {
    data::ChatLines lines({file}, input_.format);
    data::ChatLine line;
    bool any = lines.next(line);
    while (any && !line.damage.empty() && options_.skip_damaged) any = lines.next(line);
    formats_.emplace_back();
    if (!any || !line.damage.empty()) return;
    formats_.back() = line.format;
    const Kind kind = kind_of(line.format);
    if (has_kind_ && kind != kind_)
      base::fail_user("{}: {} after {}: prepare them into folders of their own", line.where, to_string(kind),
                      to_string(kind_));
    kind_ = kind, has_kind_ = true;
  }
  chat::Format format_of(size_t file, const std::string& line) const {
    if (formats_[file]) return *formats_[file];
    if (!input_.format.empty()) return chat::format_of_name(input_.format);
    const chat::Json record = base::parse_ordered_json(line);
    if (record.is_discarded()) base::fail_user("{}", base::json_fault(line));
    return chat::detect_format(record);
  }
  // Whether the conditions hold; reads the numbers that are asked for.
  bool read_fields(const std::string& line, EncodedRecord& out) const {
    if (where_.empty() && options_.columns.empty()) return true;
    const nlohmann::json record = base::parse_json(line);
    if (record.is_discarded()) base::fail_user("{}", base::json_fault(line));
    if (!std::ranges::all_of(where_, [&](const text::Condition& c) { return c.matches(record); })) {
      out.outcome = text::Outcome::Filtered;
      return false;
    }
    out.numbers = text::numbers_of(record, options_.columns);
    return true;
  }

  const Options& options_;
  const ChatInput& input_;
  chat::ChatTokenizer tokenizer_;
  data::ChatFormat format_;
  std::vector<text::Condition> where_;
  data::Reading reading_;
  std::vector<Source> sources_;
  std::vector<std::optional<chat::Format>> formats_;  // of each
  Kind kind_ = Kind::Examples;
  bool has_kind_ = false;
};

}  // namespace

std::unique_ptr<Encoder> make_chat_encoder(const Options& options) {
  return std::make_unique<ChatEncoder>(options);
}

}  // namespace quintet::prepare
