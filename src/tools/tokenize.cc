#include "tools/tokenize.h"

#include <fmt/ranges.h>

#include <charconv>
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

// Calls use(text) for every document of a file; never for a binary one.
template <class Use>
void for_each_document(const base::Path& file, Use use) {
  const text::DocumentFormat format;
  text::RecordReader reader({file}, format.columns());
  for (text::Record record; reader.next(record);) {
    const int64_t number = record.number;
    const text::Document document = text::document_of(std::move(record), format);
    if (document.outcome == text::Outcome::Damaged)
      throw base::UserError(text::damage_text(file, number, document.text));
    if (document.outcome == text::Outcome::Document) use(document.text);
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
  base::require_writable_file("--out", options.out);

  // A table for each thread's share of the files: counting is most of the work, and sums do not depend on
  // the order.
  const std::vector<base::Path> files = files_of(options.paths);
  const auto shares = static_cast<size_t>(std::max(1, options.threads));
  std::vector<tokenizer::WordCounts> counts(shares, tokenizer::WordCounts(*pattern));
  base::parallel_for(options.threads, shares, [&](size_t share) {
    for (size_t i = share; i < files.size(); i += shares)
      for_each_document(files[i], [&](const std::string& document) { counts[share].add(document); });
  });
  for (size_t i = 1; i < shares; ++i) counts[0].add(counts[i]);
  if (counts[0].bytes() == 0) base::fail_user("there is no text to train on in {} files", files.size());

  const std::string file = tokenizer::train_bpe(counts[0], train);
  base::write_file_atomically(options.out, file);
  return {static_cast<int64_t>(files.size()), counts[0].bytes(),
          static_cast<int64_t>(counts[0].words().size()), tokenizer::load_hf_tokenizer(file)->vocab_size()};
}

TokenCount count_tokens(const tokenizer::Tokenizer& tokenizer, std::span<const std::string> paths,
                        int threads) {
  const std::vector<base::Path> files = files_of(paths);
  std::vector<TokenCount> counts(files.size());
  base::parallel_for(threads, files.size(), [&](size_t i) {
    std::vector<int32_t> ids;
    for_each_document(files[i], [&](const std::string& document) {
      ids.clear();
      tokenizer.encode(document, ids);
      counts[i].files = 1;
      ++counts[i].documents;
      counts[i].bytes += static_cast<int64_t>(document.size());
      counts[i].tokens += static_cast<int64_t>(ids.size());
    });
  });
  TokenCount sum;
  for (const TokenCount& count : counts) {
    sum.files += count.files;
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
  return {{"type", tokenizer.name()}, {"vocab", tokenizer.vocab_size()}, {"special", special}};
}

}  // namespace quintet::tools
