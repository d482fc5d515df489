#include "exec/decode/norm.h"

#include "exec/decode/scratch.h"
#include "kernels/cpu/norm/norm.h"
#include "kernels/cuda/norm/norm.h"

namespace quintet::exec {
namespace {

using program::Instr;

int64_t rms_norm_sums(const Instr& i) {
  const graph::Type& x = i.in[0].type;
  return with_type(x.dtype, [&]<class T>(T) {
    return kernels::cpu::rmsnorm_dw_workspace_bytes<T>(norm_rows(i), norm_size(i));
  });
}
int64_t rms_norm_dw_bytes(const Instr& i, int) { return sums_bytes(i, {0}) + rms_norm_sums(i); }
int64_t rms_norm_backward_bytes(const Instr& i, int) { return sums_bytes(i, {1}) + rms_norm_sums(i); }

int64_t layer_norm_sums(const Instr& i) {
  const graph::Type& x = i.in[0].type;
  return with_type(x.dtype, [&]<class T>(T) {
    return kernels::cpu::layernorm_dw_workspace_bytes<T>(num_rows(x), last_size(x));
  });
}
int64_t layer_norm_dw_bytes(const Instr& i, int) { return sums_bytes(i, {0, 1}) + layer_norm_sums(i); }
int64_t layer_norm_backward_bytes(const Instr& i, int) {
  const bool bias = i.attrs.integer("bias") != 0;
  return (bias ? sums_bytes(i, {1, 2}) : sums_bytes(i, {1})) + layer_norm_sums(i);
}

int64_t cuda_rms_norm_bytes(const Instr& i) {
  const graph::Type& x = i.in[0].type;
  return with_type(x.dtype, [&]<class T>(T) {
    return kernels::cuda::rmsnorm_dw_workspace_bytes<T>(norm_rows(i), norm_size(i));
  });
}
int64_t cuda_layer_norm_bytes(const Instr& i) {
  const graph::Type& x = i.in[0].type;
  return with_type(x.dtype, [&]<class T>(T) {
    return kernels::cuda::layernorm_dw_workspace_bytes<T>(num_rows(x), last_size(x));
  });
}

}  // namespace

const std::vector<Scratch>& norm_scratch() {
  static const std::vector<Scratch> table = {
      {&graph::kRmsNormDw, rms_norm_dw_bytes, cuda_rms_norm_bytes},
      {&graph::kRmsNormBackward, rms_norm_backward_bytes, cuda_rms_norm_bytes},
      {&graph::kLayerNormDw, layer_norm_dw_bytes, cuda_layer_norm_bytes},
      {&graph::kLayerNormBackward, layer_norm_backward_bytes, cuda_layer_norm_bytes}};
  return table;
}

}  // namespace quintet::exec
