// What a record of the input becomes: the document of a text, or those of a conversation.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/checksum.h"
#include "data/text_source.h"
#include "prepare/shard.h"
#include "text/document.h"
#include "text/record_reader.h"
#include "tokenizer/tokenizer.h"

namespace quintet::prepare {

struct Options;

struct Source {
  base::Path path;
  bool named = false;  // as a file, not found in a folder
  text::FileKind kind = text::FileKind::Text;
};

struct EncodedDocument {
  std::vector<int32_t> ids;
  std::vector<uint8_t> trained;  // a flag per id, of encoders with flags
  std::string text;              // what duplicates are compared by
  std::string columns;           // a line, of encoders with columns
  int64_t turns = 0, ended = 0;  // trained parts, and those that end with the end of a turn
  int64_t straddling = 0;        // cuts between trained and untrained text within a token
};

struct EncodedRecord {
  text::Outcome outcome = text::Outcome::Document;
  std::string why;                         // it is damaged, or names what was read wrongly
  std::vector<EncodedDocument> documents;  // none of an empty text
  bool together = false;                   // a limit that one of the documents breaks drops all of them
  std::vector<double> numbers;             // of Options::columns
};

class Encoder {
 public:
  virtual ~Encoder() = default;
  virtual const tokenizer::Tokenizer& tokenizer() const = 0;
  virtual const std::vector<Source>& sources() const = 0;
  virtual const data::Reading& reading() const = 0;  // what was left out below folders
  // The columns that are read of a Parquet file; empty: all.
  virtual std::vector<std::string> fields() const = 0;
  // A pure function, called by several threads.
  virtual void encode(const text::Record& record, EncodedRecord& out) const = 0;

  virtual bool has_flags() const { return false; }    // documents in groups, with trained flags
  virtual bool has_columns() const { return false; }  // lines for columns.jsonl
  virtual std::string noun() const { return "document"; }
  // Before the first record: a folder in which this run, and one that continues it, find what they must
  // agree on.
  virtual void begin(const base::Path& /*work*/) {}
  // UserError when what was encoded so far cannot be right.
  virtual void check(const Counts& /*so_far*/) const {}
  // What the output depends on beside the options for all input.
  virtual void add_to_plan(nlohmann::ordered_json& /*plan*/) const {}
  virtual void add_to_manifest(nlohmann::ordered_json& manifest, const Counts& counts) const = 0;
  // A UserError of this kind of input.
  [[noreturn]] virtual void refuse(const std::string& message) const = 0;
};

bool is_inside(const base::Path& file, const base::Path& folder);
// UserError unless there are any; `any_inside`: some are inside the folder that is written.
void require_sources(const Options& options, const std::vector<Source>& sources, bool any_inside);

// Both look for the files of the input, outside the folder that is written.
std::unique_ptr<Encoder> make_text_encoder(const Options& options);
std::unique_ptr<Encoder> make_chat_encoder(const Options& options);

}  // namespace quintet::prepare
