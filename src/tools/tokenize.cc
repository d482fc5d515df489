#include "tools/tokenize.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <future>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/output_path.h"
#include "base/parallel_for.h"
#include "base/printable.h"
#include "data/text_source.h"
#include "text/document.h"
#include "tokenizer/expressions.h"
#include "tokenizer/train.h"

namespace quintet::tools {
namespace {

constexpr std::pair<const char*, std::string_view> kPatterns[] = {{"gpt2", tokenizer::kGpt2},
                                                                  {"llama3", tokenizer::kLlama3},
                                                                  {"qwen2", tokenizer::kQwen2},
                                                                  {"o200k", tokenizer::kO200k},
                                                                  {"tekken", tokenizer::kTekken}};

std::vector<base::Path> files_of(std::span<const std::string> paths) {
  std::vector<base::Path> files;
  for (const std::string& path : paths)
    for (const base::Path& file : data::text_files(path)) files.push_back(file);
  return files;
}

// Calls use(share, file, text) for every document of the files, in no particular order, with share < threads;
// calls of one share do not overlap. Records of any file go to all threads, so that one large file occupies
// them too. Binary files are passed over.
template <class Use>
void for_each_document(const std::vector<base::Path>& files, int threads, Use use) {
  constexpr int64_t kBatchBytes = int64_t{32} << 20;
  const text::DocumentFormat format;
  text::RecordReader reader(files, format.columns());
  const auto read = [&] {
    std::vector<text::Record> batch;
    for (int64_t bytes = 0; bytes < kBatchBytes;) {
      if (text::Record record; reader.next(record)) {
        bytes += static_cast<int64_t>(record.bytes.size()) + 64;
        batch.push_back(std::move(record));
      } else {
        break;
      }
    }
    return batch;
  };
  for (std::vector<text::Record> batch = read(); !batch.empty();) {
    auto ahead = std::async(std::launch::async, read);
    const auto shares = static_cast<size_t>(threads);
    std::atomic<size_t> next{0};
    std::mutex mutex;
    size_t damaged_at = batch.size();  // the first one is reported, whichever thread finds one first
    std::string damage;
    base::parallel_for(threads, shares, [&](size_t share) {
      for (size_t i; (i = next++) < batch.size();) {
        const auto file = static_cast<size_t>(batch[i].file);
        const int64_t number = batch[i].number;
        const text::Document document = text::document_of(std::move(batch[i]), format);
        if (document.outcome == text::Outcome::Damaged) {
          const std::lock_guard lock(mutex);
          next = batch.size();
          if (i < damaged_at) damaged_at = i, damage = text::damage_text(files[file], number, document.text);
        }
        if (document.outcome == text::Outcome::Document) use(share, file, document.text);
      }
    });
    if (damaged_at < batch.size()) throw base::UserError(damage);
    batch = ahead.get();
  }
}

}  // namespace

std::vector<std::string> tokenizer_patterns() {
  std::vector<std::string> names;
  for (const auto& [name, expression] : kPatterns) names.emplace_back(name);
  return names;
}

TrainedTokenizer train_tokenizer(const TrainTokenizerOptions& options) {
  tokenizer::TrainOptions train{options.vocab, options.special, {}};
  for (const auto& [name, expression] : kPatterns)
    if (options.pattern == name) train.expression = expression;
  const auto pattern = tokenizer::known_pattern(train.expression);
  QUINTET_CHECK(pattern, "the pattern {} is offered, but is not known", options.pattern);
  base::require_new_file("--out", options.out, options.overwrite);
  for (size_t i = 0; i < options.special.size(); ++i)
    if (std::find(options.special.begin(), options.special.begin() + static_cast<ptrdiff_t>(i),
                  options.special[i]) != options.special.begin() + static_cast<ptrdiff_t>(i))
      base::fail_user("--special {} is given twice", base::printable(options.special[i]));

  // A table for each thread: counting is most of the work, and sums do not depend on the order.
  const std::vector<base::Path> files = files_of(options.paths);
  const auto shares = static_cast<size_t>(std::max(1, options.threads));
  std::vector<tokenizer::WordCounts> counts(shares, tokenizer::WordCounts(*pattern));
  for_each_document(files, static_cast<int>(shares),
                    [&](size_t share, size_t, const std::string& document) { counts[share].add(document); });
  for (size_t i = 1; i < shares; ++i) counts[0].add(counts[i]);
  if (counts[0].bytes() == 0)
    base::fail_user("there is no text to train on: {} file{} read, all empty or binary", files.size(),
                    files.size() == 1 ? "" : "s");

  const std::string file = tokenizer::train_bpe(counts[0], train);
  base::write_file_atomically(options.out, file);
  return {static_cast<int64_t>(files.size()), counts[0].bytes(),
          static_cast<int64_t>(counts[0].words().size()), tokenizer::load_hf_tokenizer(file)->vocab_size()};
}

TokenCount count_tokens(const tokenizer::Tokenizer& tokenizer, std::span<const std::string> paths,
                        int threads) {
  const std::vector<base::Path> files = files_of(paths);
  std::vector<TokenCount> counts(static_cast<size_t>(std::max(1, threads)));
  std::vector<std::atomic<bool>> has_text(files.size());
  for_each_document(files, std::max(1, threads), [&](size_t share, size_t file, const std::string& document) {
    thread_local std::vector<int32_t> ids;
    ids.clear();
    tokenizer.encode(document, ids);
    has_text[file] = true;
    ++counts[share].documents;
    counts[share].bytes += static_cast<int64_t>(document.size());
    counts[share].tokens += static_cast<int64_t>(ids.size());
  });
  TokenCount sum;
  sum.files = std::count(has_text.begin(), has_text.end(), true);
  for (const TokenCount& count : counts) {
    sum.documents += count.documents;
    sum.bytes += count.bytes;
    sum.tokens += count.tokens;
  }
  return sum;
}

std::string encode_text(const tokenizer::Tokenizer& tokenizer, std::string_view text, bool by_line,
                        bool special) {
  std::string out;
  const auto add = [&](std::string_view one) {
    std::vector<int32_t> ids;
    tokenizer.encode(one, ids, special);
    out += fmt::format("{}\n", fmt::join(ids, " "));
  };
  if (!by_line) add(text);
  while (by_line && !text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    add(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

std::vector<int32_t> parse_ids(std::string_view text) {
  std::vector<int32_t> ids;
  while (true) {
    const size_t begin = text.find_first_not_of(" \t\r\n,[]");
    if (begin == std::string_view::npos) return ids;
    text.remove_prefix(begin);
    const std::string_view word = text.substr(0, text.find_first_of(" \t\r\n,[]"));
    int32_t id = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || end != word.data() + word.size())
      base::fail_user("'{}' (number {}) is not a token id", base::printable(word.substr(0, 40)),
                      ids.size() + 1);
    ids.push_back(id);
    text.remove_prefix(word.size());
  }
}

nlohmann::ordered_json describe_tokenizer(const tokenizer::Tokenizer& tokenizer) {
  nlohmann::ordered_json special = nlohmann::ordered_json::array();
  for (int64_t id = 0; id < tokenizer.vocab_size(); ++id)
    if (tokenizer.is_special(static_cast<int32_t>(id)))
      special.push_back({{"id", id}, {"token", tokenizer.token(static_cast<int32_t>(id))}});
  return {{"type", to_string(tokenizer.kind())}, {"vocab", tokenizer.vocab_size()}, {"special", special}};
}

}  // namespace quintet::tools
