// Conversations as documents: every line of a .jsonl file, object of a .json array or row of a .parquet file
// is an example. The tokenizer's chat template turns it into tokens, each flagged as trained or as context
// (chat/mask.h). A file's format is that of its first example. Files may be compressed
// (text/record_reader.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "chat/mask.h"
#include "data/corpus.h"
#include "data/text_source.h"
#include "text/record_reader.h"

namespace quintet::data {

struct ChatFormat {
  std::string format;  // of chat::format_names(); empty: detected
  chat::MaskOptions mask;
  bool split_turns = false;  // one document for each message of the assistant, which alone is trained
};

struct ChatLine {
  std::string text;   // a JSON object
  std::string where;  // FILE:LINE
  chat::Format format = chat::Format::Messages;
  std::string damage;  // why it cannot be read
};

// What became of a line.
struct ChatResult {
  std::vector<chat::Encoded> documents;
  std::string columns;  // of prompts: the other fields
  std::string problem;  // "FILE:LINE: reason", and no documents
};

// Reads lines in order. Lines of no known format before the first one that has one are damaged.
class ChatLines {
 public:
  ChatLines(std::vector<base::Path> files, const std::string& format);
  bool next(ChatLine& line);
  const text::RecordReader& reader() const { return reader_; }
  std::vector<text::FinishedFile> take_finished() { return reader_.take_finished(); }

 private:
  text::RecordReader reader_;
  std::optional<chat::Format> given_, known_;
  int64_t file_ = -1;
};

// The files of paths, each once: of a folder its .jsonl, .ndjson and .parquet files, and .json files of lines
// or arrays, also compressed ones, except what `skip` names. UserError if there are none, or for a named file
// of another kind.
std::vector<base::Path> chat_files(const std::vector<base::Path>& paths, Reading* reading = nullptr,
                                   const Skip& skip = default_skip());

// The format of each file, by its first line. UserError for preference pairs and prompts, which no loss over
// tokens trains.
std::vector<chat::Format> trained_formats(const std::vector<base::Path>& files, const std::string& format);

std::vector<ChatResult> encode_lines(const chat::ChatTokenizer& tokenizer, std::span<const ChatLine> lines,
                                     const ChatFormat& format, int threads);

// A model that never learns to end its turn does not stop: counts trained turns and those that end.
class TurnEnds {
 public:
  explicit TurnEnds(std::string end_of_turn) : end_of_turn_(std::move(end_of_turn)) {}
  void add(const chat::Encoded& document) { add(document.turns, document.ended); }
  void add(int64_t turns, int64_t ended) { turns_ += turns, ended_ += ended; }
  void require_some() const;  // UserError when no trained turn ends

 private:
  std::string end_of_turn_;
  int64_t turns_ = 0, ended_ = 0;
};

inline constexpr size_t kChatBatch = 4096;  // lines that are encoded together

struct ChatCorpus {
  Corpus corpus;
  std::string reading;  // "2 files, 1,204 conversations; 3 lines left out, the first: FILE:LINE: reason"
};
// All examples in memory, for training. Preference pairs and prompts are a UserError: no loss over tokens
// trains them. So is a line that cannot be used, unless such lines are skipped.
ChatCorpus read_chat(const std::vector<base::Path>& paths, const chat::ChatTokenizer& tokenizer,
                     const ChatFormat& format, const Skip& skip, bool skip_damaged, int threads);

}  // namespace quintet::data
