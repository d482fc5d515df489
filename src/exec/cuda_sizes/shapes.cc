#include "exec/cuda_sizes/shapes.h"

#include "kernels/cuda/attention_hops.h"

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

std::vector<k::Range> squared_ranges(const Instr& i) {
  const auto& list = i.attrs.integers("ranges");
  std::vector<k::Range> ranges;
  for (size_t at = 0; at + 1 < list.size(); at += 2) ranges.push_back({list[at], list[at + 1]});
  return ranges;
}

}  // namespace quintet::exec::cuda
