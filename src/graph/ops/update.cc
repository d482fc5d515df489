// Ops of the step program: they work on flat group buffers and scalars, and never occur in a model's graph.
#include <limits>

#include "graph/ops/support.h"
#include "graph/update_op.h"

namespace quintet::graph {
namespace {

constexpr int kAnyNumber = std::numeric_limits<int>::max();
// Each range of elements has a row (program/flat_ranges.h): which pair (factor on lr, weight decay) of
// "groups" applies to it, if any.
constexpr AttrSpec kGroupRates = {"groups", AttrKind::Reals, /*optional=*/true};
// Present: weight decay is multiplied by one more scalar, the last one.
constexpr AttrSpec kDecayRamp = {"decay_ramp", AttrKind::Integer, /*optional=*/true};
// Moments that are rounded stochastically: the run's seed; in programs it comes with kOrigins.
constexpr AttrSpec kSeed = {"seed", AttrKind::Integer, /*optional=*/true};

// Least and largest ratio of norms; a largest of 0 is no limit.
constexpr AttrSpec kRatioLimits = {"ratio_limits", AttrKind::Reals, /*optional=*/true};

// lr, clip scale, ok, update count and, with a ramp, the factor on weight decay
size_t num_scalars(const Attrs& attrs) { return attrs.find("decay_ramp") != nullptr ? 5 : 4; }

std::vector<Type> same(const std::vector<Type>& in, const Attrs&) { return {in[0]}; }
std::vector<Type> scalar(const std::vector<Type>&, const Attrs&) { return {{DType::F64, {}}}; }
std::vector<Type> same_types(const std::vector<Type>& in, const Attrs&) { return in; }
std::vector<Type> infer_clip(const std::vector<Type>&, const Attrs& attrs) {
  return std::vector<Type>(attrs.find("hysteresis") == nullptr ? 8 : 9, Type{DType::F64, {}});
}

// gradient, what is updated..., scalars -> what is updated, with the gradient's dims
std::vector<Type> updated(const std::vector<Type>& in, const Attrs& attrs) {
  const size_t scalars = num_scalars(attrs);
  std::vector<Type> out(in.begin() + 1, in.end() - static_cast<std::ptrdiff_t>(scalars));
  for (const Type& t : out)
    OP_REQUIRE("update", t.dims == in[0].dims, "expects states of the gradient's dims, got {} and {}",
               to_string(in[0]), to_string(t));
  for (size_t i = in.size() - scalars; i < in.size(); ++i)
    OP_REQUIRE("update", in[i].dims.empty(), "expects lr, clip scale, ok and update count, got {}",
               to_string(in[i]));
  return out;
}

// The same, with the norms of all parameters last.
std::vector<Type> updated_by_ratio(const std::vector<Type>& in, const Attrs& attrs) {
  OP_REQUIRE("update", in.back().dtype == DType::F64 && in.back().num_dims() == 1,
             "expects the norms of its parameters last, got {}", to_string(in.back()));
  return updated({in.begin(), in.end() - 1}, attrs);
}

std::vector<Type> infer_norms(const std::vector<Type>&, const Attrs& attrs) {
  return {{DType::F64, {{Dim::Flat, static_cast<int64_t>(attrs.reals("groups").size())}}}};
}

Cost cost_sgd(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs& attrs) {
  return update_cost(in, out, attrs, attrs.real("momentum") > 0 ? 2 : 1);
}
// A constant gradient adds up to 1 / (1 - momentum) times itself.
double gain_sgd(const Attrs& attrs) { return 1 / (1 - attrs.real("momentum")); }

Cost cost_ema(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  Cost cost{.bytes = total_bytes(in, out)};
  for (const Type& t : out) {
    cost.bytes += static_cast<double>(t.bytes());
    cost.flops += 3.0 * static_cast<double>(t.count());
  }
  return cost;
}

Cost cost_lamb(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs& attrs) {
  return update_cost({in.begin(), in.end() - 1}, out, attrs, 3);
}
Cost cost_lars(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs& attrs) {
  return update_cost({in.begin(), in.end() - 1}, out, attrs, attrs.real("momentum") > 0 ? 2 : 1);
}

std::vector<Type> infer_bias(const std::vector<Type>& in, const Attrs&) {
  const Type &load = in[0], &bias = in[2];
  OP_REQUIRE("update_bias",
             load.dtype == DType::F64 && load.num_dims() == 1 && in[1].dtype == DType::F64 &&
                 in[1].dims.empty() && bias.num_dims() == 1 && bias.dims[0].name == Dim::Routes &&
                 load.size(0) == bias.size(0) + 2,
             "expects load f64[flat = experts + 2], ok f64[] and bias[routes = experts], got {}, {} and {}",
             to_string(load), to_string(in[1]), to_string(bias));
  return {bias};
}

using CostRule = decltype(OpDef::cost);
// An update whose number of moments depends on its attributes is defined with the fewest.
OpDef sgd_op() {
  OpDef op = update_op(
      "sgd", 0,
      with_update_attrs({{"momentum", AttrKind::Real}, {"nesterov", AttrKind::Integer}, kSeed, kOrigins}),
      cost_sgd);
  op.step.gain = gain_sgd;
  return op;
}
OpDef average_op(std::string_view name, std::vector<AttrSpec> attrs, CostRule cost) {
  OpDef op = update_op(name, 0, std::move(attrs), cost);
  op.step.kind = StepKind::Average;
  return op;
}
// An update by the ratio of two norms, and the op that makes them.
OpDef ratio_op(std::string_view name, int moments, std::vector<AttrSpec> attrs, CostRule cost) {
  OpDef op = update_op(name, moments, std::move(attrs), cost);
  ++op.min_inputs;
  op.infer = updated_by_ratio;
  op.step.reads_norms = true;
  return op;
}
OpDef norms_op(std::string_view name, int moments, std::vector<AttrSpec> attrs) {
  return {.name = name,
          .min_inputs = 4,
          .max_inputs = kAnyNumber,
          .attrs = std::move(attrs),
          .infer = infer_norms,
          .cost = cost_by_bytes,
          .step = {.kind = StepKind::ParameterNorms, .moments = moments},
          .op_class = OpClass::Optimizer};
}
OpDef gradient_norm_op(std::string_view name, int min_inputs, int max_inputs, std::vector<AttrSpec> attrs,
                       decltype(OpDef::infer) infer, StepTraits step) {
  return {.name = name,
          .min_inputs = min_inputs,
          .max_inputs = max_inputs,
          .attrs = std::move(attrs),
          .infer = infer,
          .cost = cost_by_bytes,
          .step = step,
          .op_class = OpClass::GradientNorm};
}

}  // namespace

// A split master is two results of a group, and its upper half is the copy.
Cost update_cost(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs& attrs,
                 size_t state) {
  const size_t groups = in.size() - num_scalars(attrs), each = out.size() / groups;
  if (each > 1 && out[1].dtype == DType::I16) state = each;
  Cost cost{.bytes = total_bytes(in, out)};
  for (size_t i = 0; i < out.size(); ++i)
    if (i % each < state) cost.bytes += static_cast<double>(out[i].bytes());
  for (size_t g = 0; g < groups; ++g) cost.flops += 12.0 * static_cast<double>(in[g].count());
  return cost;
}

OpDef update_op(std::string_view name, int moments, std::vector<AttrSpec> attrs, CostRule cost) {
  constexpr int kGradientAndWeight = 2, kScalars = 4;
  return {.name = name,
          .min_inputs = kGradientAndWeight + moments + kScalars,
          .max_inputs = kAnyNumber,
          .attrs = std::move(attrs),
          .infer = updated,
          .cost = cost,
          .step = {.kind = StepKind::Update},
          .gated = true,
          .op_class = OpClass::Optimizer};
}

std::vector<AttrSpec> with_update_attrs(std::vector<AttrSpec> own) {
  own.insert(own.end(), {{"weight_decay", AttrKind::Real}, kGroupRates, kDecayRamp, kRanges});
  return own;
}

// count, loss scale -> seed = scale / count
const OpDef kCountToSeed = {"count_to_seed", 2, 2, {}, scalar, nullptr, cost_by_bytes};
// y += x
const OpDef kAccumulate = {"accumulate", 1, 1, {}, same, nullptr, cost_by_bytes};
// gradients -> sum of squares over the ranges of them that this rank counts (program/flat_ranges.h)
const OpDef kSumSquares =
    gradient_norm_op("sum_squares", 1, kAnyNumber, {kRanges}, scalar, {.kind = StepKind::GradientNorm});
// The same for the largest absolute element; infinite where one is NaN, so that no maximum loses it
const OpDef kMaxAbs = gradient_norm_op("max_abs", 1, kAnyNumber, {kRanges}, scalar,
                                       {.kind = StepKind::GradientNorm, .reduction = Reduction::Max});
// sum of squares (with largest = 1: largest absolute element), loss, loss scale, updates, skipped in a row,
// skipped in all, good steps in a row -> norm and clip scale of gradients without the loss scale, ok, then in
// place the next loss scale (another one only with a window) and the four counters. With a guard against
// spikes, also: valid tokens, limit of the loss per token, limit of the norm -> ok is 0 above them; the loss
// scale is left alone
const OpDef kClipScale = gradient_norm_op("clip_scale", 7, 10,
                                          {{"max_norm", AttrKind::Real},
                                           {"window", AttrKind::Integer},
                                           {"largest", AttrKind::Integer, true},
                                           {"least", AttrKind::Real, true},
                                           {"hysteresis", AttrKind::Integer, true}},
                                          infer_clip, {.kind = StepKind::Replicated});
// Updates: gradients, lr, clip scale, ok, update count -> for each gradient: master, moments..., and a
// rounded copy where the compute type is another; or, with a split master (base/split_float.h), weight bf16,
// remainder i16, moments... In a step graph: one gradient, then what is updated as operands, too.
const std::vector<AttrSpec> kAdamAttrs = with_update_attrs(
    {{"beta1", AttrKind::Real}, {"beta2", AttrKind::Real}, {"eps", AttrKind::Real}, kSeed, kOrigins});
const OpDef kAdamW = update_op("adamw", 2, kAdamAttrs, update_cost<3>);
const OpDef kAdam = update_op("adam", 2, kAdamAttrs, update_cost<3>);
const OpDef kLion = update_op(
    "lion", 1, with_update_attrs({{"beta1", AttrKind::Real}, {"beta2", AttrKind::Real}, kSeed, kOrigins}),
    update_cost<2>);
const OpDef kSgd = sgd_op();
// AdamW on codes (kernels/dynamic_map.h): moments are codes of m, codes of v, scales of m, scales of v
const OpDef kAdamW8bit = update_op("adamw8bit", 4,
                                   with_update_attrs({{"beta1", AttrKind::Real},
                                                      {"beta2", AttrKind::Real},
                                                      {"eps", AttrKind::Real},
                                                      {"block", AttrKind::Integer}}),
                                   update_cost<5>);
// Average of the weights: weights (of a split master weight and remainder), lr, clip scale, ok, update count
// -> for each weight: average += (1 - decay) x (weight - average)
const OpDef kEma = average_op("ema", {{"decay", AttrKind::Real}, kRanges}, cost_ema);
// LAMB and LARS scale an update by the ratio of two norms of the whole parameter. Every parameter has a pair
// of "groups", and of the norms: the squared norms of the parameter and of LAMB's update, or of the gradient.
const std::vector<AttrSpec> kLambAttrs = with_update_attrs({{"beta1", AttrKind::Real},
                                                            {"beta2", AttrKind::Real},
                                                            {"eps", AttrKind::Real},
                                                            kRatioLimits,
                                                            kSeed,
                                                            kOrigins});
const OpDef kLambNorms = norms_op("lamb_norms", 2, kLambAttrs);
const OpDef kLamb = ratio_op("lamb", 2, kLambAttrs, cost_lamb);
const std::vector<AttrSpec> kLarsAttrs = with_update_attrs(
    {{"momentum", AttrKind::Real}, {"trust", AttrKind::Real}, kRatioLimits, kSeed, kOrigins});
const OpDef kLarsNorms = norms_op("lars_norms", 0, kLarsAttrs);
const OpDef kLars = ratio_op("lars", 0, kLarsAttrs, cost_lars);
// load (see expert_load), ok, bias -> bias in place: bias[i] += rate * sign(mean load - load[i]), with
// sign(0) = 0. A step that is skipped leaves it as it was.
const OpDef kUpdateBias = {.name = "update_bias",
                           .min_inputs = 3,
                           .max_inputs = 3,
                           .attrs = {{"rate", AttrKind::Real}},
                           .infer = infer_bias,
                           .cost = cost_by_bytes,
                           .in_place = {{0, 2}},
                           .step = {.kind = StepKind::Replicated},
                           .gated = true};
// Sums over the micro-batches of a step, reduced over all ranks; in a local graph, packed for one message
const OpDef kStepSums = {"step_sums", 1, kAnyNumber, {}, same_types, nullptr, cost_by_bytes};
// Elements of a flat value from `first` on
const OpDef kView = {"view", 1, 1, {{"first", AttrKind::Integer}}, same, nullptr, cost_by_bytes};
const OpDef kCopy = {"copy", 1, 1, {}, same, nullptr, cost_by_bytes};
// [a, b, rest] -> [b, a, rest]: a transpose of blocks that moves an exchanged dim to the front, where a
// collective needs it, or back
const OpDef kSwapBlocks = {
    "swap_blocks", 1, 1, {{"a", AttrKind::Integer}, {"b", AttrKind::Integer}}, same, nullptr, cost_by_bytes};

}  // namespace quintet::graph
