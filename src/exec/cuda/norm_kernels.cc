// Norms.
#include "exec/cuda/gradients.h"
#include "exec/decode/norm.h"
#include "kernels/cuda/norm/norm.h"

namespace quintet::exec::cuda {
namespace {

namespace k = kernels::cuda;

}  // namespace

const std::vector<Kernel>& norm_kernels() {
  static const std::vector<Kernel> table = {
      {&graph::kRmsNorm,
       [](const Bound& b, bool) {
         decode::rms_norm(
             b, [&]<class T>(T, auto... a) { k::rmsnorm<T>(a..., b.stream, decode::norm_offset(b)); });
       }},
      {&graph::kAddRmsNorm,
       [](const Bound& b, bool) {
         decode::add_rms_norm(
             b, [&]<class T>(T, auto... a) { k::add_rmsnorm<T>(a..., b.stream, decode::norm_offset(b)); });
       }},
      {&graph::kRmsNormDx,
       [](const Bound& b, bool) {
         decode::rms_norm_dx(
             b, [&]<class T>(T, auto... a) { k::rmsnorm_dx<T>(a..., b.stream, decode::norm_offset(b)); });
       }},
      {&graph::kRmsNormDw,
       [](const Bound& b, bool accumulate) {
         decode::rms_norm_dw(b, accumulate, [&]<class T>(T, auto... a) { k::rmsnorm_dw<T>(a..., b.stream); });
       }},
      {&graph::kRmsNormBackward,
       [](const Bound& b, bool accumulate) {
         decode::rms_norm_backward(b, accumulate, [&]<class T>(T, auto... a) {
           k::rmsnorm_backward<T>(a..., b.stream, decode::norm_offset(b));
         });
       }},
      {&graph::kLayerNorm,
       [](const Bound& b, bool) {
         decode::layer_norm(b, [&]<class T>(T, auto... a) { k::layernorm<T>(a..., b.stream); });
       }},
      {&graph::kAddLayerNorm,
       [](const Bound& b, bool) {
         decode::add_layer_norm(b, [&]<class T>(T, auto... a) { k::add_layernorm<T>(a..., b.stream); });
       }},
      {&graph::kLayerNormDx,
       [](const Bound& b, bool) {
         decode::layer_norm_dx(b, [&]<class T>(T, auto... a) { k::layernorm_dx<T>(a..., b.stream); });
       }},
      {&graph::kLayerNormDw,
       [](const Bound& b, bool accumulate) {
         decode::layer_norm_dw(b, accumulate,
                               [&]<class T>(T, auto... a) { k::layernorm_dw<T>(a..., b.stream); });
       }},
      {&graph::kLayerNormBackward,
       [](const Bound& b, bool accumulate) {
         decode::layer_norm_backward(
             b, accumulate, [&]<class T>(T, auto... a) { k::layernorm_backward<T>(a..., b.stream); });
       }},
  };
  return table;
}

}  // namespace quintet::exec::cuda
