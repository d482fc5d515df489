#include "exec/decode/cuda_attention.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/cuda/attention/hops.h"
#include "kernels/cuda/attention/tiled.h"

namespace quintet::exec::cuda {
namespace {

using program::Instr;
namespace k = kernels::cuda;

base::DType type_of(const Instr& i) { return i.in[attention_places(i)->q].type.dtype; }

int64_t library_bytes(const Instr& i, const k::AttentionShape& s, bool backward) {
  return by_hops(i, s) ? k::AttentionHops::workspace_bytes(s, kLibraryMasks, backward)
                       : k::Attention::workspace_bytes(s, kLibraryMasks, backward);
}

// For the kernels that run where cuDNN does not: it may turn out to have no plan.
int64_t own_bytes(const Instr& i, const k::AttentionShape& s, bool backward) {
  if (suits_tiles(i, s)) return kKeyBytes + k::TiledAttention::workspace_bytes(s, backward);
  if (!backward) return kKeyBytes;
  return kKeyBytes +
         with_type(type_of(i), [&]<class T>(T) { return k::attention_backward_workspace_bytes<T>(s); });
}

}  // namespace

// With packed documents the deterministic gradient is as fast as the other, so they always have it.
k::AttentionShape attention_shape(const Instr& i) {
  return {attention_geometry(i), i.attrs.integer("deterministic") != 0 || has_documents(i)};
}

bool by_hops(const Instr& i, const k::AttentionShape& s) { return is_hop(i) || s.k_rows.count > 1; }

bool suits_tiles(const Instr& i, const k::AttentionShape& s) {
  return k::TiledAttention::suits(s, type_of(i));
}

bool suits_library(const Instr& i, const k::AttentionShape& s) {
  // cuDNN's deterministic gradient needs a score matrix in scratch and is slower than the native kernels.
  const bool own_gradient = s.deterministic && attention_places(i)->backward && suits_tiles(i, s);
  return !has_documents(i) && !own_gradient && s.soft_cap == 0 &&
         k::AttentionHops::suits(s, kLibraryMasks, type_of(i));
}

int64_t attention_bytes(const Instr& i) {
  const k::AttentionShape s = attention_shape(i);
  const bool backward = attention_places(i)->backward;
  const int64_t own = own_bytes(i, s, backward);
  return suits_library(i, s) ? std::max(own, library_bytes(i, s, backward)) : own;
}

std::string problem_text(const Instr& i, const k::AttentionShape& s) {
  const auto rows = [](const base::RowOrder& r) {
    return r.ranks == 1 ? fmt::format("{} x {}", r.sequences, r.seq_len)
                        : fmt::format("{} x {} of {} ranks from {} for {}", r.sequences, r.seq_len, r.ranks,
                                      r.first, r.count);
  };
  const std::string q = rows(s.q_rows), keys = rows(s.k_rows);
  std::string text = fmt::format("{} {}, {}{}, {} / {} heads of {}", i.op->name, base::to_string(type_of(i)),
                                 q, keys == q ? "" : " with " + keys, s.heads, s.kv_heads, s.head_dim);
  if (s.value_dim != s.head_dim) text += fmt::format(" and {}", s.value_dim);
  if (s.window > 0) text += fmt::format(", window {}", s.window);
  if (s.soft_cap > 0) text += fmt::format(", soft cap {}", s.soft_cap);
  if (s.deterministic) text += ", deterministic";
  return text + fmt::format(", {} MiB", i.workspace_bytes >> 20);
}

std::string remark_on(const Instr& i) {
  const AttentionPlaces* const places = attention_places(i);
  if (places == nullptr) return {};
  const k::AttentionShape s = attention_shape(i);
  if (suits_library(i, s) || suits_tiles(i, s)) return {};
  const base::DType type = type_of(i);
  const std::string why =
      type != base::DType::BF16 && type != base::DType::F16
          ? fmt::format("tensor-core kernels take bf16 and f16, got {} (precision.compute = \"bf16\")",
                        base::to_string(type))
          : fmt::format(
                "tensor-core kernels take head sizes that are multiples of 8 up to 256, got {} and {}",
                s.head_dim, s.value_dim);
  return fmt::format("{} runs without tensor cores, slower by an order of magnitude or more: {}",
                     places->backward ? "attention's gradient" : "attention", why);
}

}  // namespace quintet::exec::cuda
