#include "exec/decode/elementwise.h"

#include "exec/decode/scratch.h"
#include "kernels/cpu/reduce/reduce.h"
#include "kernels/cuda/reduce/reduce.h"

namespace quintet::exec {
namespace {

using program::Instr;

int64_t sum_rows_bytes(const Instr& i, int) {
  const graph::Type& x = i.in[0].type;
  return sums_bytes(i, {0}) + with_type(x.dtype, [&]<class T>(T) {
           return kernels::cpu::column_sum_workspace_bytes<T>(x.size(0), columns(x));
         });
}
int64_t cuda_sum_rows_bytes(const Instr& i) {
  const graph::Type& x = i.in[0].type;
  return with_type(x.dtype, [&]<class T>(T) {
    return kernels::cuda::column_sum_workspace_bytes<T>(x.size(0), columns(x));
  });
}
// The derived key.
int64_t cuda_dropout_bytes(const Instr&) { return int64_t{sizeof(uint64_t)}; }

}  // namespace

const std::vector<Scratch>& elementwise_scratch() {
  static const std::vector<Scratch> table = {{&graph::kSumRows, sum_rows_bytes, cuda_sum_rows_bytes},
                                             {&graph::kDropout, nullptr, cuda_dropout_bytes},
                                             {&graph::kJitter, nullptr, cuda_dropout_bytes}};
  return table;
}

}  // namespace quintet::exec
