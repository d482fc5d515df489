#include "data/open_corpus.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "data/arrow_file.h"
#include "data/foreign_file.h"
#include "data/npy_file.h"
#include "data/text_source.h"
#include "data/token_file.h"

namespace quintet::data {
namespace {

Corpus open_tokens(const base::Path& path, const tokenizer::Tokenizer& tokenizer, int64_t checked_tokens) {
  if (auto foreign = open_foreign_file(path, tokenizer.vocab_size())) return *std::move(foreign);
  Corpus corpus = load_corpus(path, tokenizer);
  if (corpus.tokens() <= checked_tokens) verify_token_file(path);
  return corpus;
}

// The prefixes of token files in a folder that has nothing else but their side files; else nothing.
std::vector<base::Path> prepared_in(const base::Path& folder) {
  std::vector<base::Path> prefixes;
  for (const base::Path& file : base::list_files(folder, [](const base::Path&) { return false; })) {
    const auto extension = file.extension();
    if (extension == ".idx")
      prefixes.push_back(token_file_prefix(file));
    else if (extension != ".bin" && extension != ".mask" && extension != ".json")
      return {};
  }
  return prefixes;
}

}  // namespace

Opened open_corpus(const std::vector<base::Path>& paths, const tokenizer::Tokenizer& tokenizer,
                   int64_t checked_tokens, const TextOptions& options) {
  if (paths.size() == 1) {
    const base::Path& path = paths[0];
    if (is_npy_file(path)) return {open_npy_file(path, tokenizer.vocab_size()), {}};
    if (is_token_file(path)) return {open_tokens(path, tokenizer, checked_tokens), {}};
    if (base::directory_exists(path)) {
      if (is_datasets_folder(path)) return read_datasets_folder(path, tokenizer);
      const std::vector<base::Path> prepared = prepared_in(path);
      if (prepared.size() > 1) {
        std::vector<std::string> names;
        for (const base::Path& p : prepared) names.push_back(p.filename().string());
        base::fail_user("'{}' has {} token files ({}): name one of them, or all in data.blend", path.string(),
                        prepared.size(), fmt::join(names, ", "));
      }
      if (prepared.size() == 1) return {open_tokens(prepared[0], tokenizer, checked_tokens), {}};
    }
  }
  for (const base::Path& path : paths)
    if (is_token_file(path) || is_npy_file(path) ||
        (base::directory_exists(path) && is_datasets_folder(path)))
      base::fail_user(
          "data.path lists {} paths, and '{}' is a token file or a datasets folder, which must be the only "
          "path; "
          "data.blend takes several",
          paths.size(), path.string());
  Reading files;
  Corpus corpus = read_text(paths, tokenizer, &files, options);
  return {std::move(corpus), files.text()};
}

}  // namespace quintet::data
