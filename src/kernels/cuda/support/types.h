// Shared by all CUDA kernels.
//
// Contract of the folder: the functions of kernels/cpu with the same names and meanings, on device memory.
// Every pointer is a device pointer unless a comment says "host"; a call enqueues work on the stream and
// returns, so it can be captured in a graph. No allocation and no synchronisation, except in Matmul::tune.
// Scratch is passed by the caller as on the CPU, aligned to kWorkspaceAlignment, and its size is a function
// of the sizes alone, so that a plan needs no device. No floating-point atomics: the bits of a result depend
// on the inputs, the sizes and the GPU model. Rows whose length and addresses are multiples of 16 bytes are
// moved 16 bytes at a time; all others one element at a time. Outputs may alias inputs only where a kernel
// says so.
//
// T is the element type (double, float, base::Bf16, base::F16), Stat<T> the type of sums and row statistics.
// Double exists to test whole programs to its precision and is not tuned.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/dtype.h"
#include "base/f16.h"

struct CUstream_st;

namespace quintet::kernels::cuda {

using base::Bf16;
using base::F16;
using Stream = ::CUstream_st*;  // a cudaStream_t, without the vendor's headers

template <class T>
using Stat = std::conditional_t<std::is_same_v<T, double>, double, float>;
template <class T>
using Grad = Stat<T>;

inline constexpr int64_t kWorkspaceAlignment = 256;

}  // namespace quintet::kernels::cuda
