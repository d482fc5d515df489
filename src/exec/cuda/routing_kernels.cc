// Routers of blocks with experts, and load balancing.
#include "exec/cuda/dropout_key.h"
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

void router(const Bound& b, bool) {
  decode::router(b, [&]<class T>(T, const auto& shape, auto* x, auto* w, auto* logits) {
    k::router<T>(shape, x, w, logits, b.stream);
    if (b.in.size() > 2) k::add_router_bias<T>(b.input<T>(2), logits, shape.rows, shape.routes, b.stream);
  });
}
void router_dx(const Bound& b, bool) {
  decode::router_dx(b, [&]<class T>(T, auto... a) { k::router_dx<T>(a..., b.stream); });
}
void select(const Bound& b, bool) {
  decode::select(b, [&]<class S>(S, auto... a) { k::select<S>(a..., b.stream); });
}
void select_dx(const Bound& b, bool) {
  decode::select_dx(b, [&]<class S>(S, auto... a) { k::select_dx<S>(a..., b.stream); });
}

void balance_loss(const Bound& b, bool accumulate) {
  decode::balance_loss(b, accumulate, [&]<class S>(S, auto... a) { k::balance_loss<S>(a..., b.stream); });
}
void balance_dsums(const Bound& b, bool) {
  decode::balance_dsums(b, [&]<class S>(S, auto... a) { k::scale_by<S>(a..., b.stream); });
}
void update_bias(const Bound& b, bool) {
  decode::update_bias(b, [&]<class S>(S, auto... a) { k::update_bias<S>(a..., b.stream); });
}

}  // namespace

#include "exec/bind/routing.inc"

}  // namespace quintet::exec::cuda
