#include "tokenizer/bpe.h"

#include <algorithm>
#include <array>
#include <queue>
#include <tuple>

#include "tokenizer/json_field.h"
#include "tokenizer/unicode.h"

namespace quintet::tokenizer {
namespace {

constexpr std::string_view kSpaceMark = "\u2581";
// Up to here all pairs are looked at for each merge; beyond, a heap holds them.
constexpr size_t kShortWord = 96;

}  // namespace

Bpe::Bpe(const Json& description, bool byte_level) : byte_level_(byte_level) {
  const std::string where = "model";
  if (json_field_or(description, "dropout", 0.0, where) != 0)
    base::fail_user("tokenizer file: model.dropout would make the ids random; set it to null");
  byte_fallback_ = json_field_or(description, "byte_fallback", false, where);
  fuse_unknown_ = json_field_or(description, "fuse_unk", false, where);
  ignore_merges_ = json_field_or(description, "ignore_merges", false, where);
  prefix_ = json_field_or<std::string>(description, "continuing_subword_prefix", "", where);
  suffix_ = json_field_or<std::string>(description, "end_of_word_suffix", "", where);
  read_vocabulary(description);
  if (byte_level && byte_fallback_)
    base::fail_user("tokenizer file: model.byte_fallback has no meaning with a byte-level pre-tokenizer");
  const auto unknown = json_field_or<std::string>(description, "unk_token", "", where);
  if (!unknown.empty()) {
    unknown_ = vocabulary_.id(unknown);
    if (!unknown_)
      base::fail_user("tokenizer file: model.unk_token '{}' is not in the vocabulary",
                      base::printable(unknown));
  }
  if (byte_level) {
    for (int byte = 0; byte < 256; ++byte) {
      const char c = static_cast<char>(byte);
      byte_ids_.push_back(vocabulary_.id({&c, 1}).value_or(-1));
    }
  } else if (byte_fallback_) {
    byte_ids_ = byte_tokens(vocabulary_);
  }
  read_merges(description);
  derive_split_mark();
  derive_byte_ranks();
}

void Bpe::read_vocabulary(const Json& description) {
  const auto found = description.find("vocab");
  if (found == description.end() || !found->is_object())
    base::fail_user("tokenizer file: model.vocab is not an object of tokens and ids");
  for (const auto& [token, id] : found->items()) {
    const auto number = json_as<int32_t>(id, "an id of model.vocab");
    // A spelling that stands for no bytes is an added token's; no merge makes it.
    vocabulary_.add(byte_level_ ? bytes_of_spelling(token).value_or(token) : token, number);
  }
}

void Bpe::read_merges(const Json& description) {
  const Json& list = json_list(description, "merges", "model");
  std::vector<MergeTable::Merge> merges;
  uint32_t rank = 0;
  for (const Json& entry : list) {
    std::string left, right;
    if (entry.is_string()) {
      const auto& text = entry.get_ref<const std::string&>();
      const size_t space = text.find(' ');
      if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
        base::fail_user("tokenizer file: merge {} is '{}', not two tokens with a space between", rank,
                        base::printable(text));
      left = text.substr(0, space), right = text.substr(space + 1);
    } else if (entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_string()) {
      left = entry[0], right = entry[1];
    } else {
      base::fail_user("tokenizer file: merge {} is neither \"left right\" nor [\"left\", \"right\"]", rank);
    }
    if (byte_level_) {
      left = bytes_of_spelling(left).value_or(left);
      right = bytes_of_spelling(right).value_or(right);
    }
    const std::string joined = left + (right.starts_with(prefix_) ? right.substr(prefix_.size()) : right);
    const auto a = vocabulary_.id(left), b = vocabulary_.id(right), c = vocabulary_.id(joined);
    if (!a || !b || !c)
      base::fail_user("tokenizer file: merge {} needs the token '{}', which is not in the vocabulary", rank,
                      base::printable(!a   ? left
                                      : !b ? right
                                           : joined));
    merges.push_back({*a, *b, rank++, *c});
  }
  merges_ = MergeTable(merges, vocabulary_.size());
}

Bpe::Bpe(std::vector<std::pair<std::string, int32_t>> ranked_tokens)
    : byte_level_(true), ignore_merges_(true) {
  std::sort(ranked_tokens.begin(), ranked_tokens.end(),
            [](const auto& a, const auto& b) { return a.second < b.second; });
  for (const auto& [token, id] : ranked_tokens) vocabulary_.add(token, id);
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    const auto id = vocabulary_.id({&c, 1});
    if (!id) base::fail_user("tokenizer file: there is no token for the byte {}", byte);
    byte_ids_.push_back(*id);
  }
  // Any two tokens whose bytes together are a token may be merged, at that token's rank.
  std::vector<MergeTable::Merge> merges;
  for (const auto& [token, id] : ranked_tokens)
    for (size_t cut = 1; cut < token.size(); ++cut) {
      const auto left = vocabulary_.id(std::string_view(token).substr(0, cut));
      const auto right = vocabulary_.id(std::string_view(token).substr(cut));
      if (left && right) merges.push_back({*left, *right, static_cast<uint32_t>(id), id});
    }
  merges_ = MergeTable(merges, vocabulary_.size());
  derive_byte_ranks();
}

// Where spaces are written as U+2581, no merge of the usual files puts such a mark after another character.
// Then no token spans the place before a mark, and a text may be cut there.
void Bpe::derive_split_mark() {
  if (byte_level_ || ignore_merges_ || !suffix_.empty() || !prefix_.empty() || !vocabulary_.id(kSpaceMark))
    return;
  for (const int32_t joined : merges_.all_joined()) {
    if (joined < 0) continue;
    const std::string_view token = vocabulary_.token(joined);
    for (size_t at = 0; (at = token.find(kSpaceMark, at)) != std::string_view::npos; at += kSpaceMark.size())
      if (at > 0 && !token.substr(0, at).ends_with(kSpaceMark)) return;
  }
  split_mark_ = kSpaceMark;
}

size_t Bpe::first_piece(std::string_view text) const {
  if (split_mark_.empty()) return text.size();
  size_t at = 0;
  while (text.substr(at).starts_with(split_mark_)) at += split_mark_.size();
  return std::min(text.find(split_mark_, at), text.size());
}

void Bpe::symbols_of(std::string_view word, std::vector<int32_t>& symbols) const {
  if (byte_level_) {
    for (const char c : word) {
      const int32_t id = byte_ids_[static_cast<uint8_t>(c)];
      if (id >= 0)
        symbols.push_back(id);
      else if (unknown_)
        symbols.push_back(*unknown_);
    }
    return;
  }
  bool after_unknown = false;
  for (size_t at = 0; at < word.size();) {
    const std::string_view letter = word.substr(at, static_cast<size_t>(utf8_length(word[at])));
    const bool begins = at == 0;
    at += letter.size();
    std::optional<int32_t> id;
    if (prefix_.empty() && suffix_.empty()) {
      id = vocabulary_.id(letter);
    } else {
      std::string spelled(letter);
      if (!begins) spelled.insert(0, prefix_);
      if (at == word.size()) spelled += suffix_;
      id = vocabulary_.id(spelled);
    }
    if (id) {
      symbols.push_back(*id);
      after_unknown = false;
      continue;
    }
    if (byte_fallback_ && std::all_of(letter.begin(), letter.end(),
                                      [&](char c) { return byte_ids_[static_cast<uint8_t>(c)] >= 0; })) {
      for (const char c : letter) symbols.push_back(byte_ids_[static_cast<uint8_t>(c)]);
      continue;
    }
    if (!unknown_ || (fuse_unknown_ && after_unknown)) continue;
    symbols.push_back(*unknown_);
    after_unknown = true;
  }
}

void Bpe::derive_byte_ranks() {
  if (!byte_level_ || std::ranges::any_of(byte_ids_, [](int32_t id) { return id < 0; })) return;
  for (size_t pair = 0; pair < 256 * 256; ++pair)
    byte_ranks_.push_back(merges_.rank(byte_ids_[pair >> 8], byte_ids_[pair & 255]));
}

void Bpe::merge_short(std::string_view word, std::vector<int32_t>& symbols) const {
  size_t count = symbols.size();
  std::array<uint32_t, kShortWord> ranks;  // of symbol i with the next one
  const auto byte = [&](size_t i) { return static_cast<size_t>(static_cast<uint8_t>(word[i])); };
  for (size_t i = 0; i + 1 < count; ++i)
    ranks[i] =
        word.empty() ? merges_.rank(symbols[i], symbols[i + 1]) : byte_ranks_[byte(i) << 8 | byte(i + 1)];
  while (count > 1) {
    size_t best = 0;
    uint32_t rank = ranks[0];
    for (size_t i = 1; i + 1 < count; ++i)
      if (ranks[i] < rank) best = i, rank = ranks[i];
    if (rank == MergeTable::kNoRank) break;
    const int32_t joined = symbols[best] = merges_.joined(rank);
    --count;
    for (size_t i = best + 1; i < count; ++i) symbols[i] = symbols[i + 1], ranks[i - 1] = ranks[i];
    const bool before = best > 0, after = best + 1 < count;
    if (before && after)
      std::tie(ranks[best - 1], ranks[best]) = merges_.ranks(symbols[best - 1], joined, symbols[best + 1]);
    else if (before)
      ranks[best - 1] = merges_.rank(symbols[best - 1], joined);
    else if (after)
      ranks[best] = merges_.rank(joined, symbols[best + 1]);
  }
  symbols.resize(count);
}

// A heap of pairs over a linked list. A pair whose symbols have changed since it was pushed is passed over.
void Bpe::merge_long(std::vector<int32_t>& symbols) const {
  struct Pair {
    uint32_t rank;
    uint32_t at;  // of the left symbol
    int32_t left, right;
    bool operator<(const Pair& other) const { return rank != other.rank ? rank > other.rank : at > other.at; }
  };
  const auto count = static_cast<uint32_t>(symbols.size());
  std::vector<uint32_t> next(count), before(count);
  for (uint32_t i = 0; i < count; ++i) next[i] = i + 1, before[i] = i - 1;
  std::priority_queue<Pair> pairs;
  const auto push = [&](uint32_t at) {
    if (at >= count || next[at] >= count) return;
    if (const uint32_t rank = merges_.rank(symbols[at], symbols[next[at]]); rank != MergeTable::kNoRank)
      pairs.push({rank, at, symbols[at], symbols[next[at]]});
  };
  for (uint32_t i = 0; i + 1 < count; ++i) push(i);
  while (!pairs.empty()) {
    const Pair pair = pairs.top();
    pairs.pop();
    if (symbols[pair.at] != pair.left || next[pair.at] >= count || symbols[next[pair.at]] != pair.right)
      continue;
    const uint32_t gone = next[pair.at];
    symbols[pair.at] = merges_.joined(pair.rank);
    symbols[gone] = -1;
    next[pair.at] = next[gone];
    if (next[gone] < count) before[next[gone]] = pair.at;
    push(before[pair.at]);
    push(pair.at);
  }
  std::erase(symbols, -1);
}

void Bpe::encode(std::string_view word, std::vector<int32_t>& ids) const {
  if (ignore_merges_)
    if (const auto whole = vocabulary_.id(word)) {
      ids.push_back(*whole);
      return;
    }
  thread_local std::vector<int32_t> symbols;
  symbols.clear();
  symbols_of(word, symbols);
  symbols.size() <= kShortWord ? merge_short(byte_ranks_.empty() ? std::string_view() : word, symbols)
                               : merge_long(symbols);
  ids.insert(ids.end(), symbols.begin(), symbols.end());
}

}  // namespace quintet::tokenizer
