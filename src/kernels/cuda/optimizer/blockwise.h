// AdamW whose moments are 8-bit codes with a scale for every block of elements (kernels/dynamic_map.h).
#pragma once

#include "kernels/cuda/optimizer/optimizer.h"

namespace quintet::kernels::cuda {

// As adamw; contract of codes and scales in kernels/cpu/optimizer/optimizer.h. Ranges begin at the first
// element of a block. Blocks of 256 have a kernel of their own; others are served element by element.
// Instances <Master, Gradient, Copy>: <double, double, any of the three>, <float, float, float>, <float,
// float, Bf16>, <float, float, F16>, <float, Bf16, Bf16>; of split masters <float>, <Bf16>.
template <class Master, class Gradient, class Copy>
void adamw8bit(std::span<const BlockUpdateRange<Master, Gradient, Copy>> ranges, int64_t block_size,
               const AdamWScalars& scalars, Stream stream);
template <class Gradient>
void adamw8bit(std::span<const SplitBlockUpdateRange<Gradient>> ranges, int64_t block_size,
               const AdamWScalars& scalars, Stream stream);

}  // namespace quintet::kernels::cuda
