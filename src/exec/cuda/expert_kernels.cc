// Dispatch to experts, their products and activation, and joined heads.
#include "exec/cuda/kernel.h"
#include "exec/cuda/with_type.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/expert_act.h"
#include "kernels/cuda/grouped_matmul.h"

namespace quintet::exec::cuda {
namespace {

using graph::Type;
using program::Instr;
namespace k = kernels::cuda;

int64_t row_bytes(const Type& t) { return columns(t) * base::size_of(t.dtype); }
bool padded(const Bound& b) { return b.instr->attrs.integer("pad") > 0; }

void route(const Bound& b, bool) {
  const Type& kept = b.in_type(0);
  k::route(b.input<int32_t>(0), kept.size(0), kept.size(1), b.out_type(1).size(0), padded(b),
           b.out_type(0).size(0), b.output<int32_t>(0), b.output<int32_t>(1), b.workspace, b.stream);
}
int64_t route_bytes(const Instr& i) {
  const Type& kept = i.in[0].type;
  return k::route_workspace_bytes(kept.size(0), kept.size(1), i.out[1].type.size(0));
}

void pack(const Bound& b, bool) {
  k::pack_rows(b.in[0], b.input<int32_t>(1), b.instr->attrs.integer("choices"), padded(b), b.out[0],
               b.out_type(0).size(0), row_bytes(b.out_type(0)), b.stream);
}
void unpack(const Bound& b, bool) {
  const Type &y = b.in_type(0), &x = b.out_type(0);
  with_type(y.dtype, [&]<class T>(T) {
    k::unpack_rows<T>(b.input<T>(0), b.input<int32_t>(1), y.size(0), b.instr->attrs.integer("choices"),
                      b.output<T>(0), x.size(0), columns(x), b.workspace, b.stream);
  });
}
int64_t unpack_bytes(const Instr& i) {
  return k::unpack_rows_workspace_bytes(i.out[0].type.size(0), i.attrs.integer("choices"));
}

void pack_weights(const Bound& b, bool) {
  with_type(b.in_type(0).dtype, [&]<class T>(T) {
    k::pack_weights<k::Stat<T>>(b.input<k::Stat<T>>(0), b.input<int32_t>(1), padded(b),
                                b.output<k::Stat<T>>(0), b.out_type(0).size(0), b.stream);
  });
}
void unpack_weights(const Bound& b, bool) {
  with_type(b.in_type(0).dtype, [&]<class T>(T) {
    k::unpack_weights<k::Stat<T>>(b.input<k::Stat<T>>(0), b.input<int32_t>(1), b.in_type(0).size(0),
                                  b.output<k::Stat<T>>(0), b.out_type(0).count(), b.stream);
  });
}

void regroup(const Bound& b, bool) {
  const Type& value = b.in_type(0);
  const int64_t experts = b.instr->attrs.integer("experts");
  k::regroup(b.in[0], b.input<int32_t>(1), b.in_type(1).size(0) / experts, experts,
             b.instr->attrs.integer("inverse") != 0, b.out[0], value.size(0), row_bytes(value), b.workspace,
             b.stream);
}
int64_t regroup_bytes(const Instr& i) {
  const int64_t experts = i.attrs.integer("experts");
  return k::regroup_workspace_bytes(i.in[1].type.size(0) / experts, experts);
}

void sum_copies(const Bound& b, bool) {
  with_type(b.in_type(0).dtype, [&]<class T>(T) {
    k::sum_copies<T>(b.input<T>(0), b.instr->attrs.integer("copies"), b.output<T>(0), b.out_type(0).count(),
                     b.stream);
  });
}

// Rows, experts and the two widths of a grouped product: rows x out and rows x in beside out x in weights.
kernels::GroupedArgs grouped(const Instr& i, int64_t experts, int64_t out, int64_t in) {
  return {.rows = i.in[0].type.size(0),
          .experts = experts,
          .out = out,
          .in = in,
          .sources = experts > 0 ? i.in[2].type.size(0) / experts : 0,
          .type = i.in[0].type.dtype,
          .c_type = i.out[0].type.dtype};
}
kernels::GroupedArgs with_weight(const Instr& i) {  // x or dy, w, received
  const Type& w = i.in[1].type;
  return grouped(i, w.size(0), w.size(1), w.size(2));
}
kernels::GroupedArgs of_weight(const Instr& i) {  // dy, x, received -> dw
  const Type& dw = i.out[0].type;
  return grouped(i, dw.size(0), dw.size(1), dw.size(2));
}
kernels::GroupedArgs bind(const Bound& b, kernels::GroupedArgs args) {
  args.received = b.input<int32_t>(2);
  args.a = b.in[0];
  args.b = b.in[1];
  args.c = b.out[0];
  return args;
}

void grouped_linear(const Bound& b, bool) {
  k::grouped_linear(bind(b, with_weight(*b.instr)), b.workspace, b.stream);
}
void grouped_linear_dx(const Bound& b, bool) {
  kernels::GroupedArgs args = bind(b, with_weight(*b.instr));
  if (b.in.size() > 3) args.addend = b.in[3];
  k::grouped_linear_dx(args, b.workspace, b.stream);
}
int64_t grouped_bytes(const Instr& i) { return k::grouped_workspace_bytes(with_weight(i)); }
void grouped_linear_dw(const Bound& b, bool accumulate) {
  kernels::GroupedArgs args = bind(b, of_weight(*b.instr));
  args.accumulate = accumulate;
  k::grouped_linear_dw(args, b.workspace, b.stream);
}
int64_t grouped_dw_bytes(const Instr& i) { return k::grouped_workspace_bytes(of_weight(i)); }

// Rows that came, of those that may come: counted on the device, into the scratch.
const int64_t* routed_rows(const Bound& b, size_t received, int64_t planned) {
  auto* rows = reinterpret_cast<int64_t*>(b.workspace);
  k::count_rows(b.input<int32_t>(received), b.in_type(received).count(), planned, rows, b.stream);
  return rows;
}
int64_t routed_rows_bytes(const Instr&) { return int64_t{sizeof(int64_t)}; }

void expert_act(const Bound& b, bool) {
  const Type& gate = b.in_type(0);
  with_type(gate.dtype, [&]<class T>(T) {
    k::expert_act<T>(b.input<T>(0), b.input<T>(1), b.input<k::Stat<T>>(2), b.output<T>(0),
                     routed_rows(b, 3, gate.size(0)), gate.size(0), gate.size(1), b.stream);
  });
}
void expert_act_dx(const Bound& b, bool) {
  const Type& gate = b.in_type(1);
  with_type(gate.dtype, [&]<class T>(T) {
    k::expert_act_backward<T>(b.input<T>(0), b.input<T>(1), b.input<T>(2), b.input<k::Stat<T>>(3),
                              b.output<T>(0), b.output<T>(1), b.output<k::Stat<T>>(2),
                              routed_rows(b, 4, gate.size(0)), gate.size(0), gate.size(1), b.stream);
  });
}

void scale_rows(const Bound& b, bool) {
  const Type& y = b.in_type(0);
  with_type(y.dtype, [&]<class T>(T) {
    k::scale_rows<T>(b.input<T>(0), b.input<T>(1), b.output<T>(0), y.size(0), y.size(1), b.stream);
  });
}
void scale_rows_dx(const Bound& b, bool) {
  const Type& y = b.in_type(1);
  with_type(y.dtype, [&]<class T>(T) {
    k::scale_rows_backward<T>(b.input<T>(0), b.input<T>(1), b.input<T>(2), b.output<T>(0), b.output<T>(1),
                              y.size(0), y.size(1), b.stream);
  });
}

void join_heads(const Bound& b, bool) {
  const Type &x = b.in_type(0), &y = b.in_type(1);
  with_type(x.dtype, [&]<class T>(T) {
    k::join_heads<T>(b.input<T>(0), b.input<T>(1), y.dims[1].name == graph::Dim::Choices, b.output<T>(0),
                     x.size(0), x.size(1), x.size(2), y.size(2), b.stream);
  });
}
void join_heads_dx(const Bound& b, bool) {
  const Type &da = b.out_type(0), &db = b.out_type(1);
  with_type(da.dtype, [&]<class T>(T) {
    k::join_heads_backward<T>(b.input<T>(0), b.instr->attrs.integer("shared") != 0, b.output<T>(0),
                              b.output<T>(1), da.size(0), da.size(1), da.size(2), db.size(2), b.stream);
  });
}

}  // namespace

const std::vector<Kernel>& expert_kernels() {
  static const std::vector<Kernel> table = {{&graph::kRoute, route, route_bytes},
                                            {&graph::kPack, pack},
                                            {&graph::kUnpack, unpack, unpack_bytes},
                                            {&graph::kPackWeights, pack_weights},
                                            {&graph::kUnpackWeights, unpack_weights},
                                            {&graph::kRegroup, regroup, regroup_bytes},
                                            {&graph::kSumCopies, sum_copies},
                                            {&graph::kGroupedLinear, grouped_linear, grouped_bytes},
                                            {&graph::kGroupedLinearDx, grouped_linear_dx, grouped_bytes},
                                            {&graph::kGroupedLinearDw, grouped_linear_dw, grouped_dw_bytes},
                                            {&graph::kExpertAct, expert_act, routed_rows_bytes},
                                            {&graph::kExpertActDx, expert_act_dx, routed_rows_bytes},
                                            {&graph::kScaleRows, scale_rows},
                                            {&graph::kScaleRowsDx, scale_rows_dx},
                                            {&graph::kJoinHeads, join_heads},
                                            {&graph::kJoinHeadsDx, join_heads_dx}};
  return table;
}

}  // namespace quintet::exec::cuda
