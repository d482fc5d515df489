#include "data/best_fit.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"

namespace quintet::data {
namespace {

// The rooms left in open sequences: the smallest one that holds n positions, in two steps of 64 bits at most
// per 4,096 positions.
class Rooms {
 public:
  explicit Rooms(int64_t seq_len)
      : sequences_(static_cast<size_t>(seq_len) + 1), words_(static_cast<size_t>(seq_len) / 64 + 1) {}

  void put(int64_t room, uint32_t sequence) {
    if (room == 0) return;
    sequences_[static_cast<size_t>(room)].push_back(sequence);
    words_[static_cast<size_t>(room) / 64] |= uint64_t{1} << (room % 64);
  }
  // The room taken, or 0 if no sequence has `n` positions left.
  int64_t take(int64_t n, uint32_t& sequence) {
    size_t word = static_cast<size_t>(n) / 64;
    uint64_t bits = words_[word] & ~uint64_t{0} << (n % 64);
    while (bits == 0) {
      if (++word == words_.size()) return 0;
      bits = words_[word];
    }
    const size_t room = word * 64 + static_cast<size_t>(std::countr_zero(bits));
    sequence = sequences_[room].back();
    sequences_[room].pop_back();
    if (sequences_[room].empty()) words_[word] &= ~(uint64_t{1} << (room % 64));
    return static_cast<int64_t>(room);
  }

 private:
  std::vector<std::vector<uint32_t>> sequences_;  // by room; the last one opened is taken first
  std::vector<uint64_t> words_;                   // a bit per room: whether any sequence has it
};

struct Placed {
  uint64_t begin;
  uint32_t inputs, sequence;
};

}  // namespace

BestFit::BestFit(const Corpus& corpus, std::span<const TokenRange> ranges, int64_t seq_len,
                 config::LongDocuments policy) {
  using config::LongDocuments;
  QUINTET_CHECK(seq_len > 0 && seq_len <= int64_t{1} << 30, "sequences of {}", seq_len);
  std::vector<Placed> pieces;
  const auto offsets = corpus.offsets();
  const auto is_trained = [&](int64_t begin, int64_t labels) {
    const auto trained = corpus.trained();
    return trained.empty() ||
           std::memchr(trained.data() + begin + 1, 1, static_cast<size_t>(labels)) != nullptr;
  };
  const auto add = [&](int64_t begin, int64_t labels) {
    if (labels == 0) return;
    if (!is_trained(begin, labels)) {
      ++untrained_;
      return;
    }
    pieces.push_back({static_cast<uint64_t>(begin), static_cast<uint32_t>(labels), 0});
  };
  for (const TokenRange& range : ranges) {
    const int64_t last = range.begin + range.length;
    for (int64_t begin = range.begin, d = corpus.document_of(begin); begin < last; ++d) {
      const int64_t end = std::min(last, static_cast<int64_t>(offsets[static_cast<size_t>(d) + 1]));
      int64_t labels = end - begin - 1;
      if (labels > seq_len) {
        ++(policy == LongDocuments::Drop ? dropped_ : cut_);
        if (policy == LongDocuments::Truncate) {
          lost_ += is_trained(begin, labels) && !is_trained(begin, seq_len);
          dropped_labels_ += labels - seq_len, labels = seq_len;
        }
        if (policy == LongDocuments::Drop) dropped_labels_ += labels, labels = 0;
      }
      for (int64_t at = 0; at < labels; at += seq_len) add(begin + at, std::min(seq_len, labels - at));
      begin = end;
    }
  }
  // Longest first; documents of equal length in their order.
  std::ranges::stable_sort(pieces, [](const Placed& a, const Placed& b) { return a.inputs > b.inputs; });
  Rooms rooms(seq_len);
  uint32_t sequences = 0;
  for (Placed& p : pieces) {
    int64_t room = rooms.take(p.inputs, p.sequence);
    if (room == 0) p.sequence = sequences++, room = seq_len;
    rooms.put(room - p.inputs, p.sequence);
    used_ += p.inputs;
  }
  std::ranges::stable_sort(pieces, [](const Placed& a, const Placed& b) { return a.sequence < b.sequence; });
  begin_.reserve(pieces.size()), inputs_.reserve(pieces.size());
  for (const Placed& p : pieces) {
    while (size() < static_cast<int64_t>(p.sequence)) first_.push_back(static_cast<int64_t>(begin_.size()));
    begin_.push_back(p.begin), inputs_.push_back(p.inputs);
  }
  if (!pieces.empty()) first_.push_back(static_cast<int64_t>(begin_.size()));
}

BestFit::Piece BestFit::piece(int64_t sample, int64_t i) const {
  const auto p = static_cast<size_t>(first_[at(sample)] + i);
  return {static_cast<int64_t>(begin_[p]), inputs_[p]};
}

}  // namespace quintet::data
