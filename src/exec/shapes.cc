#include "exec/shapes.h"

#include <algorithm>

#include "base/error.h"

namespace quintet::exec {
namespace {

using graph::Attrs;
using graph::Dim;
using graph::Type;
using program::Instr;
namespace k = kernels::cpu;

int64_t width(const Type& t) { return t.count() / std::max<int64_t>(t.size(0), 1); }

// The order of `rows` rows that hold whole sequences.
base::RowOrder sequence_order(const Attrs& a, int64_t rows) {
  const int64_t seq_len = a.integer("seq_len"), cp = a.integer("cp");
  QUINTET_CHECK(rows % seq_len == 0, "{} rows are not whole sequences of {}", rows, seq_len);
  return {.seq_len = seq_len, .sequences = rows / seq_len, .ranks = cp, .first = 0, .count = cp};
}

kernels::GroupedArgs grouped(const Instr& i, int64_t experts, int64_t out, int64_t in) {
  return {.rows = i.in[0].type.size(0),
          .experts = experts,
          .out = out,
          .in = in,
          .sources = experts > 0 ? i.in[2].type.size(0) / experts : 0,
          .type = i.in[0].type.dtype,
          .c_type = i.out[0].type.dtype};
}

// Shared by select and select_dx; the choices are those of `chosen`.
k::SelectShape scoring(const Attrs& a, const Type& logits, const Type& chosen) {
  return {.rows = logits.size(0),
          .experts = logits.size(1),
          .k = chosen.size(1),
          .sigmoid = a.text("score") == "sigmoid",
          .top_k_first = a.text("order") == "top_k_first",
          .normalise = a.integer("normalise") != 0,
          .scale = a.real("scale")};
}

}  // namespace

LinearShape linear_shape(const Instr& i) {
  const int64_t in = width(i.in[0].type);
  return {i.in[0].type.size(0), i.in[1].type.count() / std::max<int64_t>(in, 1), in};
}
LinearShape linear_dx_shape(const Instr& i) {
  const int64_t out = width(i.in[0].type);
  return {i.in[0].type.size(0), out, i.in[1].type.count() / std::max<int64_t>(out, 1)};
}
LinearShape linear_dw_shape(const Instr& i) {
  return {i.in[0].type.size(0), width(i.in[0].type), width(i.in[1].type)};
}

namespace {

// Null when addresses are not known: then only sizes are needed.
std::byte* address(const std::vector<std::byte*>& list, size_t i) { return list.empty() ? nullptr : list[i]; }

// Columns from `first` on of the rows at `base`.
std::byte* columns_at(std::byte* base, int64_t first, base::DType type) {
  return base == nullptr ? nullptr : base + first * base::size_of(type);
}

// Parts of a packed value: one each, or neighbours combined whose matrices are contiguous.
struct Part {
  std::byte* matrix;
  int64_t first, count;  // columns of the packed value = rows of the matrix
};
std::vector<Part> parts_of(const std::vector<std::byte*>& matrices,
                           const std::vector<program::Operand>& operands, size_t from, int64_t row_bytes,
                           Join join) {
  std::vector<Part> list;
  int64_t column = 0;
  for (size_t i = from; i < operands.size(); ++i) {
    const int64_t count = operands[i].type.bytes() / row_bytes;
    std::byte* const at = address(matrices, i);
    if (join == Join::Yes && !list.empty() && at == list.back().matrix + list.back().count * row_bytes)
      list.back().count += count;
    else
      list.push_back({at, column, count});
    column += count;
  }
  std::reverse(list.begin(), list.end());
  return list;
}

}  // namespace

std::vector<kernels::GemmArgs> linears_products(const Operands& b, Join join) {
  const Type &x = b.in_type(0), &y = b.out_type(0);
  const int64_t in = width(x);
  std::vector<kernels::GemmArgs> products;
  for (const Part& part : parts_of(b.in, b.instr->in, 1, in * base::size_of(x.dtype), join))
    products.push_back({.trans_b = true,
                        .m = x.size(0),
                        .n = part.count,
                        .k = in,
                        .a = address(b.in, 0),
                        .lda = in,
                        .b = part.matrix,
                        .ldb = in,
                        .c = columns_at(address(b.out, 0), part.first, y.dtype),
                        .ldc = width(y),
                        .a_type = x.dtype,
                        .b_type = x.dtype,
                        .c_type = y.dtype});
  return products;
}

std::vector<kernels::GemmArgs> linears_dx_products(const Operands& b, Join join) {
  const Type &dy = b.in_type(0), &dx = b.out_type(0);
  const int64_t in = width(dx);
  std::vector<kernels::GemmArgs> products;
  for (const Part& part : parts_of(b.in, b.instr->in, 1, in * base::size_of(dy.dtype), join))
    products.push_back({.m = dy.size(0),
                        .n = in,
                        .k = part.count,
                        .a = columns_at(address(b.in, 0), part.first, dy.dtype),
                        .lda = width(dy),
                        .b = part.matrix,
                        .ldb = in,
                        .c = address(b.out, 0),
                        .ldc = in,
                        .a_type = dy.dtype,
                        .b_type = dy.dtype,
                        .c_type = dx.dtype,
                        .accumulate = !products.empty()});
  return products;
}

std::vector<kernels::GemmArgs> linears_dw_products(const Operands& b, bool accumulate, Join join) {
  const Type &dy = b.in_type(0), &x = b.in_type(1);
  const base::DType type = b.out_type(0).dtype;
  const int64_t in = width(x);
  std::vector<kernels::GemmArgs> products;
  for (const Part& part : parts_of(b.out, b.instr->out, 0, in * base::size_of(type), join))
    products.push_back({.trans_a = true,
                        .m = part.count,
                        .n = in,
                        .k = x.size(0),
                        .a = columns_at(address(b.in, 0), part.first, dy.dtype),
                        .lda = width(dy),
                        .b = address(b.in, 1),
                        .ldb = in,
                        .c = part.matrix,
                        .ldc = in,
                        .a_type = dy.dtype,
                        .b_type = dy.dtype,
                        .c_type = type,
                        .accumulate = accumulate});
  return products;
}

kernels::AttentionGeometry attention_geometry(const Instr& i, size_t first, size_t rest) {
  const bool side_by_side = i.attrs.find("kv_heads") != nullptr;
  Type q = i.in[first].type, key = i.in[first + (side_by_side ? 0 : 1)].type,
       v = i.in[first + (side_by_side ? 0 : 2)].type;
  if (side_by_side) {
    q.dims[1].size = i.attrs.integer("heads");
    key.dims[1].size = v.dims[1].size = i.attrs.integer("kv_heads");
  }
  kernels::AttentionGeometry s;
  const int64_t cp = i.attrs.integer("cp"), ulysses = i.attrs.integer("ulysses"), ring = cp / ulysses;
  const program::Part* context = part_of(i, Dim::Context);
  const bool cut = context != nullptr && context->size < context->global;
  const int64_t rank = cut ? context->begin / context->size : 0;
  base::RowOrder whole{.seq_len = i.attrs.integer("seq_len"), .sequences = 0, .ranks = cp, .count = cp};
  whole.sequences = i.in[rest + 1].type.size(0) / whole.seq_len;
  const auto held_by = [&](int64_t ring_rank) {
    base::RowOrder rows = whole;
    rows.first = ring_rank * ulysses;
    rows.count = ulysses;
    return rows;
  };
  if (i.attrs.find("hop") != nullptr) {
    s.q_rows = held_by(rank);
    s.k_rows = held_by((rank + ring - i.attrs.integer("hop")) % ring);
  } else {
    s.q_rows = cut ? held_by(rank) : whole;
    s.k_rows = whole;
  }
  QUINTET_CHECK(s.q_rows.rows() == q.size(0) && s.k_rows.rows() == key.size(0),
                "[{}] of ring rank {}: expected {} and {} rows of q and k, got {} and {}", i.op->name, rank,
                s.q_rows.rows(), s.k_rows.rows(), q.size(0), key.size(0));
  s.heads = q.size(1);
  s.kv_heads = key.size(1);
  s.head_dim = q.size(2);
  s.value_dim = v.size(2);
  s.q_stride = s.dq_stride = s.heads * s.head_dim;
  s.k_stride = s.dk_stride = s.kv_heads * s.head_dim;
  s.v_stride = s.dv_stride = s.kv_heads * s.value_dim;
  if (side_by_side)
    for (int64_t* stride : {&s.q_stride, &s.k_stride, &s.v_stride, &s.dq_stride, &s.dk_stride, &s.dv_stride})
      *stride = width(i.in[first].type);
  s.o_stride = s.heads * s.value_dim;
  s.window = i.attrs.integer("window");
  s.scale = i.attrs.real("scale");
  s.dropout_p = i.attrs.real("dropout");
  return s;
}

void bind_dropout(const Operands& b, size_t rest, kernels::AttentionGeometry& s) {
  s.samples = b.input<const int32_t>(rest + 2);
  s.positions = b.input<const int32_t>(rest + 3);
  s.key_positions = b.input<const int32_t>(rest + 4);
  // Both divisions count query heads: first by KV group, then inside the group.
  const program::Part *groups = b.part(Dim::KvHeads), *heads = b.part(Dim::Heads);
  QUINTET_CHECK(groups != nullptr && heads != nullptr, "[{}] does not know which heads it has",
                b.instr->op->name);
  s.head_offset = groups->begin + heads->begin * groups->size / groups->global;
}

size_t operands_before(const Instr& i, size_t rest) { return rest + (i.attrs.real("dropout") > 0 ? 6 : 2); }
bool is_first_hop(const Instr& i) { return i.attrs.integer("hop") == 0; }

k::RouterShape router_shape(const Instr& i) {
  return {i.in[0].type.size(0), i.in[1].type.size(0), i.in[0].type.size(1)};
}
k::RouterShape router_backward_shape(const Instr& i) {
  return {i.in[0].type.size(0), i.in[0].type.size(1), i.in[1].type.size(1)};
}

k::SelectShape select_shape(const Instr& i) {
  k::SelectShape s = scoring(i.attrs, i.in[0].type, i.out[1].type);
  s.groups = i.attrs.integer("groups");
  s.groups_kept = i.attrs.integer("groups_kept");
  return s;
}
k::SelectShape select_dx_shape(const Instr& i) { return scoring(i.attrs, i.in[0].type, i.in[1].type); }

k::LimitShape limit_shape(const Instr& i) {
  const Type& chosen = i.in[0].type;
  const k::LimitShape s = {.order = sequence_order(i.attrs, chosen.size(0)),
                           .k = chosen.size(1),
                           .group = i.attrs.integer("group"),
                           .capacity = i.attrs.integer("capacity"),
                           .by_weight = i.attrs.text("policy") == "probability"};
  QUINTET_CHECK(s.order.sequences % s.group == 0,
                "a rank holds {} sequences, which splits a group of {} that share a capacity",
                s.order.sequences, s.group);
  return s;
}

k::LoadShape load_shape(const Instr& i) {
  return {i.in[2].type.size(0), i.in[2].type.size(1), i.in[0].type.size(1)};
}

base::RowOrder sums_order(const Attrs& a, int64_t rows) {
  if (a.text("scope") == "sequence") return sequence_order(a, rows);
  return {.seq_len = rows, .sequences = 1};
}

kernels::GroupedArgs grouped_with_weight(const Instr& i) {  // x or dy, w, received
  const Type& w = i.in[1].type;
  return grouped(i, w.size(0), w.size(1), w.size(2));
}
kernels::GroupedArgs grouped_of_weight(const Instr& i) {  // dy, x, received -> dw
  const Type& dw = i.out[0].type;
  return grouped(i, dw.size(0), dw.size(1), dw.size(2));
}

}  // namespace quintet::exec
