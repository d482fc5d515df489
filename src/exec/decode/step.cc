#include "exec/decode/step.h"

#include <algorithm>

#include "exec/decode/factors.h"
#include "exec/decode/scratch.h"
#include "kernels/cpu/reduce/reduce.h"
#include "kernels/cuda/optimizer/adafactor.h"
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

// One range after the other, too.
int64_t cuda_factor_sums_bytes(const Instr& i) {
  const std::vector<graph::FactoredParam> params = graph::factored_params(i.attrs);
  const std::vector<program::FlatRange> ranges = program::flat_ranges(i);
  const std::vector<kernels::Origin> origins = update_origins(i, ranges.size());
  int64_t bytes = 0;
  for (size_t r = 0; r < ranges.size(); ++r)
    bytes = std::max(bytes, kernels::cuda::factor_sums_bytes(
                                {.origin = origins[r],
                                 .columns = params.at(static_cast<size_t>(ranges[r].row / 2 - 1)).columns}));
  return bytes;
}
int64_t cuda_factor_norms_bytes(const Instr&) { return kernels::cuda::kFactorNormsBytes; }

}  // namespace

const std::vector<Scratch>& step_scratch() {
  static const std::vector<Scratch> table = {{&graph::kSumSquares, sum_squares_bytes, cuda_sum_squares_bytes},
                                             {&graph::kMaxAbs, sum_squares_bytes, cuda_sum_squares_bytes},
                                             {&graph::kLambNorms, norms_bytes, cuda_norms_bytes},
                                             {&graph::kLarsNorms, norms_bytes, cuda_norms_bytes},
                                             {&graph::kFactorSums, nullptr, cuda_factor_sums_bytes},
                                             {&graph::kFactorNorms, nullptr, cuda_factor_norms_bytes}};
  return table;
}

}  // namespace quintet::exec
