#include "exec/decode/routing.h"

#include "base/error.h"
#include "exec/decode/scratch.h"
#include "exec/with_type.h"
#include "kernels/cpu/experts/balance.h"
#include "kernels/cpu/experts/router.h"
#include "kernels/cpu/experts/router_limit.h"
#include "kernels/cpu/experts/router_select.h"
#include "kernels/cuda/experts/balance.h"
#include "kernels/cuda/experts/router.h"
#include "kernels/cuda/experts/router_limit.h"
#include "program/words.h"

namespace quintet::exec {
namespace {

using graph::Attrs;
using graph::Type;
using program::Instr;
namespace k = kernels::cpu;

// The order of `rows` rows that hold whole sequences.
base::RowOrder sequence_order(const Attrs& a, int64_t rows) {
  const int64_t seq_len = a.integer("seq_len"), cp = a.integer("cp");
  QUINTET_CHECK(rows % seq_len == 0, "{} rows are not whole sequences of {}", rows, seq_len);
  return {.seq_len = seq_len, .sequences = rows / seq_len, .ranks = cp, .first = 0, .count = cp};
}

kernels::Score score_of(const Attrs& a) {
  switch (graph::choice<graph::Score>(a)) {
    case graph::Score::Softmax:
      return kernels::Score::Softmax;
    case graph::Score::Sigmoid:
      return kernels::Score::Sigmoid;
    case graph::Score::SqrtSoftplus:
      return kernels::Score::SqrtSoftplus;
  }
  return kernels::Score::Softmax;
}

// Shared by select and select_dx; the choices are those of `chosen`.
kernels::SelectShape scoring(const Attrs& a, const Type& logits, const Type& chosen) {
  return {.rows = logits.size(0),
          .experts = logits.size(1),
          .k = chosen.size(1),
          .score = score_of(a),
          .top_k_first = graph::choice<graph::ChoiceOrder>(a) == graph::ChoiceOrder::TopKFirst,
          .normalise = a.integer("normalise") != 0,
          .scale = a.real("scale")};
}

}  // namespace

kernels::RouterShape router_shape(const Instr& i) {
  return {i.in[0].type.size(0), i.in[1].type.size(0), i.in[0].type.size(1)};
}
kernels::RouterShape router_backward_shape(const Instr& i) {
  return {i.in[0].type.size(0), i.in[0].type.size(1), i.in[1].type.size(1)};
}

kernels::SelectShape select_shape(const Instr& i) {
  kernels::SelectShape s = scoring(i.attrs, i.in[0].type, i.out[1].type);
  s.groups = i.attrs.integer("groups");
  s.groups_kept = i.attrs.integer("groups_kept");
  if (i.attrs.find("column") != nullptr) {
    s.route_columns = i.in.back().type.size(1);
    s.route_column = i.attrs.integer("column");
  }
  return s;
}
kernels::SelectShape select_dx_shape(const Instr& i) { return scoring(i.attrs, i.in[0].type, i.in[1].type); }

kernels::LimitShape limit_shape(const Instr& i) {
  const Type& chosen = i.in[0].type;
  const kernels::LimitShape s = {
      .order = sequence_order(i.attrs, chosen.size(0)),
      .k = chosen.size(1),
      .group = i.attrs.integer("group"),
      .capacity = i.attrs.integer("capacity"),
      .by_weight = graph::choice<graph::KeepPolicy>(i.attrs) == graph::KeepPolicy::Probability};
  QUINTET_CHECK(s.order.sequences % s.group == 0,
                "a rank holds {} sequences, which splits a group of {} that share a capacity",
                s.order.sequences, s.group);
  return s;
}

kernels::LoadShape load_shape(const Instr& i) {
  return {i.in[2].type.size(0), i.in[2].type.size(1), i.in[0].type.size(1)};
}

base::RowOrder sums_order(const Attrs& a, int64_t rows) {
  if (graph::choice<graph::Scope>(a) == graph::Scope::Sequence) return sequence_order(a, rows);
  return {.seq_len = rows, .sequences = 1};
}

kernels::BalanceLoss balance_loss_shape(const Instr& i) {
  const Type& sums = i.in[0].type;
  const Attrs& a = i.attrs;
  return {.groups_here = sums.num_dims() == 2 ? sums.size(0) : 1,
          .groups = a.integer("groups"),
          .tokens = a.integer("tokens"),
          .experts = a.integer("experts"),
          .k = a.integer("k"),
          .coefficient = a.real("coefficient")};
}

namespace {

int64_t router_bytes(const Instr& i, int threads) {
  return with_type(i.in[0].type.dtype,
                   [&]<class T>(T) { return k::router_workspace_bytes<T>(router_shape(i), threads); });
}
int64_t router_dx_bytes(const Instr& i, int threads) {
  return with_type(i.in[1].type.dtype, [&]<class T>(T) {
    return k::router_dx_workspace_bytes<T>(router_backward_shape(i), threads);
  });
}
int64_t router_dw_bytes(const Instr& i, int threads) {
  return sums_bytes(i, {0}) + with_type(i.in[1].type.dtype, [&]<class T>(T) {
           return k::router_dw_workspace_bytes<T>(router_backward_shape(i), threads);
         });
}
int64_t select_bytes(const Instr& i, int threads) {
  return with_stat(i.in[0].type.dtype,
                   [&]<class S>(S) { return k::select_workspace_bytes<S>(select_shape(i), threads); });
}
int64_t select_dx_bytes(const Instr& i, int threads) {
  const kernels::SelectShape s = select_dx_shape(i);
  return with_stat(i.in[0].type.dtype,
                   [&]<class S>(S) { return k::select_dx_workspace_bytes<S>(s, threads); });
}
int64_t limit_bytes(const Instr& i, int) { return k::limit_workspace_bytes(limit_shape(i)); }
int64_t expert_load_bytes(const Instr& i, int) { return k::expert_load_workspace_bytes(load_shape(i)); }
int64_t balance_sums_bytes(const Instr& i, int) {
  const Type& scores = i.in[0].type;
  return k::balance_sums_workspace_bytes(sums_order(i.attrs, scores.size(0)), scores.size(1));
}
int64_t z_loss_bytes(const Instr& i, int) { return k::z_loss_workspace_bytes(i.in[0].type.size(0)); }

int64_t cuda_router_dw_bytes(const Instr& i) {
  return with_type(i.in[1].type.dtype, [&]<class T>(T) {
    return kernels::cuda::router_dw_workspace_bytes<T>(router_backward_shape(i));
  });
}
int64_t cuda_random_weights_bytes(const Instr&) { return int64_t{sizeof(uint64_t)}; }  // the derived key
int64_t cuda_limit_bytes(const Instr& i) { return kernels::cuda::limit_workspace_bytes(limit_shape(i)); }
int64_t cuda_expert_load_bytes(const Instr& i) {
  return kernels::cuda::expert_load_workspace_bytes(load_shape(i));
}
int64_t cuda_balance_sums_bytes(const Instr& i) {
  const Type& scores = i.in[0].type;
  return kernels::cuda::balance_sums_workspace_bytes(sums_order(i.attrs, scores.size(0)), scores.size(1));
}
int64_t cuda_z_loss_bytes(const Instr& i) {
  return kernels::cuda::z_loss_workspace_bytes(i.in[0].type.size(0));
}

}  // namespace

const std::vector<Scratch>& routing_scratch() {
  static const std::vector<Scratch> table = {
      {&graph::kRouter, router_bytes, nullptr},
      {&graph::kRouterDx, router_dx_bytes, nullptr},
      {&graph::kRouterDw, router_dw_bytes, cuda_router_dw_bytes},
      {&graph::kSelect, select_bytes, nullptr},
      {&graph::kSelectDx, select_dx_bytes, nullptr},
      {&graph::kLimit, limit_bytes, cuda_limit_bytes},
      {&graph::kRandomWeights, nullptr, cuda_random_weights_bytes},
      {&graph::kExpertLoad, expert_load_bytes, cuda_expert_load_bytes},
      {&graph::kBalanceSums, balance_sums_bytes, cuda_balance_sums_bytes},
      {&graph::kZLoss, z_loss_bytes, cuda_z_loss_bytes}};
  return table;
}

}  // namespace quintet::exec
