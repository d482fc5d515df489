// Ops that change how a value lies over the mesh. They occur only in local graphs, where the partitioner puts
// them; `atoms` are indices of mesh atoms, major to minor.
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

const OpDef kAllReduce = {"all_reduce", 1, 1, kReduce, same, nullptr, cost_by_bytes};
const OpDef kAllGather = {"all_gather", 1, 1, kAlong, same, nullptr, cost_by_bytes};
const OpDef kReduceScatter = {"reduce_scatter", 1, 1, kScatter, same, nullptr, cost_by_bytes};
const OpDef kAllToAll = {"all_to_all", 1, 1, kExchange, same, nullptr, cost_by_bytes};
const OpDef kSlice = {"slice", 1, 1, kAlong, same, nullptr, cost_by_bytes};
const OpDef kZeroUnlessFirst = {
    "zero_unless_first", 1,       1,       {{"atoms", AttrKind::Integers}}, same, nullptr,
    cost_by_bytes,       nullptr, {{0, 0}}};
// The value of the rank before this one in the ring of `atoms`.
const OpDef kRingShift = {"ring_shift", 1, 1, {{"atoms", AttrKind::Integers}}, same, nullptr, cost_by_bytes};
// value, send, received: rows to the ranks of their experts (back = 0) or to those of their tokens (back =
// 1). Each rank owns `experts` experts; each row goes to, or comes from, `copies` ranks. With `send` as the
// only operand: the counts themselves, to each rank those of its experts. With pad > 0 every rank sends so
// many rows to each expert: nobody need look at the counts. The partitioner gives the result's type: how many
// rows there may be.
const OpDef kAllToAllV = {"all_to_all_v", 1, 3, kRouting, same, nullptr, cost_by_bytes};

}  // namespace quintet::graph
