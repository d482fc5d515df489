// Ops that change the placement of a value over the mesh. They occur only in local graphs, inserted by the
// partitioner; `atoms` are indices of mesh atoms, major to minor.
#include "graph/ops/support.h"

namespace quintet::graph {
namespace {

std::vector<Type> same(const std::vector<Type>& in, const Attrs&) { return {in[0]}; }

const std::vector<AttrSpec> kReduce = {{"atoms", AttrKind::Integers}, {"reduce", AttrKind::Text}};
const std::vector<AttrSpec> kAlong = {{"atoms", AttrKind::Integers}, {"dim", AttrKind::Integer}};
const std::vector<AttrSpec> kScatter = {
    {"atoms", AttrKind::Integers}, {"dim", AttrKind::Integer}, {"reduce", AttrKind::Text}};
const std::vector<AttrSpec> kExchange = {
    {"atoms", AttrKind::Integers}, {"split", AttrKind::Integer}, {"join", AttrKind::Integer}};
const std::vector<AttrSpec> kRouting = {{"atoms", AttrKind::Integers},
                                        {"experts", AttrKind::Integer},
                                        {"copies", AttrKind::Integer},
                                        {"back", AttrKind::Integer},
                                        {"pad", AttrKind::Integer}};

}  // namespace

const OpDef kAllReduce = {.name = "all_reduce",
                          .min_inputs = 1,
                          .max_inputs = 1,
                          .attrs = kReduce,
                          .infer = same,
                          .cost = cost_by_bytes,
                          .op_class = OpClass::Placement};
const OpDef kAllGather = {.name = "all_gather",
                          .min_inputs = 1,
                          .max_inputs = 1,
                          .attrs = kAlong,
                          .infer = same,
                          .cost = cost_by_bytes,
                          .op_class = OpClass::Placement};
const OpDef kReduceScatter = {.name = "reduce_scatter",
                              .min_inputs = 1,
                              .max_inputs = 1,
                              .attrs = kScatter,
                              .infer = same,
                              .cost = cost_by_bytes,
                              .op_class = OpClass::Placement};
const OpDef kAllToAll = {.name = "all_to_all",
                         .min_inputs = 1,
                         .max_inputs = 1,
                         .attrs = kExchange,
                         .infer = same,
                         .cost = cost_by_bytes,
                         .op_class = OpClass::Placement};
const OpDef kSlice = {.name = "slice",
                      .min_inputs = 1,
                      .max_inputs = 1,
                      .attrs = kAlong,
                      .infer = same,
                      .cost = cost_by_bytes,
                      .op_class = OpClass::Placement};
const OpDef kZeroUnlessFirst = {.name = "zero_unless_first",
                                .min_inputs = 1,
                                .max_inputs = 1,
                                .attrs = {{"atoms", AttrKind::Integers},
                                          {"keep", AttrKind::Integer, /*optional=*/true, /*of_rank=*/true}},
                                .infer = same,
                                .cost = cost_by_bytes,
                                .in_place = {{0, 0}},
                                .op_class = OpClass::Placement};
// The value of the previous rank in the ring of `atoms`.
const OpDef kRingShift = {.name = "ring_shift",
                          .min_inputs = 1,
                          .max_inputs = 1,
                          .attrs = {{"atoms", AttrKind::Integers}},
                          .infer = same,
                          .cost = cost_by_bytes,
                          .op_class = OpClass::Placement};
// value, send, received: rows to the ranks of their experts (back = 0) or to those of their tokens (back =
// 1). Each rank owns `experts` experts; each row goes to, or comes from, `copies` ranks. With `send` as the
// only operand: the counts themselves, to each rank those of its experts. With pad > 0 every rank sends that
// many rows to each expert, and counts are not read. The partitioner sets the result's type: an upper bound
// of the rows.
const OpDef kAllToAllV = {.name = "all_to_all_v",
                          .min_inputs = 1,
                          .max_inputs = 3,
                          .attrs = kRouting,
                          .infer = same,
                          .cost = cost_by_bytes,
                          .op_class = OpClass::Placement};

}  // namespace quintet::graph
