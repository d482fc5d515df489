#include "exec/decode/generate.h"

#include "exec/decode/scratch.h"
#include "kernels/cpu/generate/cached_attention.h"
#include "kernels/cpu/generate/sample.h"
#include "kernels/cuda/generate/generate.h"
#include "program/cache_ops.h"

namespace quintet::exec {
namespace {

int64_t cached_attention_bytes(const program::Instr& i, int threads) {
  return kernels::cpu::cached_attention_workspace_bytes(decode::cached_attention_sizes(i), threads);
}

int64_t cuda_cached_attention_bytes(const program::Instr& i) {
  const base::DType dtype = i.in[5].type.dtype;
  return kernels::cuda::cached_attention_workspace_bytes(decode::cached_attention_sizes(i),
                                                         dtype == base::DType::BF16,
                                                         base::size_of(base::accumulator_of(dtype)));
}

int64_t sample_bytes(const program::Instr& i, int threads) {
  return kernels::cpu::sample_workspace_bytes(i.attrs.integer("vocab"), threads);
}

}  // namespace

const std::vector<Scratch>& generate_scratch() {
  static const std::vector<Scratch> table = {
      {&graph::kCachedAttention, cached_attention_bytes, cuda_cached_attention_bytes},
      {&graph::kSample, sample_bytes, nullptr}};
  return table;
}

}  // namespace quintet::exec
