// Text files as documents. A text file is one document, so is each record of a .jsonl, .json or .parquet file
// (text/record_reader.h), whose text is its "text" unless a format says otherwise. A folder stands for all
// such files below it, sorted by path, so the order is the same on every machine.
//
// A link to a file is that file: of several names of one file, it is read under the first that says what it
// holds (.jsonl, .json, .parquet), or else the first. So a cache whose snapshots link to blobs is read once.
//
// Skipped below a folder: names that match data.skip, links to folders, links to nothing, binary files
// (those with a NUL byte), token file pairs, empty files, and files that were read already. A pattern that
// ends in '/' is for folders only; one with another '/' is compared with the path below the folder, the
// others with the name. A file or folder given explicitly is never skipped, whatever its name; a file that
// cannot be used is then a UserError.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "config/recipe.h"
#include "data/corpus.h"
#include "text/document.h"
#include "tokenizer/tokenizer.h"

namespace quintet::data {

// What was read and what was skipped.
struct Reading {
  int64_t files = 0;                        // read
  std::vector<std::string> folders;         // skipped by data.skip
  int64_t names = 0;                        // files skipped by it
  std::vector<std::string> linked_folders;  // not followed
  int64_t dangling = 0, special = 0, token_files = 0, binary = 0, empty = 0, repeated = 0;
  int64_t other = 0;         // of a folder of conversations: files of other kinds
  int64_t plain_arrays = 0;  // read as text: arrays of JSON whose objects lack the field of the text
  int64_t damaged = 0;       // records
  std::string first_damage;

  // "12 files; skipped 2 folders (build, runs), 3 binary files"
  std::string text() const;
  // "2 folders (build, runs), 3 binary files"; empty when nothing was.
  std::string skipped() const;
};

// Patterns of names to skip, as data.skip has them.
using Skip = std::vector<std::string>;
inline Skip default_skip() { return config::Data{}.skip; }

struct TextOptions {
  text::DocumentFormat format;
  std::optional<int32_t> end;  // token after each document
  Skip skip = default_skip();
  bool skip_damaged = false;  // leave out records that cannot be used; else a UserError
};
// As the keys of [data] say. UserError.
TextOptions text_options(const config::Data& data, const tokenizer::Tokenizer& tokenizer);

// The files that `path` denotes, in order.
std::vector<base::Path> text_files(const base::Path& path, Reading* reading = nullptr,
                                   const Skip& skip = default_skip());

// Counts a file that is read as text although it is a JSON array.
void note_plain_array(const base::Path& file, text::FileKind kind, Reading& reading);

// The files of several paths, each once.
std::vector<base::Path> text_files(std::span<const base::Path> paths, Reading* reading, const Skip& skip);

// Tokenizes all documents below the paths. UserError, naming the paths, when there are no tokens.
Corpus read_text(std::span<const base::Path> paths, const tokenizer::Tokenizer& tokenizer,
                 Reading* reading = nullptr, const TextOptions& options = {});

// Loads data.path: a token file pair if it is one, text otherwise. A token file must fit the tokenizer's
// vocabulary.
Corpus load_corpus(const base::Path& path, const tokenizer::Tokenizer& tokenizer, Reading* reading = nullptr,
                   const TextOptions& options = {});

}  // namespace quintet::data
