// The router of blocks with experts, and the balance between experts.
#include "exec/cpu/gradients.h"
#include "exec/shapes.h"
#include "kernels/cpu/elementwise/pointwise.h"
#include "kernels/cpu/experts/balance.h"
#include "kernels/cpu/experts/router.h"
#include "kernels/cpu/experts/router_limit.h"
#include "kernels/cpu/experts/router_select.h"

namespace quintet::exec::cpu {
namespace {

using graph::Attrs;
using graph::DType;
using graph::Type;
using program::Instr;
namespace k = kernels::cpu;

void router(const Bound& b, bool) {
  with_type(b.in_type(0).dtype, [&]<class T>(T) {
    k::router<T>(router_shape(*b.instr), b.input<T>(0), b.input<T>(1), b.output<k::Stat<T>>(0), b.workspace,
                 *b.pool);
  });
}
int64_t router_bytes(const Instr& i, int threads) {
  return with_type(i.in[0].type.dtype,
                   [&]<class T>(T) { return k::router_workspace_bytes<T>(router_shape(i), threads); });
}

void router_dx(const Bound& b, bool) {
  with_type(b.in_type(1).dtype, [&]<class T>(T) {
    k::router_dx<T>(router_backward_shape(*b.instr), b.input<k::Stat<T>>(0), b.input<T>(1), b.output<T>(0),
                    b.workspace, *b.pool);
  });
}
int64_t router_dx_bytes(const Instr& i, int threads) {
  return with_type(i.in[1].type.dtype, [&]<class T>(T) {
    return k::router_dx_workspace_bytes<T>(router_backward_shape(i), threads);
  });
}

void router_dw(const Bound& b, bool accumulate) {
  with_type(b.in_type(1).dtype, [&]<class T>(T) {
    write_gradients<k::Grad<T>>(b, {0}, accumulate, [&](auto& dw, bool add, std::byte* workspace) {
      k::router_dw<T>(router_backward_shape(*b.instr), b.input<k::Stat<T>>(0), b.input<T>(1), dw[0], add,
                      workspace, *b.pool);
    });
  });
}
int64_t router_dw_bytes(const Instr& i, int threads) {
  return sums_bytes(i, {0}) + with_type(i.in[1].type.dtype, [&]<class T>(T) {
           return k::router_dw_workspace_bytes<T>(router_backward_shape(i), threads);
         });
}

void select(const Bound& b, bool) {  // logits[, bias][, positions] -> scores, chosen, weights
  const bool biased = b.instr->attrs.integer("biased") != 0;
  const bool forced = b.instr->attrs.integer("force_balance") != 0;
  with_stat(b.in_type(0).dtype, [&]<class S>(S) {
    k::select<S>(select_shape(*b.instr), b.input<S>(0), biased ? b.input<S>(1) : nullptr,
                 forced ? b.input<int32_t>(biased ? 2 : 1) : nullptr, b.output<S>(0), b.output<int32_t>(1),
                 b.output<S>(2), b.workspace, *b.pool);
  });
}
int64_t select_bytes(const Instr& i, int threads) {
  return with_stat(i.in[0].type.dtype,
                   [&]<class S>(S) { return k::select_workspace_bytes<S>(select_shape(i), threads); });
}

void select_dx(const Bound& b, bool) {  // logits, chosen[, dweights][, dscores] -> dlogits
  const bool weights = b.instr->attrs.integer("has_dweights") != 0;
  const bool scores = b.instr->attrs.integer("has_dscores") != 0;
  const k::SelectShape s = select_dx_shape(*b.instr);
  with_stat(b.in_type(0).dtype, [&]<class S>(S) {
    k::select_dx<S>(s, b.input<S>(0), b.input<int32_t>(1), weights ? b.input<S>(2) : nullptr,
                    scores ? b.input<S>(weights ? 3 : 2) : nullptr, b.output<S>(0), b.workspace, *b.pool);
  });
}
int64_t select_dx_bytes(const Instr& i, int threads) {
  const k::SelectShape s = select_dx_shape(i);
  return with_stat(i.in[0].type.dtype,
                   [&]<class S>(S) { return k::select_dx_workspace_bytes<S>(s, threads); });
}

void limit(const Bound& b, bool) {  // chosen, weights -> kept
  with_stat(b.in_type(1).dtype, [&]<class S>(S) {
    k::limit<S>(limit_shape(*b.instr), b.input<int32_t>(0), b.input<S>(1), b.output<int32_t>(0), b.workspace,
                *b.pool);
  });
}
int64_t limit_bytes(const Instr& i, int) { return k::limit_workspace_bytes(limit_shape(i)); }

void expert_load(const Bound& b, bool accumulate) {  // chosen, kept, scores -> load
  with_stat(b.in_type(2).dtype, [&]<class S>(S) {
    k::expert_load<S>(load_shape(*b.instr), b.input<int32_t>(0), b.input<int32_t>(1), b.input<S>(2),
                      b.output<double>(0), accumulate, b.workspace, *b.pool);
  });
}
int64_t expert_load_bytes(const Instr& i, int) { return k::expert_load_workspace_bytes(load_shape(i)); }

void balance_sums(const Bound& b, bool) {  // scores, chosen -> sums
  const Type& scores = b.in_type(0);
  with_stat(scores.dtype, [&]<class S>(S) {
    k::balance_sums<S>(sums_order(b.instr->attrs, scores.size(0)), scores.size(1), b.in_type(1).size(1),
                       b.input<S>(0), b.input<int32_t>(1), b.output<S>(0), b.workspace, *b.pool);
  });
}
int64_t balance_sums_bytes(const Instr& i, int) {
  const Type& scores = i.in[0].type;
  return k::balance_sums_workspace_bytes(sums_order(i.attrs, scores.size(0)), scores.size(1));
}

void balance_dx(const Bound& b, bool) {  // dsums, chosen -> dscores
  const Type& dscores = b.out_type(0);
  with_stat(dscores.dtype, [&]<class S>(S) {
    k::balance_dx<S>(sums_order(b.instr->attrs, dscores.size(0)), dscores.size(1), b.input<S>(0),
                     b.output<S>(0), *b.pool);
  });
}

void running_sum(const Bound& b, bool accumulate) {
  const Type& sums = b.in_type(0);
  with_stat(sums.dtype, [&]<class S>(S) {
    if (accumulate)
      k::accumulate<S, double>(b.input<S>(0), b.output<double>(0), 1.0, sums.count(), *b.pool);
    else
      k::cast<S, double>(b.input<S>(0), b.output<double>(0), sums.count(), *b.pool);
  });
}

void balance_loss(const Bound& b, bool accumulate) {  // sums[, running] -> loss, slope
  const Type& sums = b.in_type(0);
  const Attrs& a = b.instr->attrs;
  const k::BalanceLoss s = {.groups_here = sums.num_dims() == 2 ? sums.size(0) : 1,
                            .groups = a.integer("groups"),
                            .tokens = a.integer("tokens"),
                            .experts = a.integer("experts"),
                            .k = a.integer("k"),
                            .coefficient = a.real("coefficient")};
  with_stat(sums.dtype, [&]<class S>(S) {
    k::balance_loss<S>(s, b.input<S>(0), b.in.size() > 1 ? b.input<double>(1) : nullptr, b.output<double>(0),
                       accumulate, b.output<S>(1));
  });
}

void balance_dsums(const Bound& b, bool) {  // slope, dloss -> dsums
  const Type& slope = b.in_type(0);
  with_stat(slope.dtype, [&]<class S>(S) {
    k::scale<S>(b.input<S>(0), *b.input<double>(1), b.output<S>(0), slope.count(), *b.pool);
  });
}

void z_loss(const Bound& b, bool accumulate) {
  const Type& x = b.in_type(0);
  with_stat(x.dtype, [&]<class S>(S) {
    k::z_loss<S>(b.input<S>(0), x.size(0), x.size(1), b.instr->attrs.real("coefficient"), b.output<double>(0),
                 accumulate, b.workspace, *b.pool);
  });
}
int64_t z_loss_bytes(const Instr& i, int) { return k::z_loss_workspace_bytes(i.in[0].type.size(0)); }

void z_loss_dx(const Bound& b, bool) {  // logits, dloss -> dlogits
  const Type& x = b.in_type(0);
  with_stat(x.dtype, [&]<class S>(S) {
    k::z_loss_dx<S>(b.input<S>(0), x.size(0), x.size(1), b.instr->attrs.real("coefficient"),
                    b.input<double>(1), b.output<S>(0), *b.pool);
  });
}

void update_bias(const Bound& b, bool) {  // load, scalars, bias -> bias
  QUINTET_CHECK(b.in[2] == b.out[0], "update_bias works in place");
  if (*b.input<double>(1) == 0) return;
  const Type& bias = b.out_type(0);
  with_stat(bias.dtype, [&]<class S>(S) {
    k::update_bias<S>(b.input<double>(0), bias.size(0), b.instr->attrs.real("rate"), b.output<S>(0));
  });
}

}  // namespace

const std::vector<Kernel>& router_kernels() {
  static const std::vector<Kernel> table = {{&graph::kRouter, router, router_bytes},
                                            {&graph::kRouterDx, router_dx, router_dx_bytes},
                                            {&graph::kRouterDw, router_dw, router_dw_bytes},
                                            {&graph::kSelect, select, select_bytes},
                                            {&graph::kSelectDx, select_dx, select_dx_bytes},
                                            {&graph::kLimit, limit, limit_bytes},
                                            {&graph::kExpertLoad, expert_load, expert_load_bytes},
                                            {&graph::kBalanceSums, balance_sums, balance_sums_bytes},
                                            {&graph::kBalanceDx, balance_dx, nullptr},
                                            {&graph::kRunningSum, running_sum, nullptr},
                                            {&graph::kBalanceLoss, balance_loss, nullptr},
                                            {&graph::kBalanceDsums, balance_dsums, nullptr},
                                            {&graph::kZLoss, z_loss, z_loss_bytes},
                                            {&graph::kZLossDx, z_loss_dx, nullptr},
                                            {&graph::kUpdateBias, update_bias, nullptr}};
  return table;
}

}  // namespace quintet::exec::cpu
