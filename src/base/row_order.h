// The order of token rows when sequences are sharded over context ranks. A sequence is split into 2 * ranks
// equal chunks; rank c holds chunks c and 2 * ranks - 1 - c (zig-zag), so that causal attention is balanced.
// A buffer holds the rows of ranks [first, first + count), one rank after another, each with its two chunks
// of sequence 0, of sequence 1, ... With ranks = 1 this is the plain order: whole sequences one after
// another.
#pragma once

#include <cstdint>

namespace quintet::base {

struct RowOrder {
  int64_t seq_len = 0;
  int64_t sequences = 0;
  int64_t ranks = 1;  // 2 * ranks must divide seq_len, unless ranks is 1
  int64_t first = 0, count = 1;

  int64_t rows_per_sequence() const { return seq_len / ranks * count; }
  int64_t rows() const { return sequences * rows_per_sequence(); }

  // A run: consecutive rows with consecutive positions of one sequence. Every sequence has the same runs, in
  // ascending order of position.
  struct Run {
    int64_t row, position, length;
  };
  int64_t runs() const { return ranks == 1 ? 1 : 2 * count; }
  int64_t run_length() const { return ranks == 1 ? seq_len : seq_len / (2 * ranks); }
  Run run(int64_t sequence, int64_t index) const {
    if (ranks == 1) return {sequence * seq_len, 0, seq_len};
    const int64_t length = run_length();
    const bool second = index >= count;  // mirrored chunks come last, in descending rank order
    const int64_t at = second ? 2 * count - 1 - index : index;
    const int64_t chunk = second ? 2 * ranks - 1 - (first + at) : first + at;
    return {((at * sequences + sequence) * 2 + (second ? 1 : 0)) * length, chunk * length, length};
  }

  // The same sequences with the rows of all ranks.
  RowOrder whole() const { return {seq_len, sequences, ranks, 0, ranks}; }
  // The row of a position in a buffer of all ranks; the rest of its run follows.
  int64_t row_in_whole(int64_t sequence, int64_t position) const {
    const Run r = whole().run(sequence, position / run_length());
    return r.row + position - r.position;
  }
};

}  // namespace quintet::base
