// Random and constant numbers by an element's global index, independent of its placement.
#pragma once

#include "kernels/cuda/support/types.h"

namespace quintet::kernels::cuda {

// A part of a tensor of up to kMaxBoxDims dims: element i of the box, row-major, is element begin + i of the
// whole, dim by dim.
inline constexpr int kMaxBoxDims = 8;
struct Box {
  int dims = 0;
  int64_t box[kMaxBoxDims] = {}, whole[kMaxBoxDims] = {}, begin[kMaxBoxDims] = {};
};

enum class Numbers : uint8_t { Zeros, Ones, Normal };

// out[i] for i in [0, n) is element first + i of the box: 0, 1 or stddev x base::normal(key, its index in the
// whole); padding outside the whole is 0. The words of the generator are base::philox's, bit for bit. The
// normal transform is computed in double as on the CPU, with the device's log and cos, which may differ from
// the host's in the last bits: f64 results agree to about 4 units in the last place; f32 and bf16 results are
// equal except for about one in a hundred million, which differs by one unit.
template <class T>
void draw(T* out, int64_t n, Numbers numbers, double stddev, uint64_t key, const Box& box, int64_t first,
          Stream stream);

}  // namespace quintet::kernels::cuda
