// Norms.
#include "exec/cpu/gradients.h"
#include "exec/decode/norm.h"
#include "kernels/cpu/elementwise/pointwise.h"
#include "kernels/cpu/norm/norm.h"

namespace quintet::exec::cpu {
namespace {

namespace k = kernels::cpu;

// What CUDA does in one kernel takes two here.
void add_rms_norm(const Bound& b, bool) {
  decode::add_rms_norm(b, [&]<class T>(T, auto* x, auto* residual, auto* w, auto* sum, auto* y, auto* rstd,
                                       int64_t rows, int64_t n, double eps) {
    k::add<T>(x, residual, sum, rows * n, *b.pool);
    k::rmsnorm<T>(sum, w, y, rstd, rows, n, eps, *b.pool, decode::norm_offset(b));
  });
}
void rms_norm_dx(const Bound& b, bool) {
  decode::rms_norm_dx(b, [&]<class T>(T, auto* dy, auto* x, auto* w, auto* rstd, auto* addend, auto* dx,
                                      int64_t rows, int64_t n) {
    k::rmsnorm_dx<T>(dy, x, w, rstd, addend, dx, nullptr, rows, n, *b.pool, decode::norm_offset(b));
  });
}
void rms_norm_backward(const Bound& b, bool accumulate) {  // the weight's first: dx may be stored over dy
  decode::rms_norm_backward(
      b, accumulate,
      [&]<class T>(T, auto* dy, auto* x, auto* w, auto* rstd, auto* addend, auto* dx, auto* y, auto* dw,
                   bool add, int64_t rows, int64_t n, std::byte* workspace) {
        k::rmsnorm_dw<T>(dy, x, rstd, dw, add, rows, n, workspace, *b.pool);
        k::rmsnorm_dx<T>(dy, x, w, rstd, addend, dx, y, rows, n, *b.pool, decode::norm_offset(b));
      });
}
void add_layer_norm(const Bound& b, bool) {
  decode::add_layer_norm(b, [&]<class T>(T, auto* x, auto* residual, auto* w, auto* bias, auto* sum, auto* y,
                                         auto* mean, auto* rstd, int64_t rows, int64_t n, double eps) {
    k::add<T>(x, residual, sum, rows * n, *b.pool);
    k::layernorm<T>(sum, w, bias, y, mean, rstd, rows, n, eps, *b.pool);
  });
}
void layer_norm_dx(const Bound& b, bool) {
  decode::layer_norm_dx(b, [&]<class T>(T, auto* dy, auto* x, auto* w, auto* mean, auto* rstd, auto* addend,
                                        auto* dx, int64_t rows, int64_t n) {
    k::layernorm_dx<T>(dy, x, w, nullptr, mean, rstd, addend, dx, nullptr, rows, n, *b.pool);
  });
}
void layer_norm_backward(const Bound& b, bool accumulate) {
  decode::layer_norm_backward(
      b, accumulate,
      [&]<class T>(T, auto* dy, auto* x, auto* w, auto* bias, auto* mean, auto* rstd, auto* addend, auto* dx,
                   auto* y, auto* dw, auto* db, bool add, int64_t rows, int64_t n, std::byte* workspace) {
        k::layernorm_dw<T>(dy, x, mean, rstd, dw, db, add, rows, n, workspace, *b.pool);
        k::layernorm_dx<T>(dy, x, w, bias, mean, rstd, addend, dx, y, rows, n, *b.pool);
      });
}

}  // namespace

const std::vector<Kernel>& norm_kernels() {
  static const std::vector<Kernel> table = {
      {&graph::kRmsNorm,
       [](const Bound& b, bool) {
         decode::rms_norm(
             b, [&]<class T>(T, auto... a) { k::rmsnorm<T>(a..., *b.pool, decode::norm_offset(b)); });
       }},
      {&graph::kAddRmsNorm, add_rms_norm},
      {&graph::kRmsNormDx, rms_norm_dx},
      {&graph::kRmsNormDw,
       [](const Bound& b, bool accumulate) {
         decode::rms_norm_dw(b, accumulate, [&]<class T>(T, auto... a) { k::rmsnorm_dw<T>(a..., *b.pool); });
       }},
      {&graph::kRmsNormBackward, rms_norm_backward},
      {&graph::kLayerNorm,
       [](const Bound& b, bool) {
         decode::layer_norm(b, [&]<class T>(T, auto... a) { k::layernorm<T>(a..., *b.pool); });
       }},
      {&graph::kAddLayerNorm, add_layer_norm},
      {&graph::kLayerNormDx, layer_norm_dx},
      {&graph::kLayerNormDw,
       [](const Bound& b, bool accumulate) {
         decode::layer_norm_dw(b, accumulate,
                               [&]<class T>(T, auto... a) { k::layernorm_dw<T>(a..., *b.pool); });
       }},
      {&graph::kLayerNormBackward, layer_norm_backward},
  };
  return table;
}

}  // namespace quintet::exec::cpu
