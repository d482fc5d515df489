#include "exec/cuda_scratch/shapes.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/cuda/attention/hops.h"
#include "kernels/cuda/attention/tiled.h"

namespace quintet::exec::cuda {

using program::Instr;
namespace k = kernels::cuda;

k::AttentionShape attention_shape(const Instr& i, size_t first, size_t rest) {
  return {attention_geometry(i, first, rest), i.attrs.integer("deterministic") != 0};
}

k::AttentionMasks masks_of(const Instr& i) {
  return i.attrs.integer("packed") == 0 ? k::AttentionMasks::Dense : k::AttentionMasks::Documents;
}

bool by_hops(const Instr& i, const k::AttentionShape& s) {
  return i.attrs.find("hop") != nullptr || s.k_rows.count > 1;
}

namespace {

struct AttentionPlace {
  const graph::OpDef* op;
  size_t first, rest;  // as attention_shape() has them
  bool backward;
};

// Null for all other instructions.
const AttentionPlace* place_of(const Instr& i) {
  static const AttentionPlace places[] = {
      {&graph::kAttention, 0, 3, false},    {&graph::kAttentionDx, 1, 6, true},
      {&graph::kQkvAttention, 0, 1, false}, {&graph::kQkvAttentionDx, 1, 4, true},
      {&graph::kAttentionHop, 0, 3, false}, {&graph::kAttentionHopDx, 1, 6, true}};
  const auto* const place = std::ranges::find(places, i.op, &AttentionPlace::op);
  return i.kind == program::InstrKind::Compute && place != std::end(places) ? place : nullptr;
}

}  // namespace

bool suits_tiles(const Instr& i, const k::AttentionShape& s, size_t first) {
  return k::TiledAttention::suits(s, i.in[first].type.dtype);
}

bool suits_library(const Instr& i, const k::AttentionShape& s, size_t first) {
  const AttentionPlace* const place = place_of(i);
  // cuDNN's deterministic gradient needs a score matrix in scratch and is slower than the native kernels.
  const bool own_gradient = s.deterministic && place != nullptr && place->backward &&
                            s.head_dim == s.value_dim && (s.head_dim == 64 || s.head_dim == 128) &&
                            suits_tiles(i, s, first);
  return masks_of(i) == k::AttentionMasks::Dense && !own_gradient &&
         k::AttentionHops::suits(s, k::AttentionMasks::Dense, i.in[first].type.dtype);
}

std::string remark_on(const Instr& i) {
  const AttentionPlace* const place = place_of(i);
  if (place == nullptr) return {};
  const k::AttentionShape s = attention_shape(i, place->first, place->rest);
  if (suits_library(i, s, place->first) || suits_tiles(i, s, place->first)) return {};
  const base::DType type = i.in[place->first].type.dtype;
  const std::string why =
      type != base::DType::BF16 && type != base::DType::F16
          ? fmt::format("tensor-core kernels take bf16 and f16, got {} (precision.compute = \"bf16\")",
                        base::to_string(type))
          : fmt::format(
                "tensor-core kernels take head sizes that are multiples of 8 up to 256, got {} and {}",
                s.head_dim, s.value_dim);
  return fmt::format("{} runs without tensor cores, slower by an order of magnitude or more: {}",
                     place->backward ? "attention's gradient" : "attention", why);
}

}  // namespace quintet::exec::cuda
