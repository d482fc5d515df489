#include "exec/cuda_scratch/shapes.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/cuda/attention/hops.h"

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

bool suits_library(const Instr& i, const k::AttentionShape& s, size_t first) {
  return k::AttentionHops::suits(s, masks_of(i), i.in[first].type.dtype);
}

namespace {

struct AttentionPlace {
  const graph::OpDef* op;
  size_t first, rest;  // as attention_shape() has them
  bool backward;
};

// Null for every other instruction.
const AttentionPlace* place_of(const Instr& i) {
  static const AttentionPlace places[] = {
      {&graph::kAttention, 0, 3, false},    {&graph::kAttentionDx, 1, 6, true},
      {&graph::kQkvAttention, 0, 1, false}, {&graph::kQkvAttentionDx, 1, 4, true},
      {&graph::kAttentionHop, 0, 3, false}, {&graph::kAttentionHopDx, 1, 6, true}};
  const auto* const place = std::ranges::find(places, i.op, &AttentionPlace::op);
  return i.kind == program::InstrKind::Compute && place != std::end(places) ? place : nullptr;
}

}  // namespace

int64_t most_documents(const Instr& i) {
  const AttentionPlace* const place = place_of(i);
  if (place == nullptr || masks_of(i) != k::AttentionMasks::Documents || !remark_on(i).empty()) return 0;
  return k::Attention::segments(attention_shape(i, place->first, place->rest));
}

std::string remark_on(const Instr& i) {
  const AttentionPlace* const place = place_of(i);
  if (place == nullptr) return {};
  const k::AttentionShape s = attention_shape(i, place->first, place->rest);
  const base::DType type = i.in[place->first].type.dtype;
  const bool gradients = place->backward && !k::Attention::has_gradients(s, masks_of(i));
  if (suits_library(i, s, place->first) && !gradients) return {};
  const std::string why =
      type != base::DType::BF16 && type != base::DType::F16
          ? fmt::format("in {} there are none (precision.compute = \"bf16\" has them)", base::to_string(type))
      : s.dropout_p > 0 ? std::string("with dropout there are none (model.dropout = 0)")
      : gradients
          ? "packed documents have none that give the same bits in every run (run.deterministic = false, or "
            "data.pack = false)"
          : "this shape and mask have none (docs/gpu.md says which have)";
  return without_tensor_cores(place->backward, why);
}
std::string without_tensor_cores(bool backward, std::string_view why) {
  return fmt::format("{} runs without tensor cores, slower by an order of magnitude and more: {}",
                     backward ? "attention's gradient" : "attention", why);
}

}  // namespace quintet::exec::cuda
