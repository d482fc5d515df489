// Biases of experts. Before the activation they are added to the routed rows. After the second matmul rows
// are weighted and summed per token, so the biases of a token's experts contribute their weighted sum: a
// matmul of the routing weights, spread over all experts, with the biases. It is added once per token, not to
// every term of the sum.
#include "graph/ops/routing.h"

namespace quintet::graph {
namespace {

bool is_routed_rows(const Type& t) { return t.num_dims() == 2 && t.dims[0].name == Dim::Routed; }

void require_counts(std::string_view op, const Type& t, int64_t experts) {
  OP_REQUIRE(op,
             t.dtype == DType::I32 && t.num_dims() == 1 && t.dims[0].name == Dim::Counts && experts > 0 &&
                 t.size(0) % experts == 0,
             "expects received i32[counts] with {} counts of every source, got {}", experts, to_string(t));
}

// expert_bias: y[routed, f], b[experts, f], received -> y + b of each row's expert
std::vector<Type> infer_bias(const std::vector<Type>& in, const Attrs&) {
  const Type &y = in[0], &b = in[1];
  OP_REQUIRE("expert_bias",
             is_routed_rows(y) && b.num_dims() == 2 && b.dims[0].name == Dim::Experts &&
                 b.dims[1] == y.dims[1] && b.dtype == y.dtype,
             "expects y[routed, f] and b[experts, f] of one dtype, got {} and {}", to_string(y),
             to_string(b));
  require_counts("expert_bias", in[2], b.size(0));
  return {y};
}

void gradient_bias(GradContext& g, const Node& n) {
  const ValueId dy = g.grad(n.outputs[0]), b = n.inputs[1], received = n.inputs[2];
  g.add(n.inputs[0], dy);
  if (g.needs(b))
    g.add(b, g.emit(kExpertBiasDw, {dy, received},
                    {{"out", text_of(g.param_grad())}, {"experts", g.graph().type(b).size(0)}}, Phase::W)[0]);
}

std::vector<OpDim> dims_bias(const std::vector<Type>& in, const std::vector<Type>&, const Attrs&) {
  return {{.key = in[0].dims[1].name, .in = {1, 1, kAbsent}, .out = {1}},
          {.key = Dim::Routed, .in = {0, kAbsent, 0}, .out = {0}},
          {.key = Dim::Experts, .in = {0, 0, 0}, .out = {0}}};
}

// expert_bias_dw: dy[routed, f], received -> db[experts, f]
std::vector<Type> infer_bias_dw(const std::vector<Type>& in, const Attrs& attrs) {
  const int64_t experts = attrs.integer("experts");
  OP_REQUIRE("expert_bias_dw", is_routed_rows(in[0]), "expects dy[routed, f], got {}", to_string(in[0]));
  require_counts("expert_bias_dw", in[1], experts);
  return {{dtype_attr(attrs, "out"), {{Dim::Experts, experts}, in[0].dims[1]}}};
}

std::vector<OpDim> dims_bias_dw(const std::vector<Type>& in, const std::vector<Type>&, const Attrs&) {
  return {{.key = in[0].dims[1].name, .in = {1, kAbsent}, .out = {1}},
          {.key = Dim::Routed, .in = {0, 0}, .out = {kAbsent}},
          {.key = Dim::Experts, .in = {0, 0}, .out = {0}}};
}

void require_chosen(std::string_view op, const Type& rows, const Type& chosen) {
  OP_REQUIRE(
      op, is_accumulator(rows.dtype) && is_choice(chosen, rows, DType::I32),
      "expects chosen i32[tokens, choices] for the same rows, and numbers in f32 or f64, got {} and {}",
      to_string(chosen), to_string(rows));
}

// spread_choices: weights[tokens, choices], chosen -> [tokens, routes] with each weight at its expert, 0
// elsewhere. A choice of -1 (dropped) has no place.
std::vector<Type> infer_spread(const std::vector<Type>& in, const Attrs& attrs) {
  require_chosen("spread_choices", in[0], in[1]);
  OP_REQUIRE("spread_choices", in[0].dims == in[1].dims, "expects weights like chosen {}, got {}",
             to_string(in[1]), to_string(in[0]));
  return {{in[0].dtype, {in[0].dims[0], {Dim::Routes, attrs.integer("experts")}}}};
}
void gradient_spread(GradContext& g, const Node& n) {
  g.add(n.inputs[0], g.emit(kGatherChoices, {g.grad(n.outputs[0]), n.inputs[1]}, {}, Phase::B)[0]);
}

// gather_choices: [tokens, routes], chosen -> [tokens, choices]: the inverse
std::vector<Type> infer_gather(const std::vector<Type>& in, const Attrs&) {
  require_chosen("gather_choices", in[0], in[1]);
  OP_REQUIRE("gather_choices", in[0].num_dims() == 2 && in[0].dims[1].name == Dim::Routes,
             "expects [tokens, routes], got {}", to_string(in[0]));
  return {{in[0].dtype, in[1].dims}};
}
void gradient_gather(GradContext& g, const Node& n) {
  g.add(n.inputs[0], g.emit(kSpreadChoices, {g.grad(n.outputs[0]), n.inputs[1]},
                            {{"experts", g.graph().type(n.inputs[0]).size(1)}}, Phase::B)[0]);
}

}  // namespace

const OpDef kExpertBias = {.name = "expert_bias",
                           .min_inputs = 3,
                           .max_inputs = 3,
                           .attrs = {},
                           .infer = infer_bias,
                           .gradient = gradient_bias,
                           .cost = cost_by_bytes,
                           .dims = dims_bias,
                           .in_place = {{0, 0}},
                           .op_class = OpClass::Bias};
const OpDef kExpertBiasDw = {.name = "expert_bias_dw",
                             .min_inputs = 2,
                             .max_inputs = 2,
                             .attrs = {{"out", AttrKind::Text}, {"experts", AttrKind::Integer}},
                             .infer = infer_bias_dw,
                             .cost = cost_by_bytes,
                             .dims = dims_bias_dw,
                             .op_class = OpClass::Bias,
                             .pass = OpPass::WeightGradient};
const OpDef kSpreadChoices = {.name = "spread_choices",
                              .min_inputs = 2,
                              .max_inputs = 2,
                              .attrs = {{"experts", AttrKind::Integer}},
                              .infer = infer_spread,
                              .gradient = gradient_spread,
                              .cost = cost_by_bytes,
                              .dims = spread_tokens,
                              .op_class = OpClass::Router};
const OpDef kGatherChoices = {.name = "gather_choices",
                              .min_inputs = 2,
                              .max_inputs = 2,
                              .attrs = {},
                              .infer = infer_gather,
                              .gradient = gradient_gather,
                              .cost = cost_by_bytes,
                              .dims = spread_tokens,
                              .op_class = OpClass::Router};

}  // namespace quintet::graph
