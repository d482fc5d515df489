// Matrices whose codes follow one another, as tiles of one launch.
#pragma once

#include <span>
#include <string>

#include "kernels/cuda/fp8/launch_tiles.cuh"
#include "kernels/quantize_args.h"

namespace quintet::kernels::cuda {

// As part_of_block() reads it: part i has the blocks from block_end[i - 1] to block_end[i].
struct Parts {
  static constexpr int kMost = 16;
  int count = 0;
  unsigned block_end[kMost];
  const Bf16* x[kMost];
  int64_t rows[kMost], first_row[kMost];

  unsigned blocks() const { return count == 0 ? 0 : block_end[count - 1]; }
  // Of a block of threads.
  __device__ __forceinline__ TilePlace place(int part, unsigned block, unsigned across,
                                             int64_t columns) const {
    const unsigned tile = block - (part > 0 ? block_end[part - 1] : 0);
    return {int64_t{tile / across} * kTile, int64_t{tile % across} * kTile, rows[part], columns};
  }
};

inline Parts parts_of(std::span<const QuantizePart> parts, int64_t columns, const char* what) {
  if (parts.size() > Parts::kMost) fail(std::string(what) + ": too many parts");
  Parts list;
  int64_t rows = 0;
  unsigned blocks = 0;
  for (const QuantizePart& part : parts) {
    if (part.rows <= 0 || columns <= 0) continue;
    blocks += tiles_of(part.rows) * tiles_of(columns);
    list.x[list.count] = static_cast<const Bf16*>(part.x);
    list.rows[list.count] = part.rows;
    list.first_row[list.count] = rows;
    list.block_end[list.count++] = blocks;
    rows += part.rows;
  }
  return list;
}

}  // namespace quintet::kernels::cuda
