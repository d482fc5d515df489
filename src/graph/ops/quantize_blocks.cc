// Quantisation with a scale for each block of values.
//
// quantize_blocks: x_i[rows..., columns...] -> of the values x_i, stored one after another along their first
// dim (several only in local graphs, from passes/pack.h):
//  - with `measures`: rounded f64[3], as for quantize (ops/quantize.cc); no value saturates
//  - with `plain`: codes[rows..., columns...] and factors[blocks of columns, rows...]
//  - with `transposed`: codes[columns..., rows...] and factors[blocks of rows, columns...]
// A block is `block` neighbours: of a row for `plain`, of a column for `transposed`; with `square` it is
// `block` rows by `block` columns for both, whose factors are [blocks of rows, blocks of columns] and the
// reverse. The first `rows` dims are rows; dims that are blocked together have the name of the first.
//
// A block's scale is the largest power of two that keeps its largest magnitude inside the format, so it is 1
// / factor exactly, and a code is the number of `format` nearest to x times it. A block of zeros has scale 1;
// one with a value that is not finite has the factor NaN.
//
// GEMMs want the factors of one block for all rows contiguous, hence the order of the dims.
#include <algorithm>

#include "base/fp8.h"
#include "graph/fp8_ops.h"
#include "graph/ops/support.h"

namespace quintet::graph {

DType factor_type(DType operand) {
  return base::is_fp8(operand) ? DType::F32 : base::accumulator_of(operand);
}

namespace {

constexpr std::string_view kName = "quantize_blocks";

int64_t product(const Type& t, int begin, int end) {
  int64_t n = 1;
  for (int i = begin; i < end; ++i) n *= t.dims[static_cast<size_t>(i)].size;
  return n;
}

struct Shape {
  int rows;  // dims
  bool square, measures, plain, transposed;
  int64_t block;
};
Shape shape_of(const Attrs& attrs) {
  const auto flag = [&](const char* name) { return attrs.integer(name) != 0; };
  return {static_cast<int>(attrs.integer("rows")),
          flag("square"),
          flag("measures"),
          flag("plain"),
          flag("transposed"),
          attrs.integer("block")};
}

std::vector<Type> infer(const std::vector<Type>& in, const Attrs& attrs) {
  const Type& x = in[0];
  const Shape s = shape_of(attrs);
  const DType format = dtype_attr(attrs, "format");
  OP_REQUIRE(kName, base::is_fp8(format), "format is \"e4m3\" or \"e5m2\", got \"{}\"", attrs.text("format"));
  OP_REQUIRE(kName, s.rows >= 1 && s.rows < x.num_dims(),
             "expects rows and columns: 1 to {} of the dims of {} may be rows, got {}", x.num_dims() - 1,
             to_string(x), s.rows);
  OP_REQUIRE(kName, x.dtype == DType::BF16 || x.dtype == DType::F32 || x.dtype == DType::F64,
             "expects bf16, f32 or f64, got {}", to_string(x));
  OP_REQUIRE(kName, s.plain || s.transposed, "has no codes: set plain or transposed");
  const int64_t columns = product(x, s.rows, x.num_dims());
  OP_REQUIRE(kName, s.block >= 1 && (columns % s.block == 0 || (!s.plain && !s.square)),
             "expects columns in multiples of {}, got {} in {}", s.block, columns, to_string(x));
  Type all = x;
  all.dims[0].size = 0;
  for (const Type& part : in) {
    OP_REQUIRE(kName,
               part.dtype == x.dtype && part.num_dims() == x.num_dims() &&
                   std::equal(part.dims.begin() + 1, part.dims.end(), x.dims.begin() + 1),
               "operands differ in more than their first dim: {} and {}", to_string(part), to_string(x));
    const int64_t rows = product(part, 0, s.rows);
    OP_REQUIRE(kName, rows % s.block == 0 || (!s.transposed && !s.square),
               "expects rows in multiples of {}, got {} in {}", s.block, rows, to_string(part));
    all.dims[0].size += part.size(0);
  }
  const DimSize row_blocks{all.dims[0].name, product(all, 0, s.rows) / s.block},
      column_blocks{all.dims[static_cast<size_t>(s.rows)].name, columns / s.block};
  const auto split = all.dims.begin() + s.rows;
  std::vector<Type> out;
  if (s.measures) out.push_back({DType::F64, {{Dim::Flat, kRoundedCounts}}});
  const auto add = [&](const std::vector<DimSize>& codes, const DimSize& blocks, const DimSize& others,
                       auto begin, auto end) {
    out.push_back({code_type(x.dtype, format), codes});
    Type factors{base::accumulator_of(x.dtype), {blocks}};
    factors.dims.insert(factors.dims.end(), begin, end);
    if (s.square) factors.dims = {others, blocks};
    out.push_back(std::move(factors));
  };
  if (s.plain) add(all.dims, column_blocks, row_blocks, all.dims.begin(), split);
  if (s.transposed) {
    std::vector<DimSize> turned(split, all.dims.end());
    turned.insert(turned.end(), all.dims.begin(), split);
    add(turned, row_blocks, column_blocks, split, all.dims.end());
  }
  return out;
}

// By position, so that two dims may have one name. The shards of a dim that is blocked hold whole blocks,
// which the op's rule (layout/rules) requires; dims inside a block, after the first that is blocked, are
// never sharded.
std::vector<OpDim> dims(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs& attrs) {
  const Shape s = shape_of(attrs);
  const QuantizeResults at = quantize_results(attrs);
  const int count = in[0].num_dims(), rows = s.rows;
  std::vector<OpDim> rule;
  for (int i = 0; i < count; ++i) {
    const Dim name = in[0].dims[static_cast<size_t>(i)].name;
    OpDim d{.key = name,
            .in = std::vector<int>(in.size(), i),
            .out = std::vector<int>(out.size(), kAbsent),
            .padded = name != Dim::Tokens};
    const auto set = [&](int result, int dim) {
      if (result >= 0) d.out[static_cast<size_t>(result)] = dim;
    };
    const bool is_row = i < rows;
    set(at.codes, i);
    set(at.transposed, is_row ? i + count - rows : i - rows);
    if (s.square) {
      set(at.factors, i == 0 ? 0 : i == rows ? 1 : kAbsent);
      set(at.transposed_factors, i == rows ? 0 : i == 0 ? 1 : kAbsent);
    } else {
      set(at.factors, is_row ? 1 + i : i == rows ? 0 : kAbsent);
      set(at.transposed_factors, !is_row ? 1 + i - rows : i == 0 ? 0 : kAbsent);
    }
    rule.push_back(std::move(d));
  }
  return rule;
}

constexpr int kAnyNumber = 1 << 30;

}  // namespace

const OpDef kQuantizeBlocks = {.name = kName,
                               .min_inputs = 1,
                               .max_inputs = kAnyNumber,
                               .attrs = {{"format", AttrKind::Text},
                                         {"block", AttrKind::Integer},
                                         {"square", AttrKind::Integer},
                                         {"rows", AttrKind::Integer},
                                         {"measures", AttrKind::Integer},
                                         {"plain", AttrKind::Integer},
                                         {"transposed", AttrKind::Integer}},
                               .infer = infer,
                               .cost = cost_by_bytes,
                               .dims = dims,
                               // Codes and factors. Without `measures` nothing is a sum.
                               .overwritten = {1, 2, 3, 4},
                               .op_class = OpClass::Quantize};

}  // namespace quintet::graph
