// rope: x[tokens, heads, head_dim], positions[tokens] -> y like x. Rotation of the pairs (i, i + head_dim/2)
// by position * inv_freq[i], times `scale` (YaRN's attention factor; 1 otherwise). The inverse rotation is
// its gradient.
#include "graph/ops/support.h"

namespace quintet::graph {
namespace {

std::vector<Type> infer(const std::vector<Type>& in, const Attrs& attrs) {
  const Type& x = in[0];
  OP_REQUIRE("rope", has_tokens(x) && x.num_dims() == 3 && x.size(2) % 2 == 0,
             "expects x[tokens, heads, head_dim] with an even head_dim, got {}", to_string(x));
  OP_REQUIRE("rope", is_row_index(in[1], x), "expects positions i32[tokens={}], got {}", x.size(0),
             to_string(in[1]));
  OP_REQUIRE("rope", static_cast<int64_t>(attrs.reals("inv_freq").size()) * 2 == x.size(2),
             "expects head_dim/2 = {} frequencies, got {}", x.size(2) / 2, attrs.reals("inv_freq").size());
  return {x};
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

}  // namespace

const OpDef kRope = {
    "rope",  2,
    2,       {{"inv_freq", AttrKind::Reals}, {"scale", AttrKind::Real}, {"inverse", AttrKind::Integer}},
    infer,   gradient,
    cost,    dims,
    {{0, 0}}};

}  // namespace quintet::graph
