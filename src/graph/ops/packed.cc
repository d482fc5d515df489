// Projections of one input whose results are packed in the columns of one value: one matmul computes them
// all, one the gradient of their input, one the gradients of their weights. In local graphs only, inserted by
// passes/pack.h.
//
// linears: x[tokens, in...], w_i[out_i, rest..., in...] -> y[tokens, sum of out_i, rest...]
// linears_dx: dy, w_i -> dx like x
// linears_dw: dy, x -> dw_i; `parts` names their first dims: "heads=32 kv_heads=8 kv_heads=8"
#include <algorithm>
#include <charconv>

#include "graph/ops/packed_parts.h"

namespace quintet::graph {
namespace {

using Dims = std::vector<DimSize>;

std::vector<DimSize> parts_of(std::string_view op, const Attrs& attrs) {
  std::vector<DimSize> parts;
  const std::string& text = attrs.text("parts");
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size()), equals = text.find('=', at);
    OP_REQUIRE(op, equals < end, "expects parts such as \"heads=4 kv_heads=2\", got \"{}\"", text);
    const auto name = parse_dim(std::string_view(text).substr(at, equals - at));
    int64_t size = 0;
    const auto read = std::from_chars(text.data() + equals + 1, text.data() + end, size);
    OP_REQUIRE(op, name && read.ptr == text.data() + end && size > 0,
               "expects parts such as \"heads=4 kv_heads=2\", got \"{}\"", text);
    parts.push_back({*name, size});
    at = end + 1;
  }
  return parts;
}

// Results of a single weight.
Dims produced_by(const Type& w, size_t contracted) {
  return {w.dims.begin(), w.dims.end() - static_cast<ptrdiff_t>(contracted)};
}

// The packed results of all weights; the packed dim takes the first one's name.
Dims packed_dims(std::string_view op, const std::vector<Dims>& parts) {
  Dims all = parts.front();
  for (size_t i = 1; i < parts.size(); ++i) {
    OP_REQUIRE(op, std::equal(parts[i].begin() + 1, parts[i].end(), all.begin() + 1, all.end()),
               "part {} differs from the first in more than its first dim", i);
    all[0].size += parts[i][0].size;
  }
  return all;
}

std::vector<Type> infer(const std::vector<Type>& in, const Attrs&) {
  const Type& x = in[0];
  OP_REQUIRE("linears", has_tokens(x) && x.num_dims() >= 2, "expects x[tokens, in...], got {}", to_string(x));
  const size_t contracted = x.dims.size() - 1;
  std::vector<Dims> parts;
  for (size_t i = 1; i < in.size(); ++i) {
    OP_REQUIRE("linears",
               in[i].dims.size() > contracted && in[i].dtype == x.dtype &&
                   std::equal(x.dims.begin() + 1, x.dims.end(),
                              in[i].dims.end() - static_cast<ptrdiff_t>(contracted)),
               "expects w[out..., in...] of x's dtype, got x {} and w {}", to_string(x), to_string(in[i]));
    parts.push_back(produced_by(in[i], contracted));
  }
  Type y{x.dtype, {x.dims[0]}};
  const Dims all = packed_dims("linears", parts);
  y.dims.insert(y.dims.end(), all.begin(), all.end());
  return {y};
}

std::vector<Type> infer_dx(const std::vector<Type>& in, const Attrs&) {
  const Type& dy = in[0];
  OP_REQUIRE("linears_dx", has_tokens(dy) && dy.num_dims() >= 2 && dy.num_dims() <= in[1].num_dims(),
             "expects dy[tokens, out...] and w[out..., in...], got {} and {}", to_string(dy),
             to_string(in[1]));
  const auto produced = static_cast<ptrdiff_t>(dy.dims.size()) - 1;
  Type dx{dy.dtype, {dy.dims[0]}};
  dx.dims.insert(dx.dims.end(), in[1].dims.begin() + produced, in[1].dims.end());
  std::vector<Type> forward = in;
  forward[0] = dx;
  const Type y = infer(forward, {})[0];
  OP_REQUIRE("linears_dx", y == dy, "the packed results of the weights are {}, dy is {}", to_string(y),
             to_string(dy));
  return {dx};
}

std::vector<Type> infer_dw(const std::vector<Type>& in, const Attrs& attrs) {
  const Type &dy = in[0], &x = in[1];
  OP_REQUIRE("linears_dw",
             has_tokens(dy) && has_tokens(x) && dy.dims[0] == x.dims[0] && dy.num_dims() >= 2 &&
                 x.num_dims() >= 2 && dy.dtype == x.dtype,
             "expects dy[tokens, out...] and x[tokens, in...] of the same dtype, got {} and {}",
             to_string(dy), to_string(x));
  Type packed{dtype_attr(attrs, "out"), {dy.dims.begin() + 1, dy.dims.end()}};
  packed.dims.insert(packed.dims.end(), x.dims.begin() + 1, x.dims.end());
  return split_parts("linears_dw", packed, attrs);
}

Cost cost(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  double weights = 0;
  for (size_t i = 1; i < in.size(); ++i) weights += static_cast<double>(in[i].count());
  return {.flops = 2.0 * static_cast<double>(in[0].size(0)) * weights, .bytes = total_bytes(in, out)};
}

Cost cost_dw(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  double weights = 0;
  for (const Type& dw : out) weights += static_cast<double>(dw.count());
  return {.flops = 2.0 * static_cast<double>(in[0].size(0)) * weights, .bytes = total_bytes(in, out)};
}

// The graph is local: everything is sharded already.
std::vector<OpDim> dims(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  return {tokens_dim(in, out)};
}

const std::vector<AttrSpec> kDwAttrs = {{"out", AttrKind::Text}, {"parts", AttrKind::Text}};

}  // namespace

std::vector<Type> split_parts(std::string_view op, const Type& packed, const Attrs& attrs) {
  std::vector<Type> out;
  int64_t sum = 0;
  for (const DimSize& part : parts_of(op, attrs)) {
    out.push_back(packed);
    out.back().dims[0] = part;
    sum += part.size;
  }
  OP_REQUIRE(op, out.size() >= 2 && sum == packed.size(0), "parts \"{}\" are not the {} columns of dy",
             attrs.text("parts"), packed.size(0));
  return out;
}

const OpDef kLinears = {.name = "linears",
                        .min_inputs = 3,
                        .max_inputs = 4,
                        .attrs = {},
                        .infer = infer,
                        .cost = cost,
                        .dims = dims,
                        .op_class = OpClass::Matmul,
                        .gemm = gemm};
const OpDef kLinearsDx = {.name = "linears_dx",
                          .min_inputs = 3,
                          .max_inputs = 4,
                          .attrs = {},
                          .infer = infer_dx,
                          .cost = cost,
                          .dims = dims,
                          .op_class = OpClass::Matmul,
                          .pass = OpPass::InputGradient,
                          .gemm = gemm};
const OpDef kLinearsDw = {.name = "linears_dw",
                          .min_inputs = 2,
                          .max_inputs = 2,
                          .attrs = kDwAttrs,
                          .infer = infer_dw,
                          .cost = cost_dw,
                          .dims = dims,
                          .op_class = OpClass::Matmul,
                          .pass = OpPass::WeightGradient,
                          .gemm = gemm_dw};

}  // namespace quintet::graph
