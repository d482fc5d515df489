// Shared by all CPU kernels.
//
// Contract of the folder: raw pointers and sizes, row-major contiguous rows unless a stride is named, no
// graph, no allocation. A kernel that needs scratch takes `workspace` and provides <name>_workspace_bytes;
// the workspace must be aligned to kWorkspaceAlignment and holds nothing between calls. On one machine the
// bits of a result depend on the inputs alone, never on the number of threads: work is split over independent
// rows, or into chunks of a fixed size whose partial results are added in a fixed order. Machines with
// different vector units may differ in the last bits. Outputs may alias inputs only where a kernel says so.
// Sizes of zero are legal: sums over nothing are written as zero, and nothing else is written.
//
// T is the element type (double, float, base::Bf16, base::F16), Stat<T> the type of sums and row statistics
// (double for double, else float), Grad<T> the type of parameter gradients (the same).
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/dtype.h"
#include "base/f16.h"
#include "device/thread_pool.h"

namespace quintet::kernels::cpu {

using base::Bf16;
using base::F16;
using device::ThreadPool;

template <class T>
using Stat = std::conditional_t<std::is_same_v<T, double>, double, float>;
template <class T>
using Grad = Stat<T>;

inline constexpr int64_t kWorkspaceAlignment = 64;

}  // namespace quintet::kernels::cpu
