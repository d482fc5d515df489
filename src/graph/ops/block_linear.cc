// Linear layers on operands with a scale for each block of values (ops/quantize_blocks.cc), as GEMMs of codes
// (ops/code_gemm.h).
//
// block_linear, block_linear_dx, block_linear_dw:
//   a[m..., k...], b[n..., k...], factors of a[blocks of k, m...], factors of b -> y[m..., n...]
//   y = sum over k of (a x its factor) (b x its factor), of type `out`
// where a and b are what they are for scaled_linear, scaled_linear_dx and scaled_linear_dw. The factors of b
// are [blocks of k, n...], with `square` [blocks of n, blocks of k]. A block is `block` contracted elements;
// dims that are blocked together have the name of the first.
//
// A last operand of the first two, and `parts` of the third, are as for scaled_linear. All three sum in f32
// on GPUs.
#include "graph/fp8_ops.h"
#include "graph/ops/code_gemm.h"
#include "graph/ops/packed_parts.h"

namespace quintet::graph {
namespace {

bool is_square(const Attrs& attrs) { return attrs.integer("square") != 0; }

int64_t product(const Type& t, size_t begin, size_t end) {
  int64_t n = 1;
  for (size_t i = begin; i < end; ++i) n *= t.dims[i].size;
  return n;
}

Type result(std::string_view op, const std::vector<Type>& in, const Attrs& attrs) {
  const Type &a = in[0], &b = in[1];
  const Type y = code_gemm_result(op, a, b, attrs);
  const int64_t block = attrs.integer("block");
  const size_t k = contracted_of(attrs), m = a.dims.size() - k, n = b.dims.size() - k;
  const DType dtype = factor_type(a.dtype);
  const int64_t contracted = product(a, m, a.dims.size());
  OP_REQUIRE(op, block >= 1 && contracted % block == 0,
             "expects blocks that divide what is contracted, got blocks of {} and {}", block, contracted);
  const DimSize blocks{a.dims[m].name, contracted / block};
  Type of_a{dtype, {blocks}}, of_b = of_a;
  of_a.dims.insert(of_a.dims.end(), a.dims.begin(), a.dims.begin() + static_cast<ptrdiff_t>(m));
  of_b.dims.insert(of_b.dims.end(), b.dims.begin(), b.dims.begin() + static_cast<ptrdiff_t>(n));
  if (is_square(attrs)) of_b.dims = {{b.dims[0].name, product(b, 0, n) / block}, blocks};
  OP_REQUIRE(op, in[2] == of_a && in[3] == of_b, "expects factors {} and {}, got {} and {}", to_string(of_a),
             to_string(of_b), to_string(in[2]), to_string(in[3]));
  return y;
}

std::vector<Type> with_addend(std::string_view op, const std::vector<Type>& in, const Attrs& attrs) {
  const Type y = result(op, in, attrs);
  OP_REQUIRE(op, in.size() < 5 || in[4] == y, "expects an addend like the result {}, got {}", to_string(y),
             to_string(in[4]));
  return {y};
}
std::vector<Type> infer(const std::vector<Type>& in, const Attrs& attrs) {
  return with_addend("block_linear", in, attrs);
}
std::vector<Type> infer_dx(const std::vector<Type>& in, const Attrs& attrs) {
  return with_addend("block_linear_dx", in, attrs);
}
std::vector<Type> infer_dw(const std::vector<Type>& in, const Attrs& attrs) {
  const Type dw = result("block_linear_dw", in, attrs);
  if (attrs.find("parts") == nullptr) return {dw};
  return split_parts("block_linear_dw", dw, attrs);
}

std::vector<OpDim> dims(const std::vector<Type>& in, const std::vector<Type>&, const Attrs& attrs) {
  std::vector<OpDim> rule = code_gemm_dims(in, 4, attrs);
  const size_t k = contracted_of(attrs), m = in[0].dims.size() - k, n = in[1].dims.size() - k;
  for (size_t i = 0; i < m; ++i) rule[i].in[2] = static_cast<int>(1 + i);
  for (size_t i = 0; i < n; ++i)
    rule[m + i].in[3] = !is_square(attrs) ? static_cast<int>(1 + i) : i == 0 ? 0 : kAbsent;
  OpDim& blocked = rule[m + n];
  blocked.in[2] = 0;
  blocked.in[3] = is_square(attrs) ? 1 : 0;
  return rule;
}

const std::vector<AttrSpec> kAttrs = {{"block", AttrKind::Integer},
                                      {"square", AttrKind::Integer},
                                      {"contracted", AttrKind::Integer},
                                      {"out", AttrKind::Text}};

OpDef op(std::string_view name, OpPass pass, decltype(OpDef::infer) infer) {
  return {.name = name,
          .min_inputs = 4,
          .max_inputs = 5,
          .attrs = kAttrs,
          .infer = infer,
          .cost = code_gemm_cost,
          .dims = dims,
          .in_place = {{0, 4}},
          .op_class = OpClass::Matmul,
          .pass = pass,
          .gemm = code_gemm_size,
          .takes_addend = true};
}

OpDef dw_op() {
  OpDef dw = op("block_linear_dw", OpPass::WeightGradient, infer_dw);
  dw.max_inputs = 4;
  dw.attrs.push_back({"parts", AttrKind::Text, /*optional=*/true});
  dw.in_place = {};
  dw.takes_addend = false;
  return dw;
}

}  // namespace

const OpDef kBlockLinear = op("block_linear", OpPass::Forward, infer);
const OpDef kBlockLinearDx = op("block_linear_dx", OpPass::InputGradient, infer_dx);
const OpDef kBlockLinearDw = dw_op();

}  // namespace quintet::graph
