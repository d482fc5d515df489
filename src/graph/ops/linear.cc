// linear: x[tokens, in...], w[out..., in...] -> y[tokens, out...]. Several named dims are contracted or
// produced at once, so heads never have to be merged with head_dim. The bias is a separate op: it must be
// added after the sum over shards of the contracted dims. In programs linear and linear_dx may have a third
// operand of the result's type that is added to it (see graph/fuse_adds.h).
#include <algorithm>

#include "graph/ops/support.h"

namespace quintet::graph {
namespace {

void require_addend(std::string_view op, const std::vector<Type>& in, const Type& result) {
  OP_REQUIRE(op, in.size() < 3 || in[2] == result, "expects an addend like the result {}, got {}",
             to_string(result), to_string(in[2]));
}

std::vector<Type> infer(const std::vector<Type>& in, const Attrs&) {
  const Type &x = in[0], &w = in[1];
  OP_REQUIRE("linear", has_tokens(x) && x.num_dims() >= 2, "expects x[tokens, in...], got {}", to_string(x));
  const size_t contracted = x.dims.size() - 1;
  OP_REQUIRE("linear", w.dims.size() > contracted && w.dtype == x.dtype,
             "expects w[out..., in...] of x's dtype, got x {} and w {}", to_string(x), to_string(w));
  const size_t produced = w.dims.size() - contracted;
  for (size_t i = 0; i < contracted; ++i)
    OP_REQUIRE("linear", w.dims[produced + i] == x.dims[1 + i], "the inner dims differ: x {} and w {}",
               to_string(x), to_string(w));
  Type y{x.dtype, {x.dims[0]}};
  y.dims.insert(y.dims.end(), w.dims.begin(), w.dims.begin() + static_cast<ptrdiff_t>(produced));
  require_addend("linear", in, y);
  return {y};
}

void gradient(GradContext& g, const Node& n) {
  const ValueId x = n.inputs[0], w = n.inputs[1], dy = g.grad(n.outputs[0]);
  if (g.needs(x)) g.add(x, g.emit(kLinearDx, {dy, w}, {}, Phase::B)[0]);
  if (g.needs(w)) g.add(w, g.emit(kLinearDw, {dy, x}, {{"out", text_of(g.param_grad())}}, Phase::W)[0]);
}

Cost cost(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  const double rows = static_cast<double>(in[0].dims[0].size);
  return {.flops = 2.0 * rows * static_cast<double>(in[1].count()), .bytes = total_bytes(in, out)};
}

std::vector<OpDim> dims(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  std::vector<OpDim> rule;
  const int produced = out[0].num_dims() - 1, contracted = in[0].num_dims() - 1;
  for (int o = 0; o < produced; ++o)
    rule.push_back(
        {.key = in[1].dims[static_cast<size_t>(o)].name, .in = {kAbsent, o}, .out = {1 + o}, .padded = true});
  for (int i = 0; i < contracted; ++i)
    rule.push_back({.key = in[0].dims[1 + static_cast<size_t>(i)].name,
                    .in = {1 + i, produced + i},
                    .out = {kAbsent},
                    .padded = true});
  rule.push_back(tokens_dim(in, out));
  return rule;
}

// dx: dy[tokens, out...], w[out..., in...] -> dx[tokens, in...]
std::vector<Type> infer_dx(const std::vector<Type>& in, const Attrs&) {
  const Type &dy = in[0], &w = in[1];
  OP_REQUIRE("linear_dx",
             has_tokens(dy) && dy.num_dims() >= 2 && dy.num_dims() <= w.num_dims() && dy.dtype == w.dtype &&
                 std::equal(dy.dims.begin() + 1, dy.dims.end(), w.dims.begin()),
             "expects dy[tokens, out...] and w[out..., in...] of the same dtype, got {} and {}",
             to_string(dy), to_string(w));
  Type dx{in[0].dtype, {in[0].dims[0]}};
  dx.dims.insert(dx.dims.end(), in[1].dims.begin() + in[0].num_dims() - 1, in[1].dims.end());
  require_addend("linear_dx", in, dx);
  return {dx};
}

std::vector<OpDim> dims_dx(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  std::vector<OpDim> rule;
  const int produced = in[0].num_dims() - 1, contracted = out[0].num_dims() - 1;
  for (int i = 0; i < contracted; ++i)
    rule.push_back({.key = out[0].dims[1 + static_cast<size_t>(i)].name,
                    .in = {kAbsent, produced + i},
                    .out = {1 + i},
                    .padded = true});
  for (int o = 0; o < produced; ++o)
    rule.push_back(
        {.key = in[1].dims[static_cast<size_t>(o)].name, .in = {1 + o, o}, .out = {kAbsent}, .padded = true});
  rule.push_back(tokens_dim(in, out));
  return rule;
}

// dw: dy[tokens, out...], x[tokens, in...] -> dw[out..., in...]
std::vector<Type> infer_dw(const std::vector<Type>& in, const Attrs& attrs) {
  const Type &dy = in[0], &x = in[1];
  OP_REQUIRE("linear_dw",
             has_tokens(dy) && has_tokens(x) && dy.dims[0] == x.dims[0] && dy.num_dims() >= 2 &&
                 x.num_dims() >= 2 && dy.dtype == x.dtype,
             "expects dy[tokens, out...] and x[tokens, in...] of the same dtype, got {} and {}",
             to_string(dy), to_string(x));
  Type dw{dtype_attr(attrs, "out"), {}};
  dw.dims.insert(dw.dims.end(), in[0].dims.begin() + 1, in[0].dims.end());
  dw.dims.insert(dw.dims.end(), in[1].dims.begin() + 1, in[1].dims.end());
  return {dw};
}

std::vector<OpDim> dims_dw(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  std::vector<OpDim> rule;
  const int produced = in[0].num_dims() - 1, contracted = in[1].num_dims() - 1;
  for (int o = 0; o < produced; ++o)
    rule.push_back({.key = in[0].dims[1 + static_cast<size_t>(o)].name,
                    .in = {1 + o, kAbsent},
                    .out = {o},
                    .padded = true});
  for (int i = 0; i < contracted; ++i)
    rule.push_back({.key = in[1].dims[1 + static_cast<size_t>(i)].name,
                    .in = {kAbsent, 1 + i},
                    .out = {produced + i},
                    .padded = true});
  rule.push_back(tokens_dim(in, out));
  return rule;
}

Cost cost_dw(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  const double rows = static_cast<double>(in[0].dims[0].size);
  return {.flops = 2.0 * rows * static_cast<double>(out[0].count()), .bytes = total_bytes(in, out)};
}

// bias_add: x[tokens, d...], b[d...] -> y like x
std::vector<Type> infer_bias(const std::vector<Type>& in, const Attrs&) {
  const Type &x = in[0], &b = in[1];
  OP_REQUIRE("bias_add",
             has_tokens(x) && b.dtype == x.dtype &&
                 std::equal(x.dims.begin() + 1, x.dims.end(), b.dims.begin(), b.dims.end()),
             "expects x[tokens, d...] and b[d...], got {} and {}", to_string(x), to_string(b));
  return {x};
}

void gradient_bias(GradContext& g, const Node& n) {
  const ValueId dy = g.grad(n.outputs[0]);
  g.add(n.inputs[0], dy);
  if (g.needs(n.inputs[1]))
    g.add(n.inputs[1], g.emit(kSumRows, {dy}, {{"out", text_of(g.param_grad())}}, Phase::W)[0]);
}

// Padding of the vocabulary stays zero.
std::vector<OpDim> dims_bias(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  std::vector<OpDim> rule = rowwise_dims(in, out, 0);
  for (OpDim& d : rule) d.padded = d.key == Dim::Vocab;
  return rule;
}

// sum_rows: dy[tokens, d...] -> db[d...]
std::vector<Type> infer_sum_rows(const std::vector<Type>& in, const Attrs& attrs) {
  OP_REQUIRE("sum_rows", has_tokens(in[0]), "expects dy[tokens, d...], got {}", to_string(in[0]));
  return {{dtype_attr(attrs, "out"), {in[0].dims.begin() + 1, in[0].dims.end()}}};
}

const std::vector<AttrSpec> kOut = {{"out", AttrKind::Text}};

}  // namespace

const OpDef kLinear = {.name = "linear",
                       .min_inputs = 2,
                       .max_inputs = 3,
                       .attrs = {},
                       .infer = infer,
                       .gradient = gradient,
                       .cost = cost,
                       .dims = dims,
                       .in_place = {{0, 2}},
                       .op_class = OpClass::Matmul,
                       .gemm = gemm,
                       .takes_addend = true};
const OpDef kLinearDx = {.name = "linear_dx",
                         .min_inputs = 2,
                         .max_inputs = 3,
                         .attrs = {},
                         .infer = infer_dx,
                         .cost = cost,
                         .dims = dims_dx,
                         .in_place = {{0, 2}},
                         .op_class = OpClass::Matmul,
                         .pass = OpPass::InputGradient,
                         .gemm = gemm,
                         .takes_addend = true};
const OpDef kLinearDw = {.name = "linear_dw",
                         .min_inputs = 2,
                         .max_inputs = 2,
                         .attrs = kOut,
                         .infer = infer_dw,
                         .cost = cost_dw,
                         .dims = dims_dw,
                         .op_class = OpClass::Matmul,
                         .pass = OpPass::WeightGradient,
                         .gemm = gemm_dw};
const OpDef kBiasAdd = {.name = "bias_add",
                        .min_inputs = 2,
                        .max_inputs = 2,
                        .attrs = {},
                        .infer = infer_bias,
                        .gradient = gradient_bias,
                        .cost = cost_by_bytes,
                        .dims = dims_bias,
                        .in_place = {{0, 0}},
                        .op_class = OpClass::Bias};
const OpDef kSumRows = {.name = "sum_rows",
                        .min_inputs = 1,
                        .max_inputs = 1,
                        .attrs = kOut,
                        .infer = infer_sum_rows,
                        .cost = cost_by_bytes,
                        .dims = dims_bias,
                        .op_class = OpClass::Bias,
                        .pass = OpPass::WeightGradient};

}  // namespace quintet::graph
