// Computation of experts on the rows routed to them. `received` is i32[counts = sources * experts], as
// [source][expert]; the rows of one expert, the sum of its counts over the sources, are contiguous, in expert
// order. Rows past the sum of all counts are neither read nor written.
#include "graph/ops/routing.h"

namespace quintet::graph {
namespace {

bool is_routed(const Type& t) { return t.num_dims() == 2 && t.dims[0].name == Dim::Routed; }

void require_received(std::string_view op, const Type& t, int64_t experts) {
  OP_REQUIRE(op,
             t.dtype == DType::I32 && t.num_dims() == 1 && t.dims[0].name == Dim::Counts && experts > 0 &&
                 t.size(0) % experts == 0,
             "expects received i32[counts] with {} counts of every source, got {}", experts, to_string(t));
}

bool is_expert_weight(const Type& t) { return t.num_dims() == 3 && t.dims[0].name == Dim::Experts; }

// Rows may be split anywhere, each rank with its own counts, as long as every rank has the weights; or by
// expert. `rows_in` says which inputs have rows or counts in their first dim.
void push_row_dims(std::vector<OpDim>& rule, const std::vector<int>& rows_in,
                   const std::vector<int>& rows_out, const std::vector<int>& experts_in,
                   const std::vector<int>& experts_out) {
  rule.push_back({.key = Dim::Routed, .in = rows_in, .out = rows_out});
  rule.push_back({.key = Dim::Experts, .in = experts_in, .out = experts_out});
}

Cost grouped_cost(const std::vector<Type>& in, const std::vector<Type>& out, double rows, double weight) {
  return {.flops = 2.0 * rows * weight, .bytes = total_bytes(in, out)};
}

// grouped_linear: x[routed, in], w[experts, out, in], received -> y[routed, out]
std::vector<Type> infer(const std::vector<Type>& in, const Attrs&) {
  const Type &x = in[0], &w = in[1];
  OP_REQUIRE("grouped_linear",
             is_routed(x) && is_expert_weight(w) && w.dims[2] == x.dims[1] && w.dtype == x.dtype,
             "expects x[routed, in] and w[experts, out, in] of one dtype, got {} and {}", to_string(x),
             to_string(w));
  require_received("grouped_linear", in[2], w.size(0));
  return {{x.dtype, {x.dims[0], w.dims[1]}}};
}

void gradient(GradContext& g, const Node& n) {
  const ValueId x = n.inputs[0], w = n.inputs[1], received = n.inputs[2], dy = g.grad(n.outputs[0]);
  if (g.needs(x)) g.add(x, g.emit(kGroupedLinearDx, {dy, w, received}, {}, Phase::B)[0]);
  if (g.needs(w))
    g.add(w, g.emit(kGroupedLinearDw, {dy, x, received},
                    {{"out", text_of(g.param_grad())}, {"experts", g.graph().type(w).size(0)}}, Phase::W)[0]);
}

// Counts the rows of the type: what a rank computes under perfect balance.
Cost cost(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  return grouped_cost(in, out, static_cast<double>(in[0].size(0)),
                      static_cast<double>(in[1].size(1) * in[1].size(2)));
}

std::vector<OpDim> dims(const std::vector<Type>& in, const std::vector<Type>&, const Attrs&) {
  std::vector<OpDim> rule = {{.key = in[1].dims[1].name, .in = {kAbsent, 1, kAbsent}, .out = {1}},
                             {.key = in[1].dims[2].name, .in = {1, 2, kAbsent}, .out = {kAbsent}}};
  push_row_dims(rule, {0, kAbsent, 0}, {0}, {0, 0, 0}, {0});
  return rule;
}

// grouped_linear_dx: dy[routed, out], w[experts, out, in], received -> dx[routed, in]; in programs also an
// addend like dx (see graph/fuse_adds.h)
std::vector<Type> infer_dx(const std::vector<Type>& in, const Attrs&) {
  const Type &dy = in[0], &w = in[1];
  OP_REQUIRE("grouped_linear_dx",
             is_routed(dy) && is_expert_weight(w) && w.dims[1] == dy.dims[1] && w.dtype == dy.dtype,
             "expects dy[routed, out] and w[experts, out, in] of one dtype, got {} and {}", to_string(dy),
             to_string(w));
  require_received("grouped_linear_dx", in[2], w.size(0));
  const Type dx{dy.dtype, {dy.dims[0], w.dims[2]}};
  OP_REQUIRE("grouped_linear_dx", in.size() < 4 || in[3] == dx,
             "expects an addend like the result {}, got {}", to_string(dx), to_string(in[3]));
  return {dx};
}

std::vector<OpDim> dims_dx(const std::vector<Type>& in, const std::vector<Type>&, const Attrs&) {
  std::vector<OpDim> rule = {{.key = in[1].dims[2].name, .in = {kAbsent, 2, kAbsent}, .out = {1}},
                             {.key = in[1].dims[1].name, .in = {1, 1, kAbsent}, .out = {kAbsent}}};
  push_row_dims(rule, {0, kAbsent, 0}, {0}, {0, 0, 0}, {0});
  return rule;
}

// grouped_linear_dw: dy[routed, out], x[routed, in], received -> dw[experts, out, in]
std::vector<Type> infer_dw(const std::vector<Type>& in, const Attrs& attrs) {
  const Type &dy = in[0], &x = in[1];
  OP_REQUIRE("grouped_linear_dw",
             is_routed(dy) && is_routed(x) && dy.dims[0] == x.dims[0] && dy.dtype == x.dtype,
             "expects dy[routed, out] and x[routed, in] of the same rows and dtype, got {} and {}",
             to_string(dy), to_string(x));
  const int64_t experts = attrs.integer("experts");
  require_received("grouped_linear_dw", in[2], experts);
  return {{dtype_attr(attrs, "out"), {{Dim::Experts, experts}, dy.dims[1], x.dims[1]}}};
}

Cost cost_dw(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  return grouped_cost(in, out, static_cast<double>(in[0].size(0)),
                      static_cast<double>(out[0].size(1) * out[0].size(2)));
}

std::vector<OpDim> dims_dw(const std::vector<Type>& in, const std::vector<Type>&, const Attrs&) {
  std::vector<OpDim> rule = {{.key = in[0].dims[1].name, .in = {1, kAbsent, kAbsent}, .out = {1}},
                             {.key = in[1].dims[1].name, .in = {kAbsent, 1, kAbsent}, .out = {2}}};
  push_row_dims(rule, {0, 0, 0}, {kAbsent}, {0, 0, 0}, {0});
  return rule;
}

// expert_act: gate, up [routed, f], row_weight[routed], received -> h = row_weight * silu(gate) * up. With
// `alpha` and `limit` (GPT-OSS): gate is at most limit, up within +-limit, and h = row_weight * (up + 1) *
// gate * sigmoid(alpha gate).
void require_act(std::string_view op, const Type& gate, const Type& up, const Type& weight,
                 const Type& received) {
  OP_REQUIRE(op, is_routed(gate) && gate == up, "expects gate and up to be equal [routed, f], got {} and {}",
             to_string(gate), to_string(up));
  OP_REQUIRE(op,
             weight.dtype == base::accumulator_of(gate.dtype) && weight.num_dims() == 1 &&
                 weight.dims[0] == gate.dims[0],
             "expects row_weight {}[routed={}], got {}", to_string(base::accumulator_of(gate.dtype)),
             gate.size(0), to_string(weight));
  require_received(op, received, 1);  // only the number of rows matters
}

std::vector<Type> infer_act(const std::vector<Type>& in, const Attrs&) {
  require_act("expert_act", in[0], in[1], in[2], in[3]);
  return {in[0]};
}

void gradient_act(GradContext& g, const Node& n) {
  const auto out =
      g.emit(kExpertActDx, {g.grad(n.outputs[0]), n.inputs[0], n.inputs[1], n.inputs[2], n.inputs[3]},
             n.attrs, Phase::B);
  for (size_t i = 0; i < 3; ++i) g.add(n.inputs[i], out[i]);
}

Cost cost_act(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  return {.flops = 9.0 * static_cast<double>(in[0].count()), .bytes = total_bytes(in, out)};
}

std::vector<OpDim> dims_act(const std::vector<Type>& in, const std::vector<Type>&, const Attrs&) {
  std::vector<OpDim> rule = {{.key = in[0].dims[1].name, .in = {1, 1, kAbsent, kAbsent}, .out = {1}}};
  push_row_dims(rule, {0, 0, 0, 0}, {0}, {0, 0, 0, 0}, {0});
  return rule;
}

// expert_act_dx: dh, gate, up, row_weight, received -> dgate, dup, drow_weight
std::vector<Type> infer_act_dx(const std::vector<Type>& in, const Attrs&) {
  require_act("expert_act_dx", in[1], in[2], in[3], in[4]);
  OP_REQUIRE("expert_act_dx", in[0] == in[1], "expects dh like gate {}, got {}", to_string(in[1]),
             to_string(in[0]));
  return {in[1], in[2], in[3]};
}

std::vector<OpDim> dims_act_dx(const std::vector<Type>& in, const std::vector<Type>&, const Attrs&) {
  std::vector<OpDim> rule = {
      {.key = in[1].dims[1].name, .in = {1, 1, 1, kAbsent, kAbsent}, .out = {1, 1, kAbsent}}};
  push_row_dims(rule, {0, 0, 0, 0, 0}, {0, 0, 0}, {0, 0, 0, 0, 0}, {0, 0, 0});
  return rule;
}

// scale_rows: y[tokens, embed], g[tokens, choices=1] -> sigmoid(g) * y, the gate of a shared expert
void require_scale(std::string_view op, const Type& y, const Type& g) {
  OP_REQUIRE(op,
             has_tokens(y) && y.num_dims() == 2 && g.dtype == y.dtype && g.num_dims() == 2 &&
                 g.dims[0] == y.dims[0] && g.dims[1] == DimSize(Dim::Choices, 1),
             "expects y[tokens, d] and g[tokens, choices=1] of one dtype, got {} and {}", to_string(y),
             to_string(g));
}

std::vector<Type> infer_scale(const std::vector<Type>& in, const Attrs&) {
  require_scale("scale_rows", in[0], in[1]);
  return {in[0]};
}

void gradient_scale(GradContext& g, const Node& n) {
  const auto out = g.emit(kScaleRowsDx, {g.grad(n.outputs[0]), n.inputs[0], n.inputs[1]}, {}, Phase::B);
  g.add(n.inputs[0], out[0]);
  g.add(n.inputs[1], out[1]);
}

// scale_rows_dx: dz, y, g -> dy, dg
std::vector<Type> infer_scale_dx(const std::vector<Type>& in, const Attrs&) {
  require_scale("scale_rows_dx", in[1], in[2]);
  OP_REQUIRE("scale_rows_dx", in[0] == in[1], "expects dz like y {}, got {}", to_string(in[1]),
             to_string(in[0]));
  return {in[1], in[2]};
}

const std::vector<AttrSpec> kClamp = {{"alpha", AttrKind::Real, true}, {"limit", AttrKind::Real, true}};

// One per expert: rows [expert rows, k] by w[experts, a, b].
Gemm expert_gemm(const std::vector<Type>& in, const std::vector<Type>&, const Attrs&) {
  const Type& w = in[1];
  const double experts = static_cast<double>(w.size(0));
  return {.m = static_cast<double>(in[0].size(0)) / experts,
          .n = static_cast<double>(w.size(1)),
          .k = static_cast<double>(w.size(2)),
          .groups = experts};
}
Gemm expert_gemm_dx(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs& attrs) {
  Gemm g = expert_gemm(in, out, attrs);
  std::swap(g.n, g.k);
  return g;
}
Gemm expert_gemm_dw(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  const Type& dw = out[0];
  const double experts = static_cast<double>(dw.size(0));
  return {.m = static_cast<double>(dw.size(1)),
          .n = static_cast<double>(dw.size(2)),
          .k = static_cast<double>(in[0].size(0)) / experts,
          .groups = experts};
}

}  // namespace

const OpDef kGroupedLinear = {.name = "grouped_linear",
                              .min_inputs = 3,
                              .max_inputs = 3,
                              .attrs = {},
                              .infer = infer,
                              .gradient = gradient,
                              .cost = cost,
                              .dims = dims,
                              .op_class = OpClass::ExpertMatmul,
                              .gemm = expert_gemm};
const OpDef kGroupedLinearDx = {.name = "grouped_linear_dx",
                                .min_inputs = 3,
                                .max_inputs = 4,
                                .attrs = {},
                                .infer = infer_dx,
                                .cost = cost,
                                .dims = dims_dx,
                                .in_place = {{0, 3}},
                                .op_class = OpClass::ExpertMatmul,
                                .pass = OpPass::InputGradient,
                                .gemm = expert_gemm_dx,
                                .takes_addend = true};
const OpDef kGroupedLinearDw = {.name = "grouped_linear_dw",
                                .min_inputs = 3,
                                .max_inputs = 3,
                                .attrs = {{"out", AttrKind::Text}, {"experts", AttrKind::Integer}},
                                .infer = infer_dw,
                                .cost = cost_dw,
                                .dims = dims_dw,
                                .op_class = OpClass::ExpertMatmul,
                                .pass = OpPass::WeightGradient,
                                .gemm = expert_gemm_dw};
const OpDef kExpertAct = {.name = "expert_act",
                          .min_inputs = 4,
                          .max_inputs = 4,
                          .attrs = kClamp,
                          .infer = infer_act,
                          .gradient = gradient_act,
                          .cost = cost_act,
                          .dims = dims_act,
                          .op_class = OpClass::Activation};
const OpDef kExpertActDx = {.name = "expert_act_dx",
                            .min_inputs = 5,
                            .max_inputs = 5,
                            .attrs = kClamp,
                            .infer = infer_act_dx,
                            .cost = cost_act,
                            .dims = dims_act_dx,
                            .in_place = {{0, 1}, {1, 2}},
                            .op_class = OpClass::Activation,
                            .pass = OpPass::InputGradient};
const OpDef kScaleRows = {.name = "scale_rows",
                          .min_inputs = 2,
                          .max_inputs = 2,
                          .attrs = {},
                          .infer = infer_scale,
                          .gradient = gradient_scale,
                          .cost = cost_by_bytes,
                          .dims = spread_tokens,
                          .op_class = OpClass::Activation};
const OpDef kScaleRowsDx = {.name = "scale_rows_dx",
                            .min_inputs = 3,
                            .max_inputs = 3,
                            .attrs = {},
                            .infer = infer_scale_dx,
                            .cost = cost_by_bytes,
                            .dims = spread_tokens,
                            .in_place = {{0, 0}},
                            .op_class = OpClass::Activation,
                            .pass = OpPass::InputGradient};

}  // namespace quintet::graph
