// rms_norm and layer_norm over the last dim; all dims before it are independent rows (tokens, or tokens x
// heads for the norms of queries and keys). Statistics are kept in the accumulator type for the backward
// pass. In programs rms_norm_dx and rms_norm_backward may have an addend like dx as its last operand (see
// program/fuse_adds.h).
#include "graph/ops/support.h"

namespace quintet::graph {
namespace {

Type stats_of(const Type& x) { return {base::accumulator_of(x.dtype), {x.dims.begin(), x.dims.end() - 1}}; }

void require_weight(std::string_view op, const Type& x, const Type& w) {
  OP_REQUIRE(op,
             has_tokens(x) && x.num_dims() >= 2 && w.num_dims() == 1 && w.dims[0] == x.dims.back() &&
                 w.dtype == x.dtype,
             "expects x[tokens, ..., d] and a weight [d] of the same dtype, got {} and {}", to_string(x),
             to_string(w));
}

std::vector<OpDim> dims(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  return rowwise_dims(in, out, 1);
}

// rms_norm: x, w -> y, rstd
std::vector<Type> infer_rms(const std::vector<Type>& in, const Attrs&) {
  require_weight("rms_norm", in[0], in[1]);
  return {in[0], stats_of(in[0])};
}

void gradient_rms(GradContext& g, const Node& n) {
  const ValueId x = n.inputs[0], w = n.inputs[1], dy = g.grad(n.outputs[0]), rstd = n.outputs[1];
  if (g.needs(x)) g.add(x, g.emit(kRmsNormDx, {dy, x, w, rstd}, {}, Phase::B)[0]);
  if (g.needs(w))
    g.add(w, g.emit(kRmsNormDw, {dy, x, rstd}, {{"out", text_of(g.param_grad())}}, Phase::W)[0]);
}

// Operands of the backward ops: dy, x, then from `first_stats` on the statistics.
void require_backward(std::string_view op, const std::vector<Type>& in, size_t first_stats) {
  const Type &dy = in[0], &x = in[1];
  OP_REQUIRE(op, dy == x && has_tokens(x) && x.num_dims() >= 2,
             "expects dy and x[tokens, ..., d] alike, got {} and {}", to_string(dy), to_string(x));
  for (size_t i = first_stats; i < in.size(); ++i)
    OP_REQUIRE(op, in[i] == stats_of(x), "expects statistics {}, got {}", to_string(stats_of(x)),
               to_string(in[i]));
}

// dy, x, w, rstd [, addend]
void require_rms_backward(std::string_view op, const std::vector<Type>& in) {
  OP_REQUIRE(op, in.size() < 5 || in[4] == in[1], "expects an addend like x {}, got {}", to_string(in[1]),
             to_string(in[4]));
  require_backward(op, {in.begin(), in.begin() + 4}, 3);
  require_weight(op, in[1], in[2]);
}

std::vector<Type> infer_rms_dx(const std::vector<Type>& in, const Attrs&) {
  require_rms_backward("rms_norm_dx", in);
  return {in[1]};
}

std::vector<Type> infer_rms_dw(const std::vector<Type>& in, const Attrs& attrs) {
  require_backward("rms_norm_dw", in, 2);
  return {{dtype_attr(attrs, "out"), {in[0].dims.back()}}};
}

// rms_norm_backward: dy, x, w, rstd [, addend] -> dx, dw [, y]: both gradients in one visit to dy and x, and
// with `again` the forward's result too (see passes/fold_backward.h)
std::vector<Type> infer_rms_backward(const std::vector<Type>& in, const Attrs& attrs) {
  require_rms_backward("rms_norm_backward", in);
  std::vector<Type> out = {in[1], {dtype_attr(attrs, "out"), {in[0].dims.back()}}};
  if (attrs.integer("again") != 0) out.push_back(in[1]);
  return out;
}

// layer_norm: x, w, b -> y, mean, rstd
std::vector<Type> infer_layer(const std::vector<Type>& in, const Attrs&) {
  require_weight("layer_norm", in[0], in[1]);
  require_weight("layer_norm", in[0], in[2]);
  return {in[0], stats_of(in[0]), stats_of(in[0])};
}

void gradient_layer(GradContext& g, const Node& n) {
  const ValueId x = n.inputs[0], w = n.inputs[1], b = n.inputs[2], dy = g.grad(n.outputs[0]);
  const ValueId mean = n.outputs[1], rstd = n.outputs[2];
  if (g.needs(x)) g.add(x, g.emit(kLayerNormDx, {dy, x, w, mean, rstd}, {}, Phase::B)[0]);
  const std::string out_type = text_of(g.param_grad());
  if (g.needs(w)) {  // the bias comes along for free
    const int64_t bias = g.needs(b);
    const auto out = g.emit(kLayerNormDw, {dy, x, mean, rstd}, {{"out", out_type}, {"bias", bias}}, Phase::W);
    g.add(w, out[0]);
    if (bias) g.add(b, out[1]);
  } else if (g.needs(b)) {
    g.add(b, g.emit(kSumRows, {dy}, {{"out", out_type}}, Phase::W)[0]);
  }
}

std::vector<Type> infer_layer_dx(const std::vector<Type>& in, const Attrs&) {
  require_backward("layer_norm_dx", in, 3);
  require_weight("layer_norm_dx", in[1], in[2]);
  return {in[1]};
}

std::vector<Type> infer_layer_dw(const std::vector<Type>& in, const Attrs& attrs) {
  require_backward("layer_norm_dw", in, 2);
  const Type d{dtype_attr(attrs, "out"), {in[0].dims.back()}};
  if (attrs.integer("bias") == 0) return {d};
  return {d, d};
}

Cost cost(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  return {.flops = 8.0 * static_cast<double>(in[0].count()), .bytes = total_bytes(in, out)};
}

const std::vector<AttrSpec> kEps = {{"eps", AttrKind::Real}};
const std::vector<AttrSpec> kOut = {{"out", AttrKind::Text}};

}  // namespace

const OpDef kRmsNorm = {"rms_norm", 2, 2, kEps, infer_rms, gradient_rms, cost, dims};
const OpDef kRmsNormDx = {"rms_norm_dx", 4, 5, {}, infer_rms_dx, nullptr, cost, dims, {{0, 0}, {0, 4}}};
const OpDef kRmsNormDw = {"rms_norm_dw", 3, 3, kOut, infer_rms_dw, nullptr, cost, dims};
const OpDef kRmsNormBackward = {
    "rms_norm_backward", 4,       5,    {{"out", AttrKind::Text}, {"again", AttrKind::Integer}},
    infer_rms_backward,  nullptr, cost, dims,
    {{0, 0}, {0, 4}}};
const OpDef kLayerNorm = {"layer_norm", 3, 3, kEps, infer_layer, gradient_layer, cost, dims};
const OpDef kLayerNormDx = {"layer_norm_dx", 5, 5, {}, infer_layer_dx, nullptr, cost, dims, {{0, 0}}};
const OpDef kLayerNormDw = {
    "layer_norm_dw", 4,       4,    {{"out", AttrKind::Text}, {"bias", AttrKind::Integer}},
    infer_layer_dw,  nullptr, cost, dims};

}  // namespace quintet::graph
