// Linear layers on operands with one scale per tensor (ops/quantize.cc), as GEMMs of codes (ops/code_gemm.h).
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
#include "graph/fp8_ops.h"
#include "graph/ops/code_gemm.h"
#include "graph/ops/packed_parts.h"

namespace quintet::graph {
namespace {

Type result(std::string_view op, const std::vector<Type>& in, const Attrs& attrs) {
  const Type y = code_gemm_result(op, in[0], in[1], attrs);
  const Type& scales = in[2];
  OP_REQUIRE(op,
             is_scales(scales, in[0].dtype) && attrs.integer("a_scale") < num_scales(scales.size(0)) &&
                 attrs.integer("b_scale") < num_scales(scales.size(0)),
             "expects scales[flat = 8 n] and two of the n, got {}, {} and {}", to_string(scales),
             attrs.integer("a_scale"), attrs.integer("b_scale"));
  return y;
}

std::vector<Type> with_addend(std::string_view op, const std::vector<Type>& in, const Attrs& attrs) {
  const Type y = result(op, in, attrs);
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
  const Type dw = result("scaled_linear_dw", in, attrs);
  if (attrs.find("parts") == nullptr) return {dw};
  return split_parts("scaled_linear_dw", dw, attrs);
}

std::vector<OpDim> dims(const std::vector<Type>& in, const std::vector<Type>&, const Attrs& attrs) {
  return code_gemm_dims(in, 3, attrs);
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
          .cost = code_gemm_cost,
          .dims = dims,
          .in_place = {{0, 3}},
          .op_class = OpClass::Matmul,
          .pass = pass,
          .gemm = code_gemm_size,
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
