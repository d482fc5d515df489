// rms_norm and layer_norm over the last dim; all dims before it are independent rows (tokens, or tokens x
// heads for the norms of queries and keys). An rms_norm with whole = n covers the last n dims together, with
// a weight [embed = their product]: it is stored whole, however they are sharded. With an offset its factor
// is offset + w. Statistics are kept in the accumulator type for the backward pass. In programs the backward
// ops that return dx may have an addend of its type as their last operand (see graph/fuse_adds.h).
#include "graph/ops/support.h"

namespace quintet::graph {
namespace {

Type stats_of(const Type& x, int whole = 1) {
  return {base::accumulator_of(x.dtype), {x.dims.begin(), x.dims.end() - whole}};
}
std::vector<DimSize> weight_dims(const Type& x, int whole) {
  if (whole == 1) return {x.dims.back()};
  int64_t size = 1;
  for (auto d = x.dims.end() - whole; d != x.dims.end(); ++d) size *= d->size;
  return {{Dim::Embed, size}};
}

void require_weight(std::string_view op, const Type& x, const Type& w, int whole = 1) {
  OP_REQUIRE(op,
             has_tokens(x) && whole >= 1 && x.num_dims() > whole && w.dims == weight_dims(x, whole) &&
                 w.dtype == x.dtype,
             "expects x[tokens, ..., d] and a weight for its last {} dims of the same dtype, got {} and {}",
             whole, to_string(x), to_string(w));
}

std::vector<OpDim> dims(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs& attrs) {
  return rowwise_dims(in, out, norm_dims(attrs));
}

// The attributes that the backward ops of an rms_norm share with it.
Attrs without_eps(const Attrs& attrs) {
  Attrs rest;
  for (const auto& [name, value] : attrs.items())
    if (name != "eps") rest.set(name, value);
  return rest;
}

// rms_norm: x, w -> y, rstd
std::vector<Type> infer_rms(const std::vector<Type>& in, const Attrs& attrs) {
  require_weight("rms_norm", in[0], in[1], norm_dims(attrs));
  return {in[0], stats_of(in[0], norm_dims(attrs))};
}

void gradient_rms(GradContext& g, const Node& n) {
  const ValueId x = n.inputs[0], w = n.inputs[1], dy = g.grad(n.outputs[0]), rstd = n.outputs[1];
  if (g.needs(x)) g.add(x, g.emit(kRmsNormDx, {dy, x, w, rstd}, without_eps(n.attrs), Phase::B)[0]);
  if (!g.needs(w)) return;
  Attrs attrs{{"out", text_of(g.param_grad())}};
  if (norm_dims(n.attrs) > 1) attrs.set("whole", int64_t{norm_dims(n.attrs)});
  g.add(w, g.emit(kRmsNormDw, {dy, x, rstd}, std::move(attrs), Phase::W)[0]);
}

// Operands of the backward ops: dy, x, then from `first_stats` on the statistics.
void require_backward(std::string_view op, const std::vector<Type>& in, size_t first_stats, int whole = 1) {
  const Type &dy = in[0], &x = in[1];
  OP_REQUIRE(op, dy == x && has_tokens(x) && x.num_dims() >= 2,
             "expects equal types of dy and x[tokens, ..., d], got {} and {}", to_string(dy), to_string(x));
  for (size_t i = first_stats; i < in.size(); ++i)
    OP_REQUIRE(op, in[i] == stats_of(x, whole), "expects statistics {}, got {}",
               to_string(stats_of(x, whole)), to_string(in[i]));
}

void require_sum(std::string_view op, const Type& x, const Type& residual) {
  OP_REQUIRE(op, x == residual, "expects two terms of one type, got {} and {}", to_string(x),
             to_string(residual));
}

// The operands of an op that returns dx: as require_backward, with the weight third and possibly an addend
// after all others.
void require_dx(std::string_view op, const std::vector<Type>& in, size_t first_stats, size_t without_addend,
                int whole = 1) {
  OP_REQUIRE(op, in.size() == without_addend || in.back() == in[1], "expects an addend like x {}, got {}",
             to_string(in[1]), to_string(in.back()));
  require_backward(op, {in.begin(), in.begin() + static_cast<ptrdiff_t>(without_addend)}, first_stats, whole);
  require_weight(op, in[1], in[2], whole);
}

std::vector<Type> infer_rms_dx(const std::vector<Type>& in, const Attrs& attrs) {
  require_dx("rms_norm_dx", in, 3, 4, norm_dims(attrs));
  return {in[1]};
}

std::vector<Type> infer_rms_dw(const std::vector<Type>& in, const Attrs& attrs) {
  require_backward("rms_norm_dw", in, 2, norm_dims(attrs));
  return {{dtype_attr(attrs, "out"), weight_dims(in[0], norm_dims(attrs))}};
}

// add_rms_norm: x, residual, w -> x + residual, its norm, rstd (see passes/fold.h)
std::vector<Type> infer_add_rms(const std::vector<Type>& in, const Attrs& attrs) {
  require_sum("add_rms_norm", in[0], in[1]);
  require_weight("add_rms_norm", in[0], in[2], norm_dims(attrs));
  return {in[0], in[0], stats_of(in[0], norm_dims(attrs))};
}

// rms_norm_backward: dy, x, w, rstd [, addend] -> dx, dw [, y]: both gradients in one pass over dy and x, and
// with `again` the forward result too (see passes/fold.h)
std::vector<Type> infer_rms_backward(const std::vector<Type>& in, const Attrs& attrs) {
  const int whole = norm_dims(attrs);
  require_dx("rms_norm_backward", in, 3, 4, whole);
  std::vector<Type> out = {in[1], {dtype_attr(attrs, "out"), weight_dims(in[0], whole)}};
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
  if (g.needs(w)) {  // the bias gradient comes for free
    const int64_t bias = g.needs(b);
    const auto out = g.emit(kLayerNormDw, {dy, x, mean, rstd}, {{"out", out_type}, {"bias", bias}}, Phase::W);
    g.add(w, out[0]);
    if (bias) g.add(b, out[1]);
  } else if (g.needs(b)) {
    g.add(b, g.emit(kSumRows, {dy}, {{"out", out_type}}, Phase::W)[0]);
  }
}

std::vector<Type> infer_layer_dx(const std::vector<Type>& in, const Attrs&) {
  require_dx("layer_norm_dx", in, 3, 5);
  return {in[1]};
}

// add_layer_norm: x, residual, w, b -> x + residual, its norm, mean, rstd (see passes/fold.h)
std::vector<Type> infer_add_layer(const std::vector<Type>& in, const Attrs&) {
  require_sum("add_layer_norm", in[0], in[1]);
  require_weight("add_layer_norm", in[0], in[2]);
  require_weight("add_layer_norm", in[0], in[3]);
  return {in[0], in[0], stats_of(in[0]), stats_of(in[0])};
}

// layer_norm_backward: dy, x, w, b, mean, rstd [, addend] -> dx, dw [, db] [, y]: as rms_norm_backward;
// `bias` says whether db is returned, and b is read for y only
std::vector<Type> infer_layer_backward(const std::vector<Type>& in, const Attrs& attrs) {
  require_dx("layer_norm_backward", in, 4, 6);
  require_weight("layer_norm_backward", in[1], in[3]);
  const Type d{dtype_attr(attrs, "out"), {in[0].dims.back()}};
  std::vector<Type> out = {in[1], d};
  if (attrs.integer("bias") != 0) out.push_back(d);
  if (attrs.integer("again") != 0) out.push_back(in[1]);
  return out;
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
const AttrSpec kWhole{"whole", AttrKind::Integer, true}, kOffset{"offset", AttrKind::Real, true};
const std::vector<AttrSpec> kRms = {{"eps", AttrKind::Real}, kWhole, kOffset};

}  // namespace

int norm_dims(const Attrs& attrs) {
  return attrs.find("whole") != nullptr ? static_cast<int>(attrs.integer("whole")) : 1;
}

const OpDef kRmsNorm = {.name = "rms_norm",
                        .min_inputs = 2,
                        .max_inputs = 2,
                        .attrs = kRms,
                        .infer = infer_rms,
                        .gradient = gradient_rms,
                        .cost = cost,
                        .dims = dims,
                        .op_class = OpClass::Norm};
const OpDef kAddRmsNorm = {.name = "add_rms_norm",
                           .min_inputs = 3,
                           .max_inputs = 3,
                           .attrs = kRms,
                           .infer = infer_add_rms,
                           .cost = cost,
                           .dims = dims,
                           .in_place = {{0, 0}, {0, 1}},
                           .op_class = OpClass::Norm};
const OpDef kRmsNormDx = {.name = "rms_norm_dx",
                          .min_inputs = 4,
                          .max_inputs = 5,
                          .attrs = {kWhole, kOffset},
                          .infer = infer_rms_dx,
                          .cost = cost,
                          .dims = dims,
                          .in_place = {{0, 0}, {0, 4}},
                          .op_class = OpClass::Norm,
                          .pass = OpPass::InputGradient,
                          .takes_addend = true};
const OpDef kRmsNormDw = {.name = "rms_norm_dw",
                          .min_inputs = 3,
                          .max_inputs = 3,
                          .attrs = {{"out", AttrKind::Text}, kWhole},
                          .infer = infer_rms_dw,
                          .cost = cost,
                          .dims = dims,
                          .op_class = OpClass::Norm,
                          .pass = OpPass::WeightGradient};
const OpDef kRmsNormBackward = {
    .name = "rms_norm_backward",
    .min_inputs = 4,
    .max_inputs = 5,
    .attrs = {{"out", AttrKind::Text}, {"again", AttrKind::Integer}, kWhole, kOffset},
    .infer = infer_rms_backward,
    .cost = cost,
    .dims = dims,
    .in_place = {{0, 0}, {0, 4}},
    .op_class = OpClass::Norm,
    .pass = OpPass::InputGradient,
    .takes_addend = true};
const OpDef kLayerNorm = {.name = "layer_norm",
                          .min_inputs = 3,
                          .max_inputs = 3,
                          .attrs = kEps,
                          .infer = infer_layer,
                          .gradient = gradient_layer,
                          .cost = cost,
                          .dims = dims,
                          .op_class = OpClass::Norm};
const OpDef kAddLayerNorm = {.name = "add_layer_norm",
                             .min_inputs = 4,
                             .max_inputs = 4,
                             .attrs = kEps,
                             .infer = infer_add_layer,
                             .cost = cost,
                             .dims = dims,
                             .in_place = {{0, 0}, {0, 1}},
                             .op_class = OpClass::Norm};
const OpDef kLayerNormDx = {.name = "layer_norm_dx",
                            .min_inputs = 5,
                            .max_inputs = 6,
                            .attrs = {},
                            .infer = infer_layer_dx,
                            .cost = cost,
                            .dims = dims,
                            .in_place = {{0, 0}, {0, 5}},
                            .op_class = OpClass::Norm,
                            .pass = OpPass::InputGradient,
                            .takes_addend = true};
const OpDef kLayerNormDw = {.name = "layer_norm_dw",
                            .min_inputs = 4,
                            .max_inputs = 4,
                            .attrs = {{"out", AttrKind::Text}, {"bias", AttrKind::Integer}},
                            .infer = infer_layer_dw,
                            .cost = cost,
                            .dims = dims,
                            .op_class = OpClass::Norm,
                            .pass = OpPass::WeightGradient};
const OpDef kLayerNormBackward = {
    .name = "layer_norm_backward",
    .min_inputs = 6,
    .max_inputs = 7,
    .attrs = {{"out", AttrKind::Text}, {"bias", AttrKind::Integer}, {"again", AttrKind::Integer}},
    .infer = infer_layer_backward,
    .cost = cost,
    .dims = dims,
    .in_place = {{0, 0}, {0, 6}},
    .op_class = OpClass::Norm,
    .pass = OpPass::InputGradient,
    .takes_addend = true};

}  // namespace quintet::graph
