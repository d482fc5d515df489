// Causal attention as one rectangle or triangle, which is what libraries can be told.
#pragma once

#include <optional>

#include "kernels/attention_geometry.h"

namespace quintet::kernels {

// The queries that see anything of the keys at hand, and the keys that anybody sees. Inside, a query sees
// every key, or (causal) those up to its own place in the range.
struct AttentionPart {
  // Rows [first, first + count) of each sequence; sequences lie `pitch` rows apart.
  struct Rows {
    int64_t first = 0, count = 0, pitch = 0;

    bool operator==(const Rows&) const = default;
  };
  bool causal = true;
  Rows q, k;
};

// The order in which the same rows lie one sequence after another, positions ascending. Neighbouring ranks in
// one buffer have the rows of one rank of a coarser cut, but those of a sequence do not lie together.
inline base::RowOrder ascending(const base::RowOrder& r) {
  if (r.count == 1 || r.ranks % r.count != 0 || r.first % r.count != 0) return r;
  return {r.seq_len, r.sequences, r.ranks / r.count, r.first / r.count, 1};
}

// The part of a problem whose sequences are one document each. Nothing where it is no such shape: rows that
// do not ascend, whole keys for a part of the queries, a window over cut sequences.
//
// Of a cut sequence every rank has one chunk of the first half and its mirror of the second. Keys of a lower
// rank: the early chunk lies before all queries, the late one behind them. Keys of a higher rank: both lie
// between the two chunks of queries. The rank's own: two pieces in ascending order on both sides.
inline std::optional<AttentionPart> visible_part(const AttentionGeometry& s) {
  const base::RowOrder &q = s.q_rows, &k = s.k_rows;
  if (q.count != 1 || k.count != 1 || q.ranks != k.ranks || q.seq_len != k.seq_len ||
      q.sequences != k.sequences)
    return std::nullopt;
  if (q.ranks > 1 && s.window > 0 && s.window < q.seq_len) return std::nullopt;
  const int64_t rows = q.rows_per_sequence(), half = rows / 2;
  const AttentionPart::Rows all{0, rows, rows};
  if (k.first == q.first) return AttentionPart{true, all, all};
  if (k.first < q.first) return AttentionPart{false, all, {0, half, rows}};
  return AttentionPart{false, {half, half, rows}, all};
}

}  // namespace quintet::kernels
