// Routers of blocks with experts, and load balancing.
#include "exec/cpu/dropout_key.h"
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

void router(const Bound& b, bool) {
  decode::router(b, [&]<class T>(T, const auto& shape, auto* x, auto* w, auto* logits) {
    k::router<T>(shape, x, w, logits, b.workspace, *b.pool);
    if (b.in.size() > 2) k::add_router_bias<T>(b.input<T>(2), logits, shape.rows, shape.routes, *b.pool);
  });
}
void router_dx(const Bound& b, bool) {
  decode::router_dx(b, [&]<class T>(T, auto... a) { k::router_dx<T>(a..., b.workspace, *b.pool); });
}
void select(const Bound& b, bool) {
  decode::select(b, [&]<class S>(S, auto... a) { k::select<S>(a..., b.workspace, *b.pool); });
}
void select_dx(const Bound& b, bool) {
  decode::select_dx(b, [&]<class S>(S, auto... a) { k::select_dx<S>(a..., b.workspace, *b.pool); });
}

void balance_loss(const Bound& b, bool accumulate) {
  decode::balance_loss(b, accumulate, []<class S>(S, auto... a) { k::balance_loss<S>(a...); });
}
void balance_dsums(const Bound& b, bool) {
  decode::balance_dsums(b, [&]<class S>(S, auto* slope, double* dloss, auto* dsums, int64_t n) {
    k::scale<S>(slope, *dloss, dsums, n, *b.pool);
  });
}
void update_bias(const Bound& b, bool) {
  decode::update_bias(b, []<class S>(S, auto* load, int64_t experts, double rate, double* ok, auto* bias) {
    if (*ok != 0) k::update_bias<S>(load, experts, rate, bias);
  });
}

}  // namespace

#include "exec/bind/routing.inc"

}  // namespace quintet::exec::cpu
