#include "data/chat_source.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/parallel_for.h"
#include "base/plural.h"
#include "base/printable.h"
#include "base/text.h"
#include "config/codes.h"
#include "text/json_file.h"

namespace quintet::data {
namespace {

using chat::Json;

Json parse_line(std::string_view text) {
  Json record = base::parse_ordered_json(text);
  if (record.is_discarded()) base::fail_user("{}", base::json_fault(text));
  return record;
}

void encode_line(const chat::ChatTokenizer& tokenizer, const ChatLine& line, const ChatFormat& format,
                 ChatResult& result) {
  if (!line.damage.empty()) throw base::UserError(line.damage);
  chat::Record record = chat::parse_record(parse_line(line.text), line.format);
  if (line.format == chat::Format::Prompts) {
    result.documents.push_back(chat::encode_prompt(tokenizer, record.example, format.mask));
    result.columns = base::json_text(record.columns) + "\n";
    return;
  }
  if (!format.split_turns || record.example.messages.empty()) {
    result.documents.push_back(chat::encode_example(tokenizer, record.example, format.mask));
    if (record.rejected)
      result.documents.push_back(chat::encode_example(tokenizer, *record.rejected, format.mask));
    return;
  }
  if (record.rejected) base::fail_user("--split-turns does not apply to preference pairs");
  chat::MaskOptions last = format.mask;
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

void require_trained(const ChatLine& line) {
  if (line.format != chat::Format::Preference && line.format != chat::Format::Prompts) return;
  base::fail_user(
      "{}: format '{}' has {}, and training on them is not supported yet: a run learns the tokens of "
      "conversations. {}",
      line.where, chat::format_name(line.format),
      line.format == chat::Format::Preference ? "preference pairs" : "prompts without answers",
      line.format == chat::Format::Preference
          ? "To train on the chosen answers, write each as \"messages\", or as \"prompt\" and \"completion\""
          : "Write each with its answer as \"messages\", or as \"prompt\" and \"completion\"");
}

}  // namespace

std::vector<chat::Format> trained_formats(const std::vector<base::Path>& files, const std::string& format) {
  std::vector<chat::Format> formats;
  for (const base::Path& file : files) {
    ChatLines lines({file}, format);
    ChatLine line;
    while (lines.next(line) && !line.damage.empty()) {
    }
    require_trained(line);
    formats.push_back(line.format);
  }
  return formats;
}

ChatLines::ChatLines(std::vector<base::Path> files, const std::string& format)
    : reader_(std::move(files), {}) {
  if (!format.empty()) given_ = chat::format_of_name(format);
}

bool ChatLines::next(ChatLine& line) {
  text::Record record;
  if (!reader_.next(record)) return false;
  line.text = std::move(record.bytes);
  line.where = fmt::format(
      "{}:{}", base::printable(reader_.files()[static_cast<size_t>(record.file)].string()), record.number);
  line.damage = std::move(record.damage);
  if (record.file != file_) known_ = given_;
  file_ = record.file;
  if (!known_ && line.damage.empty()) {
    try {
      known_ = chat::detect_format(parse_line(line.text));
    } catch (const base::UserError& error) {
      line.damage = error.what();
    }
  }
  line.format = known_.value_or(chat::Format::Messages);
  return true;
}

std::vector<base::Path> chat_files(const std::vector<base::Path>& paths, Reading* reading, const Skip& skip) {
  const auto is_chat = [](const base::Path& file, bool named) {
    if (!text::is_json(file)) return text::kind_of(file, {}) != text::FileKind::Text;
    const text::JsonShape shape = text::peek_json(file).shape;
    // A single object is one example, or, in a folder, rather a description of the others.
    return shape != text::JsonShape::Other && (named || shape != text::JsonShape::Single);
  };
  for (const base::Path& path : paths)
    if (base::file_exists(path) && !is_chat(path, true))
      base::fail_user(
          "'{}' {}: conversations are JSON lines, one object each, an array of objects, or rows",
          base::printable(path.string()),
          text::is_json(path) ? "does not begin with an object" : "is not a .jsonl, .json or .parquet file");
  Reading ignored;
  Reading& r = reading != nullptr ? *reading : ignored;
  std::vector<base::Path> files = text_files(paths, &r, skip);
  const auto is_named = [&](const base::Path& file) { return std::ranges::count(paths, file) > 0; };
  r.other += static_cast<int64_t>(
      std::erase_if(files, [&](const base::Path& file) { return !is_chat(file, is_named(file)); }));
  if (files.empty())
    config::fail_coded(config::kDataExists,
                       "there are no .jsonl, .json or .parquet files of conversations in the input{}",
                       r.skipped().empty() ? "" : "; skipped " + r.skipped());
  return files;
}

std::vector<ChatResult> encode_lines(const chat::ChatTokenizer& tokenizer, std::span<const ChatLine> lines,
                                     const ChatFormat& format, int threads) {
  std::vector<ChatResult> results(lines.size());
  const size_t share = std::max<size_t>(1, lines.size() / (static_cast<size_t>(threads) * 8));
  base::parallel_for(threads, (lines.size() + share - 1) / share, [&](size_t part) {
    for (size_t i = part * share; i < std::min(lines.size(), (part + 1) * share); ++i) try {
        encode_line(tokenizer, lines[i], format, results[i]);
      } catch (const base::UserError& error) {
        results[i] = {.documents = {}, .columns = {}, .problem = ""};
        results[i].problem = fmt::format("{}: {}", lines[i].where, error.what());
      }
  });
  return results;
}

void TurnEnds::require_some() const {
  if (turns_ == 0 || ended_ > 0) return;
  if (!end_of_turn_.empty())
    base::fail_user("no trained turn ends with '{}' (--end-of-turn, data.chat.end_of_turn)",
                    base::printable(end_of_turn_));
  base::fail_user(
      "the template never trains a token that ends a turn: none of {} trained turns ends with a special "
      "token. Move the end-of-turn token into the generation block, or name the text that ends a turn "
      "(--end-of-turn, data.chat.end_of_turn in a recipe)",
      turns_);
}

ChatCorpus read_chat(const std::vector<base::Path>& paths, const chat::ChatTokenizer& tokenizer,
                     const ChatFormat& format, const Skip& skip, bool skip_damaged, int threads) {
  Reading found;
  const std::vector<base::Path> files = chat_files(paths, &found, skip);
  std::string name;
  for (const base::Path& path : paths) name += (name.empty() ? "" : ", ") + path.string();
  CorpusBuilder corpus(name, tokenizer.tokens().vocab_size());
  TurnEnds ends(format.mask.end_of_turn);
  int64_t examples = 0, damaged = 0;
  std::string first_damage;
  ChatLines lines(files, format.format);
  std::vector<ChatLine> batch;
  const auto encode = [&] {
    for (const ChatResult& result : encode_lines(tokenizer, batch, format, threads)) {
      if (!result.problem.empty()) {
        if (!skip_damaged)
          base::fail_user("{}; data.damaged = \"skip\" leaves such lines out and counts them",
                          result.problem);
        if (damaged++ == 0) first_damage = result.problem;
        continue;
      }
      ++examples;
      for (const chat::Encoded& document : result.documents) {
        ends.add(document);
        corpus.add_document(document.ids, document.trained);
      }
    }
    ends.require_some();
    batch.clear();
  };
  for (ChatLine line; lines.next(line);) {
    require_trained(line);
    batch.push_back(std::move(line));
    if (batch.size() == kChatBatch) encode();
  }
  encode();
  if (corpus.tokens() == 0)
    config::fail_coded(config::kDataHasLabels, "no conversations in '{}': {} cannot be used{}", name,
                       base::counted(damaged, "line"),
                       first_damage.empty() ? "" : "; the first: " + first_damage);
  std::string reading = base::counted(files.size(), "file") + ", " + base::counted(examples, "conversation");
  if (damaged > 0)
    reading += fmt::format("; {} left out, the first: {}", base::counted(damaged, "line"), first_damage);
  if (!found.skipped().empty()) reading += "; skipped " + found.skipped();
  return {corpus.finish(), std::move(reading)};
}

}  // namespace quintet::data
