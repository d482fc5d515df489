#include "tools/check_tokens.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "base/parallel_for.h"
#include "base/printable.h"
#include "data/block_checksums.h"
#include "data/foreign_file.h"
#include "data/npy_file.h"
#include "data/open_corpus.h"
#include "data/token_file.h"
#include "tokenizer/tokenizer.h"

namespace quintet::tools {
namespace {

constexpr int64_t kTogether = 256;  // blocks between two reports

std::vector<base::Path> files_of(const std::vector<std::string>& inputs) {
  std::vector<base::Path> files;
  for (const std::string& input : inputs) {
    if (!base::file_exists(input) && !base::directory_exists(input) && !base::file_exists(input + ".idx"))
      base::fail_user("there is no file or folder '{}'", base::printable(input));
    if (data::is_npy_file(input)) {
      files.emplace_back(input);
      continue;
    }
    const std::vector<base::Path> found = data::token_files({base::Path(input)});
    if (found.empty())
      base::fail_user(
          "'{}' is neither a token file (.bin with or without .idx, .npy) nor a folder of them; text is "
          "checked as it is read",
          base::printable(input));
    files.insert(files.end(), found.begin(), found.end());
  }
  return files;
}

// What the checksums of its blocks are found by.
base::Path prefix_of(const base::Path& file) {
  return data::is_npy_file(file) ? file : data::token_file_prefix(file);
}

class Checker {
 public:
  explicit Checker(const TokenCheckOptions& options)
      : options_(options), tokenizer_(tokenizer::load_tokenizer(options.tokenizer)) {}

  std::vector<CheckedFile> check() {
    const std::vector<base::Path> files = files_of(options_.inputs);
    std::vector<data::Corpus> corpora;
    for (const base::Path& file : files) {
      corpora.push_back(corpus_of(file));
      total_ += std::ssize(corpora.back().bytes());
    }
    std::vector<CheckedFile> checked;
    for (size_t i = 0; i < files.size(); ++i) checked.push_back(check(files[i], corpora[i]));
    return checked;
  }

 private:
  data::Corpus corpus_of(const base::Path& file) const {
    if (data::is_npy_file(file)) return data::open_npy_file(file, tokenizer_->vocab_size());
    if (auto foreign = data::open_foreign_file(file, tokenizer_->vocab_size())) return *std::move(foreign);
    data::Corpus corpus = data::open_token_file(file);
    corpus.require_vocab(tokenizer_->vocab_size());
    return corpus;
  }

  CheckedFile check(const base::Path& file, const data::Corpus& corpus) {
    const int64_t each = data::kChecksumBlock / static_cast<int64_t>(corpus.width());  // tokens
    const int64_t blocks = (corpus.tokens() + each - 1) / each;
    std::vector<int32_t> largest(static_cast<size_t>(blocks), 0);
    for (int64_t first = 0; first < blocks; first += kTogether) {
      const int64_t count = std::min(kTogether, blocks - first);
      base::parallel_for(options_.threads, static_cast<size_t>(count), [&](size_t i) {
        thread_local std::vector<int32_t> ids;
        const int64_t begin = (first + static_cast<int64_t>(i)) * each;
        ids.resize(static_cast<size_t>(std::min(each, corpus.tokens() - begin)));
        corpus.read(begin, ids);
        largest[static_cast<size_t>(first) + i] = *std::ranges::max_element(ids);
      });
      if (options_.progress)
        options_.progress(
            done_ + std::min((first + count) * data::kChecksumBlock, std::ssize(corpus.bytes())), total_);
    }
    corpus.check_flags();
    done_ += std::ssize(corpus.bytes());
    CheckedFile out{.path = file, .tokens = corpus.tokens(), .largest = *std::ranges::max_element(largest)};
    if (!corpus.ids_are_known()) out.written = write_sums(file, corpus, out.largest);
    return out;
  }

  base::Path write_sums(const base::Path& file, const data::Corpus& corpus, int32_t largest) const {
    base::Path path = prefix_of(file).string() + ".json";
    if (base::file_exists(path))
      base::fail_user("'{}' is where the checksums of '{}' belong, but has none: move it away", path.string(),
                      file.string());
    nlohmann::ordered_json json = {
        {"checked_by", "quintet data check"},
        {"tokens", corpus.tokens()},
        {"largest_id", largest},
        {"block_bytes", data::kChecksumBlock},
        {"block_xxh3", data::text_of_sums(data::block_sums(corpus.bytes(), options_.threads))}};
    base::write_file_atomically(path, base::json_text(json, 1) + "\n");
    return path;
  }

  const TokenCheckOptions& options_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  int64_t done_ = 0, total_ = 0;
};

}  // namespace

std::vector<CheckedFile> check_token_files(const TokenCheckOptions& options) {
  return Checker(options).check();
}

}  // namespace quintet::tools
