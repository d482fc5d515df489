// join_heads: a[tokens, heads, d1], b[tokens, heads, d2] -> [tokens, heads, d1 + d2]: concatenates each
// head's part without positions and its rotated part (multi-head latent attention). b may be one part that
// all heads share: b[tokens, choices=1, d2].
#include "graph/ops/support.h"

namespace quintet::graph {
namespace {

constexpr DimSize kOne{Dim::Choices, 1};

bool has_heads(const Type& t) {
  return t.num_dims() == 3 && has_tokens(t) &&
         (t.dims[1].name == Dim::Heads || t.dims[1].name == Dim::KvHeads);
}

std::vector<Type> infer(const std::vector<Type>& in, const Attrs&) {
  const Type &a = in[0], &b = in[1];
  OP_REQUIRE(
      "join_heads",
      has_heads(a) && b.num_dims() == 3 && b.dtype == a.dtype && b.dims[0] == a.dims[0] &&
          (b.dims[1] == a.dims[1] || b.dims[1] == kOne) && b.dims[2].name == a.dims[2].name,
      "expects a[tokens, heads, d1] and b[tokens, heads, d2] or b[tokens, choices=1, d2] of one dtype, "
      "got {} and {}",
      to_string(a), to_string(b));
  return {{a.dtype, {a.dims[0], a.dims[1], {a.dims[2].name, a.size(2) + b.size(2)}}}};
}

void gradient(GradContext& g, const Node& n) {
  const Type &a = g.graph().type(n.inputs[0]), &b = g.graph().type(n.inputs[1]);
  const int64_t shared = b.dims[1] == kOne ? 1 : 0;
  const auto out =
      g.emit(kJoinHeadsDx, {g.grad(n.outputs[0])}, {{"d1", a.size(2)}, {"shared", shared}}, Phase::B);
  g.add(n.inputs[0], out[0]);
  g.add(n.inputs[1], out[1]);
}

std::vector<OpDim> dims(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  const int shared = in[1].dims[1].name == in[0].dims[1].name ? 1 : kAbsent;
  return {{.key = in[0].dims[1].name, .in = {1, shared}, .out = {1}}, tokens_dim(in, out)};
}

// join_heads_dx: dy[tokens, heads, d1 + d2] -> da, db; db is the sum over the heads where they share it
std::vector<Type> infer_dx(const std::vector<Type>& in, const Attrs& attrs) {
  const Type& dy = in[0];
  const int64_t d1 = attrs.integer("d1");
  OP_REQUIRE("join_heads_dx", has_heads(dy) && d1 > 0 && d1 < dy.size(2),
             "expects dy[tokens, heads, d] with d > d1 = {}, got {}", d1, to_string(dy));
  Type da = dy, db = dy;
  da.dims[2].size = d1;
  db.dims[2].size = dy.size(2) - d1;
  if (attrs.integer("shared") != 0) db.dims[1] = kOne;
  return {da, db};
}

std::vector<OpDim> dims_dx(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs& attrs) {
  const int db = attrs.integer("shared") != 0 ? kAbsent : 1;
  return {{.key = in[0].dims[1].name, .in = {1}, .out = {1, db}}, tokens_dim(in, out)};
}

}  // namespace

const OpDef kJoinHeads = {.name = "join_heads",
                          .min_inputs = 2,
                          .max_inputs = 2,
                          .attrs = {},
                          .infer = infer,
                          .gradient = gradient,
                          .cost = cost_by_bytes,
                          .dims = dims,
                          .op_class = OpClass::Rope};
const OpDef kJoinHeadsDx = {.name = "join_heads_dx",
                            .min_inputs = 1,
                            .max_inputs = 1,
                            .attrs = {{"d1", AttrKind::Integer}, {"shared", AttrKind::Integer}},
                            .infer = infer_dx,
                            .cost = cost_by_bytes,
                            .dims = dims_dx,
                            .op_class = OpClass::Rope,
                            .pass = OpPass::InputGradient};

}  // namespace quintet::graph
