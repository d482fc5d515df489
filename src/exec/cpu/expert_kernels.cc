// Dispatch to experts, their products and activation, and joined heads.
#include <numeric>

#include "exec/cpu/kernel.h"
#include "exec/shapes.h"
#include "kernels/cpu/elementwise/heads.h"
#include "kernels/cpu/experts/dispatch.h"
#include "kernels/cpu/experts/expert_act.h"
#include "kernels/cpu/matmul/grouped_gemm.h"

namespace quintet::exec::cpu {
namespace {

using graph::Type;
using program::Instr;
namespace k = kernels::cpu;

void route(const Bound& b, bool) {
  const Type& kept = b.in_type(0);
  k::route(b.input<int32_t>(0), kept.size(0), kept.size(1), b.out_type(1).size(0), is_padded(*b.instr),
           b.out_type(0).size(0), b.output<int32_t>(0), b.output<int32_t>(1), b.workspace);
}
int64_t route_bytes(const Instr& i, int) { return k::route_workspace_bytes(i.out[1].type.size(0)); }

void pack(const Bound& b, bool) {
  k::pack_rows(b.in[0], b.input<int32_t>(1), b.instr->attrs.integer("choices"), is_padded(*b.instr), b.out[0],
               b.out_type(0).size(0), row_bytes(b.out_type(0)), *b.pool);
}
void unpack(const Bound& b, bool) {
  const Type &y = b.in_type(0), &x = b.out_type(0);
  with_type(y.dtype, [&]<class T>(T) {
    k::unpack_rows<T>(b.input<T>(0), b.input<int32_t>(1), y.size(0), b.instr->attrs.integer("choices"),
                      b.in.size() > 2 ? b.input<T>(2) : nullptr, b.output<T>(0), x.size(0), columns(x),
                      b.workspace, *b.pool);
  });
}
int64_t unpack_bytes(const Instr& i, int) {
  return k::unpack_rows_workspace_bytes(i.out[0].type.size(0), i.attrs.integer("choices"));
}

void pack_weights(const Bound& b, bool) {
  with_type(b.in_type(0).dtype, [&]<class T>(T) {
    k::pack_weights<k::Stat<T>>(b.input<k::Stat<T>>(0), b.input<int32_t>(1), is_padded(*b.instr),
                                b.output<k::Stat<T>>(0), b.out_type(0).size(0));
  });
}
void unpack_weights(const Bound& b, bool) {
  with_type(b.in_type(0).dtype, [&]<class T>(T) {
    k::unpack_weights<k::Stat<T>>(b.input<k::Stat<T>>(0), b.input<int32_t>(1), b.in_type(0).size(0),
                                  b.output<k::Stat<T>>(0), b.out_type(0).count());
  });
}

void regroup(const Bound& b, bool) {
  const Type& value = b.in_type(0);
  const int64_t experts = b.instr->attrs.integer("experts");
  k::regroup(b.in[0], b.input<int32_t>(1), b.in_type(1).size(0) / experts, experts,
             b.instr->attrs.integer("inverse") != 0, b.out[0], value.size(0), row_bytes(value), b.workspace,
             *b.pool);
}
int64_t regroup_bytes(const Instr& i, int) {
  const int64_t experts = i.attrs.integer("experts");
  return k::regroup_workspace_bytes(i.in[1].type.size(0) / experts, experts);
}

void sum_copies(const Bound& b, bool) {
  with_type(b.in_type(0).dtype, [&]<class T>(T) {
    k::sum_copies<T>(b.input<T>(0), b.instr->attrs.integer("copies"), b.output<T>(0), b.out_type(0).count(),
                     *b.pool);
  });
}

kernels::GroupedArgs bind(const Bound& b, kernels::GroupedArgs args) {
  args.received = b.input<int32_t>(2);
  args.a = b.in[0];
  args.b = b.in[1];
  args.c = b.out[0];
  return args;
}

void grouped_linear(const Bound& b, bool) {
  kernels::grouped_linear(bind(b, grouped_with_weight(*b.instr)), b.workspace, b.instr->workspace_bytes,
                          *b.pool);
}
void grouped_linear_dx(const Bound& b, bool) {
  kernels::GroupedArgs args = bind(b, grouped_with_weight(*b.instr));
  if (b.in.size() > 3) args.addend = b.in[3];
  kernels::grouped_linear_dx(args, b.workspace, b.instr->workspace_bytes, *b.pool);
}
int64_t grouped_bytes(const Instr& i, int threads) {
  return kernels::grouped_workspace_bytes(grouped_with_weight(i), threads);
}
void grouped_linear_dw(const Bound& b, bool accumulate) {
  kernels::GroupedArgs args = bind(b, grouped_of_weight(*b.instr));
  args.accumulate = accumulate;
  kernels::grouped_linear_dw(args, b.workspace, b.instr->workspace_bytes, *b.pool);
}
int64_t grouped_dw_bytes(const Instr& i, int threads) {
  return kernels::grouped_workspace_bytes(grouped_of_weight(i), threads);
}

// Rows that came, of those that may come.
int64_t routed_rows(const Bound& b, size_t received, int64_t planned) {
  const int32_t* counts = b.input<int32_t>(received);
  const int64_t rows = std::accumulate(counts, counts + b.in_type(received).count(), int64_t{0});
  QUINTET_CHECK(rows <= planned, "{} rows were received, at most {} were planned", rows, planned);
  return rows;
}

void expert_act(const Bound& b, bool) {
  const Type& gate = b.in_type(0);
  with_type(gate.dtype, [&]<class T>(T) {
    k::expert_act<T>(b.input<T>(0), b.input<T>(1), b.input<k::Stat<T>>(2), b.output<T>(0),
                     routed_rows(b, 3, gate.size(0)), gate.size(1), *b.pool);
  });
}
void expert_act_dx(const Bound& b, bool) {
  const Type& gate = b.in_type(1);
  with_type(gate.dtype, [&]<class T>(T) {
    k::expert_act_backward<T>(b.input<T>(0), b.input<T>(1), b.input<T>(2), b.input<k::Stat<T>>(3),
                              b.output<T>(0), b.output<T>(1), b.output<k::Stat<T>>(2),
                              routed_rows(b, 4, gate.size(0)), gate.size(1), *b.pool);
  });
}

void scale_rows(const Bound& b, bool) {
  const Type& y = b.in_type(0);
  with_type(y.dtype, [&]<class T>(T) {
    k::scale_rows<T>(b.input<T>(0), b.input<T>(1), b.output<T>(0), y.size(0), y.size(1), *b.pool);
  });
}
void scale_rows_dx(const Bound& b, bool) {
  const Type& y = b.in_type(1);
  with_type(y.dtype, [&]<class T>(T) {
    k::scale_rows_backward<T>(b.input<T>(0), b.input<T>(1), b.input<T>(2), b.output<T>(0), b.output<T>(1),
                              y.size(0), y.size(1), *b.pool);
  });
}

void join_heads(const Bound& b, bool) {
  const Type &x = b.in_type(0), &y = b.in_type(1);
  with_type(x.dtype, [&]<class T>(T) {
    k::join_heads<T>(b.input<T>(0), b.input<T>(1), y.dims[1].name == graph::Dim::Choices, b.output<T>(0),
                     x.size(0), x.size(1), x.size(2), y.size(2), *b.pool);
  });
}
void join_heads_dx(const Bound& b, bool) {
  const Type &da = b.out_type(0), &db = b.out_type(1);
  with_type(da.dtype, [&]<class T>(T) {
    k::join_heads_backward<T>(b.input<T>(0), b.instr->attrs.integer("shared") != 0, b.output<T>(0),
                              b.output<T>(1), da.size(0), da.size(1), da.size(2), db.size(2), *b.pool);
  });
}

}  // namespace

const std::vector<Kernel>& expert_kernels() {
  static const std::vector<Kernel> table = {{&graph::kRoute, route, route_bytes},
                                            {&graph::kPack, pack, nullptr},
                                            {&graph::kUnpack, unpack, unpack_bytes},
                                            {&graph::kPackWeights, pack_weights, nullptr},
                                            {&graph::kUnpackWeights, unpack_weights, nullptr},
                                            {&graph::kRegroup, regroup, regroup_bytes},
                                            {&graph::kSumCopies, sum_copies, nullptr},
                                            {&graph::kGroupedLinear, grouped_linear, grouped_bytes},
                                            {&graph::kGroupedLinearDx, grouped_linear_dx, grouped_bytes},
                                            {&graph::kGroupedLinearDw, grouped_linear_dw, grouped_dw_bytes},
                                            {&graph::kExpertAct, expert_act, nullptr},
                                            {&graph::kExpertActDx, expert_act_dx, nullptr},
                                            {&graph::kScaleRows, scale_rows, nullptr},
                                            {&graph::kScaleRowsDx, scale_rows_dx, nullptr},
                                            {&graph::kJoinHeads, join_heads, nullptr},
                                            {&graph::kJoinHeadsDx, join_heads_dx, nullptr}};
  return table;
}

}  // namespace quintet::exec::cpu
