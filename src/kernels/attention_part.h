// Causal attention as one rectangle or triangle, the shapes that attention libraries accept.
#pragma once

#include <optional>

#include "kernels/attention_geometry.h"

namespace quintet::kernels {

// The queries that see at least one of the given keys, and the keys seen by at least one query. Inside, a
// query sees every key, or (causal) those up to its own index in the range.
struct AttentionPart {
  // Rows [first, first + count) of each sequence; sequences are `pitch` rows apart.
  struct Rows {
    int64_t first = 0, count = 0, pitch = 0;

    bool operator==(const Rows&) const = default;
  };
  bool causal = true;
  Rows q, k;
};

// The order in which the same rows are stored sequence by sequence, positions ascending. Neighbouring ranks
// in one buffer have the rows of one rank of a coarser split, but the rows of a sequence are not contiguous.
inline base::RowOrder ascending(const base::RowOrder& r) {
  if (r.count == 1 || r.ranks % r.count != 0 || r.first % r.count != 0) return r;
  return {r.seq_len, r.sequences, r.ranks / r.count, r.first / r.count, 1};
}

// The part of a problem whose sequences are one document each. Empty where it has no such shape: rows that
// do not ascend, whole keys for a part of the queries, a window over sharded sequences.
//
// Of a sharded sequence every rank holds one chunk of the first half and its mirror in the second. Keys of a
// lower rank: the early chunk precedes all queries, the late one follows them. Keys of a higher rank: both
// fall between the two chunks of queries. The rank's own: two pieces in ascending order on both sides.
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
