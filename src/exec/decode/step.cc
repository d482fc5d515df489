#include "exec/decode/step.h"

#include <algorithm>

#include "exec/decode/scratch.h"
#include "kernels/cpu/reduce/reduce.h"
#include "kernels/cuda/reduce/reduce.h"

namespace quintet::exec {
namespace {

using program::Instr;

// The ranges are summed one after the other on a CPU, together on a GPU.
int64_t sum_squares_bytes(const Instr& i, int) {
  int64_t bytes = 0;
  for (const program::Operand& o : i.in)
    bytes = std::max(bytes, kernels::cpu::reduce_workspace_bytes(o.type.count()));
  return bytes;
}
int64_t cuda_sum_squares_bytes(const Instr& i) {
  int64_t bytes = 0;
  for (const program::FlatRange& r : program::flat_ranges(i))
    bytes += kernels::cuda::reduce_workspace_bytes(r.count);
  return bytes;
}

// Norms of parameters are two sums for every range, one range after the other.
int64_t norms_bytes(const Instr& i, int threads) { return 2 * sum_squares_bytes(i, threads); }
int64_t cuda_norms_bytes(const Instr& i) {
  int64_t bytes = 0;
  for (const program::FlatRange& r : program::flat_ranges(i))
    bytes = std::max(bytes, 2 * kernels::cuda::reduce_workspace_bytes(r.count));
  return bytes;
}

}  // namespace

const std::vector<Scratch>& step_scratch() {
  static const std::vector<Scratch> table = {{&graph::kSumSquares, sum_squares_bytes, cuda_sum_squares_bytes},
                                             {&graph::kMaxAbs, sum_squares_bytes, cuda_sum_squares_bytes},
                                             {&graph::kLambNorms, norms_bytes, cuda_norms_bytes},
                                             {&graph::kLarsNorms, norms_bytes, cuda_norms_bytes}};
  return table;
}

}  // namespace quintet::exec
