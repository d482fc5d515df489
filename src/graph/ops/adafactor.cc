// Ops of Adafactor (Shazeer and Stern, 2018). With g = clip scale x gradient, a step computes per matrix
//   factor_sums     squares of g summed by row and by column: partial sums over whatever shards the matrix
//   update_factors  averages of their means, R and C: average += t^-decay (mean - average); then the sums
//                   become factors R / max(mean of R, eps1) and C, whose product estimates the average of g^2
//   factor_norms    sums of squares of the weight and of u = g / max(sqrt(factors), eps1)
//   factor_sizes    s = 1 / max(1, rms(u) / clip), and with relative = 1 times max(rms(weight), eps2)
//   adafactor       weight = (1 - lr weight_decay) weight - rate s u, where rate is lr or, with relative = 1,
//                   min(lr, 1 / sqrt(t))
// A vector has an average of squares for each of its elements in place of two factors.
#include <limits>

#include "graph/adafactor_ops.h"
#include "graph/ops/support.h"

namespace quintet::graph {
namespace {

constexpr int kAnyNumber = std::numeric_limits<int>::max();
constexpr size_t kNumbers = 5;  // of a row of "factors"

std::ptrdiff_t num_scalars(const Attrs& attrs) { return attrs.find("decay_ramp") != nullptr ? 5 : 4; }

Type vector_of(int64_t count) { return {DType::F64, {{Dim::Flat, count}}}; }
Type factors_type(const Attrs& attrs) {
  return vector_of(attrs.integer("averages") + attrs.integer("matrices"));
}

std::vector<Type> infer_sums(const std::vector<Type>&, const Attrs& attrs) { return {factors_type(attrs)}; }
std::vector<Type> infer_norms(const std::vector<Type>&, const Attrs& attrs) {
  return {vector_of(2 * attrs.integer("matrices"))};
}
std::vector<Type> infer_factors(const std::vector<Type>& in, const Attrs& attrs) {
  OP_REQUIRE("update_factors", in[0] == factors_type(attrs) && in[1].count() == attrs.integer("averages"),
             "expects {} sums and {} averages, got {} and {}", factors_type(attrs).count(),
             attrs.integer("averages"), to_string(in[0]), to_string(in[1]));
  return {in[0], in[1]};
}
std::vector<Type> infer_sizes(const std::vector<Type>& in, const Attrs& attrs) {
  OP_REQUIRE("factor_sizes", in[0].count() == 2 * attrs.integer("matrices") && in[1] == factors_type(attrs),
             "expects {} norms and {} factors, got {} and {}", 2 * attrs.integer("matrices"),
             factors_type(attrs).count(), to_string(in[0]), to_string(in[1]));
  return {in[1]};
}
std::vector<Type> infer_update(const std::vector<Type>& in, const Attrs& attrs) {
  OP_REQUIRE("adafactor", in.back() == factors_type(attrs), "expects the factors last, got {}",
             to_string(in.back()));
  std::vector<Type> out(in.begin() + 1, in.end() - 1 - num_scalars(attrs));
  for (const Type& t : out)
    OP_REQUIRE("adafactor", t.dims == in[0].dims, "expects weights of the gradient's dims, got {} and {}",
               to_string(in[0]), to_string(t));
  return out;
}

// The master is read and written.
Cost cost_update(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs& attrs) {
  const auto groups = in.size() - 1 - static_cast<size_t>(num_scalars(attrs));
  Cost cost{.bytes = total_bytes(in, out)};
  for (size_t i = 0; i < out.size(); i += out.size() / groups)
    cost.bytes += static_cast<double>(out[i].bytes());
  for (size_t g = 0; g < groups; ++g) cost.flops += 8.0 * static_cast<double>(in[g].count());
  return cost;
}

const std::vector<AttrSpec> kSettings = {{"decay", AttrKind::Real},       {"eps1", AttrKind::Real},
                                         {"eps2", AttrKind::Real},        {"clip", AttrKind::Real},
                                         {"relative", AttrKind::Integer}, {"averages", AttrKind::Integer},
                                         {"matrices", AttrKind::Integer}, {"factors", AttrKind::Integers}};
// Of ops on parameters also: those of updates (update.cc).
std::vector<AttrSpec> with_ranges() {
  std::vector<AttrSpec> attrs = kSettings;
  attrs.insert(attrs.end(), {{"weight_decay", AttrKind::Real},
                             {"groups", AttrKind::Reals},
                             {"decay_ramp", AttrKind::Integer, /*optional=*/true},
                             kOrigins,
                             kRanges});
  return attrs;
}

}  // namespace

std::vector<FactoredParam> factored_params(const Attrs& attrs) {
  const std::vector<int64_t>& n = attrs.integers("factors");
  std::vector<FactoredParam> list;
  for (size_t i = 0; i + kNumbers <= n.size(); i += kNumbers)
    list.push_back({n[i], n[i + 1], n[i + 2], n[i + 3], n[i + 4]});
  return list;
}

std::vector<int64_t> to_attribute(const std::vector<FactoredParam>& params) {
  std::vector<int64_t> n;
  for (const FactoredParam& p : params) n.insert(n.end(), {p.first, p.each, p.rows, p.columns, p.matrix});
  return n;
}

// gradients, scalars of an update -> sums, and a place for every matrix's size
const OpDef kFactorSums = {.name = "factor_sums",
                           .min_inputs = 4,
                           .max_inputs = kAnyNumber,
                           .attrs = with_ranges(),
                           .infer = infer_sums,
                           .cost = cost_by_bytes,
                           .step = {.kind = StepKind::ParameterNorms, .reads_weight = false},
                           .op_class = OpClass::Optimizer};
// sums, averages, ok, update count -> factors, averages; in place
const OpDef kUpdateFactors = {.name = "update_factors",
                              .min_inputs = 4,
                              .max_inputs = 4,
                              .attrs = kSettings,
                              .infer = infer_factors,
                              .cost = cost_by_bytes,
                              .in_place = {{0, 0}, {1, 1}},
                              .step = {.kind = StepKind::Replicated},
                              .gated = true,
                              .op_class = OpClass::Optimizer};
// gradient and weight of each parameter, scalars of an update, factors -> two sums for every matrix
const OpDef kFactorNorms = {.name = "factor_norms",
                            .min_inputs = 5,
                            .max_inputs = kAnyNumber,
                            .attrs = with_ranges(),
                            .infer = infer_norms,
                            .cost = cost_by_bytes,
                            .step = {.kind = StepKind::ParameterNorms, .reads_norms = true},
                            .op_class = OpClass::Optimizer};
// norms, factors -> factors with sizes; in place
const OpDef kFactorSizes = {.name = "factor_sizes",
                            .min_inputs = 2,
                            .max_inputs = 2,
                            .attrs = kSettings,
                            .infer = infer_sizes,
                            .cost = cost_by_bytes,
                            .in_place = {{0, 1}},
                            .step = {.kind = StepKind::Replicated},
                            .op_class = OpClass::Optimizer};
// An update (update.cc) without moments, with factors and sizes as its last operand
const OpDef kAdafactor = {.name = "adafactor",
                          .min_inputs = 7,
                          .max_inputs = kAnyNumber,
                          .attrs = with_ranges(),
                          .infer = infer_update,
                          .cost = cost_update,
                          .step = {.kind = StepKind::Update, .reads_norms = true},
                          .gated = true,
                          .op_class = OpClass::Optimizer};

}  // namespace quintet::graph
