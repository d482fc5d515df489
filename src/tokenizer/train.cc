#include "tokenizer/train.h"

#include <algorithm>
#include <queue>
#include <set>

#include "tokenizer/json_field.h"
#include "tokenizer/model.h"
#include "tokenizer/unicode.h"

namespace quintet::tokenizer {
namespace {

struct Word {
  std::vector<int32_t> symbols;
  int64_t count;
};

uint64_t pair_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// How often each pair of neighbours occurs, and in which words.
class Pairs {
 public:
  void change(uint64_t pair, int64_t by, size_t word) {
    Entry& entry = entries_[pair];
    entry.count += by;
    if (by > 0 && (entry.words.empty() || entry.words.back() != word)) entry.words.push_back(word);
  }
  int64_t count(uint64_t pair) const {
    const auto found = entries_.find(pair);
    return found == entries_.end() ? 0 : found->second.count;
  }
  // The words that may hold the pair, each once; the pair is forgotten.
  std::vector<size_t> take(uint64_t pair) {
    std::vector<size_t> words = std::move(entries_[pair].words);
    entries_.erase(pair);
    std::sort(words.begin(), words.end());
    words.erase(std::unique(words.begin(), words.end()), words.end());
    return words;
  }
  template <class Each>
  void for_each(Each&& each) const {
    for (const auto& [pair, entry] : entries_) each(pair, entry.count);
  }

 private:
  struct Entry {
    int64_t count = 0;
    std::vector<size_t> words;
  };
  std::unordered_map<uint64_t, Entry> entries_;
};

struct Candidate {
  int64_t count;
  uint64_t pair;
  bool operator<(const Candidate& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

// Joins the pair wherever it occurs in the word. Pairs that come to be are put into `grown`.
void join(size_t index, Word& word, int32_t left, int32_t right, int32_t joined, Pairs& pairs,
          std::set<uint64_t>& grown) {
  std::vector<int32_t>& s = word.symbols;
  size_t out = 0;
  for (size_t in = 0; in < s.size(); ++in) {
    if (in + 1 >= s.size() || s[in] != left || s[in + 1] != right) {
      s[out++] = s[in];
      continue;
    }
    if (out > 0) {
      pairs.change(pair_of(s[out - 1], left), -word.count, index);
      pairs.change(pair_of(s[out - 1], joined), word.count, index);
      grown.insert(pair_of(s[out - 1], joined));
    }
    if (in + 2 < s.size()) {
      pairs.change(pair_of(right, s[in + 2]), -word.count, index);
      pairs.change(pair_of(joined, s[in + 2]), word.count, index);
      grown.insert(pair_of(joined, s[in + 2]));
    }
    s[out++] = joined;
    ++in;
  }
  s.resize(out);
}

std::string file_text(const TrainOptions& options, const std::vector<std::string>& tokens,
                      const std::vector<std::pair<int32_t, int32_t>>& merges) {
  using Ordered = nlohmann::ordered_json;
  Ordered added = Ordered::array(), vocab = Ordered::object(), pairs = Ordered::array();
  for (size_t i = 0; i < options.special.size(); ++i)
    added.push_back({{"id", i},
                     {"content", options.special[i]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  const auto spelled = [&](int32_t id) {
    const auto i = static_cast<size_t>(id);
    return i < options.special.size() ? tokens[i] : spelling_of_bytes(tokens[i]);
  };
  for (int32_t id = 0; id < static_cast<int32_t>(tokens.size()); ++id) vocab[spelled(id)] = id;
  for (const auto& [left, right] : merges) pairs.push_back({spelled(left), spelled(right)});
  const Ordered byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  const Ordered file = {{"version", "1.0"},
                        {"truncation", nullptr},
                        {"padding", nullptr},
                        {"added_tokens", added},
                        {"normalizer", nullptr},
                        {"pre_tokenizer",
                         {{"type", "Sequence"},
                          {"pretokenizers",
                           {{{"type", "Split"},
                             {"pattern", {{"Regex", options.expression}}},
                             {"behavior", "Isolated"},
                             {"invert", false}},
                            byte_level}}}},
                        {"post_processor", nullptr},
                        {"decoder", byte_level},
                        {"model",
                         {{"type", "BPE"},
                          {"dropout", nullptr},
                          {"unk_token", nullptr},
                          {"continuing_subword_prefix", nullptr},
                          {"end_of_word_suffix", nullptr},
                          {"fuse_unk", false},
                          {"byte_fallback", false},
                          {"ignore_merges", false},
                          {"vocab", vocab},
                          {"merges", pairs}}}};
  return file.dump(1) + "\n";
}

}  // namespace

void WordCounts::add(std::string_view text) {
  std::string storage;
  bytes_ += static_cast<int64_t>(text.size());
  text = valid_utf8(text, storage);
  while (!text.empty()) {
    const size_t length = first_piece(pattern_, text);
    ++words_[std::string(text.substr(0, length))];
    text.remove_prefix(length);
  }
}

void WordCounts::add(const WordCounts& other) {
  bytes_ += other.bytes_;
  for (const auto& [word, count] : other.words_) words_[word] += count;
}

std::string train_bpe(const WordCounts& counts, const TrainOptions& options) {
  const auto first = static_cast<int32_t>(options.special.size());
  if (options.vocab_size < first + 256)
    base::fail_user("a vocabulary of {} has no room for 256 bytes and {} special tokens; the smallest is {}",
                    options.vocab_size, first, first + 256);
  std::vector<std::string> tokens = options.special;
  // Bytes in the order of the characters that spell them.
  std::vector<std::pair<std::string, char>> bytes;
  for (int byte = 0; byte < 256; ++byte)
    bytes.emplace_back(spelling_of_bytes(std::string(1, static_cast<char>(byte))), static_cast<char>(byte));
  std::sort(bytes.begin(), bytes.end());
  int32_t byte_ids[256];
  for (const auto& [spelling, byte] : bytes) {
    byte_ids[static_cast<uint8_t>(byte)] = static_cast<int32_t>(tokens.size());
    tokens.emplace_back(1, byte);
  }

  std::vector<Word> words;
  words.reserve(counts.words().size());
  Pairs pairs;
  for (const auto& [text, count] : counts.words()) {
    Word word{{}, count};
    for (const char byte : text) word.symbols.push_back(byte_ids[static_cast<uint8_t>(byte)]);
    for (size_t i = 0; i + 1 < word.symbols.size(); ++i)
      pairs.change(pair_of(word.symbols[i], word.symbols[i + 1]), count, words.size());
    words.push_back(std::move(word));
  }
  std::priority_queue<Candidate> queue;
  pairs.for_each([&](uint64_t pair, int64_t count) { queue.push({count, pair}); });

  std::vector<std::pair<int32_t, int32_t>> merges;
  while (static_cast<int32_t>(tokens.size()) < options.vocab_size && !queue.empty()) {
    Candidate best = queue.top();
    queue.pop();
    const int64_t now = pairs.count(best.pair);
    if (now != best.count) {  // it has become rarer since it was queued
      if (now > 0) queue.push({now, best.pair});
      continue;
    }
    if (now < 1) break;
    const auto left = static_cast<int32_t>(best.pair >> 32),
               right = static_cast<int32_t>(best.pair & 0xFFFFFFFFu);
    const auto joined = static_cast<int32_t>(tokens.size());
    tokens.push_back(tokens[static_cast<size_t>(left)] + tokens[static_cast<size_t>(right)]);
    merges.emplace_back(left, right);
    std::set<uint64_t> grown;
    for (const size_t index : pairs.take(best.pair))
      join(index, words[index], left, right, joined, pairs, grown);
    for (const uint64_t pair : grown)
      if (const int64_t count = pairs.count(pair); count > 0) queue.push({count, pair});
  }
  return file_text(options, tokens, merges);
}

}  // namespace quintet::tokenizer
