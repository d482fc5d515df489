// The router of a block with experts: logits per token and expert, the choice of k experts with their
// weights, and which assignments are dropped when experts have a capacity.
//
// router: x[tokens, embed], w[routes, embed][, b[routes]] -> logits[tokens, routes] in the accumulator's
// dtype: never rounded to a narrower one.
#include "graph/ops/routing.h"
#include "graph/words.h"

namespace quintet::graph {
namespace {

std::vector<Type> infer_router(const std::vector<Type>& in, const Attrs&) {
  const Type &x = in[0], &w = in[1];
  OP_REQUIRE("router",
             has_tokens(x) && x.num_dims() == 2 && w.num_dims() == 2 && w.dims[0].name == Dim::Routes &&
                 w.dims[1] == x.dims[1] && w.dtype == x.dtype,
             "expects x[tokens, embed] and w[routes, embed] of one dtype, got {} and {}", to_string(x),
             to_string(w));
  const Type bias{x.dtype, {w.dims[0]}};
  OP_REQUIRE("router", in.size() < 3 || in[2] == bias, "expects a bias {}, got {}", to_string(bias),
             to_string(in.back()));
  return {{base::accumulator_of(x.dtype), {x.dims[0], w.dims[0]}}};
}

void gradient_router(GradContext& g, const Node& n) {
  const ValueId x = n.inputs[0], w = n.inputs[1], dlogits = g.grad(n.outputs[0]);
  if (g.needs(x)) g.add(x, g.emit(kRouterDx, {dlogits, w}, {}, Phase::B)[0]);
  const Attrs out = {{"out", text_of(g.param_grad())}};
  if (g.needs(w)) g.add(w, g.emit(kRouterDw, {dlogits, x}, out, Phase::W)[0]);
  if (n.inputs.size() > 2 && g.needs(n.inputs[2]))
    g.add(n.inputs[2], g.emit(kSumRows, {dlogits}, out, Phase::W)[0]);
}

// router_dx: dlogits, w -> dx[tokens, embed] of w's dtype
std::vector<Type> infer_router_dx(const std::vector<Type>& in, const Attrs&) {
  const Type &dlogits = in[0], &w = in[1];
  OP_REQUIRE("router_dx",
             is_row_of_routes(dlogits) && w.num_dims() == 2 && w.dims[0] == dlogits.dims[1] &&
                 dlogits.dtype == base::accumulator_of(w.dtype),
             "expects dlogits[tokens, routes] and w[routes, embed], dlogits in the accumulator of w's dtype, "
             "got {} and {}",
             to_string(dlogits), to_string(w));
  return {{w.dtype, {dlogits.dims[0], w.dims[1]}}};
}

// router_dw: dlogits, x -> dw[routes, embed]
std::vector<Type> infer_router_dw(const std::vector<Type>& in, const Attrs& attrs) {
  const Type &dlogits = in[0], &x = in[1];
  OP_REQUIRE("router_dw",
             is_row_of_routes(dlogits) && has_tokens(x) && x.num_dims() == 2 &&
                 x.dims[0] == dlogits.dims[0] && dlogits.dtype == base::accumulator_of(x.dtype),
             "expects dlogits[tokens, routes] and x[tokens, embed], dlogits in the accumulator of x's dtype, "
             "got {} and {}",
             to_string(dlogits), to_string(x));
  return {{dtype_attr(attrs, "out"), {dlogits.dims[1], x.dims[1]}}};
}

// The same GEMM in all three: rows x routes x embed.
Cost cost_router(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  const double w = static_cast<double>(in[1].dims[0].name == Dim::Routes ? in[1].count() : out[0].count());
  return {.flops = 2.0 * static_cast<double>(in[0].size(0)) * w, .bytes = total_bytes(in, out)};
}

// select: logits[, bias[routes]][, positions[tokens] | routes[tokens, choices]] -> scores[tokens, routes],
// chosen[tokens, choices], weights[tokens, choices].
//   scores   probabilities over all experts: softmax; or sigmoid or sqrt(softplus), divided by its row's sum
//   chosen   the k experts with the largest score + bias, largest first, ties to the lower index. The score
//            is the softmax, the others before the division, or with top_k_first the logit itself. With
//            groups, only experts of the groups_kept best groups take part; a group is ranked by the sum of
//            its two best experts with a bias, by its best expert without. With force_balance: (position * k
//            + j) mod experts. With a column: the experts in routes[column, column + k), each plus 1, in rows
//            whose first one is not 0
//   weights  the chosen experts' scores without bias, or with top_k_first the softmax over the chosen
//            logits; divided by their sum when `normalise` is 1; times `scale`
void require_scoring(std::string_view op, const Attrs& attrs) {
  const auto score = find_choice<Score>(attrs);
  const auto order = find_choice<ChoiceOrder>(attrs);
  OP_REQUIRE(op, score, "score is \"softmax\", \"sigmoid\" or \"sqrt_softplus\", got \"{}\"",
             attrs.text("score"));
  OP_REQUIRE(op, order && (order == ChoiceOrder::ScoreFirst || score == Score::Softmax),
             "order is \"score_first\" or, with softmax scores, \"top_k_first\"; got \"{}\" with {} scores",
             attrs.text("order"), attrs.text("score"));
}

std::vector<Type> infer_select(const std::vector<Type>& in, const Attrs& attrs) {
  const Type& logits = in[0];
  require_scoring("select", attrs);
  require_routes("select", "logits", logits);
  const bool biased = attrs.integer("biased") != 0, forced = attrs.integer("force_balance") != 0,
             replays = attrs.find("column") != nullptr;
  const size_t operands = 1 + (biased ? 1 : 0) + (forced || replays ? 1 : 0);
  OP_REQUIRE("select", in.size() == operands && !(forced && replays),
             "expects {} operands with biased = {}, force_balance = {} and {}, got {}", operands, biased,
             forced, replays ? "a column" : "no column", in.size());
  const Type bias{logits.dtype, {logits.dims[1]}};
  if (biased)
    OP_REQUIRE("select", in[1] == bias, "expects the bias {}, got {}", to_string(bias), to_string(in[1]));
  if (forced)
    OP_REQUIRE("select", is_row_index(in.back(), logits), "expects positions i32[tokens={}], got {}",
               logits.size(0), to_string(in.back()));
  if (replays)
    OP_REQUIRE("select",
               is_choice(in.back(), logits, DType::I32) && attrs.integer("column") >= 0 &&
                   attrs.integer("column") + attrs.integer("k") <= in.back().size(1),
               "expects routes i32[tokens={}, choices] with {} columns from column {} on, got {}",
               logits.size(0), attrs.integer("k"), attrs.integer("column"), to_string(in.back()));
  const int64_t k = attrs.integer("k"), groups = attrs.integer("groups"), kept = attrs.integer("groups_kept"),
                experts = logits.size(1);
  OP_REQUIRE("select", k >= 1 && k <= experts, "cannot choose {} of {} experts", k, experts);
  OP_REQUIRE("select", groups >= 1 && experts % groups == 0, "{} experts do not form {} equal groups",
             experts, groups);
  OP_REQUIRE("select", kept >= 1 && kept <= groups && kept * (experts / groups) >= k,
             "keeping {} of {} groups of {} experts leaves no {} to choose", kept, groups, experts / groups,
             k);
  return {logits,
          {DType::I32, {logits.dims[0], {Dim::Choices, k}}},
          {logits.dtype, {logits.dims[0], {Dim::Choices, k}}}};
}

// Gradients may arrive for the weights, for the scores (a balance loss), or both.
void gradient_select(GradContext& g, const Node& n) {
  const ValueId logits = n.inputs[0], dscores = g.grad(n.outputs[0]), dweights = g.grad(n.outputs[2]);
  if (!g.needs(logits) || (!dscores.valid() && !dweights.valid())) return;
  std::vector<ValueId> in = {logits, n.outputs[1]};
  if (dweights.valid()) in.push_back(dweights);
  if (dscores.valid()) in.push_back(dscores);
  const Attrs attrs = {{"score", n.attrs.text("score")},
                       {"order", n.attrs.text("order")},
                       {"normalise", n.attrs.integer("normalise")},
                       {"scale", n.attrs.real("scale")},
                       {"has_dweights", int64_t{dweights.valid()}},
                       {"has_dscores", int64_t{dscores.valid()}}};
  g.add(logits, g.emit(kSelectDx, std::move(in), attrs, Phase::B)[0]);
}

// select_dx: logits, chosen[, dweights][, dscores] -> dlogits
std::vector<Type> infer_select_dx(const std::vector<Type>& in, const Attrs& attrs) {
  const Type &logits = in[0], &chosen = in[1];
  require_scoring("select_dx", attrs);
  require_routes_and_chosen("select_dx", "logits", logits, chosen);
  const bool weights = attrs.integer("has_dweights") != 0, scores = attrs.integer("has_dscores") != 0;
  const size_t operands = 2 + (weights ? 1 : 0) + (scores ? 1 : 0);
  OP_REQUIRE(
      "select_dx", in.size() == operands && operands > 2,
      "expects {} operands, at least one gradient among them, with has_dweights = {}, has_dscores = {}; "
      "got {}",
      std::max<size_t>(operands, 3), weights, scores, in.size());
  const Type dweights{logits.dtype, chosen.dims};
  if (weights)
    OP_REQUIRE("select_dx", in[2] == dweights, "expects dweights {}, got {}", to_string(dweights),
               to_string(in[2]));
  if (scores)
    OP_REQUIRE("select_dx", in.back() == logits, "expects dscores {}, got {}", to_string(logits),
               to_string(in.back()));
  return {logits};
}

// limit: chosen, weights -> kept: chosen, or -1 where an expert is full. In each group of `group` sequences
// an expert takes `capacity` (token, choice) pairs: those of the largest weights, or the first ones; ties and
// "first" are decided by (sequence, position, choice). With context ranks the operands hold all ranks' rows,
// in the order of base/row_order.h. Groups are never split.
std::vector<Type> infer_limit(const std::vector<Type>& in, const Attrs& attrs) {
  const Type &chosen = in[0], &weights = in[1];
  OP_REQUIRE("limit",
             is_choice(chosen, chosen, DType::I32) && is_accumulator(weights.dtype) &&
                 is_choice(weights, chosen, weights.dtype) && weights.dims == chosen.dims,
             "expects chosen i32[tokens, choices] and weights[tokens, choices] in f32 or f64, got {} and {}",
             to_string(chosen), to_string(weights));
  const int64_t seq_len = attrs.integer("seq_len"), group = attrs.integer("group"),
                capacity = attrs.integer("capacity");
  require_row_order("limit", chosen.size(0), attrs);
  OP_REQUIRE("limit", group >= 1 && chosen.size(0) / seq_len % group == 0,
             "{} sequences are not whole groups of {}", chosen.size(0) / seq_len, group);
  OP_REQUIRE("limit", capacity >= 1, "the capacity must be at least 1, got {}", capacity);
  OP_REQUIRE("limit", find_choice<KeepPolicy>(attrs), "policy is \"probability\" or \"position\", got \"{}\"",
             attrs.text("policy"));
  return {chosen};
}

std::vector<OpDim> dims_limit(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  return {tokens_dim(in, out, /*any_row=*/false)};
}

// join_choices: chosen i32[tokens, choices] of several blocks -> i32[tokens, choices]: side by side
std::vector<Type> infer_join(const std::vector<Type>& in, const Attrs&) {
  int64_t columns = 0;
  for (const Type& t : in) {
    OP_REQUIRE("join_choices", is_choice(t, in[0], DType::I32),
               "expects choices i32[tokens, choices] of the same tokens, got {} and {}", to_string(in[0]),
               to_string(t));
    columns += t.size(1);
  }
  return {{DType::I32, {in[0].dims[0], {Dim::Choices, columns}}}};
}

// random_weights: chosen, samples, positions, dropout_key -> f64[tokens, choices] in (0, 1), a function of
// (sample, position, choice) alone: what limit drops by them does not depend on the layout.
std::vector<Type> infer_random(const std::vector<Type>& in, const Attrs&) {
  const Type& chosen = in[0];
  OP_REQUIRE(
      "random_weights",
      is_choice(chosen, chosen, DType::I32) && is_row_index(in[1], chosen) && is_row_index(in[2], chosen) &&
          is_scalar(in[3], DType::I64),
      "expects chosen i32[tokens, choices], samples and positions i32[tokens] and the key i64[], got {}, "
      "{}, {} and {}",
      to_string(chosen), to_string(in[1]), to_string(in[2]), to_string(in[3]));
  return {{DType::F64, chosen.dims}};
}

const std::vector<AttrSpec> kSelectAttrs = {
    {"k", AttrKind::Integer},           {"score", AttrKind::Text},     {"order", AttrKind::Text},
    {"normalise", AttrKind::Integer},   {"scale", AttrKind::Real},     {"groups", AttrKind::Integer},
    {"groups_kept", AttrKind::Integer}, {"biased", AttrKind::Integer}, {"force_balance", AttrKind::Integer},
    {"column", AttrKind::Integer, true}};
const std::vector<AttrSpec> kSelectDxAttrs = {
    {"score", AttrKind::Text}, {"order", AttrKind::Text},           {"normalise", AttrKind::Integer},
    {"scale", AttrKind::Real}, {"has_dweights", AttrKind::Integer}, {"has_dscores", AttrKind::Integer}};
const std::vector<AttrSpec> kLimitAttrs = {{"seq_len", AttrKind::Integer},
                                           {"capacity", AttrKind::Integer},
                                           {"group", AttrKind::Integer},
                                           {"policy", AttrKind::Text},
                                           {"cp", AttrKind::Integer}};

}  // namespace

const OpDef kRouter = {.name = "router",
                       .min_inputs = 2,
                       .max_inputs = 3,
                       .attrs = {},
                       .infer = infer_router,
                       .gradient = gradient_router,
                       .cost = cost_router,
                       .dims = spread_tokens,
                       .op_class = OpClass::Router,
                       .gemm = gemm};
const OpDef kRouterDx = {.name = "router_dx",
                         .min_inputs = 2,
                         .max_inputs = 2,
                         .attrs = {},
                         .infer = infer_router_dx,
                         .cost = cost_router,
                         .dims = spread_tokens,
                         .op_class = OpClass::Router,
                         .pass = OpPass::InputGradient,
                         .gemm = gemm};
const OpDef kRouterDw = {.name = "router_dw",
                         .min_inputs = 2,
                         .max_inputs = 2,
                         .attrs = {{"out", AttrKind::Text}},
                         .infer = infer_router_dw,
                         .cost = cost_router,
                         .dims = spread_tokens,
                         .op_class = OpClass::Router,
                         .pass = OpPass::WeightGradient,
                         .gemm = gemm_dw};
const OpDef kSelect = {.name = "select",
                       .min_inputs = 1,
                       .max_inputs = 3,
                       .attrs = kSelectAttrs,
                       .infer = infer_select,
                       .gradient = gradient_select,
                       .cost = cost_by_bytes,
                       .dims = spread_tokens,
                       .keep = true,
                       .op_class = OpClass::Router};
const OpDef kSelectDx = {.name = "select_dx",
                         .min_inputs = 3,
                         .max_inputs = 4,
                         .attrs = kSelectDxAttrs,
                         .infer = infer_select_dx,
                         .cost = cost_by_bytes,
                         .dims = spread_tokens,
                         .op_class = OpClass::Router,
                         .pass = OpPass::InputGradient};
const OpDef kLimit = {.name = "limit",
                      .min_inputs = 2,
                      .max_inputs = 2,
                      .attrs = kLimitAttrs,
                      .infer = infer_limit,
                      .cost = cost_by_bytes,
                      .dims = dims_limit,
                      .keep = true,
                      .op_class = OpClass::Router};
const OpDef kJoinChoices = {.name = "join_choices",
                            .min_inputs = 1,
                            .max_inputs = 1 << 16,
                            .attrs = {},
                            .infer = infer_join,
                            .cost = cost_by_bytes,
                            .dims = spread_tokens,
                            .op_class = OpClass::Router};
const OpDef kRandomWeights = {.name = "random_weights",
                              .min_inputs = 4,
                              .max_inputs = 4,
                              .attrs = {{"salt", AttrKind::Integer}},
                              .infer = infer_random,
                              .cost = cost_by_bytes,
                              .dims = spread_tokens,
                              .keep = true,
                              .op_class = OpClass::Router};

}  // namespace quintet::graph
