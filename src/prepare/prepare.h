// The work behind `quintet prepare`: raw text or conversations to a folder of tokens that runs map into
// memory.
//
//   DIR/tokens.bin, tokens.idx   Megatron's pair, a document per text or example; of pairs two: chosen and
//                                rejected
//   DIR/tokens.mask              of conversations: a byte per token, 1 where it is trained
//   DIR/columns.jsonl            of prompts: the other fields of each, for rewards
//   DIR/<name>.npy               of each of Options::columns: a number per document
//   DIR/manifest.json            sources, tokenizer, counts, filters; written last
//   DIR/.quintet-prepare/        while it lasts: finished shards, for the same command after a kill
//
// Input is read in order and cut into shards of equal size. A shard is encoded on all threads and written;
// when all are, duplicates are found among their documents and the rest is joined. What is written depends on
// inputs and options alone: not on threads, memory or interruptions.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "chat/mask.h"

namespace quintet::prepare {

// Conversations instead of text.
struct ChatInput {
  std::string chat_template;  // a file, or the name of one of the tokenizer's; empty: the tokenizer's choice
  std::string format;         // of chat::format_names(); empty: detected from the first line of each file
  chat::MaskOptions mask;
  bool split_turns = false;  // one document for each message of the assistant, which alone is trained
};

enum class Stage : uint8_t {
  Reading,  // inputs to shards
  Joining,  // shards to token files
};

struct Options {
  std::vector<std::string> inputs;  // files and folders, as data.path has them
  std::string tokenizer;
  base::Path out;                          // the folder
  std::string field = "text";              // of JSON lines and Parquet rows
  std::string text_template;               // instead of a field: "{title}\n{body}"
  std::vector<std::string> where;          // conditions, see text::Condition
  std::vector<std::string> columns;        // fields whose numbers are kept, one per document
  std::string end;                         // token after each document; empty: none
  int64_t min_tokens = 0, max_tokens = 0;  // of a document, the end included; 0: no limit
  bool exact = false;                      // drop documents whose text was seen
  double near = 0;                         // drop documents at least this similar to one before; 0: none
  bool overwrite = false;
  bool skip_damaged = false;      // else a damaged record ends the work
  std::optional<ChatInput> chat;  // then without field, text_template and end
  int threads = 1;
  int64_t memory = int64_t{1} << 30;         // bytes to sort in; does not change the result
  int64_t shard_bytes = int64_t{256} << 20;  // of decompressed input
  // Called now and then, with bytes of input (Reading) or records (Joining).
  std::function<void(Stage stage, int64_t done, int64_t total)> progress;
};

struct Prepared {
  nlohmann::ordered_json manifest;
  int64_t shards = 0;         // of this run's input
  int64_t shards_reused = 0;  // that an earlier, interrupted run had finished
  bool was_complete = false;  // an earlier run with the same inputs and options had done everything
  // Text files, which have no fields, beside files that an option applies to: "--where", "--field",
  // "--template".
  int64_t files_kept_whole = 0;
  std::string kept_whole_option;
  std::string skipped;       // what was left out below folders, as data::Reading says it
  int64_t plain_arrays = 0;  // files that are JSON arrays without the field, and were read as text
};

Prepared prepare(const Options& options);

inline constexpr const char* kManifest = "manifest.json";
inline constexpr const char* kWorkFolder = ".quintet-prepare";

}  // namespace quintet::prepare
