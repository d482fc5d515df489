#include "tools/prepare_chat.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/checksum.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/output_path.h"
#include "base/parallel_for.h"
#include "base/printable.h"
#include "data/foreign_file.h"

namespace quintet::tools {
namespace {

using chat::Json;

constexpr size_t kBatchLines = 4096;  // rendered and encoded together

struct Line {
  std::string_view text;
  std::string where;  // file:line
  chat::Format format;
};

// What became of a line.
struct Result {
  std::vector<chat::Encoded> documents;
  std::string columns, problem;
};

std::vector<base::Path> chat_files(const std::vector<std::string>& inputs) {
  std::vector<base::Path> files;
  for (const std::string& input : inputs) {
    if (base::directory_exists(input)) {
      for (const base::Path& file : base::list_files(input))
        if (file.extension() == ".jsonl") files.push_back(file);
    } else {
      files.emplace_back(input);
    }
  }
  if (files.empty()) base::fail_user("there are no .jsonl files in the input");
  return files;
}

std::string_view kind_of(chat::Format format) {
  if (format == chat::Format::Preference) return "pairs";
  return format == chat::Format::Prompts ? "prompts" : "examples";
}

Json parse_line(std::string_view text) {
  Json record = Json::parse(text, nullptr, false);
  if (record.is_discarded()) base::fail_user("not valid JSON");
  return record;
}

// Calls `use` with every line that is not blank. The format of a file is that of its first line.
template <class Use>
void for_each_line(std::string_view contents, const std::string& name, const std::string& format, Use use) {
  std::optional<chat::Format> known;
  if (!format.empty()) known = chat::format_of_name(format);
  for (int64_t number = 1; !contents.empty(); ++number) {
    const size_t end = std::min(contents.find('\n'), contents.size());
    const std::string_view line = contents.substr(0, end);
    contents.remove_prefix(std::min(end + 1, contents.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string where = fmt::format("{}:{}", base::printable(name), number);
    if (!known) {
      try {
        known = chat::detect_format(parse_line(line));
      } catch (const base::UserError& error) {
        base::fail_user("{}: {}", where, error.what());
      }
    }
    if (!use(Line{line, where, *known})) return;
  }
}

// The documents of one line.
void encode_line(const chat::ChatTokenizer& tokenizer, const Line& line, const chat::MaskOptions& mask,
                 bool split_turns, Result& result) {
  chat::Record record = chat::parse_record(parse_line(line.text), line.format);
  if (line.format == chat::Format::Prompts) {
    result.documents.push_back(chat::encode_prompt(tokenizer, record.example, mask));
    result.columns = base::json_text(record.columns) + "\n";
    return;
  }
  if (!split_turns || record.example.messages.empty()) {
    result.documents.push_back(chat::encode_example(tokenizer, record.example, mask));
    if (record.rejected) result.documents.push_back(chat::encode_example(tokenizer, *record.rejected, mask));
    return;
  }
  if (record.rejected) base::fail_user("--split-turns does not apply to preference pairs");
  chat::MaskOptions last = mask;
  last.loss = chat::Loss::Last;
  for (size_t count = 1; count <= record.example.messages.size(); ++count) {
    if (record.example.trainable[count - 1] == 0) continue;
    chat::Example turn = record.example;
    turn.messages.erase(turn.messages.begin() + static_cast<int64_t>(count), turn.messages.end());
    turn.trainable.assign(count, 0);
    turn.trainable.back() = 1;
    result.documents.push_back(chat::encode_example(tokenizer, turn, last));
  }
  if (result.documents.empty())
    base::fail_user("no token would be trained: no message of the assistant is left");
}

class ChatWriter {
 public:
  ChatWriter(const PrepareChatOptions& options, const chat::ChatTokenizer& tokenizer)
      : options_(options),
        tokenizer_(tokenizer),
        writer_(options.out / "tokens", tokenizer.tokens().vocab_size()) {}

  void add(const Line& line) {
    const auto kind = kind_of(line.format);
    if (prepared_.kind.empty()) prepared_.kind = kind;
    if (prepared_.kind != kind)
      base::fail_user("{}: {} after {}: prepare them into folders of their own", line.where, kind,
                      prepared_.kind);
    lines_.push_back(line);
    if (lines_.size() == kBatchLines) flush();
  }

  void flush() {
    std::vector<Result> results(lines_.size());
    const size_t share = std::max<size_t>(1, lines_.size() / (static_cast<size_t>(options_.threads) * 8));
    base::parallel_for(options_.threads, (lines_.size() + share - 1) / share, [&](size_t part) {
      for (size_t i = part * share; i < std::min(lines_.size(), (part + 1) * share); ++i) try {
          encode_line(tokenizer_, lines_[i], options_.source.mask, options_.split_turns, results[i]);
        } catch (const base::UserError& error) {
          results[i].problem = fmt::format("{}: {}", lines_[i].where, error.what());
        }
    });
    for (const Result& result : results) write(result);
    require_ends();
    lines_.clear();
  }

  PreparedChat finish() {
    flush();
    if (writer_.documents() == 0)
      base::fail_user("no example is left: {} lines cannot be used, {} documents are longer than {} tokens{}",
                      prepared_.damaged, prepared_.too_long, options_.max_tokens,
                      prepared_.first_damage.empty() ? "" : "; the first: " + prepared_.first_damage[0]);
    if (prepared_.kind == "prompts") base::write_file_atomically(options_.out / "columns.jsonl", columns_);
    writer_.finish();
    prepared_.documents = writer_.documents();
    prepared_.tokens = writer_.tokens();
    return prepared_;
  }

 private:
  void write(const Result& result) {
    ++prepared_.records;
    if (!result.problem.empty()) {
      if (!options_.skip_damaged)
        base::fail_user("{}; --damaged skip leaves such lines out and counts them", result.problem);
      ++prepared_.damaged;
      if (prepared_.first_damage.size() < 10) prepared_.first_damage.push_back(result.problem);
      return;
    }
    const auto too_long = [&](const chat::Encoded& document) {
      return options_.max_tokens > 0 && static_cast<int64_t>(document.ids.size()) > options_.max_tokens;
    };
    // Pairs stay together.
    if (prepared_.kind == "pairs" &&
        std::any_of(result.documents.begin(), result.documents.end(), too_long)) {
      ++prepared_.too_long;
      return;
    }
    for (const chat::Encoded& document : result.documents) {
      turns_ += document.turns;
      ended_ += document.ended;
      if (too_long(document)) {
        ++prepared_.too_long;
        continue;
      }
      prepared_.straddling += document.straddling;
      prepared_.trained += std::count(document.trained.begin(), document.trained.end(), 1);
      writer_.add_document(document.ids, document.trained);
      columns_ += result.columns;
    }
  }

  // A model that never learns to end its turn does not stop.
  void require_ends() {
    if (turns_ == 0 || ended_ > 0) return;
    if (!options_.source.mask.end_of_turn.empty())
      base::fail_user("no trained turn ends with '{}' (--end-of-turn)",
                      base::printable(options_.source.mask.end_of_turn));
    base::fail_user(
        "the template never trains a token that ends a turn: none of {} trained turns ends with a special "
        "token. "
        "Move the end-of-turn token into the generation block, or name the text that ends a turn with "
        "--end-of-turn",
        turns_);
  }

  const PrepareChatOptions& options_;
  const chat::ChatTokenizer& tokenizer_;
  data::MegatronWriter writer_;
  PreparedChat prepared_;
  std::vector<Line> lines_;
  std::string columns_;
  int64_t turns_ = 0, ended_ = 0;
};

chat::MaskOptions with_time(chat::MaskOptions mask) {
  if (mask.wall_seconds == 0) mask.wall_seconds = base::wall_seconds();
  return mask;
}

const char* loss_name(chat::Loss loss) {
  return loss == chat::Loss::All ? "all" : loss == chat::Loss::Last ? "last" : "assistant";
}

}  // namespace

PreparedChat prepare_chat(const PrepareChatOptions& given) {
  PrepareChatOptions options = given;
  options.source.mask = with_time(options.source.mask);
  const chat::ChatTokenizer tokenizer(options.source.tokenizer, options.source.chat_template);
  const auto files = chat_files(options.source.inputs);
  int64_t total = 0, done = 0;
  for (const base::Path& file : files) total += base::size_of_file(file);
  base::make_directories(options.out);
  const base::Path manifest = options.out / "manifest.json";
  for (const char* name : {"tokens.bin", "tokens.idx", "tokens.mask", "columns.jsonl", "manifest.json"})
    base::require_new_file("--out", options.out / name, options.overwrite);
  if (options.overwrite)
    for (const char* name : {"manifest.json", "columns.jsonl"}) base::remove_file(options.out / name);

  ChatWriter writer(options, tokenizer);
  Json sources = Json::array();
  for (const base::Path& file : files) {
    const std::string contents = base::read_file(file);
    sources.push_back(
        {{"path", file.string()},
         {"bytes", contents.size()},
         {"xxh3", fmt::format("{:016x}", base::checksum_of(std::as_bytes(std::span(contents))))}});
    for_each_line(contents, file.string(), options.source.format, [&](const Line& line) {
      writer.add(line);
      return true;
    });
    writer.flush();  // lines refer to this file's contents
    done += static_cast<int64_t>(contents.size());
    if (options.progress) options.progress(done, total);
  }
  PreparedChat prepared = writer.finish();
  prepared.files = static_cast<int64_t>(files.size());
  const Json record = {{"format", "megatron"},
                       {"kind", prepared.kind},
                       {"tokenizer", options.source.tokenizer},
                       {"vocab", tokenizer.tokens().vocab_size()},
                       {"chat_template", options.source.chat_template},
                       {"loss", loss_name(options.source.mask.loss)},
                       {"split_turns", options.split_turns},
                       {"time_of_strftime_now", options.source.mask.wall_seconds},
                       {"records", prepared.records},
                       {"documents", prepared.documents},
                       {"tokens", prepared.tokens},
                       {"trained_tokens", prepared.trained},
                       {"damaged_lines", prepared.damaged},
                       {"too_long", prepared.too_long},
                       {"tokens_across_a_cut", prepared.straddling},
                       {"sources", sources}};
  base::write_file_atomically(manifest, base::json_text(record, 2) + "\n");
  return prepared;
}

std::vector<chat::Encoded> encode_first(const ChatSource& source, size_t count) {
  const chat::ChatTokenizer tokenizer(source.tokenizer, source.chat_template);
  const chat::MaskOptions mask = with_time(source.mask);
  std::vector<chat::Encoded> encoded;
  for (const base::Path& file : chat_files(source.inputs)) {
    const std::string contents = base::read_file(file);
    for_each_line(contents, file.string(), source.format, [&](const Line& line) {
      if (encoded.size() >= count) return false;
      Result result;
      try {
        encode_line(tokenizer, line, mask, false, result);
      } catch (const base::UserError& error) {
        base::fail_user("{}: {}", line.where, error.what());
      }
      for (chat::Encoded& document : result.documents) encoded.push_back(std::move(document));
      return true;
    });
  }
  return encoded;
}

}  // namespace quintet::tools
