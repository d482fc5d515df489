// The operands of an update, told by range, for the kernels of every backend.
#pragma once

#include "exec/operands.h"
#include "exec/with_type.h"
#include "kernels/update_ranges.h"
#include "program/flat_ranges.h"

namespace quintet::exec {

struct UpdateScalars {
  const double *lr, *clip_scale, *ok, *count;
};
inline UpdateScalars update_scalars(const Operands& b) {
  const size_t first = program::updated_groups(*b.instr);
  return {b.input<double>(first), b.input<double>(first + 1), b.input<double>(first + 2),
          b.input<double>(first + 3)};
}

// Calls plain(std::vector<kernels::UpdateRange<...>>) or, with a split master,
// split(std::vector<kernels::SplitUpdateRange<...>>). Results of a group are master, moments..., copy (when
// it has another dtype), or weight, remainder, moments...
template <class Plain, class Split>
void with_update_ranges(const Operands& b, size_t num_moments, Plain&& plain, Split&& split) {
  using graph::DType;
  const size_t results = program::results_of_group(*b.instr);
  const bool is_split = program::has_split_master(*b.instr);
  const size_t first_moment = is_split ? 2 : 1;
  const bool has_copy = !is_split && results > 1 + num_moments;
  const DType gradient = b.in_type(0).dtype, master = is_split ? DType::F32 : b.out_type(0).dtype,
              moment = num_moments > 0 ? b.out_type(first_moment).dtype : master,
              copy = has_copy ? b.out_type(1 + num_moments).dtype : master;
  const std::vector<program::FlatRange> ranges = program::flat_ranges(*b.instr);
  const auto result = [&]<class T>(T, const program::FlatRange& r, size_t i) {
    return b.output<T>(static_cast<size_t>(r.operand) * results + i) + r.first;
  };
  const auto moment_of = [&]<class V>(V, const program::FlatRange& r, size_t i) {
    return i < num_moments ? result(V{}, r, first_moment + i) : nullptr;
  };
  const auto gradient_of = [&]<class G>(G, const program::FlatRange& r) {
    return b.input<const G>(static_cast<size_t>(r.operand)) + r.first;
  };
  if (is_split)
    return with_f32_or_bf16(moment, "moments", [&]<class V>(V) {
      with_f32_or_bf16(gradient, "gradients", [&]<class G>(G) {
        std::vector<kernels::SplitUpdateRange<V, G>> list;
        for (const program::FlatRange& r : ranges)
          list.push_back({.weight = result(base::Bf16{}, r, 0),
                          .remainder = result(int16_t{}, r, 1),
                          .moment1 = moment_of(V{}, r, 0),
                          .moment2 = moment_of(V{}, r, 1),
                          .gradient = gradient_of(G{}, r),
                          .count = r.count,
                          .decay = r.decay});
        split(list);
      });
    });
  with_update_types({master, moment, gradient, copy}, [&]<class M, class V, class G, class C>(M, V, G, C) {
    std::vector<kernels::UpdateRange<M, V, G, C>> list;
    for (const program::FlatRange& r : ranges)
      list.push_back({.master = result(M{}, r, 0),
                      .moment1 = moment_of(V{}, r, 0),
                      .moment2 = moment_of(V{}, r, 1),
                      .gradient = gradient_of(G{}, r),
                      .copy = has_copy ? result(C{}, r, 1 + num_moments) : nullptr,
                      .count = r.count,
                      .decay = r.decay});
    plain(list);
  });
}

}  // namespace quintet::exec
