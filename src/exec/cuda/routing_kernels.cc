// Routers of blocks with experts, and load balancing.
#include "exec/cuda/gradients.h"
#include "exec/decode/routing.h"
#include "kernels/cuda/elementwise/pointwise.h"
#include "kernels/cuda/experts/balance.h"
#include "kernels/cuda/experts/expert_bias.h"
#include "kernels/cuda/experts/router.h"
#include "kernels/cuda/experts/router_limit.h"
#include "kernels/cuda/experts/router_select.h"
#include "kernels/cuda/optimizer/scalars.h"

namespace quintet::exec::cuda {
namespace {

namespace k = kernels::cuda;

}  // namespace

const std::vector<Kernel>& routing_kernels() {
  static const std::vector<Kernel> table = {
      {&graph::kRouter,
       [](const Bound& b, bool) {
         decode::router(b, [&]<class T>(T, const auto& shape, auto* x, auto* w, auto* logits) {
           k::router<T>(shape, x, w, logits, b.stream);
           if (b.in.size() > 2)
             k::add_router_bias<T>(b.input<T>(2), logits, shape.rows, shape.routes, b.stream);
         });
       }},
      {&graph::kRouterDx,
       [](const Bound& b, bool) {
         decode::router_dx(b, [&]<class T>(T, auto... a) { k::router_dx<T>(a..., b.stream); });
       }},
      {&graph::kRouterDw,
       [](const Bound& b, bool accumulate) {
         decode::router_dw(b, accumulate, [&]<class T>(T, auto... a) { k::router_dw<T>(a..., b.stream); });
       }},
      {&graph::kSelect,
       [](const Bound& b, bool) {
         decode::select(b, [&]<class S>(S, auto... a) { k::select<S>(a..., b.stream); });
       }},
      {&graph::kSelectDx,
       [](const Bound& b, bool) {
         decode::select_dx(b, [&]<class S>(S, auto... a) { k::select_dx<S>(a..., b.stream); });
       }},
      {&graph::kLimit,
       [](const Bound& b, bool) {
         decode::limit(b, [&]<class S>(S, auto... a) { k::limit<S>(a..., b.workspace, b.stream); });
       }},
      {&graph::kExpertLoad,
       [](const Bound& b, bool accumulate) {
         decode::expert_load(b, accumulate,
                             [&]<class S>(S, auto... a) { k::expert_load<S>(a..., b.workspace, b.stream); });
       }},
      {&graph::kBalanceSums,
       [](const Bound& b, bool) {
         decode::balance_sums(
             b, [&]<class S>(S, auto... a) { k::balance_sums<S>(a..., b.workspace, b.stream); });
       }},
      {&graph::kBalanceDx,
       [](const Bound& b, bool) {
         decode::balance_dx(b, [&]<class S>(S, auto... a) { k::balance_dx<S>(a..., b.stream); });
       }},
      {&graph::kRunningSum,
       [](const Bound& b, bool accumulate) {
         decode::running_sum(b, [&]<class S>(S, auto* sums, double* running, int64_t n) {
           if (accumulate)
             k::accumulate<S, double>(sums, running, 1.0, n, b.stream);
           else
             k::cast<S, double>(sums, running, n, b.stream);
         });
       }},
      {&graph::kBalanceLoss,
       [](const Bound& b, bool accumulate) {
         decode::balance_loss(b, accumulate,
                              [&]<class S>(S, auto... a) { k::balance_loss<S>(a..., b.stream); });
       }},
      {&graph::kBalanceDsums,
       [](const Bound& b, bool) {
         decode::balance_dsums(b, [&]<class S>(S, auto... a) { k::scale_by<S>(a..., b.stream); });
       }},
      {&graph::kZLoss,
       [](const Bound& b, bool accumulate) {
         decode::z_loss(b, accumulate,
                        [&]<class S>(S, auto... a) { k::z_loss<S>(a..., b.workspace, b.stream); });
       }},
      {&graph::kZLossDx,
       [](const Bound& b, bool) {
         decode::z_loss_dx(b, [&]<class S>(S, auto... a) { k::z_loss_dx<S>(a..., b.stream); });
       }},
      {&graph::kUpdateBias,
       [](const Bound& b, bool) {
         decode::update_bias(b, [&]<class S>(S, auto... a) { k::update_bias<S>(a..., b.stream); });
       }},
  };
  return table;
}

}  // namespace quintet::exec::cuda
