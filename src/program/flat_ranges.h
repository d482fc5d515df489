// Ranges of elements that a sum of squares or an update covers, as encoded in its attribute "ranges": four
// numbers each, sorted by operand and then by element.
#pragma once

#include <span>
#include <vector>

#include "graph/adafactor_ops.h"
#include "program/program.h"

namespace quintet::program {

struct FlatRange {
  int64_t operand = 0;  // which of the gradients, and which of the updated groups
  int64_t first = 0, count = 0;
  int64_t row = 0;  // updates: 2 x group of settings + whether weight decay applies
};

// How an update treats a range: as the instruction's attributes say of its row.
struct UpdateRates {
  double lr_factor = 1, weight_decay = 0;
};
UpdateRates update_rates(const graph::Attrs& attrs, int64_t row);

std::vector<int64_t> to_attribute(std::span<const FlatRange> ranges);
std::vector<FlatRange> flat_ranges(const graph::Attrs& attrs);
inline std::vector<FlatRange> flat_ranges(const Instr& instr) { return flat_ranges(instr.attrs); }

// The last operands of an update, after the gradients; with a ramp of weight decay its factor follows them.
inline constexpr std::string_view kUpdateScalars[] = {scalars::kLearningRate, scalars::kClipScale,
                                                      scalars::kOk, scalars::kUpdateCount};

inline size_t num_update_scalars(const Instr& update) {
  return std::size(kUpdateScalars) + (update.attrs.find("decay_ramp") != nullptr ? 1 : 0);
}

// The number of groups of an update: that of its gradients, which are all its operands except the scalars.
// All groups have the same number of results, group after group.
inline size_t updated_groups(const Instr& update) {
  return update.in.size() - num_update_scalars(update) - (update.op->step.reads_norms ? 1 : 0);
}
inline size_t results_of_group(const Instr& update) { return update.out.size() / updated_groups(update); }
// Whether masters are split: weight and remainder are the first two results of a group.
inline bool has_split_master(const Instr& update) {
  return results_of_group(update) > 1 && update.out[1].type.dtype == graph::DType::I16;
}

// Norms of parameters (StepKind::ParameterNorms): operands of one group are gradient, master (or weight and
// remainder) and the moments that the op reads; after those of all groups come the scalars of an update.
inline bool norms_of_split_master(const Instr& norms) { return norms.in[2].type.dtype == graph::DType::I16; }
inline size_t operands_of_group(const Instr& norms) {
  const graph::StepTraits& reads = norms.op->step;
  const auto moments = static_cast<size_t>(reads.moments);
  return reads.reads_weight ? 2 + norms_of_split_master(norms) + moments : 1 + moments;
}

// Whether every range says which elements of its parameter it has (attribute "origins", kernels::Origin).
inline bool has_origins(const Instr& instr) {
  return instr.attrs.find("seed") != nullptr ||
         (instr.attrs.find("factors") != nullptr && instr.attrs.find("ranges") != nullptr);
}

}  // namespace quintet::program
