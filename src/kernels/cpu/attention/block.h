// Shared by the forward and backward pass of attention: packing, masks and dropout of one score block.
#pragma once

#include <cmath>

#include "kernels/cpu/attention/layout.h"
#include "kernels/cpu/support/simd_math.h"
#include "kernels/cpu/support/simd_matmul.h"
#include "kernels/cpu/support/simd_philox.h"

namespace quintet::kernels::cpu::QUINTET_ISA {

inline constexpr int64_t kBlock = kAttentionBlock;

inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

// Converts rows x width from T rows to S rows; columns up to the padded width become zero.
template <class S, class T>
inline void pack_rows(const T* from, int64_t stride, int64_t rows, int64_t width, S* to, int64_t padded) {
  for (int64_t r = 0; r < rows; ++r) {
    S* out = to + r * padded;
    int64_t done = 0;
    each<S>(width, [&](int64_t i, auto count) {
      store<S>(out + i, load<S>(from + r * stride + i, count));
      done = i + kLanes<S>;
    });
    for (; done < padded; done += kLanes<S>) store<S>(out + done, Vec<S>{});
  }
}

// Transposes kLanes x kLanes elements held in vectors, in log2(kLanes) rounds that exchange squares of
// doubling size.
template <class S, int kSquare = 1>
inline void transpose(Vec<S> (&v)[kLanes<S>]) {
  constexpr int w = kLanes<S>;
  if constexpr (kSquare < w) {
    IntVec<S> low, high;
    for (int l = 0; l < w; ++l) {
      low[l] = (l & kSquare) ? w + l - kSquare : l;
      high[l] = (l & kSquare) ? w + l : l + kSquare;
    }
#pragma GCC unroll 16
    for (int i = 0; i < w; ++i)
      if ((i & kSquare) == 0) {
        const Vec<S> a = v[i], b = v[i + kSquare];
        v[i] = __builtin_shuffle(a, b, low);
        v[i + kSquare] = __builtin_shuffle(a, b, high);
      }
    transpose<S, kSquare * 2>(v);
  }
}

// to[d][r] = from[r][d], rows of `to` kBlock apart; columns from `rows` up to the next whole vector become
// zero.
template <class S, class T>
inline void pack_transposed(const T* from, int64_t stride, int64_t rows, int64_t width, S* to) {
  constexpr int w = kLanes<S>;
  for (int64_t r = 0; r < rows; r += w)
    for (int64_t d = 0; d < width; d += w) {
      const int64_t height = smaller(w, rows - r), depth = smaller(w, width - d);
      Vec<S> square[w];
      if (height == w && depth == w) {
#pragma GCC unroll 16
        for (int i = 0; i < w; ++i) square[i] = load<S>(from + (r + i) * stride + d);
      } else {
        for (int i = 0; i < w; ++i)
          square[i] = i < height ? load<S>(from + (r + i) * stride + d, static_cast<int>(depth)) : Vec<S>{};
      }
      transpose<S>(square);
      for (int64_t i = 0; i < depth; ++i) store<S>(to + (d + i) * kBlock + r, square[i]);
    }
}

// At most kBlock rows of one run. For the first row: `row` is its index in the buffer (of q, or of k and v),
// `index` that in the arrays of documents and positions, `position` its position in the sequence.
struct Block {
  int64_t row, index, position, rows;
  int64_t end() const { return position + rows; }
};

inline Block query_block(const AttentionShape& shape, int64_t sequence, int64_t run, int64_t offset) {
  const base::RowOrder::Run r = shape.q_rows.run(sequence, run);
  return {r.row + offset, r.row + offset, r.position + offset, smaller(kBlock, r.length - offset)};
}
inline Block key_block(const AttentionShape& shape, int64_t sequence, int64_t run, int64_t offset) {
  const base::RowOrder::Run r = shape.k_rows.run(sequence, run);
  return {r.row + offset, shape.k_rows.row_in_whole(sequence, r.position + offset), r.position + offset,
          smaller(kBlock, r.length - offset)};
}

// The offset of the first block of a run that reaches `position` or starts after it.
inline int64_t first_offset(const base::RowOrder::Run& run, int64_t position) {
  return larger(0, position - run.position) / kBlock * kBlock;
}

inline int32_t document(const int32_t* documents, int64_t index) {
  return documents != nullptr ? documents[index] : 0;
}

struct DocumentRange {
  int32_t low, high;
  bool single() const { return low == high && low >= 0; }
};
inline DocumentRange documents_of(const int32_t* documents, const Block& block) {
  DocumentRange range{document(documents, block.index), document(documents, block.index)};
  for (int64_t r = 1; r < block.rows; ++r) {
    const int32_t d = document(documents, block.index + r);
    range.low = d < range.low ? d : range.low;
    range.high = d > range.high ? d : range.high;
  }
  return range;
}

// True only if no row of `query` sees a row of `key`; false decides nothing.
inline bool nothing_visible(const AttentionShape& shape, const Block& query, DocumentRange q_documents,
                            const Block& key, DocumentRange k_documents) {
  if (!shape.both_sides && key.position >= query.end()) return true;
  if (shape.window > 0 && query.position - (key.end() - 1) >= shape.window) return true;
  return q_documents.high < 0 || k_documents.high < q_documents.low || q_documents.high < k_documents.low;
}

// Whether document and window let every row of `query` see every row of `key`, in whole vectors: then only
// causality remains to be checked.
template <class S>
inline bool only_causal(const AttentionShape& shape, const Block& query, DocumentRange q_documents,
                        const Block& key, DocumentRange k_documents) {
  return key.rows % kLanes<S> == 0 && q_documents.single() && k_documents.single() &&
         q_documents.low == k_documents.low &&
         (shape.window == 0 || query.end() - 1 - key.position < shape.window);
}

// Number of keys of the block that causality leaves to a query at a position: those at or before it.
inline int64_t keys_until(const AttentionShape& shape, int64_t position, const Block& key) {
  return shape.both_sides ? key.rows : larger(0, smaller(key.rows, position - key.position + 1));
}
// The first row of a block of queries that causality lets see a key at a position.
inline int64_t first_query(const AttentionShape& shape, int64_t position, const Block& query) {
  return shape.both_sides ? 0 : larger(0, position - query.position);
}

// One key block as the masks need it: documents as wide as S, -2 (no document) past the last key.
template <class S>
inline void pack_documents(const int32_t* documents, const Block& key, IntOf<S>* to) {
  for (int64_t j = 0; j < kBlock; ++j) to[j] = j < key.rows ? document(documents, key.index + j) : -2;
}

// Which lanes of key vector j (rows key + j ...) a query at a position sees.
template <class S>
inline IntVec<S> visible(const AttentionShape& shape, int64_t position, IntOf<S> document, const Block& key,
                         int64_t j, const IntOf<S>* key_documents) {
  const IntVec<S> at = lane_index<S>() + static_cast<IntOf<S>>(key.position + j);
  const IntVec<S> documents = read<IntVec<S>>(key_documents + j);
  IntVec<S> seen = documents == document;
  if (!shape.both_sides) seen &= at <= static_cast<IntOf<S>>(position);
  if (shape.window > 0) seen &= at > static_cast<IntOf<S>>(position - shape.window);
  return seen;
}

// cap * tanh(score / cap).
template <class S>
inline Vec<S> soft_capped(Vec<S> score, S cap) {
  for (int i = 0; i < kLanes<S>; ++i) score[i] = cap * std::tanh(score[i] / cap);
  return score;
}

// factor[j] = 0 or 1 / (1 - p) for the first `keys` rows of a key block as seen by query row `row` of local
// head h.
template <class S>
inline void dropout_factors(const AttentionShape& shape, int64_t h, int64_t row, const Block& key,
                            int64_t keys, S* factor) {
  const uint64_t threshold = keep_threshold(shape.dropout_p);
  const S kept = S(1.0 / (1.0 - shape.dropout_p));
  const int32_t* positions = shape.key_positions + key.index;
  const auto word = [](int64_t v) { return PhiloxVec{} + static_cast<uint64_t>(static_cast<uint32_t>(v)); };
  for (int64_t j = 0; j < keys; j += kPhiloxLanes) {
    PhiloxVec column{};
    for (int l = 0; l < kPhiloxLanes; ++l)
      column[l] = j + l < keys ? static_cast<uint32_t>(positions[j + l]) : 0;
    const PhiloxWords words = philox(
        shape.dropout_key,
        {{column >> 2, word(shape.positions[row]), word(shape.samples[row]), word(shape.head_offset + h)}});
    for (int l = 0; l < kPhiloxLanes && j + l < keys; ++l)
      factor[j + l] = words.w[column[l] & 3][l] >= threshold ? kept : S(0);
  }
}

}  // namespace quintet::kernels::cpu::QUINTET_ISA
