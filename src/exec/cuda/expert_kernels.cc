// Dispatch to experts, their products and activation, and joined heads.
#include "exec/cuda/kernel.h"
#include "exec/cuda_scratch/shapes.h"
#include "exec/with_type.h"
#include "kernels/cuda/experts/dispatch.h"
#include "kernels/cuda/experts/expert_act.h"
#include "kernels/cuda/matmul/grouped_matmul.h"

namespace quintet::exec::cuda {
namespace {

using graph::Type;
namespace k = kernels::cuda;

void route(const Bound& b, bool) {
  const Type& kept = b.in_type(0);
  k::route(b.input<int32_t>(0), kept.size(0), kept.size(1), b.out_type(1).size(0), is_padded(*b.instr),
           b.out_type(0).size(0), b.output<int32_t>(0), b.output<int32_t>(1), b.workspace, b.stream);
}
void pack(const Bound& b, bool) {
  k::pack_rows(b.in[0], b.input<int32_t>(1), b.in_type(0).size(0), b.instr->attrs.integer("choices"),
               is_padded(*b.instr), b.out[0], b.out_type(0).size(0), row_bytes(b.out_type(0)), b.workspace,
               b.stream);
}
void unpack(const Bound& b, bool) {
  const Type &y = b.in_type(0), &x = b.out_type(0);
  with_type(y.dtype, [&]<class T>(T) {
    k::unpack_rows<T>(b.input<T>(0), b.input<int32_t>(1), y.size(0), b.instr->attrs.integer("choices"),
                      b.in.size() > 2 ? b.input<T>(2) : nullptr, b.output<T>(0), x.size(0), columns(x),
                      b.workspace, b.stream);
  });
}
void pack_weights(const Bound& b, bool) {
  with_type(b.in_type(0).dtype, [&]<class T>(T) {
    k::pack_weights<k::Stat<T>>(b.input<k::Stat<T>>(0), b.input<int32_t>(1), is_padded(*b.instr),
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
void sum_copies(const Bound& b, bool) {
  with_type(b.in_type(0).dtype, [&]<class T>(T) {
    k::sum_copies<T>(b.input<T>(0), b.instr->attrs.integer("copies"), b.output<T>(0), b.out_type(0).count(),
                     b.stream);
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
  k::grouped_linear(bind(b, grouped_with_weight(*b.instr)), b.workspace, b.stream);
}
void grouped_linear_dx(const Bound& b, bool) {
  kernels::GroupedArgs args = bind(b, grouped_with_weight(*b.instr));
  if (b.in.size() > 3) args.addend = b.in[3];
  k::grouped_linear_dx(args, b.workspace, b.stream);
}
void grouped_linear_dw(const Bound& b, bool accumulate) {
  kernels::GroupedArgs args = bind(b, grouped_of_weight(*b.instr));
  args.accumulate = accumulate;
  k::grouped_linear_dw(args, b.workspace, b.stream);
}

// Rows that came, of those that may come: counted on the device, into the scratch.
const int64_t* routed_rows(const Bound& b, size_t received, int64_t planned) {
  auto* rows = reinterpret_cast<int64_t*>(b.workspace);
  k::count_rows(b.input<int32_t>(received), b.in_type(received).count(), planned, rows, b.stream);
  return rows;
}

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
  static const std::vector<Kernel> table = {{&graph::kRoute, route},
                                            {&graph::kPack, pack},
                                            {&graph::kUnpack, unpack},
                                            {&graph::kPackWeights, pack_weights},
                                            {&graph::kUnpackWeights, unpack_weights},
                                            {&graph::kRegroup, regroup},
                                            {&graph::kSumCopies, sum_copies},
                                            {&graph::kGroupedLinear, grouped_linear},
                                            {&graph::kGroupedLinearDx, grouped_linear_dx},
                                            {&graph::kGroupedLinearDw, grouped_linear_dw},
                                            {&graph::kExpertAct, expert_act},
                                            {&graph::kExpertActDx, expert_act_dx},
                                            {&graph::kScaleRows, scale_rows},
                                            {&graph::kScaleRowsDx, scale_rows_dx},
                                            {&graph::kJoinHeads, join_heads},
                                            {&graph::kJoinHeadsDx, join_heads_dx}};
  return table;
}

}  // namespace quintet::exec::cuda
