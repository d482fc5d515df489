// Linear layers and attention.
#include "base/philox.h"
#include "exec/cpu/kernel.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/gemm.h"

namespace quintet::exec::cpu {
namespace {

using graph::Dim;
using graph::DType;
using graph::Type;
using program::Instr;
namespace k = kernels::cpu;

// Rows and columns of the matrices behind x[tokens, in...] and w[out..., in...].
struct Shape {
  int64_t rows, out, in;
};

Shape forward_shape(const Instr& i) {  // x, w -> y
  const int64_t rows = i.in[0].type.size(0), in = i.in[0].type.count() / std::max<int64_t>(rows, 1);
  return {rows, i.in[1].type.count() / in, in};
}
Shape dx_shape(const Instr& i) {  // dy, w -> dx
  const int64_t rows = i.in[0].type.size(0), out = i.in[0].type.count() / std::max<int64_t>(rows, 1);
  return {rows, out, i.in[1].type.count() / out};
}
Shape dw_shape(const Instr& i) {  // dy, x -> dw
  const int64_t rows = i.in[0].type.size(0);
  return {rows, i.in[0].type.count() / std::max<int64_t>(rows, 1),
          i.in[1].type.count() / std::max<int64_t>(rows, 1)};
}

void run_gemm(const Bound& b, kernels::GemmArgs args) {
  args.a = b.in[0];
  args.b = b.in[1];
  args.c = b.out[0];
  args.a_type = b.in_type(0).dtype;
  args.b_type = b.in_type(1).dtype;
  args.c_type = b.out_type(0).dtype;
  kernels::gemm(args, b.workspace, b.instr->workspace_bytes, *b.pool);
}

int64_t gemm_bytes(const Instr& i, int64_t m, int64_t n, int64_t kk, int threads) {
  return kernels::gemm_workspace_bytes(m, n, kk, i.in[0].type.dtype, i.out[0].type.dtype, threads);
}

void linear(const Bound& b, bool) {
  const Shape s = forward_shape(*b.instr);
  run_gemm(b, {.trans_b = true, .m = s.rows, .n = s.out, .k = s.in, .lda = s.in, .ldb = s.in, .ldc = s.out});
}
int64_t linear_bytes(const Instr& i, int threads) {
  const Shape s = forward_shape(i);
  return gemm_bytes(i, s.rows, s.out, s.in, threads);
}

void linear_dx(const Bound& b, bool) {
  const Shape s = dx_shape(*b.instr);
  run_gemm(b, {.m = s.rows, .n = s.in, .k = s.out, .lda = s.out, .ldb = s.in, .ldc = s.in});
}
int64_t linear_dx_bytes(const Instr& i, int threads) {
  const Shape s = dx_shape(i);
  return gemm_bytes(i, s.rows, s.in, s.out, threads);
}

void linear_dw(const Bound& b, bool accumulate) {
  const Shape s = dw_shape(*b.instr);
  run_gemm(b, {.trans_a = true,
               .m = s.out,
               .n = s.in,
               .k = s.rows,
               .lda = s.out,
               .ldb = s.in,
               .ldc = s.in,
               .accumulate = accumulate});
}
int64_t linear_dw_bytes(const Instr& i, int threads) {
  const Shape s = dw_shape(i);
  return gemm_bytes(i, s.out, s.in, s.rows, threads);
}

// q, k, v start at operand `first`; documents and, with dropout, samples, positions and the key at `rest`.
k::AttentionShape attention_shape(const Instr& i, size_t first) {
  const Type &q = i.in[first].type, &key = i.in[first + 1].type, &v = i.in[first + 2].type;
  k::AttentionShape s;
  s.tokens = q.size(0);
  s.seq_len = i.attrs.integer("seq_len");
  s.heads = q.size(1);
  s.kv_heads = key.size(1);
  s.head_dim = q.size(2);
  s.value_dim = v.size(2);
  s.q_stride = s.dq_stride = s.heads * s.head_dim;
  s.k_stride = s.dk_stride = s.kv_heads * s.head_dim;
  s.v_stride = s.dv_stride = s.kv_heads * s.value_dim;
  s.o_stride = s.heads * s.value_dim;
  s.window = i.attrs.integer("window");
  s.scale = i.attrs.real("scale");
  s.dropout_p = i.attrs.real("dropout");
  return s;
}

void bind_masks(const Bound& b, size_t rest, k::AttentionShape& s) {
  s.documents = b.input<const int32_t>(rest);
  if (s.dropout_p == 0) return;
  s.samples = b.input<const int32_t>(rest + 1);
  s.positions = b.input<const int32_t>(rest + 2);
  const auto words = base::philox(static_cast<uint64_t>(*b.input<const int64_t>(rest + 3)),
                                  static_cast<uint64_t>(b.instr->attrs.integer("salt")));
  s.dropout_key = (uint64_t{words[0]} << 32) | words[1];
  // Both divisions count query heads: first by KV group, then inside the group.
  const program::Part *groups = b.part(Dim::KvHeads), *heads = b.part(Dim::Heads);
  s.head_offset = groups->begin + heads->begin * groups->size / groups->global;
}

void attention(const Bound& b, bool) {
  k::AttentionShape s = attention_shape(*b.instr, 0);
  bind_masks(b, 3, s);
  with_type(b.in_type(0).dtype, [&]<class T>(T) {
    k::attention<T>(s, b.input<T>(0), b.input<T>(1), b.input<T>(2), b.output<T>(0), b.output<k::Stat<T>>(1),
                    b.workspace, *b.pool);
  });
}
int64_t attention_bytes(const Instr& i, int threads) {
  const k::AttentionShape s = attention_shape(i, 0);
  return with_type(i.in[0].type.dtype,
                   [&]<class T>(T) { return k::attention_workspace_bytes<T>(s, threads); });
}

void attention_dx(const Bound& b, bool) {
  k::AttentionShape s = attention_shape(*b.instr, 1);
  bind_masks(b, 6, s);
  with_type(b.in_type(0).dtype, [&]<class T>(T) {
    k::attention_backward<T>(s, b.input<T>(0), b.input<T>(1), b.input<T>(2), b.input<T>(3), b.input<T>(4),
                             b.input<k::Stat<T>>(5), b.output<T>(0), b.output<T>(1), b.output<T>(2),
                             b.workspace, *b.pool);
  });
}
int64_t attention_dx_bytes(const Instr& i, int threads) {
  const k::AttentionShape s = attention_shape(i, 1);
  return with_type(i.in[0].type.dtype,
                   [&]<class T>(T) { return k::attention_backward_workspace_bytes<T>(s, threads); });
}

}  // namespace

const std::vector<Kernel>& matmul_kernels() {
  static const std::vector<Kernel> table = {{&graph::kLinear, linear, linear_bytes},
                                            {&graph::kLinearDx, linear_dx, linear_dx_bytes},
                                            {&graph::kLinearDw, linear_dw, linear_dw_bytes},
                                            {&graph::kAttention, attention, attention_bytes},
                                            {&graph::kAttentionDx, attention_dx, attention_dx_bytes}};
  return table;
}

}  // namespace quintet::exec::cpu
