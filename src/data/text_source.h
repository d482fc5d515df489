// Text on disk as documents. A text file is one document; each line of a .jsonl file is one (its "text" key).
// A folder means every text file below it, sorted by path, so the order is the same on every machine.
//
// Below a given folder these are passed over: names that begin with a dot, folders named build* or runs,
// files with a NUL byte (binary), token file pairs, empty files. A path given by name is never passed over:
// if it cannot be used that is a UserError.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "data/corpus.h"
#include "data/tokenizer.h"

namespace quintet::data {

// The files that `path` stands for, in order.
std::vector<base::Path> text_files(const base::Path& path);

// The documents of a .jsonl text. `name` is for messages. Blank lines are skipped; a line that is no object
// with a string "text" is a UserError with its line number.
std::vector<std::string> parse_jsonl(std::string_view contents, std::string_view name);

// All documents below the paths, tokenized. No tokens at all is a UserError that says what was looked at.
Corpus read_text(std::span<const base::Path> paths, const Tokenizer& tokenizer);

// What a recipe's data.path means: a token file pair if it is one, else text. A token file must fit the
// tokenizer's vocabulary.
Corpus load_corpus(const base::Path& path, const Tokenizer& tokenizer);

}  // namespace quintet::data
