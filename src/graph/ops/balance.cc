// Load balance of experts: the statistics that are reported, and the auxiliary losses.
//
// A balance loss of scope "micro" or "sequence" relates, in each group of rows (all rows of the micro-batch
// over all ranks, or one sequence), the fraction of assignments f_i to the mean score P_i of expert i:
//   loss = coefficient / groups * experts * sum over groups and experts of f_i P_i.
// With scope "global" f comes from all assignments so far in the step. Assignments are counts: they have no
// gradient.
#include "graph/ops/routing.h"
#include "graph/words.h"

namespace quintet::graph {
namespace {

bool by_sequence(const Attrs& attrs) { return choice<Scope>(attrs) == Scope::Sequence; }

void require_scope(std::string_view op, const Attrs& attrs) {
  OP_REQUIRE(op, find_choice<Scope>(attrs), "scope is \"micro\", \"sequence\" or \"global\", got \"{}\"",
             attrs.text("scope"));
}

// The sums of [assignments | scores] per expert: one row per sequence, or one for all tokens.
Type sums_type(DType dtype, int64_t experts, int64_t tokens, const Attrs& attrs) {
  Type t{dtype, {}};
  if (by_sequence(attrs)) t.dims.push_back({Dim::Tokens, tokens / attrs.integer("seq_len")});
  t.dims.push_back({Dim::Flat, 2 * experts});
  return t;
}

// expert_load: chosen, kept, scores -> f64[experts + 2]: assignments per expert before anything is dropped,
// dropped assignments, sum over tokens of the entropy of their scores (natural logarithm).
std::vector<Type> infer_load(const std::vector<Type>& in, const Attrs&) {
  const Type &chosen = in[0], &kept = in[1], &scores = in[2];
  require_routes_and_chosen("expert_load", "scores", scores, chosen);
  OP_REQUIRE("expert_load", kept == chosen, "expects kept like chosen {}, got {}", to_string(chosen),
             to_string(kept));
  return {{DType::F64, {{Dim::Flat, scores.size(1) + 2}}}};
}

// balance_sums: scores, chosen -> sums of [assignments | scores]
std::vector<Type> infer_sums(const std::vector<Type>& in, const Attrs& attrs) {
  const Type &scores = in[0], &chosen = in[1];
  require_scope("balance_sums", attrs);
  require_routes_and_chosen("balance_sums", "scores", scores, chosen);
  if (by_sequence(attrs)) require_row_order("balance_sums", scores.size(0), attrs);
  return {sums_type(scores.dtype, scores.size(1), scores.size(0), attrs)};
}

void gradient_sums(GradContext& g, const Node& n) {
  if (g.needs(n.inputs[0]))
    g.add(n.inputs[0], g.emit(kBalanceDx, {g.grad(n.outputs[0]), n.inputs[1]}, n.attrs, Phase::B)[0]);
}

// balance_dx: dsums, chosen -> dscores; chosen only gives the number of rows.
std::vector<Type> infer_dx(const std::vector<Type>& in, const Attrs& attrs) {
  const Type &dsums = in[0], &chosen = in[1];
  require_scope("balance_dx", attrs);
  OP_REQUIRE("balance_dx",
             is_accumulator(dsums.dtype) && dsums.num_dims() >= 1 && dsums.dims.back().size % 2 == 0 &&
                 is_choice(chosen, chosen, DType::I32),
             "expects dsums[flat = 2 experts] in f32 or f64 and chosen i32[tokens, choices], got {} and {}",
             to_string(dsums), to_string(chosen));
  if (by_sequence(attrs)) require_row_order("balance_dx", chosen.size(0), attrs);
  const int64_t experts = dsums.dims.back().size / 2;
  const Type expected = sums_type(dsums.dtype, experts, chosen.size(0), attrs);
  OP_REQUIRE("balance_dx", dsums == expected, "expects dsums {}, got {}", to_string(expected),
             to_string(dsums));
  return {{dsums.dtype, {chosen.dims[0], {Dim::Routes, experts}}}};
}

// Both: rows belong to their sequence's sums, or all to the same ones.
std::vector<OpDim> dims_sums(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs& attrs) {
  if (by_sequence(attrs)) return {tokens_dim(in, out, /*any_row=*/false)};
  return spread_tokens(in, out, attrs);
}

// running_sum: sums -> f64 of the same size, accumulated over the micro-batches of a step. Its operand is
// whole on every rank.
std::vector<Type> infer_running(const std::vector<Type>& in, const Attrs&) {
  OP_REQUIRE("running_sum",
             is_accumulator(in[0].dtype) && in[0].num_dims() == 1 && in[0].dims[0].name == Dim::Flat,
             "expects sums[flat] in f32 or f64, got {}", to_string(in[0]));
  return {{DType::F64, in[0].dims}};
}

std::vector<OpDim> undivided(const std::vector<Type>&, const std::vector<Type>&, const Attrs&) { return {}; }

// balance_loss: sums[, running] -> loss f64[], slope = dloss / dsums. `tokens` counts the rows of one group
// and `groups` the groups, both over the whole mesh.
std::vector<Type> infer_loss(const std::vector<Type>& in, const Attrs& attrs) {
  const Type& sums = in[0];
  require_scope("balance_loss", attrs);
  const bool global = choice<Scope>(attrs) == Scope::Global, rows = by_sequence(attrs);
  const int64_t experts = attrs.integer("experts");
  OP_REQUIRE("balance_loss",
             is_accumulator(sums.dtype) && sums.num_dims() == (rows ? 2 : 1) && (!rows || has_tokens(sums)) &&
                 (sums.dims.back() == DimSize{Dim::Flat, 2 * experts}),
             "expects sums[{}flat={}] in f32 or f64, got {}", rows ? "tokens, " : "", 2 * experts,
             to_string(sums));
  OP_REQUIRE("balance_loss", in.size() == (global ? 2u : 1u), "expects {} operands with scope \"{}\", got {}",
             global ? 2 : 1, attrs.text("scope"), in.size());
  if (global)
    OP_REQUIRE("balance_loss", (in[1] == Type{DType::F64, {{Dim::Flat, 2 * experts}}}),
               "expects running f64[flat={}], got {}", 2 * experts, to_string(in[1]));
  OP_REQUIRE(
      "balance_loss",
      attrs.integer("tokens") >= 1 && attrs.integer("groups") >= 1 && attrs.integer("k") >= 1 && experts >= 1,
      "k, tokens, groups and experts must be at least 1, got {}, {}, {}, {}", attrs.integer("k"),
      attrs.integer("tokens"), attrs.integer("groups"), experts);
  return {{DType::F64, {}}, sums};
}

void gradient_loss(GradContext& g, const Node& n) {
  const ValueId dloss = g.grad(n.outputs[0]);
  if (dloss.valid() && g.needs(n.inputs[0]))
    g.add(n.inputs[0],
          g.emit(kBalanceDsums, {n.outputs[1], dloss}, {{"scope", n.attrs.text("scope")}}, Phase::B)[0]);
}

// balance_dsums: slope, dloss -> dsums = dloss * slope
std::vector<Type> infer_dsums(const std::vector<Type>& in, const Attrs& attrs) {
  require_scope("balance_dsums", attrs);
  OP_REQUIRE("balance_dsums",
             is_accumulator(in[0].dtype) && in[0].num_dims() == (by_sequence(attrs) ? 2 : 1) &&
                 is_scalar(in[1], DType::F64),
             "expects the slope in f32 or f64 and dloss f64[], got {} and {}", to_string(in[0]),
             to_string(in[1]));
  return {in[0]};
}

// Both: sequences have their own part of the loss; other scopes are computed whole, equally on every rank.
std::vector<OpDim> dims_loss(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs& attrs) {
  if (by_sequence(attrs)) return {tokens_dim(in, out, /*any_row=*/false)};
  return {};
}

// z_loss: logits -> f64[]: coefficient * sum over rows of (log of the sum of exp(logits))^2
std::vector<Type> infer_z(const std::vector<Type>& in, const Attrs&) {
  require_routes("z_loss", "logits", in[0]);
  return {{DType::F64, {}}};
}

void gradient_z(GradContext& g, const Node& n) {
  if (g.needs(n.inputs[0]))
    g.add(n.inputs[0], g.emit(kZLossDx, {n.inputs[0], g.grad(n.outputs[0])}, n.attrs, Phase::B)[0]);
}

// z_loss_dx: logits, dloss -> dlogits
std::vector<Type> infer_z_dx(const std::vector<Type>& in, const Attrs&) {
  require_routes("z_loss_dx", "logits", in[0]);
  OP_REQUIRE("z_loss_dx", is_scalar(in[1], DType::F64), "expects dloss f64[], got {}", to_string(in[1]));
  return {in[0]};
}

const std::vector<AttrSpec> kSumsAttrs = {
    {"scope", AttrKind::Text}, {"seq_len", AttrKind::Integer}, {"cp", AttrKind::Integer}};
const std::vector<AttrSpec> kLossAttrs = {{"coefficient", AttrKind::Real}, {"k", AttrKind::Integer},
                                          {"tokens", AttrKind::Integer},   {"groups", AttrKind::Integer},
                                          {"experts", AttrKind::Integer},  {"scope", AttrKind::Text}};
const std::vector<AttrSpec> kScope = {{"scope", AttrKind::Text}};
const std::vector<AttrSpec> kCoefficient = {{"coefficient", AttrKind::Real}};

}  // namespace

const OpDef kExpertLoad = {.name = "expert_load",
                           .min_inputs = 3,
                           .max_inputs = 3,
                           .attrs = {},
                           .infer = infer_load,
                           .cost = cost_by_bytes,
                           .dims = spread_tokens,
                           .keep = true,
                           .op_class = OpClass::Balance};
const OpDef kRunningSum = {.name = "running_sum",
                           .min_inputs = 1,
                           .max_inputs = 1,
                           .attrs = {},
                           .infer = infer_running,
                           .cost = cost_by_bytes,
                           .dims = undivided,
                           .keep = true,
                           .op_class = OpClass::Balance};
const OpDef kBalanceSums = {.name = "balance_sums",
                            .min_inputs = 2,
                            .max_inputs = 2,
                            .attrs = kSumsAttrs,
                            .infer = infer_sums,
                            .gradient = gradient_sums,
                            .cost = cost_by_bytes,
                            .dims = dims_sums,
                            .op_class = OpClass::Balance};
const OpDef kBalanceDx = {.name = "balance_dx",
                          .min_inputs = 2,
                          .max_inputs = 2,
                          .attrs = kSumsAttrs,
                          .infer = infer_dx,
                          .cost = cost_by_bytes,
                          .dims = dims_sums,
                          .op_class = OpClass::Balance,
                          .pass = OpPass::InputGradient};
const OpDef kBalanceLoss = {.name = "balance_loss",
                            .min_inputs = 1,
                            .max_inputs = 2,
                            .attrs = kLossAttrs,
                            .infer = infer_loss,
                            .gradient = gradient_loss,
                            .cost = cost_by_bytes,
                            .dims = dims_loss,
                            .keep = true,
                            .overwritten = {1},
                            .op_class = OpClass::Balance};
const OpDef kBalanceDsums = {.name = "balance_dsums",
                             .min_inputs = 2,
                             .max_inputs = 2,
                             .attrs = kScope,
                             .infer = infer_dsums,
                             .cost = cost_by_bytes,
                             .dims = dims_loss,
                             .in_place = {{0, 0}},
                             .op_class = OpClass::Balance,
                             .pass = OpPass::InputGradient};
const OpDef kZLoss = {.name = "z_loss",
                      .min_inputs = 1,
                      .max_inputs = 1,
                      .attrs = kCoefficient,
                      .infer = infer_z,
                      .gradient = gradient_z,
                      .cost = cost_by_bytes,
                      .dims = spread_tokens,
                      .op_class = OpClass::Balance};
const OpDef kZLossDx = {.name = "z_loss_dx",
                        .min_inputs = 2,
                        .max_inputs = 2,
                        .attrs = kCoefficient,
                        .infer = infer_z_dx,
                        .cost = cost_by_bytes,
                        .dims = spread_tokens,
                        .op_class = OpClass::Balance,
                        .pass = OpPass::InputGradient};

}  // namespace quintet::graph
