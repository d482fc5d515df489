#include "tools/prepare_chat.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/file_system.h"
#include "base/json.h"
#include "base/output_path.h"
#include "base/plural.h"
#include "base/printable.h"
#include "data/chat_source.h"
#include "data/foreign_file.h"
#include "tokenizer/files.h"
#include "tokenizer/tokenizer.h"

namespace quintet::tools {
namespace {

using chat::Json;

std::string_view kind_of(chat::Format format) {
  if (format == chat::Format::Preference) return "pairs";
  return format == chat::Format::Prompts ? "prompts" : "examples";
}

class ChatWriter {
 public:
  ChatWriter(const PrepareChatOptions& options, const chat::ChatTokenizer& tokenizer)
      : options_(options),
        tokenizer_(tokenizer),
        format_{options.source.format, options.source.mask, options.split_turns},
        writer_(options.out / "tokens", tokenizer.tokens().vocab_size()),
        ends_(options.source.mask.end_of_turn) {}

  void add(data::ChatLine&& line) {
    const auto kind = kind_of(line.format);
    if (prepared_.kind.empty()) prepared_.kind = kind;
    if (prepared_.kind != kind)
      base::fail_user("{}: {} after {}: prepare them into folders of their own", line.where, kind,
                      prepared_.kind);
    lines_.push_back(std::move(line));
    if (lines_.size() == data::kChatBatch) flush();
  }

  void flush() {
    for (const data::ChatResult& result : data::encode_lines(tokenizer_, lines_, format_, options_.threads))
      write(result);
    ends_.require_some();
    lines_.clear();
  }

  PreparedChat finish() {
    flush();
    if (writer_.documents() == 0)
      base::fail_user("no example is left: {} cannot be used, {} longer than {}{}",
                      base::counted(prepared_.damaged, "line"),
                      base::counted(prepared_.too_long, "document is", "documents are"),
                      base::counted(options_.max_tokens, "token"),
                      prepared_.first_damage.empty() ? "" : "; the first: " + prepared_.first_damage[0]);
    if (prepared_.kind == "prompts") base::write_file_atomically(options_.out / "columns.jsonl", columns_);
    writer_.finish();
    prepared_.documents = writer_.documents();
    prepared_.tokens = writer_.tokens();
    return prepared_;
  }

 private:
  void write(const data::ChatResult& result) {
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
      ends_.add(document);
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

  const PrepareChatOptions& options_;
  const chat::ChatTokenizer& tokenizer_;
  data::ChatFormat format_;
  data::MegatronWriter writer_;
  data::TurnEnds ends_;
  PreparedChat prepared_;
  std::vector<data::ChatLine> lines_;
  std::string columns_;
};

chat::MaskOptions with_time(chat::MaskOptions mask) {
  if (mask.wall_seconds == 0) mask.wall_seconds = base::wall_seconds();
  return mask;
}

const char* loss_name(chat::Loss loss) {
  return loss == chat::Loss::All ? "all" : loss == chat::Loss::Last ? "last" : "assistant";
}

PreparedChat prepare_into(const PrepareChatOptions& given) {
  PrepareChatOptions options = given;
  options.source.mask = with_time(options.source.mask);
  const chat::ChatTokenizer tokenizer(options.source.tokenizer, options.source.chat_template);
  const auto files = data::chat_files({options.source.inputs.begin(), options.source.inputs.end()});
  int64_t total = 0;
  for (const base::Path& file : files) total += base::size_of_file(file);
  base::make_directories(options.out);
  const base::Path manifest = options.out / "manifest.json";
  for (const char* name : {"tokens.bin", "tokens.idx", "tokens.mask", "columns.jsonl", "manifest.json"})
    base::require_new_file("--out", options.out / name, options.overwrite);
  if (options.overwrite)
    for (const char* name : {"manifest.json", "columns.jsonl"}) base::remove_file(options.out / name);

  ChatWriter writer(options, tokenizer);
  data::ChatLines lines(files, options.source.format);
  for (data::ChatLine line; lines.next(line);) {
    writer.add(std::move(line));
    if (options.progress) options.progress(lines.reader().consumed(), total);
  }
  Json sources = Json::array();
  for (const text::FinishedFile& finished : lines.take_finished()) {
    const base::Path& file = files[static_cast<size_t>(finished.file)];
    sources.push_back({{"path", file.string()}, {"bytes", base::size_of_file(file)}});
    if (finished.checksum) sources.back()["xxh3"] = fmt::format("{:016x}", *finished.checksum);
  }
  PreparedChat prepared = writer.finish();
  prepared.files = static_cast<int64_t>(files.size());
  const Json record = {{"format", "megatron"},
                       {"kind", prepared.kind},
                       {"tokenizer",
                        {{"path", options.source.tokenizer},
                         {"vocab", tokenizer.tokens().vocab_size()},
                         {"xxh3", tokenizer::fingerprint(options.source.tokenizer)},
                         {"tokens", tokenizer::vocabulary_hash(tokenizer.tokens())}}},
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

}  // namespace

PreparedChat prepare_chat(const PrepareChatOptions& options) {
  const bool existed = base::file_exists(options.out) || base::directory_exists(options.out);
  try {
    return prepare_into(options);
  } catch (const base::UserError&) {
    if (!existed && base::directory_exists(options.out) && base::list_folder(options.out).empty())
      base::FileSystem::real().remove_directory(options.out);
    throw;
  }
}

std::vector<chat::Encoded> encode_first(const ChatSource& source, size_t count) {
  const chat::ChatTokenizer tokenizer(source.tokenizer, source.chat_template);
  const chat::MaskOptions mask = with_time(source.mask);
  std::vector<chat::Encoded> encoded;
  data::ChatLines lines(data::chat_files({source.inputs.begin(), source.inputs.end()}), source.format);
  for (data::ChatLine line; encoded.size() < count && lines.next(line);) {
    const data::ChatFormat format{source.format, mask, false};
    data::ChatResult result = std::move(data::encode_lines(tokenizer, std::span(&line, 1), format, 1)[0]);
    if (!result.problem.empty()) throw base::UserError(result.problem);
    for (chat::Encoded& document : result.documents) encoded.push_back(std::move(document));
  }
  return encoded;
}

}  // namespace quintet::tools
