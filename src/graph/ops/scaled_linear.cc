// Linear layers on quantised operands (ops/quantize.cc). One GEMM in three places: both operands are stored
// along the dims that are contracted, the last `contracted` ones of each.
//
// scaled_linear, scaled_linear_dx, scaled_linear_dw: a[m..., k...], b[n..., k...], scales -> y[m..., n...]
//   y = sum over k of a b / (scale a_scale x scale b_scale), of type `out`
// where a and b are codes of
//   scaled_linear     x [tokens, in...]   and w [out..., in...]
//   scaled_linear_dx  dy[tokens, out...]  and w [in..., out...] (transposed)
//   scaled_linear_dw  dy[out..., tokens] (transposed) and x [in..., tokens] (transposed)
// In programs the first two may have a last operand of the result's type that is added to it. In local graphs
// scaled_linear_dw may return the gradients of several weights, whose dy is packed along the first dim:
// `parts` names their first dims, as for linears_dw (ops/packed.cc).
//
// On GPUs scaled_linear sums with fast accumulation, the gradients in f32.
#include <algorithm>

#include "base/fp8.h"
#include "graph/fp8_ops.h"
#include "graph/ops/packed_parts.h"

namespace quintet::graph {
namespace {

size_t contracted_of(const Attrs& attrs) { return static_cast<size_t>(attrs.integer("contracted")); }

Type gemm_result(std::string_view op, const std::vector<Type>& in, const Attrs& attrs) {
  const Type &a = in[0], &b = in[1], &scales = in[2];
  const size_t k = contracted_of(attrs);
  OP_REQUIRE(op,
             k >= 1 && k < a.dims.size() && k < b.dims.size() &&
                 std::equal(a.dims.end() - static_cast<ptrdiff_t>(k), a.dims.end(),
                            b.dims.end() - static_cast<ptrdiff_t>(k)),
             "expects a[m..., k...] and b[n..., k...] with the same last {} dims, got {} and {}", k,
             to_string(a), to_string(b));
  const bool real = base::is_fp8(a.dtype) && base::is_fp8(b.dtype),
             fake = a.dtype == b.dtype && (a.dtype == DType::F32 || a.dtype == DType::F64);
  OP_REQUIRE(op, real || fake, "expects codes, got {} and {}", to_string(a), to_string(b));
  OP_REQUIRE(op,
             is_scales(scales, a.dtype) && attrs.integer("a_scale") < num_scales(scales.size(0)) &&
                 attrs.integer("b_scale") < num_scales(scales.size(0)),
             "expects scales[flat = 8 n] and two of the n, got {}, {} and {}", to_string(scales),
             attrs.integer("a_scale"), attrs.integer("b_scale"));
  Type y{dtype_attr(attrs, "out"), {a.dims.begin(), a.dims.end() - static_cast<ptrdiff_t>(k)}};
  y.dims.insert(y.dims.end(), b.dims.begin(), b.dims.end() - static_cast<ptrdiff_t>(k));
  return y;
}

std::vector<Type> with_addend(std::string_view op, const std::vector<Type>& in, const Attrs& attrs) {
  const Type y = gemm_result(op, in, attrs);
  OP_REQUIRE(op, in.size() < 4 || in[3] == y, "expects an addend like the result {}, got {}", to_string(y),
             to_string(in[3]));
  return {y};
}
std::vector<Type> infer(const std::vector<Type>& in, const Attrs& attrs) {
  return with_addend("scaled_linear", in, attrs);
}
std::vector<Type> infer_dx(const std::vector<Type>& in, const Attrs& attrs) {
  return with_addend("scaled_linear_dx", in, attrs);
}
std::vector<Type> infer_dw(const std::vector<Type>& in, const Attrs& attrs) {
  const Type dw = gemm_result("scaled_linear_dw", in, attrs);
  if (attrs.find("parts") == nullptr) return {dw};
  return split_parts("scaled_linear_dw", dw, attrs);
}

// As for linear: results before what is contracted.
std::vector<OpDim> dims(const std::vector<Type>& in, const std::vector<Type>&, const Attrs& attrs) {
  const int k = static_cast<int>(contracted_of(attrs)), m = in[0].num_dims() - k, n = in[1].num_dims() - k;
  std::vector<OpDim> rule;
  const auto add = [&](int a, int b, int y) {
    const Dim name =
        a >= 0 ? in[0].dims[static_cast<size_t>(a)].name : in[1].dims[static_cast<size_t>(b)].name;
    OpDim d{.key = name, .in = {a, b, kAbsent}, .out = {y}, .padded = name != Dim::Tokens};
    if (in.size() > 3) d.in.push_back(y);
    rule.push_back(std::move(d));
  };
  for (int i = 0; i < m; ++i) add(i, kAbsent, i);
  for (int i = 0; i < n; ++i) add(kAbsent, i, m + i);
  for (int i = 0; i < k; ++i) add(m + i, n + i, kAbsent);
  return rule;
}

Gemm gemm_of(const std::vector<Type>& in, const std::vector<Type>&, const Attrs& attrs) {
  double k = 1;
  for (size_t i = in[0].dims.size() - contracted_of(attrs); i < in[0].dims.size(); ++i)
    k *= static_cast<double>(in[0].dims[i].size);
  k = std::max(k, 1.0);
  return {.m = static_cast<double>(in[0].count()) / k, .n = static_cast<double>(in[1].count()) / k, .k = k};
}

Cost cost(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs& attrs) {
  const Gemm g = gemm_of(in, out, attrs);
  return {.flops = 2 * g.m * g.n * g.k, .bytes = total_bytes(in, out)};
}

const std::vector<AttrSpec> kAttrs = {{"a_scale", AttrKind::Integer},
                                      {"b_scale", AttrKind::Integer},
                                      {"contracted", AttrKind::Integer},
                                      {"out", AttrKind::Text}};
std::vector<AttrSpec> with_parts() {
  std::vector<AttrSpec> attrs = kAttrs;
  attrs.push_back({"parts", AttrKind::Text, /*optional=*/true});
  return attrs;
}

OpDef op(std::string_view name, OpPass pass, decltype(OpDef::infer) infer) {
  return {.name = name,
          .min_inputs = 3,
          .max_inputs = 4,
          .attrs = kAttrs,
          .infer = infer,
          .cost = cost,
          .dims = dims,
          .in_place = {{0, 3}},
          .op_class = OpClass::Matmul,
          .pass = pass,
          .gemm = gemm_of,
          .takes_addend = true};
}

OpDef dw_op() {
  OpDef dw = op("scaled_linear_dw", OpPass::WeightGradient, infer_dw);
  dw.max_inputs = 3;
  dw.attrs = with_parts();
  dw.in_place = {};
  dw.takes_addend = false;
  return dw;
}

}  // namespace

const OpDef kScaledLinear = op("scaled_linear", OpPass::Forward, infer);
const OpDef kScaledLinearDx = op("scaled_linear_dx", OpPass::InputGradient, infer_dx);
const OpDef kScaledLinearDw = dw_op();

}  // namespace quintet::graph
