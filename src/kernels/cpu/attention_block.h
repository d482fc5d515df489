// What the forward and the backward pass of attention share: packing, masks and dropout of one score block.
#pragma once

#include "kernels/cpu/attention_layout.h"
#include "kernels/cpu/simd_math.h"
#include "kernels/cpu/simd_matmul.h"
#include "kernels/cpu/simd_philox.h"

namespace quintet::kernels::cpu::QUINTET_ISA {

inline constexpr int64_t kBlock = kAttentionBlock;

inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

// rows x width from T rows to S rows; columns up to the padded width become zero.
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

// The transpose of kLanes x kLanes elements held in vectors: log2(kLanes) rounds that exchange ever larger
// squares.
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

// A sequence's tokens start at `first`; blocks are given by rows within the sequence.
struct Sequence {
  const AttentionShape& shape;
  int64_t first;

  int32_t document(int64_t row) const {
    return shape.documents != nullptr ? shape.documents[first + row] : 0;
  }
  int64_t rows_from(int64_t begin) const { return smaller(kBlock, shape.seq_len - begin); }
};

struct DocumentRange {
  int32_t low, high;
  bool single() const { return low == high && low >= 0; }
};
inline DocumentRange documents_of(const Sequence& sequence, int64_t begin, int64_t rows) {
  DocumentRange range{sequence.document(begin), sequence.document(begin)};
  for (int64_t r = 1; r < rows; ++r) {
    const int32_t d = sequence.document(begin + r);
    range.low = d < range.low ? d : range.low;
    range.high = d > range.high ? d : range.high;
  }
  return range;
}

// Whether no query row of [q_begin, q_begin + q_rows) sees a key row of [k_begin, k_begin + k_rows): certain
// when true.
inline bool nothing_visible(const AttentionShape& shape, int64_t q_begin, int64_t q_rows,
                            DocumentRange q_documents, int64_t k_begin, int64_t k_rows,
                            DocumentRange k_documents) {
  if (k_begin > q_begin + q_rows - 1) return true;
  if (shape.window > 0 && q_begin - (k_begin + k_rows - 1) >= shape.window) return true;
  return q_documents.high < 0 || k_documents.high < q_documents.low || q_documents.high < k_documents.low;
}

// One key block as the masks need it: documents as wide as S, -2 (nobody's) behind the last key.
template <class S>
inline void pack_documents(const Sequence& sequence, int64_t begin, int64_t rows, IntOf<S>* to) {
  for (int64_t j = 0; j < kBlock; ++j) to[j] = j < rows ? sequence.document(begin + j) : -2;
}

// Which lanes of key vector j (rows k_begin + j ...) query row i sees.
template <class S>
inline IntVec<S> visible(const AttentionShape& shape, int64_t i, IntOf<S> document, int64_t k_begin,
                         int64_t j, const IntOf<S>* key_documents) {
  const IntVec<S> key = lane_index<S>() + static_cast<IntOf<S>>(k_begin + j);
  const IntVec<S> documents = read<IntVec<S>>(key_documents + j);
  IntVec<S> seen = (documents == document) & (key <= static_cast<IntOf<S>>(i));
  if (shape.window > 0) seen &= key > static_cast<IntOf<S>>(i - shape.window);
  return seen;
}

// factor[j] = 0 or 1 / (1 - p) for key rows [k_begin, k_begin + rows) as seen by query row i of local head h.
template <class S>
inline void dropout_factors(const Sequence& sequence, int64_t h, int64_t i, int64_t k_begin, int64_t rows,
                            S* factor) {
  const AttentionShape& shape = sequence.shape;
  const uint64_t threshold = keep_threshold(shape.dropout_p);
  const S kept = S(1.0 / (1.0 - shape.dropout_p));
  const int32_t* positions = shape.positions + sequence.first;
  const auto word = [](int64_t v) { return PhiloxVec{} + static_cast<uint64_t>(static_cast<uint32_t>(v)); };
  for (int64_t j = 0; j < rows; j += kPhiloxLanes) {
    PhiloxVec column{};
    for (int l = 0; l < kPhiloxLanes; ++l)
      column[l] = j + l < rows ? static_cast<uint32_t>(positions[k_begin + j + l]) : 0;
    const PhiloxWords words =
        philox(shape.dropout_key, {{column >> 2, word(positions[i]), word(shape.samples[sequence.first + i]),
                                    word(shape.head_offset + h)}});
    for (int l = 0; l < kPhiloxLanes && j + l < rows; ++l)
      factor[j + l] = words.w[column[l] & 3][l] >= threshold ? kept : S(0);
  }
}

}  // namespace quintet::kernels::cpu::QUINTET_ISA
