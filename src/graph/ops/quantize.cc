// Quantisation to formats of 8 bits, and the scales that it uses.
//
// quantize: x_i[rows..., columns...], scales -> of the values x_i, stored one after another along their first
// dim (several only in local graphs, from passes/pack.h):
//  - with `measures`: amax f64[], the largest magnitude, and rounded f64[3], the number of values, of those
//    that saturated and of those that became 0. Both are step sums (graph.h); amax is a maximum, of which NaN
//    is a part.
//  - with `plain`: codes[rows..., columns...]
//  - with `transposed`: the same codes stored as [columns..., rows...]
// A code is the number of `format` nearest to x times scale number `scale`. The first `rows` dims are rows.
//
// GEMMs of 8-bit operands on GPUs read both along the contracted dim: the transposed result is for those that
// contract the rows.
#include <algorithm>

#include "base/fp8.h"
#include "graph/fp8_ops.h"
#include "graph/ops/support.h"

namespace quintet::graph {

DType code_type(DType operand, DType format) { return operand == DType::BF16 ? format : operand; }

bool is_scales(const Type& t, DType operand) {
  return t.dtype == base::accumulator_of(operand) && t.num_dims() == 1 && t.dims[0].name == Dim::Flat &&
         t.size(0) % scales_size(1) == 0;
}

QuantizeResults quantize_results(const Attrs& attrs) {
  QuantizeResults r;
  const bool blocks = attrs.find("block") != nullptr;
  int next = 0;
  if (attrs.integer("measures") != 0) {
    if (!blocks) r.amax = next++;
    r.rounded = next++;
  }
  if (attrs.integer("plain") != 0) {
    r.codes = next++;
    if (blocks) r.factors = next++;
  }
  if (attrs.integer("transposed") != 0) {
    r.transposed = next++;
    if (blocks) r.transposed_factors = next++;
  }
  return r;
}

namespace {

std::vector<Type> infer(const std::vector<Type>& in, const Attrs& attrs) {
  const Type &x = in[0], &scales = in.back();
  const DType format = dtype_attr(attrs, "format");
  const int64_t rows = attrs.integer("rows"), scale = attrs.integer("scale");
  OP_REQUIRE("quantize", base::is_fp8(format), "format is \"e4m3\" or \"e5m2\", got \"{}\"",
             attrs.text("format"));
  OP_REQUIRE("quantize", rows >= 1 && rows < x.num_dims(),
             "expects rows and columns: 1 to {} of the dims of {} may be rows, got {}", x.num_dims() - 1,
             to_string(x), rows);
  OP_REQUIRE("quantize", x.dtype == DType::BF16 || x.dtype == DType::F32 || x.dtype == DType::F64,
             "expects bf16, f32 or f64, got {}", to_string(x));
  OP_REQUIRE("quantize", is_scales(scales, x.dtype) && scale >= 0 && scale < num_scales(scales.size(0)),
             "expects scales[flat = 8 n] and one of the n, got {} and {}", to_string(scales), scale);
  Type all = x;
  for (size_t i = 1; i + 1 < in.size(); ++i) {
    OP_REQUIRE("quantize",
               in[i].dtype == x.dtype &&
                   std::equal(in[i].dims.begin() + 1, in[i].dims.end(), x.dims.begin() + 1, x.dims.end()),
               "operand {} differs from the first in more than its first dim: {} and {}", i, to_string(in[i]),
               to_string(x));
    all.dims[0].size += in[i].size(0);
  }
  std::vector<Type> out;
  if (attrs.integer("measures") != 0) {
    out.push_back({DType::F64, {}});
    out.push_back({DType::F64, {{Dim::Flat, kRoundedCounts}}});
  }
  all.dtype = code_type(x.dtype, format);
  if (attrs.integer("plain") != 0) out.push_back(all);
  if (attrs.integer("transposed") != 0) {
    std::rotate(all.dims.begin(), all.dims.begin() + static_cast<ptrdiff_t>(rows), all.dims.end());
    out.push_back(all);
  }
  OP_REQUIRE("quantize", !out.empty(), "has no result: set measures, plain or transposed");
  return out;
}

// By position, so that two dims may have one name. A maximum over shards is a maximum; the rule of the op
// (layout/rules) corrects the counts, which are sums.
std::vector<OpDim> dims(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs& attrs) {
  const QuantizeResults at = quantize_results(attrs);
  const int count = in[0].num_dims(), rows = static_cast<int>(attrs.integer("rows"));
  std::vector<OpDim> rule;
  for (int i = 0; i < count; ++i) {
    const Dim name = in[0].dims[static_cast<size_t>(i)].name;
    OpDim d{.key = name,
            .in = std::vector<int>(in.size(), i),
            .out = std::vector<int>(out.size(), kAbsent),
            .reduction = Reduction::Max,
            .padded = name != Dim::Tokens};
    d.in.back() = kAbsent;
    if (at.codes >= 0) d.out[static_cast<size_t>(at.codes)] = i;
    if (at.transposed >= 0)
      d.out[static_cast<size_t>(at.transposed)] = i < rows ? i + count - rows : i - rows;
    rule.push_back(std::move(d));
  }
  return rule;
}

Cost cost(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  return {.flops = 0, .bytes = total_bytes({in.begin(), in.end() - 1}, out)};
}

// delayed_scales: history f64[n x length] -> scales of n and their reciprocals
std::vector<Type> infer_scales(const std::vector<Type>& in, const Attrs& attrs) {
  const auto n = static_cast<int64_t>(attrs.reals("largest").size());
  OP_REQUIRE("delayed_scales",
             (in[0] == Type{DType::F64, {{Dim::Flat, n * kAmaxHistory}}}) &&
                 attrs.reals("initial").size() == attrs.reals("largest").size(),
             "expects history f64[flat = {} x {}] and as many initial scales, got {} and {}", n, kAmaxHistory,
             to_string(in[0]), attrs.reals("initial").size());
  return {{dtype_attr(attrs, "out"), {{Dim::Flat, scales_size(n)}}}};
}

// record_amax: amaxes f64[m], ok, update count, history -> history in place
std::vector<Type> infer_record(const std::vector<Type>& in, const Attrs& attrs) {
  OP_REQUIRE(
      "record_amax",
      in[0].dtype == DType::F64 && in[0].num_dims() == 1 &&
          in[0].size(0) == static_cast<int64_t>(attrs.integers("scales").size()) &&
          is_scalar(in[1], DType::F64) && is_scalar(in[2], DType::F64) && in[3].dtype == DType::F64 &&
          in[3].num_dims() == 1 && in[3].size(0) % kAmaxHistory == 0,
      "expects amaxes f64[{}], ok f64[], update count f64[] and history f64[flat = n x {}], got {}, {}, "
      "{} and {}",
      attrs.integers("scales").size(), kAmaxHistory, to_string(in[0]), to_string(in[1]), to_string(in[2]),
      to_string(in[3]));
  return {in[3]};
}

// step_maxima: maxima f64[] over the micro-batches of a step -> all of them over all ranks
std::vector<Type> infer_maxima(const std::vector<Type>& in, const Attrs&) {
  return {{DType::F64, {{Dim::Flat, static_cast<int64_t>(in.size())}}}};
}

constexpr int kAnyNumber = 1 << 30;

}  // namespace

const OpDef kQuantize = {.name = "quantize",
                         .min_inputs = 2,
                         .max_inputs = kAnyNumber,
                         .attrs = {{"format", AttrKind::Text},
                                   {"scale", AttrKind::Integer},
                                   {"rows", AttrKind::Integer},
                                   {"measures", AttrKind::Integer},
                                   {"plain", AttrKind::Integer},
                                   {"transposed", AttrKind::Integer}},
                         .infer = infer,
                         .cost = cost,
                         .dims = dims,
                         // Codes. Without `measures` nothing is a sum.
                         .overwritten = {2, 3},
                         .op_class = OpClass::Quantize};
// The scales of a step: for each, the power of two that brings the largest magnitude of the history closest
// to `largest` without exceeding it; `initial` while the history has none.
const OpDef kDelayedScales = {
    .name = "delayed_scales",
    .min_inputs = 1,
    .max_inputs = 1,
    .attrs = {{"largest", AttrKind::Reals}, {"initial", AttrKind::Reals}, {"out", AttrKind::Text}},
    .infer = infer_scales,
    .cost = cost_by_bytes,
    .step = {.kind = StepKind::Replicated},
    .op_class = OpClass::Quantize};
// Row s of the history gets, in place of its oldest entry, the largest of the amaxes i with scales[i] = s; 0,
// which says nothing, if one of them is not finite. A step that is skipped leaves the history as it was.
const OpDef kRecordAmax = {.name = "record_amax",
                           .min_inputs = 4,
                           .max_inputs = 4,
                           .attrs = {{"scales", AttrKind::Integers}},
                           .infer = infer_record,
                           .cost = cost_by_bytes,
                           .in_place = {{0, 3}},
                           .step = {.kind = StepKind::Replicated},
                           .gated = true,
                           .op_class = OpClass::Quantize};
// Maxima over the micro-batches of a step, reduced over all ranks
const OpDef kStepMaxima = {.name = "step_maxima",
                           .min_inputs = 1,
                           .max_inputs = kAnyNumber,
                           .attrs = {},
                           .infer = infer_maxima,
                           .cost = cost_by_bytes};

}  // namespace quintet::graph
