// Moves token rows to their experts and back. A token has k (token, choice) pairs; those that are kept become
// slots, ordered by expert. Slots are on the token's side, routed rows on the expert's side:
//
//   kept -> route -> order, send          x, order -> pack -> slots -> to_experts -> routed -> experts
//   send -> exchange_counts -> received   tokens <- unpack <- slots <- to_tokens <- routed <-
//
// The numbers of slots and routed rows are known only within the step; their types give upper bounds. Rows
// past the actual number are neither read nor written. With pad > 0 every expert has the same number of slots
// instead, and unused ones are zero.
//
// In local graphs the routed rows of a rank may be bounded (route's `bound`). split_rows then selects what is
// exchanged in one pass, and the same ops run again for every further pass (passes/overflow.h).
#include "graph/ops/routing.h"

namespace quintet::graph {
namespace {

bool begins_with(const Type& t, Dim name) { return !t.dims.empty() && t.dims[0].name == name; }

bool is_index(const Type& t, Dim name) {
  return t.dtype == DType::I32 && t.num_dims() == 1 && t.dims[0].name == name;
}

// `t` with another first dim.
Type with_rows(Type t, Dim name, int64_t size) {
  t.dims[0] = {name, size};
  return t;
}

// All operands are split along their first dim, wherever the tokens that they belong to are split.
std::vector<OpDim> by_tokens(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  return {{.key = Dim::Tokens,
           .in = std::vector<int>(in.size(), 0),
           .out = std::vector<int>(out.size(), 0),
           .spread = true}};
}

std::vector<OpDim> by_routed(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  return {{.key = Dim::Routed, .in = std::vector<int>(in.size(), 0), .out = std::vector<int>(out.size(), 0)}};
}

// route: kept[tokens, choices] (-1: dropped) -> order[slots], send[counts]
std::vector<Type> infer_route(const std::vector<Type>& in, const Attrs& attrs) {
  const Type& kept = in[0];
  const int64_t experts = attrs.integer("experts"), pad = attrs.integer("pad");
  OP_REQUIRE("route",
             kept.dtype == DType::I32 && kept.num_dims() == 2 && has_tokens(kept) &&
                 kept.dims[1].name == Dim::Choices,
             "expects kept i32[tokens, choices], got {}", to_string(kept));
  OP_REQUIRE("route", kept.size(0) == attrs.integer("token_rows") && kept.size(1) == attrs.integer("choices"),
             "expects {} choices of {} tokens, got {}", attrs.integer("choices"), attrs.integer("token_rows"),
             to_string(kept));
  OP_REQUIRE("route", experts > 0 && pad >= 0, "expects experts > 0 and pad >= 0, got {} and {}", experts,
             pad);
  return {{DType::I32, {{Dim::Slots, pad > 0 ? experts * pad : kept.count()}}},
          {DType::I32, {{Dim::Counts, experts}}}};
}

// pack: x[tokens, d...], order[slots] -> [slots, d...]: the row of each slot's token
std::vector<Type> infer_pack(const std::vector<Type>& in, const Attrs& attrs) {
  const Type &x = in[0], &order = in[1];
  const int64_t choices = attrs.integer("choices"), pad = attrs.integer("pad");
  OP_REQUIRE("pack", has_tokens(x) && is_index(order, Dim::Slots) && choices > 0,
             "expects x[tokens, ...], order i32[slots] and choices > 0, got {}, {} and {}", to_string(x),
             to_string(order), choices);
  OP_REQUIRE("pack", pad > 0 || order.size(0) == x.size(0) * choices,
             "{} tokens of {} choices have {} slots, got {}", x.size(0), choices, x.size(0) * choices,
             to_string(order));
  return {with_rows(x, Dim::Slots, order.size(0))};
}

void gradient_pack(GradContext& g, const Node& n) {
  Attrs attrs = n.attrs;
  attrs.set("token_rows", g.graph().type(n.inputs[0]).size(0));
  g.add(n.inputs[0], g.emit(kUnpack, {g.grad(n.outputs[0]), n.inputs[1]}, std::move(attrs), Phase::B)[0]);
}

// Token rows for `slots` slots: a function of the slots, or the attribute `rows` when padded.
int64_t unpacked_rows(std::string_view op, int64_t slots, const Attrs& attrs) {
  const int64_t choices = attrs.integer("choices");
  OP_REQUIRE(op, choices > 0, "expects choices > 0, got {}", choices);
  if (attrs.integer("pad") > 0) return attrs.integer("token_rows");
  OP_REQUIRE(op, slots % choices == 0, "{} slots are not whole tokens of {} choices", slots, choices);
  return slots / choices;
}

// unpack: y[slots, d...], order[slots] -> [tokens, d...]: the sum over each token's slots; in programs also
// an addend like the result (see graph/fuse_adds.h)
std::vector<Type> infer_unpack(const std::vector<Type>& in, const Attrs& attrs) {
  const Type &y = in[0], &order = in[1];
  OP_REQUIRE("unpack",
             begins_with(y, Dim::Slots) && is_index(order, Dim::Slots) && order.dims[0] == y.dims[0],
             "expects y[slots, ...] and order i32[slots] of the same slots, got {} and {}", to_string(y),
             to_string(order));
  const Type x = with_rows(y, Dim::Tokens, unpacked_rows("unpack", y.size(0), attrs));
  OP_REQUIRE("unpack", in.size() < 3 || in[2] == x, "expects an addend like the result {}, got {}",
             to_string(x), to_string(in[2]));
  return {x};
}

Attrs packing(const Attrs& unpacking) {
  return {{"choices", unpacking.integer("choices")}, {"pad", unpacking.integer("pad")}};
}

void gradient_unpack(GradContext& g, const Node& n) {
  g.add(n.inputs[0], g.emit(kPack, {g.grad(n.outputs[0]), n.inputs[1]}, packing(n.attrs), Phase::B)[0]);
}

// pack_weights: weights[tokens, choices], order[slots] -> [slots]: the weight of each slot's pair
std::vector<Type> infer_pack_weights(const std::vector<Type>& in, const Attrs& attrs) {
  const Type &weights = in[0], &order = in[1];
  const int64_t choices = attrs.integer("choices");
  OP_REQUIRE(
      "pack_weights",
      has_tokens(weights) && weights.num_dims() == 2 && weights.dims[1] == DimSize(Dim::Choices, choices),
      "expects weights[tokens, choices={}], got {}", choices, to_string(weights));
  OP_REQUIRE("pack_weights", is_accumulator(weights.dtype), "expects weights in f32 or f64, got {}",
             to_string(weights));
  OP_REQUIRE("pack_weights",
             is_index(order, Dim::Slots) && (attrs.integer("pad") > 0 || order.size(0) == weights.count()),
             "expects order i32[slots={}], got {}", weights.count(), to_string(order));
  return {{weights.dtype, {order.dims[0]}}};
}

void gradient_pack_weights(GradContext& g, const Node& n) {
  Attrs attrs = n.attrs;
  attrs.set("token_rows", g.graph().type(n.inputs[0]).size(0));
  g.add(n.inputs[0],
        g.emit(kUnpackWeights, {g.grad(n.outputs[0]), n.inputs[1]}, std::move(attrs), Phase::B)[0]);
}

// unpack_weights: packed[slots], order[slots] -> [tokens, choices], zero for pairs without a slot; in further
// passes also an addend like the result
std::vector<Type> infer_unpack_weights(const std::vector<Type>& in, const Attrs& attrs) {
  const Type &packed = in[0], &order = in[1];
  OP_REQUIRE("unpack_weights",
             begins_with(packed, Dim::Slots) && packed.num_dims() == 1 && is_index(order, Dim::Slots) &&
                 order.dims[0] == packed.dims[0],
             "expects packed[slots] and order i32[slots] of the same slots, got {} and {}", to_string(packed),
             to_string(order));
  OP_REQUIRE("unpack_weights", is_accumulator(packed.dtype), "expects weights in f32 or f64, got {}",
             to_string(packed));
  const Type weights{packed.dtype,
                     {{Dim::Tokens, unpacked_rows("unpack_weights", packed.size(0), attrs)},
                      {Dim::Choices, attrs.integer("choices")}}};
  OP_REQUIRE("unpack_weights", in.size() < 3 || in[2] == weights,
             "expects an addend like the result {}, got {}", to_string(weights), to_string(in[2]));
  return {weights};
}

void gradient_unpack_weights(GradContext& g, const Node& n) {
  g.add(n.inputs[0],
        g.emit(kPackWeights, {g.grad(n.outputs[0]), n.inputs[1]}, packing(n.attrs), Phase::B)[0]);
}

// exchange_counts: send[counts] -> received[counts]. In this op and the next two rows move between ranks: the
// partitioner turns them into collectives, or into nothing where one rank holds all experts.
std::vector<Type> infer_exchange_counts(const std::vector<Type>& in, const Attrs&) {
  OP_REQUIRE("exchange_counts", is_index(in[0], Dim::Counts), "expects send i32[counts], got {}",
             to_string(in[0]));
  return {in[0]};
}

Type crossed(std::string_view op, const std::vector<Type>& in, Dim from, Dim to) {
  OP_REQUIRE(op, begins_with(in[0], from) && is_index(in[1], Dim::Counts) && is_index(in[2], Dim::Counts),
             "expects value[{}, ...], send i32[counts] and received i32[counts], got {}, {} and {}",
             to_string(from), to_string(in[0]), to_string(in[1]), to_string(in[2]));
  return with_rows(in[0], to, in[0].size(0));
}

// to_experts: value[slots, d...], send, received -> value[routed, d...]
std::vector<Type> infer_to_experts(const std::vector<Type>& in, const Attrs&) {
  return {crossed("to_experts", in, Dim::Slots, Dim::Routed)};
}
void gradient_to_experts(GradContext& g, const Node& n) {
  g.add(n.inputs[0], g.emit(kToTokens, {g.grad(n.outputs[0]), n.inputs[1], n.inputs[2]}, {}, Phase::B)[0]);
}

// to_tokens: value[routed, d...], send, received -> value[slots, d...]
std::vector<Type> infer_to_tokens(const std::vector<Type>& in, const Attrs&) {
  return {crossed("to_tokens", in, Dim::Routed, Dim::Slots)};
}
void gradient_to_tokens(GradContext& g, const Node& n) {
  g.add(n.inputs[0], g.emit(kToExperts, {g.grad(n.outputs[0]), n.inputs[1], n.inputs[2]}, {}, Phase::B)[0]);
}

// regroup: value[routed, d...], received[counts = sources * experts] -> the same rows, from the order
// [source][expert] in which they arrive to [expert][source]; inverse = 1: the other direction.
std::vector<Type> infer_regroup(const std::vector<Type>& in, const Attrs& attrs) {
  const Type &value = in[0], &received = in[1];
  const int64_t experts = attrs.integer("experts");
  OP_REQUIRE("regroup", begins_with(value, Dim::Routed), "expects value[routed, ...], got {}",
             to_string(value));
  OP_REQUIRE("regroup", is_index(received, Dim::Counts) && experts > 0 && received.size(0) % experts == 0,
             "expects received i32[counts] with {} counts of every source, got {}", experts,
             to_string(received));
  return {value};
}

// split_rows: order[slots], counts[members * all experts] of every member of the exchange group[, pass[1]] ->
// of that pass (none: pass 0) order[slots], send[all experts] and received[members * experts]; and the number
// of passes that the group needs. The rows of a rank, by expert and then by sender, are cut into passes of
// `rows` rows: every member derives the same passes from the same counts. Its own position in the group is
// the part of dim counts that it holds.
std::vector<Type> infer_split_rows(const std::vector<Type>& in, const Attrs& attrs) {
  const Type &order = in[0], &counts = in[1];
  const int64_t experts = attrs.integer("experts"), copies = attrs.integer("copies"),
                all = attrs.integer("all_experts");
  OP_REQUIRE("split_rows", is_index(order, Dim::Slots) && is_index(counts, Dim::Counts),
             "expects order i32[slots] and counts i32[counts], got {} and {}", to_string(order),
             to_string(counts));
  OP_REQUIRE("split_rows", experts > 0 && copies > 0 && all > 0 && attrs.integer("rows") > 0,
             "expects experts, copies, all_experts and rows > 0, got {}, {}, {} and {}", experts, copies, all,
             attrs.integer("rows"));
  OP_REQUIRE("split_rows", counts.size(0) % all == 0 && counts.size(0) * experts == all * all * copies,
             "{} ranks with {} experts each, in {} copies, do not have {} counts of {} experts",
             counts.size(0) / all, experts, copies, counts.size(0), all);
  const Type one{DType::I32, {{Dim::Counts, 1}}};
  OP_REQUIRE("split_rows", in.size() < 3 || in[2] == one, "expects pass {}, got {}", to_string(one),
             to_string(in[2]));
  return {order,
          {DType::I32, {{Dim::Counts, all}}},
          {DType::I32, {{Dim::Counts, counts.size(0) / all * experts}}},
          one};
}

// next_pass: passes[1] -> pass[1]: begins the nodes that are repeated for the passes 1, 2, ... (Node::repeat)
std::vector<Type> infer_next_pass(const std::vector<Type>& in, const Attrs&) {
  OP_REQUIRE("next_pass", is_index(in[0], Dim::Counts) && in[0].size(0) == 1,
             "expects passes i32[counts=1], got {}", to_string(in[0]));
  return {in[0]};
}

// sum_copies: value[slots * copies, d...] -> value[slots, d...]: the sum of `copies` blocks, in their order
std::vector<Type> infer_sum_copies(const std::vector<Type>& in, const Attrs& attrs) {
  const int64_t copies = attrs.integer("copies");
  OP_REQUIRE("sum_copies", begins_with(in[0], Dim::Slots) && copies > 0 && in[0].size(0) % copies == 0,
             "expects value[slots, ...] of {} equal blocks, got {}", copies, to_string(in[0]));
  return {with_rows(in[0], Dim::Slots, in[0].size(0) / copies)};
}

const std::vector<AttrSpec> kPacking = {{"choices", AttrKind::Integer}, {"pad", AttrKind::Integer}};
const std::vector<AttrSpec> kUnpacking = {
    {"choices", AttrKind::Integer}, {"pad", AttrKind::Integer}, {"token_rows", AttrKind::Integer}};

}  // namespace

const OpDef kRoute = {.name = "route",
                      .min_inputs = 1,
                      .max_inputs = 1,
                      .attrs = {{"experts", AttrKind::Integer},
                                {"choices", AttrKind::Integer},
                                {"pad", AttrKind::Integer},
                                {"token_rows", AttrKind::Integer},
                                {"bound", AttrKind::Real, true}},
                      .infer = infer_route,
                      .cost = cost_by_bytes,
                      .dims = by_tokens,
                      .keep = true,
                      .op_class = OpClass::Dispatch};
const OpDef kPack = {.name = "pack",
                     .min_inputs = 2,
                     .max_inputs = 2,
                     .attrs = kPacking,
                     .infer = infer_pack,
                     .gradient = gradient_pack,
                     .cost = cost_by_bytes,
                     .dims = by_tokens,
                     .op_class = OpClass::Dispatch};
const OpDef kUnpack = {.name = "unpack",
                       .min_inputs = 2,
                       .max_inputs = 3,
                       .attrs = kUnpacking,
                       .infer = infer_unpack,
                       .gradient = gradient_unpack,
                       .cost = cost_by_bytes,
                       .dims = by_tokens,
                       .in_place = {{0, 2}},
                       .op_class = OpClass::Dispatch,
                       .takes_addend = true};
const OpDef kPackWeights = {.name = "pack_weights",
                            .min_inputs = 2,
                            .max_inputs = 2,
                            .attrs = kPacking,
                            .infer = infer_pack_weights,
                            .gradient = gradient_pack_weights,
                            .cost = cost_by_bytes,
                            .dims = by_tokens,
                            .op_class = OpClass::Dispatch};
const OpDef kUnpackWeights = {.name = "unpack_weights",
                              .min_inputs = 2,
                              .max_inputs = 3,
                              .attrs = kUnpacking,
                              .infer = infer_unpack_weights,
                              .gradient = gradient_unpack_weights,
                              .cost = cost_by_bytes,
                              .dims = by_tokens,
                              .in_place = {{0, 2}},
                              .op_class = OpClass::Dispatch};
const OpDef kExchangeCounts = {.name = "exchange_counts",
                               .min_inputs = 1,
                               .max_inputs = 1,
                               .attrs = {},
                               .infer = infer_exchange_counts,
                               .cost = cost_by_bytes,
                               .dims = by_tokens,
                               .keep = true,
                               .op_class = OpClass::Dispatch};
const OpDef kToExperts = {.name = "to_experts",
                          .min_inputs = 3,
                          .max_inputs = 3,
                          .attrs = {},
                          .infer = infer_to_experts,
                          .gradient = gradient_to_experts,
                          .cost = cost_by_bytes,
                          .dims = by_tokens,
                          .op_class = OpClass::Dispatch};
const OpDef kToTokens = {.name = "to_tokens",
                         .min_inputs = 3,
                         .max_inputs = 3,
                         .attrs = {},
                         .infer = infer_to_tokens,
                         .gradient = gradient_to_tokens,
                         .cost = cost_by_bytes,
                         .dims = by_tokens,
                         .op_class = OpClass::Dispatch};
const OpDef kSplitRows = {.name = "split_rows",
                          .min_inputs = 2,
                          .max_inputs = 3,
                          .attrs = {{"rows", AttrKind::Integer},
                                    {"experts", AttrKind::Integer},
                                    {"all_experts", AttrKind::Integer},
                                    {"copies", AttrKind::Integer}},
                          .infer = infer_split_rows,
                          .cost = cost_by_bytes,
                          .dims = by_tokens,
                          .keep = true,
                          .op_class = OpClass::Dispatch};
const OpDef kNextPass = {.name = "next_pass",
                         .min_inputs = 1,
                         .max_inputs = 1,
                         .attrs = {},
                         .infer = infer_next_pass,
                         .cost = cost_by_bytes,
                         .dims = by_tokens,
                         .keep = true,
                         .op_class = OpClass::Dispatch};
const OpDef kRegroup = {.name = "regroup",
                        .min_inputs = 2,
                        .max_inputs = 2,
                        .attrs = {{"experts", AttrKind::Integer}, {"inverse", AttrKind::Integer}},
                        .infer = infer_regroup,
                        .cost = cost_by_bytes,
                        .dims = by_routed,
                        .op_class = OpClass::Dispatch};
const OpDef kSumCopies = {.name = "sum_copies",
                          .min_inputs = 1,
                          .max_inputs = 1,
                          .attrs = {{"copies", AttrKind::Integer}},
                          .infer = infer_sum_copies,
                          .cost = cost_by_bytes,
                          .dims = by_tokens,
                          .op_class = OpClass::Dispatch};

}  // namespace quintet::graph
