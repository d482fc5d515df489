// Attention, whole and by hops of a ring. cuDNN serves sequences of one document each where it has a plan and
// is the faster choice; our own tiled kernels serve every other mask and what cuDNN has no plan for, in 16
// bits; the rest runs without tensor cores.
#include "exec/cuda/kernel.h"
#include "exec/cuda/libraries.h"
#include "exec/cuda_scratch/shapes.h"
#include "exec/with_type.h"
#include "kernels/cuda/attention/hops.h"
#include "kernels/cuda/attention/tiled.h"
#include "kernels/cuda/optimizer/scalars.h"

namespace quintet::exec::cuda {
namespace {

namespace k = kernels::cuda;

// The shape with its masks; documents and key_documents stand at `rest`, with dropout samples, positions,
// key_positions and the key follow.
k::AttentionShape bound_shape(const Bound& b, size_t first, size_t rest) {
  k::AttentionShape s = attention_shape(*b.instr, first, rest);
  s.documents = b.input<const int32_t>(rest);
  s.key_documents = b.input<const int32_t>(rest + 1);
  if (s.dropout_p == 0) return s;
  auto* key = reinterpret_cast<uint64_t*>(b.workspace);
  k::derive_key(b.input<const int64_t>(rest + 5), static_cast<uint64_t>(b.instr->attrs.integer("salt")), key,
                b.stream);
  s.dropout_key = key;
  bind_dropout(b, rest, s);
  return s;
}

// prepare() has asked the library.
bool by_library(const Bound& b, const k::AttentionShape& s, size_t first, bool backward) {
  if (!suits_library(*b.instr, s, first) || (!backward && k::TiledAttention::leads(s))) return false;
  const auto prepared = [&](auto&& library) {
    return library.prepare(s, masks_of(*b.instr), backward, b.instr->workspace_bytes,
                           b.instr->in[first].type.dtype);
  };
  k::Attention& whole = b.libraries->attention();
  return by_hops(*b.instr, s) ? prepared(k::AttentionHops(whole)) : prepared(whole);
}
void prepare(Bound& b, size_t first, size_t rest, bool backward) {
  if (by_library(b, attention_shape(*b.instr, first, rest), first, backward)) return;
  if (std::string remark = remark_on(*b.instr); !remark.empty())
    b.libraries->remarks().insert(std::move(remark));
}
void prepare_forward(Bound& b) { prepare(b, 0, 3, false); }
void prepare_backward(Bound& b) { prepare(b, 1, 6, true); }
void prepare_qkv_forward(Bound& b) { prepare(b, 0, 1, false); }
void prepare_qkv_backward(Bound& b) { prepare(b, 1, 4, true); }

// What the tiled kernels get: without documents where every sequence is one.
k::AttentionShape tiled_shape(const Bound& b, k::AttentionShape s) {
  if (masks_of(*b.instr) == k::AttentionMasks::Dense) s.documents = s.key_documents = nullptr;
  return s;
}

// `qkv_of` gives q, k and v of a type.
template <class QkvOf>
void forward(const Bound& b, const k::AttentionShape& s, QkvOf&& qkv_of) {
  if (by_library(b, s, 0, false))
    return with_half(b.in_type(0).dtype, [&]<class T>(T t) {
      const Qkv<T> in = qkv_of(t);
      const float* const none = nullptr;
      if (by_hops(*b.instr, s))
        return k::AttentionHops(b.libraries->attention())
            .forward<T, T>(s, masks_of(*b.instr), in.q, in.k, in.v, none, none, b.output<T>(0),
                           b.output<float>(1), b.workspace, b.instr->workspace_bytes, b.stream);
      b.libraries->attention().forward<T>(s, masks_of(*b.instr), in.q, in.k, in.v, b.output<T>(0),
                                          b.output<float>(1), b.workspace, b.instr->workspace_bytes,
                                          b.stream);
    });
  const float* const none = nullptr;
  if (suits_tiles(*b.instr, s, 0))
    return with_half(b.in_type(0).dtype, [&]<class T>(T t) {
      const Qkv<T> in = qkv_of(t);
      k::TiledAttention::forward<T, T>(tiled_shape(b, s), {}, in.q, in.k, in.v, none, none, b.output<T>(0),
                                       b.output<float>(1), b.workspace + kKeyBytes, b.stream);
    });
  with_type(b.in_type(0).dtype, [&]<class T>(T t) {
    const Qkv<T> in = qkv_of(t);
    k::attention<T>(s, in.q, in.k, in.v, b.output<T>(0), b.output<k::Stat<T>>(1), b.stream);
  });
}
void attention(const Bound& b, bool) {
  forward(b, bound_shape(b, 0, 3), [&]<class T>(T) {
    return Qkv<T>{b.input<T>(0), b.input<T>(1), b.input<T>(2)};
  });
}
void qkv_attention(const Bound& b, bool) {
  const k::AttentionShape s = bound_shape(b, 0, 1);
  forward(b, s, [&]<class T>(T) { return qkv_in(b.input<T>(0), s); });
}
// A result of the hops before, null in the first; those of attention_hop stand from operands_before() on.
template <class S>
const S* running(const Bound& b, size_t at) {
  return is_first_hop(*b.instr) ? nullptr : b.input<S>(at);
}
void attention_hop(const Bound& b, bool) {
  const k::AttentionShape s = bound_shape(b, 0, 3);
  const size_t at = operands_before(*b.instr, 3);
  if (by_library(b, s, 0, false))
    return with_half(b.in_type(0).dtype, [&]<class T>(T) {
      k::AttentionHops(b.libraries->attention())
          .forward<T, float>(s, masks_of(*b.instr), b.input<T>(0), b.input<T>(1), b.input<T>(2),
                             running<float>(b, at), running<float>(b, at + 1), b.output<float>(0),
                             b.output<float>(1), b.workspace, b.instr->workspace_bytes, b.stream);
    });
  if (suits_tiles(*b.instr, s, 0))
    return with_half(b.in_type(0).dtype, [&]<class T>(T) {
      k::TiledAttention::forward<T, float>(tiled_shape(b, s), {}, b.input<T>(0), b.input<T>(1), b.input<T>(2),
                                           running<float>(b, at), running<float>(b, at + 1),
                                           b.output<float>(0), b.output<float>(1), b.workspace + kKeyBytes,
                                           b.stream);
    });
  with_type(b.in_type(0).dtype, [&]<class T>(T) {
    using S = k::Stat<T>;
    k::attention_hop<T>(s, b.input<T>(0), b.input<T>(1), b.input<T>(2), running<S>(b, at),
                        running<S>(b, at + 1), b.output<S>(0), b.output<S>(1), b.stream);
  });
}
// q, k, v and their gradients by type; operand `o` is the forward's result, lse follows.
template <class QkvOf, class GradientsOf>
void backward(const Bound& b, const k::AttentionShape& s, size_t o, QkvOf&& qkv_of,
              GradientsOf&& gradients_of) {
  if (by_library(b, s, 1, true))
    return with_half(b.in_type(0).dtype, [&]<class T>(T t) {
      const Qkv<T> in = qkv_of(t), out = gradients_of(t);
      const float* const none = nullptr;
      if (by_hops(*b.instr, s))
        return k::AttentionHops(b.libraries->attention())
            .backward<T, T>(s, masks_of(*b.instr), b.input<T>(0), in.q, in.k, in.v, b.input<T>(o),
                            b.input<float>(o + 1), none, out.q, out.k, out.v, b.workspace,
                            b.instr->workspace_bytes, b.stream);
      b.libraries->attention().backward<T>(s, masks_of(*b.instr), b.input<T>(0), in.q, in.k, in.v,
                                           b.input<T>(o), b.input<float>(o + 1), out.q, out.k, out.v,
                                           b.workspace, b.instr->workspace_bytes, b.stream);
    });
  const float* const none = nullptr;
  if (suits_tiles(*b.instr, s, 1))
    return with_half(b.in_type(0).dtype, [&]<class T>(T t) {
      const Qkv<T> in = qkv_of(t), out = gradients_of(t);
      k::TiledAttention::backward<T, T>(tiled_shape(b, s), {}, b.input<T>(0), in.q, in.k, in.v, b.input<T>(o),
                                        b.input<float>(o + 1), none, out.q, out.k, out.v,
                                        b.workspace + kKeyBytes, b.stream);
    });
  with_type(b.in_type(0).dtype, [&]<class T>(T t) {
    const Qkv<T> in = qkv_of(t), out = gradients_of(t);
    k::attention_backward<T>(s, b.input<T>(0), in.q, in.k, in.v, b.input<T>(o), b.input<k::Stat<T>>(o + 1),
                             out.q, out.k, out.v, b.workspace + kKeyBytes, b.stream);
  });
}
void attention_dx(const Bound& b, bool) {
  backward(
      b, bound_shape(b, 1, 6), 4,
      [&]<class T>(T) {
        return Qkv<T>{b.input<T>(1), b.input<T>(2), b.input<T>(3)};
      },
      [&]<class T>(T) {
        return Qkv<T>{b.output<T>(0), b.output<T>(1), b.output<T>(2)};
      });
}
void qkv_attention_dx(const Bound& b, bool) {
  const k::AttentionShape s = bound_shape(b, 1, 4);
  backward(
      b, s, 2, [&]<class T>(T) { return qkv_in(b.input<T>(1), s); },
      [&]<class T>(T) { return qkv_in(b.output<T>(0), s); });
}

void attention_hop_dx(const Bound& b, bool) {
  const k::AttentionShape s = bound_shape(b, 1, 6);
  const size_t at = operands_before(*b.instr, 6);
  if (by_library(b, s, 1, true))
    return with_half(b.in_type(0).dtype, [&]<class T>(T) {
      k::AttentionHops(b.libraries->attention())
          .backward<T, float>(s, masks_of(*b.instr), b.input<T>(0), b.input<T>(1), b.input<T>(2),
                              b.input<T>(3), b.input<T>(4), b.input<float>(5), running<float>(b, at),
                              b.output<float>(0), b.output<T>(1), b.output<T>(2), b.workspace,
                              b.instr->workspace_bytes, b.stream);
    });
  if (suits_tiles(*b.instr, s, 1))
    return with_half(b.in_type(0).dtype, [&]<class T>(T) {
      k::TiledAttention::backward<T, float>(tiled_shape(b, s), {}, b.input<T>(0), b.input<T>(1),
                                            b.input<T>(2), b.input<T>(3), b.input<T>(4), b.input<float>(5),
                                            running<float>(b, at), b.output<float>(0), b.output<T>(1),
                                            b.output<T>(2), b.workspace + kKeyBytes, b.stream);
    });
  with_type(b.in_type(0).dtype, [&]<class T>(T) {
    using S = k::Stat<T>;
    k::attention_hop_backward<T>(s, b.input<T>(0), b.input<T>(1), b.input<T>(2), b.input<T>(3), b.input<T>(4),
                                 b.input<S>(5), running<S>(b, at), b.output<S>(0), b.output<T>(1),
                                 b.output<T>(2), b.workspace + kKeyBytes, b.stream);
  });
}

}  // namespace

const std::vector<Kernel>& attention_kernels() {
  static const std::vector<Kernel> table = {{&graph::kAttention, attention, prepare_forward},
                                            {&graph::kAttentionDx, attention_dx, prepare_backward},
                                            {&graph::kQkvAttention, qkv_attention, prepare_qkv_forward},
                                            {&graph::kQkvAttentionDx, qkv_attention_dx, prepare_qkv_backward},
                                            {&graph::kAttentionHop, attention_hop, prepare_forward},
                                            {&graph::kAttentionHopDx, attention_hop_dx, prepare_backward}};
  return table;
}

}  // namespace quintet::exec::cuda
