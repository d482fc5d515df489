#include "graph/ops/code_gemm.h"

#include <algorithm>

#include "base/fp8.h"

namespace quintet::graph {

Type code_gemm_result(std::string_view op, const Type& a, const Type& b, const Attrs& attrs) {
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
  Type y{dtype_attr(attrs, "out"), {a.dims.begin(), a.dims.end() - static_cast<ptrdiff_t>(k)}};
  y.dims.insert(y.dims.end(), b.dims.begin(), b.dims.end() - static_cast<ptrdiff_t>(k));
  return y;
}

std::vector<OpDim> code_gemm_dims(const std::vector<Type>& in, size_t addend, const Attrs& attrs) {
  const int k = static_cast<int>(contracted_of(attrs)), m = in[0].num_dims() - k, n = in[1].num_dims() - k;
  std::vector<OpDim> rule;
  const auto add = [&](int a, int b, int y) {
    const Dim name =
        a >= 0 ? in[0].dims[static_cast<size_t>(a)].name : in[1].dims[static_cast<size_t>(b)].name;
    OpDim d{
        .key = name, .in = std::vector<int>(in.size(), kAbsent), .out = {y}, .padded = name != Dim::Tokens};
    d.in[0] = a;
    d.in[1] = b;
    if (addend < in.size()) d.in[addend] = y;
    rule.push_back(std::move(d));
  };
  for (int i = 0; i < m; ++i) add(i, kAbsent, i);
  for (int i = 0; i < n; ++i) add(kAbsent, i, m + i);
  for (int i = 0; i < k; ++i) add(m + i, n + i, kAbsent);
  return rule;
}

Gemm code_gemm_size(const std::vector<Type>& in, const std::vector<Type>&, const Attrs& attrs) {
  double k = 1;
  for (size_t i = in[0].dims.size() - contracted_of(attrs); i < in[0].dims.size(); ++i)
    k *= static_cast<double>(in[0].dims[i].size);
  k = std::max(k, 1.0);
  return {.m = static_cast<double>(in[0].count()) / k, .n = static_cast<double>(in[1].count()) / k, .k = k};
}

Cost code_gemm_cost(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs& attrs) {
  const Gemm g = code_gemm_size(in, out, attrs);
  return {.flops = 2 * g.m * g.n * g.k, .bytes = total_bytes(in, out)};
}

}  // namespace quintet::graph
