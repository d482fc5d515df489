// Attention masks as one interval of positions per row, and how tiles of queries meet blocks of keys.
//
// Causality, packed documents, windows, padding and sharded sequences all leave each query one range of key
// positions, as long as the documents of a sequence are contiguous. A kernel needs nothing else: it walks the
// runs of its key buffer (base/row_order.h), skips what is outside the interval of a tile and compares two
// bounds per score inside. Plain integers, for host and device; tests/kernels/attention_interval_test.cc
// checks them against the definition in attention_geometry.h.
#pragma once

#include <climits>

#include "base/row_order.h"

#if defined(__CUDACC__)
#define QUINTET_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define QUINTET_HOST_DEVICE inline
#endif

namespace quintet::kernels {

// Positions [begin, end); empty when begin >= end.
struct Span {
  int begin, end;
};

QUINTET_HOST_DEVICE int lesser(int a, int b) { return a < b ? a : b; }
QUINTET_HOST_DEVICE int greater(int a, int b) { return a > b ? a : b; }

// A mask apart from its documents. With a window a query sees keys less than `window` positions away.
struct MaskRule {
  int window = 0;  // 0: no limit
  bool causal = true;
};

// The keys that the query at `position` sees. `document` is the span of its document; for padding it is
// empty, at the first padding position: tiles then meet no row that sees nothing. Both ends of the result are
// non-decreasing in `position` within a sequence.
QUINTET_HOST_DEVICE Span keys_of(int position, Span document, MaskRule rule) {
  Span keys = document;
  if (rule.window > 0) keys.begin = greater(keys.begin, position - rule.window + 1);
  if (rule.causal)
    keys.end = lesser(keys.end, position + 1);
  else if (rule.window > 0)
    keys.end = lesser(keys.end, position + rule.window);
  return keys;
}

// The queries that see the key at `position`: the inverse relation, also monotone.
QUINTET_HOST_DEVICE Span queries_of(int position, Span document, MaskRule rule) {
  Span queries = document;
  if (rule.window > 0) queries.end = lesser(queries.end, position + rule.window);
  if (rule.causal)
    queries.begin = greater(queries.begin, position);
  else if (rule.window > 0)
    queries.begin = greater(queries.begin, position - rule.window + 1);
  return queries;
}

// base::RowOrder in the integer type that kernels use.
struct RowRuns {
  int seq_len, sequences, ranks, first, count, length, runs;

  RowRuns() = default;
  explicit RowRuns(const base::RowOrder& r)
      : seq_len(static_cast<int>(r.seq_len)),
        sequences(static_cast<int>(r.sequences)),
        ranks(static_cast<int>(r.ranks)),
        first(static_cast<int>(r.first)),
        count(static_cast<int>(r.count)),
        length(static_cast<int>(r.run_length())),
        runs(static_cast<int>(r.runs())) {}

  struct Run {
    int row, position;
  };
  // Run `index` of a sequence, in ascending order of position.
  QUINTET_HOST_DEVICE Run run(int sequence, int index) const {
    if (ranks == 1) return {sequence * seq_len, 0};
    const bool second = index >= count;
    const int at = second ? 2 * count - 1 - index : index;
    const int chunk = second ? 2 * ranks - 1 - (first + at) : first + at;
    return {((at * sequences + sequence) * 2 + (second ? 1 : 0)) * length, chunk * length};
  }
  // The row of a position in a buffer that holds the rows of all ranks.
  QUINTET_HOST_DEVICE int row_in_whole(int sequence, int position) const {
    if (ranks == 1) return sequence * seq_len + position;
    const int index = position / length;
    const bool second = index >= ranks;
    const int at = second ? 2 * ranks - 1 - index : index;
    return ((at * sequences + sequence) * 2 + (second ? 1 : 0)) * length + position % length;
  }
};

// Blocks of up to `size` consecutive rows that cover the part of a span that a buffer holds of a sequence.
// No block crosses the end of a run.
struct BlockWalk {
  int run = -1;
  int row = 0, position = 0, end = 0;  // first row and position of the block; end of its run's part

  QUINTET_HOST_DEVICE int count(int size) const { return lesser(size, end - position); }
  // Advances to the next block (the first call: to the first); false when there is none.
  QUINTET_HOST_DEVICE bool next(const RowRuns& rows, int sequence, Span span, int size) {
    row += size;
    position += size;
    while (position >= end) {
      if (++run >= rows.runs) return false;
      const RowRuns::Run at = rows.run(sequence, run);
      position = greater(span.begin, at.position);
      end = lesser(span.end, at.position + rows.length);
      row = at.row + (position - at.position);
    }
    return true;
  }
};

// The same blocks from the last to the first.
struct ReverseWalk {
  int run = INT_MAX;
  int row = 0, position = 0, begin = 1, end = 0;  // first row and position of the block; its run's part

  QUINTET_HOST_DEVICE int count(int size) const { return lesser(size, end - position); }
  QUINTET_HOST_DEVICE bool next(const RowRuns& rows, int sequence, Span span, int size) {
    row -= size;
    position -= size;
    while (position < begin) {
      run = lesser(run, rows.runs) - 1;
      if (run < 0) return false;
      const RowRuns::Run at = rows.run(sequence, run);
      begin = greater(span.begin, at.position);
      end = lesser(span.end, at.position + rows.length);
      position = begin < end ? begin + (end - begin - 1) / size * size : begin - 1;
      row = at.row + (position - at.position);
    }
    return true;
  }
};

// Query heads that share a KV head are rows of one tile: row r of a tile is token r / heads, head r % heads.
// A group with more heads than a tile has rows is split into `parts` of equal size.
struct HeadPacking {
  int heads, parts;     // per tile; parts per group
  int tokens;           // per tile
  unsigned reciprocal;  // token of r = r * reciprocal >> 16, for r < 256

  HeadPacking() = default;
  HeadPacking(int group, int tile_rows) {
    heads = group < tile_rows ? group : tile_rows;
    while (group % heads != 0) --heads;
    parts = group / heads;
    tokens = tile_rows / heads;
    reciprocal = (65536u + static_cast<unsigned>(heads) - 1) / static_cast<unsigned>(heads);
  }
  QUINTET_HOST_DEVICE int token(int r) const {
    return static_cast<int>((static_cast<unsigned>(r) * reciprocal) >> 16);
  }
};

}  // namespace quintet::kernels
