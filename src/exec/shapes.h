// Arguments of kernels, independent of the backend: sizes, row orders and options of an instruction, from its
// operands' types and its attributes.
#pragma once

#include "exec/operands.h"
#include "kernels/attention_geometry.h"
#include "kernels/cpu/experts/balance.h"
#include "kernels/cpu/experts/router.h"
#include "kernels/cpu/experts/router_limit.h"
#include "kernels/cpu/experts/router_select.h"
#include "kernels/cpu/matmul/gemm.h"
#include "kernels/cpu/matmul/grouped_gemm.h"

namespace quintet::exec {

// The last dim, and all others together.
inline int64_t last_size(const graph::Type& t) { return t.dims.back().size; }
inline int64_t num_rows(const graph::Type& t) { return last_size(t) == 0 ? 0 : t.count() / last_size(t); }
inline int64_t row_bytes(const graph::Type& t) { return columns(t) * base::size_of(t.dtype); }

// Number of heads of x that rope (all) or rope_first rotates.
inline int64_t rotated_heads(const program::Instr& instr) {
  return instr.attrs.find("heads") != nullptr ? instr.attrs.integer("heads") : instr.in[0].type.size(1);
}

// Rows and columns of the matrices x[tokens, in...] and w[out..., in...].
struct LinearShape {
  int64_t rows, out, in;
};
LinearShape linear_shape(const program::Instr& instr);     // x, w -> y
LinearShape linear_dx_shape(const program::Instr& instr);  // dy, w -> dx
LinearShape linear_dw_shape(const program::Instr& instr);  // dy, x -> dw

// The GEMMs of linears, linears_dx and linears_dw: one per weight, in the order in which linear_dx of each
// would be summed (the last weight first), so that the results are bit-equal. With Join::Yes, weights or
// gradients of weights that are contiguous are one matrix and take part in one GEMM.
enum class Join : uint8_t { No, Yes };
std::vector<kernels::GemmArgs> linears_products(const Operands& b, Join join);
std::vector<kernels::GemmArgs> linears_dx_products(const Operands& b, Join join);
std::vector<kernels::GemmArgs> linears_dw_products(const Operands& b, bool accumulate, Join join);

// Without pointers. q, k, v start at operand `first`, or are packed there (qkv_attention); documents and
// key_documents are at `rest`.
kernels::AttentionGeometry attention_geometry(const program::Instr& instr, size_t first, size_t rest);
// Where q, k and v, or their gradients, begin in a packed value.
template <class T>
struct Qkv {
  T *q, *k, *v;
};
template <class T>
Qkv<T> qkv_in(T* first, const kernels::AttentionGeometry& s) {
  return {first, first + s.heads * s.head_dim, first + (s.heads + s.kv_heads) * s.head_dim};
}
// The same for gate and up, or their gradients: separate operands, or halves of the rows of one.
template <class T>
struct GateUp {
  T *gate, *up;
  int64_t stride;  // from row to row
};
template <class T>
GateUp<T> gate_up_in(const std::vector<std::byte*>& operands, size_t first, bool side_by_side,
                     int64_t width) {
  T* const gate = reinterpret_cast<T*>(operands[first]);
  if (side_by_side) return {gate, gate + width, 2 * width};
  return {gate, reinterpret_cast<T*>(operands[first + 1]), width};
}
// With dropout samples, positions and key_positions follow the documents, and then the key.
void bind_dropout(const Operands& operands, size_t rest, kernels::AttentionGeometry& geometry);
// The first operand of earlier hops: after the index operands.
size_t operands_before(const program::Instr& instr, size_t rest);
bool is_first_hop(const program::Instr& instr);

kernels::cpu::RouterShape router_shape(const program::Instr& instr);           // x, w -> logits
kernels::cpu::RouterShape router_backward_shape(const program::Instr& instr);  // dlogits, w or x -> dx, dw
kernels::cpu::SelectShape select_shape(const program::Instr& instr);
kernels::cpu::SelectShape select_dx_shape(const program::Instr& instr);
kernels::cpu::LimitShape limit_shape(const program::Instr& instr);
kernels::cpu::LoadShape load_shape(const program::Instr& instr);
// The rows whose sums belong together, out of `rows` rows: those of a sequence, or all.
base::RowOrder sums_order(const graph::Attrs& attrs, int64_t rows);

inline bool is_padded(const program::Instr& instr) { return instr.attrs.integer("pad") > 0; }
// Rows, experts and the two widths of a grouped GEMM: rows x out and rows x in with out x in weights.
kernels::GroupedArgs grouped_with_weight(const program::Instr& instr);  // x or dy, w, received
kernels::GroupedArgs grouped_of_weight(const program::Instr& instr);    // dy, x, received -> dw

}  // namespace quintet::exec
