// rope: x[tokens, heads, head_dim], positions[tokens] -> y like x. Rotation of the pairs (i, i + n) of each
// head by position * inv_freq[i], i < n; elements from 2 n on, if any, stay as they are; times `scale`
// (YaRN's attention factor; 1 otherwise). The inverse rotation is its gradient. rope_first rotates only the
// first `heads` heads and leaves the others unchanged: q and k, packed with v (passes/pack.h).
#include "graph/ops/support.h"

namespace quintet::graph {
namespace {

std::vector<Type> infer_any(std::string_view op, const std::vector<Type>& in, const Attrs& attrs) {
  const Type& x = in[0];
  OP_REQUIRE(op, has_tokens(x) && x.num_dims() == 3 && x.size(2) % 2 == 0,
             "expects x[tokens, heads, head_dim] with an even head_dim, got {}", to_string(x));
  OP_REQUIRE(op, is_row_index(in[1], x), "expects positions i32[tokens={}], got {}", x.size(0),
             to_string(in[1]));
  const int64_t pairs = static_cast<int64_t>(attrs.reals("inv_freq").size());
  OP_REQUIRE(op, pairs > 0 && pairs * 2 <= x.size(2), "expects at most head_dim/2 = {} frequencies, got {}",
             x.size(2) / 2, pairs);
  return {x};
}

std::vector<Type> infer(const std::vector<Type>& in, const Attrs& attrs) {
  return infer_any("rope", in, attrs);
}

void gradient(GradContext& g, const Node& n) {
  Attrs attrs = n.attrs;
  attrs.set("inverse", int64_t{1} - n.attrs.integer("inverse"));
  g.add(n.inputs[0], g.emit(kRope, {g.grad(n.outputs[0]), n.inputs[1]}, std::move(attrs), Phase::B)[0]);
}

Cost cost(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  return {.flops = 3.0 * static_cast<double>(in[0].count()), .bytes = total_bytes(in, out)};
}

std::vector<OpDim> dims(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  return rowwise_dims(in, out, 1);
}

std::vector<Type> infer_first(const std::vector<Type>& in, const Attrs& attrs) {
  const int64_t heads = attrs.integer("heads");
  OP_REQUIRE("rope_first", in[0].num_dims() == 3 && heads > 0 && heads <= in[0].size(1),
             "expects x[tokens, heads, head_dim] with at least {} heads, got {}", heads, to_string(in[0]));
  return infer_any("rope_first", in, attrs);
}

// In place only the rotated heads are moved.
Cost cost_first(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs& attrs) {
  const Cost all = cost(in, out, attrs);
  const double share = static_cast<double>(attrs.integer("heads")) / static_cast<double>(in[0].size(1));
  return {.flops = all.flops * share, .bytes = all.bytes * share};
}

std::vector<OpDim> dims_first(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  return {tokens_dim(in, out)};
}

std::vector<AttrSpec> attrs(bool first) {
  std::vector<AttrSpec> list = {
      {"inv_freq", AttrKind::Reals}, {"scale", AttrKind::Real}, {"inverse", AttrKind::Integer}};
  if (first) list.push_back({"heads", AttrKind::Integer});
  return list;
}

}  // namespace

const OpDef kRope = {.name = "rope",
                     .min_inputs = 2,
                     .max_inputs = 2,
                     .attrs = attrs(false),
                     .infer = infer,
                     .gradient = gradient,
                     .cost = cost,
                     .dims = dims,
                     .in_place = {{0, 0}},
                     .op_class = OpClass::Rope};
const OpDef kRopeFirst = {.name = "rope_first",
                          .min_inputs = 2,
                          .max_inputs = 2,
                          .attrs = attrs(true),
                          .infer = infer_first,
                          .cost = cost_first,
                          .dims = dims_first,
                          .in_place = {{0, 0}},
                          .op_class = OpClass::Rope};

}  // namespace quintet::graph
