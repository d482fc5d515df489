// Routers of blocks with experts, and load balancing.
#include "exec/cpu/gradients.h"
#include "exec/decode/routing.h"
#include "kernels/cpu/elementwise/pointwise.h"
#include "kernels/cpu/experts/balance.h"
#include "kernels/cpu/experts/expert_bias.h"
#include "kernels/cpu/experts/router.h"
#include "kernels/cpu/experts/router_limit.h"
#include "kernels/cpu/experts/router_select.h"

namespace quintet::exec::cpu {
namespace {

namespace k = kernels::cpu;

}  // namespace

const std::vector<Kernel>& routing_kernels() {
  static const std::vector<Kernel> table = {
      {&graph::kRouter,
       [](const Bound& b, bool) {
         decode::router(b, [&]<class T>(T, const auto& shape, auto* x, auto* w, auto* logits) {
           k::router<T>(shape, x, w, logits, b.workspace, *b.pool);
           if (b.in.size() > 2)
             k::add_router_bias<T>(b.input<T>(2), logits, shape.rows, shape.routes, *b.pool);
         });
       }},
      {&graph::kRouterDx,
       [](const Bound& b, bool) {
         decode::router_dx(b, [&]<class T>(T, auto... a) { k::router_dx<T>(a..., b.workspace, *b.pool); });
       }},
      {&graph::kRouterDw,
       [](const Bound& b, bool accumulate) {
         decode::router_dw(b, accumulate, [&]<class T>(T, auto... a) { k::router_dw<T>(a..., *b.pool); });
       }},
      {&graph::kSelect,
       [](const Bound& b, bool) {
         decode::select(b, [&]<class S>(S, auto... a) { k::select<S>(a..., b.workspace, *b.pool); });
       }},
      {&graph::kSelectDx,
       [](const Bound& b, bool) {
         decode::select_dx(b, [&]<class S>(S, auto... a) { k::select_dx<S>(a..., b.workspace, *b.pool); });
       }},
      {&graph::kLimit,
       [](const Bound& b, bool) {
         decode::limit(b, [&]<class S>(S, auto... a) { k::limit<S>(a..., b.workspace, *b.pool); });
       }},
      {&graph::kExpertLoad,
       [](const Bound& b, bool accumulate) {
         decode::expert_load(b, accumulate,
                             [&]<class S>(S, auto... a) { k::expert_load<S>(a..., b.workspace, *b.pool); });
       }},
      {&graph::kBalanceSums,
       [](const Bound& b, bool) {
         decode::balance_sums(b,
                              [&]<class S>(S, auto... a) { k::balance_sums<S>(a..., b.workspace, *b.pool); });
       }},
      {&graph::kBalanceDx,
       [](const Bound& b, bool) {
         decode::balance_dx(b, [&]<class S>(S, auto... a) { k::balance_dx<S>(a..., *b.pool); });
       }},
      {&graph::kRunningSum,
       [](const Bound& b, bool accumulate) {
         decode::running_sum(b, [&]<class S>(S, auto* sums, double* running, int64_t n) {
           if (accumulate)
             k::accumulate<S, double>(sums, running, 1.0, n, *b.pool);
           else
             k::cast<S, double>(sums, running, n, *b.pool);
         });
       }},
      {&graph::kBalanceLoss,
       [](const Bound& b, bool accumulate) {
         decode::balance_loss(b, accumulate, []<class S>(S, auto... a) { k::balance_loss<S>(a...); });
       }},
      {&graph::kBalanceDsums,
       [](const Bound& b, bool) {
         decode::balance_dsums(b, [&]<class S>(S, auto* slope, double* dloss, auto* dsums, int64_t n) {
           k::scale<S>(slope, *dloss, dsums, n, *b.pool);
         });
       }},
      {&graph::kZLoss,
       [](const Bound& b, bool accumulate) {
         decode::z_loss(b, accumulate,
                        [&]<class S>(S, auto... a) { k::z_loss<S>(a..., b.workspace, *b.pool); });
       }},
      {&graph::kZLossDx,
       [](const Bound& b, bool) {
         decode::z_loss_dx(b, [&]<class S>(S, auto... a) { k::z_loss_dx<S>(a..., *b.pool); });
       }},
      {&graph::kUpdateBias,
       [](const Bound& b, bool) {
         decode::update_bias(
             b, []<class S>(S, auto* load, int64_t experts, double rate, double* ok, auto* bias) {
               if (*ok != 0) k::update_bias<S>(load, experts, rate, bias);
             });
       }},
  };
  return table;
}

}  // namespace quintet::exec::cpu
