#include "tokenizer/unigram.h"

#include <algorithm>
#include <limits>

#include "tokenizer/json_field.h"
#include "tokenizer/unicode.h"

namespace quintet::tokenizer {
namespace {
constexpr double kUnknownPenalty = 10.0;  // an unknown character scores this much below the worst token
}

Unigram::Unigram(const Json& description) {
  const std::string where = "model";
  byte_fallback_ = json_field_or(description, "byte_fallback", false, where);
  double worst = std::numeric_limits<double>::infinity();
  int32_t id = 0;
  for (const Json& entry : json_list(description, "vocab", where)) {
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number())
      base::fail_user("tokenizer file: entry {} of model.vocab is not [token, score]", id);
    vocabulary_.add(entry[0], id++);
    scores_.push_back(entry[1]);
    worst = std::min(worst, scores_.back());
  }
  if (scores_.empty()) base::fail_user("tokenizer file: model.vocab is empty");
  unknown_score_ = worst - kUnknownPenalty;
  const auto unknown = json_field_or<int64_t>(description, "unk_id", -1, where);
  if (unknown >= id)
    base::fail_user("tokenizer file: model.unk_id is {}, the vocabulary has {} tokens", unknown, id);
  if (unknown >= 0) unknown_ = static_cast<int32_t>(unknown);
  if (byte_fallback_) byte_ids_ = byte_tokens(vocabulary_);
  build_trie();
}

// Breadth first over the sorted tokens, so that children of a node are neighbours.
void Unigram::build_trie() {
  std::vector<std::pair<std::string_view, int32_t>> sorted;
  for (int32_t id = 0; id < vocabulary_.size(); ++id) {
    const std::string& token = vocabulary_.token(id);
    if (!token.empty() && vocabulary_.id(token) == id) sorted.emplace_back(token, id);
  }
  std::sort(sorted.begin(), sorted.end());
  struct Span {
    uint32_t node;
    size_t begin, end, depth;
  };
  trie_.assign(1, {});
  std::vector<Span> open = {{0, 0, sorted.size(), 0}};
  for (size_t o = 0; o < open.size(); ++o) {
    const Span span = open[o];
    trie_[span.node].first_child = static_cast<uint32_t>(trie_.size());
    for (size_t begin = span.begin; begin < span.end;) {
      if (sorted[begin].first.size() == span.depth) {
        trie_[span.node].id = sorted[begin++].second;
        continue;
      }
      const char byte = sorted[begin].first[span.depth];
      size_t end = begin;
      while (end < span.end && sorted[end].first[span.depth] == byte) ++end;
      open.push_back({static_cast<uint32_t>(trie_.size()), begin, end, span.depth + 1});
      Node node;
      node.byte = static_cast<uint8_t>(byte);
      trie_.push_back(node);
      ++trie_[span.node].children;
      begin = end;
    }
  }
}

const Unigram::Node* Unigram::child(const Node& node, uint8_t byte) const {
  const Node* begin = trie_.data() + node.first_child;
  const Node* end = begin + node.children;
  // Strings sort by signed or unsigned chars alike here: only equality matters.
  if (node.children > 12) {
    const Node* at = std::lower_bound(begin, end, byte, [](const Node& n, uint8_t b) { return n.byte < b; });
    return at != end && at->byte == byte ? at : nullptr;
  }
  for (; begin != end; ++begin)
    if (begin->byte == byte) return begin;
  return nullptr;
}

void Unigram::encode(std::string_view word, std::vector<int32_t>& ids) const {
  struct Best {
    double score = 0;
    size_t from = std::string_view::npos;  // where the last token begins
    int32_t id = -1;                       // -1: unknown
  };
  thread_local std::vector<Best> best;
  best.assign(word.size() + 1, {});
  for (size_t at = 0; at < word.size();) {
    const size_t letter = static_cast<size_t>(utf8_length(word[at]));
    const double so_far = best[at].score;
    bool single = false;  // some token is exactly this character
    const Node* node = trie_.data();
    for (size_t end = at; end < word.size();) {
      node = child(*node, static_cast<uint8_t>(word[end]));
      if (!node) break;
      ++end;
      if (node->id < 0) continue;
      const double score = so_far + scores_[static_cast<size_t>(node->id)];
      Best& target = best[end];
      if (target.from == std::string_view::npos || score > target.score) target = {score, at, node->id};
      if (end - at == letter) single = true;
    }
    if (!single) {
      Best& target = best[at + letter];
      const double score = so_far + unknown_score_;
      if (target.from == std::string_view::npos || score > target.score) target = {score, at, -1};
    }
    at += letter;
  }

  thread_local std::vector<std::pair<size_t, size_t>>
      pieces;  // back to front; neighbours that are unknown are one
  pieces.clear();
  bool unknown_open = false;
  for (size_t end = word.size(); end > 0; end = best[end].from) {
    const bool unknown = best[end].id < 0 || best[end].id == unknown_;
    if (unknown && unknown_open) {
      pieces.back().first = best[end].from;
    } else {
      pieces.emplace_back(best[end].from, end);
    }
    unknown_open = unknown;
  }
  for (auto piece = pieces.rbegin(); piece != pieces.rend(); ++piece) {
    const std::string_view token = word.substr(piece->first, piece->second - piece->first);
    if (const auto id = vocabulary_.id(token)) {
      ids.push_back(*id);
    } else if (byte_fallback_ && std::all_of(token.begin(), token.end(), [&](char c) {
                 return byte_ids_[static_cast<uint8_t>(c)] >= 0;
               })) {
      for (const char c : token) ids.push_back(byte_ids_[static_cast<uint8_t>(c)]);
    } else if (unknown_) {
      ids.push_back(*unknown_);
    } else {
      base::fail_user("the tokenizer has no token for '{}', and no unknown token (unk_id)",
                      base::printable(token));
    }
  }
}

}  // namespace quintet::tokenizer
