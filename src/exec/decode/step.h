// Decodes step ops for the kernels of all backends: an update's operands by range, its scalars and the
// constants of its rule.
#pragma once

#include "exec/operands.h"
#include "exec/with_type.h"
#include "kernels/trust_ratio.h"
#include "kernels/update_ranges.h"
#include "program/flat_ranges.h"

namespace quintet::exec {

struct UpdateScalars {
  const double *lr, *clip_scale, *ok, *count;
  const double* decay_ratio;  // factor on weight decay; null: 1

  double decay(double weight_decay) const {  // CPU
    return decay_ratio != nullptr ? weight_decay * *decay_ratio : weight_decay;
  }
};
// The last operands, followed only by the norms that some updates read.
inline UpdateScalars update_scalars(const Operands& b) {
  const size_t first = program::updated_groups(*b.instr);
  return {b.input<double>(first), b.input<double>(first + 1), b.input<double>(first + 2),
          b.input<double>(first + 3),
          program::num_update_scalars(*b.instr) > std::size(program::kUpdateScalars)
              ? b.input<double>(first + 4)
              : nullptr};
}

// The constants of an update's rule, in the backend's struct. Weight decay is stored per range.
template <class S>
S adamw_rule(const program::Instr& instr) {  // AdamW, and Adam, whose decay is coupled
  S s;
  s.beta1 = instr.attrs.real("beta1");
  s.beta2 = instr.attrs.real("beta2");
  s.eps = instr.attrs.real("eps");
  s.coupled = instr.op == &graph::kAdam;
  return s;
}
template <class S>
S sgd_rule(const program::Instr& instr) {
  S s;
  s.momentum = instr.attrs.real("momentum");
  s.nesterov = instr.attrs.integer("nesterov") != 0;
  return s;
}
template <class S>
S lion_rule(const program::Instr& instr) {
  S s;
  s.beta1 = instr.attrs.real("beta1");
  s.beta2 = instr.attrs.real("beta2");
  return s;
}

inline kernels::RatioLimits ratio_limits(const program::Instr& instr) {
  if (instr.attrs.find("ratio_limits") == nullptr) return {};
  const std::vector<double>& limits = instr.attrs.reals("ratio_limits");
  return {.least = limits.at(0), .most = limits.at(1)};
}

template <class S>
S lamb_rule(const program::Instr& instr) {
  S s;
  s.beta1 = instr.attrs.real("beta1");
  s.beta2 = instr.attrs.real("beta2");
  s.eps = instr.attrs.real("eps");
  s.limits = ratio_limits(instr);
  return s;
}
template <class S>
S lars_rule(const program::Instr& instr) {
  S s;
  s.momentum = instr.attrs.real("momentum");
  s.trust = instr.attrs.real("trust");
  s.limits = ratio_limits(instr);
  return s;
}

// The scalars of clip_scale: it reads sum of squares (or largest element) and loss, writes norm, gradient
// scale and ok, and updates the scalars that persist from step to step.
struct ClipOperands {
  const double *sum_squares, *loss;
  const double *count, *loss_limit, *norm_limit;  // null: no guard against spikes
  double *norm, *clip_scale, *ok;
  double *loss_scale, *update_count, *skipped_in_row, *skipped_total, *good_steps;
  double* overflows;   // null: hysteresis is 1
  double max_norm;     // 0: no limit
  bool largest;        // sum_squares is the largest absolute element
  int64_t window;      // 0: the loss scale is constant
  double least;        // the loss scale is never halved below this
  int64_t hysteresis;  // non-finite steps before the loss scale is halved
};
inline ClipOperands clip_operands(const Operands& b) {
  const graph::Attrs& attrs = b.instr->attrs;
  const bool tolerant = attrs.find("hysteresis") != nullptr;
  const bool guarded = b.instr->in.size() > (tolerant ? 8 : 7);
  return {.sum_squares = b.input<double>(0),
          .loss = b.input<double>(1),
          .count = guarded ? b.input<double>(7) : nullptr,
          .loss_limit = guarded ? b.input<double>(8) : nullptr,
          .norm_limit = guarded ? b.input<double>(9) : nullptr,
          .norm = b.output<double>(0),
          .clip_scale = b.output<double>(1),
          .ok = b.output<double>(2),
          .loss_scale = b.output<double>(3),
          .update_count = b.output<double>(4),
          .skipped_in_row = b.output<double>(5),
          .skipped_total = b.output<double>(6),
          .good_steps = b.output<double>(7),
          .overflows = tolerant ? b.output<double>(8) : nullptr,
          .max_norm = attrs.real("max_norm"),
          .largest = attrs.find("largest") != nullptr,
          .window = attrs.integer("window"),
          .least = attrs.find("least") != nullptr ? attrs.real("least") : 1.0,
          .hysteresis = tolerant ? attrs.integer("hysteresis") : 1};
}

// swap_blocks: [a, b] blocks become [b, a].
struct BlockGrid {
  int64_t a, b, block_bytes;  // 0 bytes: nothing to do
};
inline BlockGrid block_grid(const Operands& b) {
  const int64_t outer = b.instr->attrs.integer("a"), inner = b.instr->attrs.integer("b");
  return {outer, inner, outer * inner == 0 ? 0 : b.in_type(0).bytes() / (outer * inner)};
}

// One per range; default origins, which draw no random numbers, if moments are rounded to nearest.
inline std::vector<kernels::Origin> update_origins(const program::Instr& update, size_t ranges) {
  std::vector<kernels::Origin> list(ranges);
  if (update.attrs.find("origins") == nullptr) return list;
  const std::vector<int64_t>& n = update.attrs.integers("origins");
  for (size_t i = 0; i < ranges; ++i)
    list[i] = {static_cast<uint64_t>(n.at(5 * i)), n.at(5 * i + 1), n.at(5 * i + 2), n.at(5 * i + 3),
               n.at(5 * i + 4)};
  return list;
}

// Calls plain(std::vector<kernels::UpdateRange<...>>) or, with a split master,
// split(std::vector<kernels::SplitUpdateRange<...>>). The results of a group are master, moments..., copy (if
// its dtype differs), or weight, remainder, moments...
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
  const double* const norms =
      b.instr->op->step.reads_norms ? b.input<const double>(b.in.size() - 1) : nullptr;
  // Parameters without weight decay have no trust ratio.
  const auto norms_of = [&](const program::FlatRange& r) {
    return norms != nullptr && r.row % 2 == 1 ? norms + r.row / 2 * 2 - 2 : nullptr;
  };
  const auto rates = [&](const program::FlatRange& r) {
    return program::update_rates(b.instr->attrs, r.row);
  };
  const std::vector<kernels::Origin> origins = update_origins(*b.instr, ranges.size());
  const auto origin_of = [&](const program::FlatRange& r) {
    return origins[static_cast<size_t>(&r - ranges.data())];
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
                          .lr_factor = rates(r).lr_factor,
                          .weight_decay = rates(r).weight_decay,
                          .norms = norms_of(r),
                          .origin = origin_of(r)});
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
                      .lr_factor = rates(r).lr_factor,
                      .weight_decay = rates(r).weight_decay,
                      .norms = norms_of(r),
                      .origin = origin_of(r)});
    plain(list);
  });
}

// The same for updates on codes: plain(std::vector<kernels::BlockUpdateRange<...>>) or
// split(std::vector<kernels::SplitBlockUpdateRange<...>>). Results of a group are those of an update whose
// moments are codes of m and v and scales of m and v.
template <class Plain, class Split>
void with_block_ranges(const Operands& b, Plain&& plain, Split&& split) {
  using graph::DType;
  constexpr size_t kMoments = 4;
  const size_t results = program::results_of_group(*b.instr);
  const bool is_split = program::has_split_master(*b.instr);
  const size_t first = is_split ? 2 : 1;
  const bool has_copy = !is_split && results > 1 + kMoments;
  const int64_t block = b.instr->attrs.integer("block");
  const std::vector<program::FlatRange> ranges = program::flat_ranges(*b.instr);
  const auto result = [&]<class T>(T, const program::FlatRange& r, size_t i, int64_t per = 1) {
    return b.output<T>(static_cast<size_t>(r.operand) * results + i) + r.first / per;
  };
  const auto gradient_of = [&]<class G>(G, const program::FlatRange& r) {
    return b.input<const G>(static_cast<size_t>(r.operand)) + r.first;
  };
  const auto rates = [&](const program::FlatRange& r) {
    return program::update_rates(b.instr->attrs, r.row);
  };
  if (is_split)
    return with_f32_or_bf16(b.in_type(0).dtype, "gradients", [&]<class G>(G) {
      std::vector<kernels::SplitBlockUpdateRange<G>> list;
      for (const program::FlatRange& r : ranges)
        list.push_back({.weight = result(base::Bf16{}, r, 0),
                        .remainder = result(int16_t{}, r, 1),
                        .m = result(uint8_t{}, r, first),
                        .v = result(uint8_t{}, r, first + 1),
                        .m_scale = result(float{}, r, first + 2, block),
                        .v_scale = result(float{}, r, first + 3, block),
                        .gradient = gradient_of(G{}, r),
                        .count = r.count,
                        .lr_factor = rates(r).lr_factor,
                        .weight_decay = rates(r).weight_decay});
      split(list);
    });
  const DType master = b.out_type(0).dtype, copy = has_copy ? b.out_type(1 + kMoments).dtype : master;
  with_update_types({master, master, b.in_type(0).dtype, copy},
                    [&]<class M, class V, class G, class C>(M, V, G, C) {
                      if constexpr (std::is_same_v<M, V>) {
                        std::vector<kernels::BlockUpdateRange<M, G, C>> list;
                        for (const program::FlatRange& r : ranges)
                          list.push_back({.master = result(M{}, r, 0),
                                          .m = result(uint8_t{}, r, first),
                                          .v = result(uint8_t{}, r, first + 1),
                                          .m_scale = result(M{}, r, first + 2, block),
                                          .v_scale = result(M{}, r, first + 3, block),
                                          .gradient = gradient_of(G{}, r),
                                          .copy = has_copy ? result(C{}, r, 1 + kMoments) : nullptr,
                                          .count = r.count,
                                          .lr_factor = rates(r).lr_factor,
                                          .weight_decay = rates(r).weight_decay});
                        plain(list);
                      }
                    });
}

// The same for averages of weights: plain(std::vector<kernels::EmaRange<...>>) or, with a split master,
// split(std::vector<kernels::SplitEmaRange>).
template <class Plain, class Split>
void with_average_ranges(const Operands& b, Plain&& plain, Split&& split) {
  const std::vector<program::FlatRange> ranges = program::flat_ranges(*b.instr);
  if (program::updated_groups(*b.instr) > b.instr->out.size()) {
    std::vector<kernels::SplitEmaRange> list;
    for (const program::FlatRange& r : ranges) {
      const auto group = static_cast<size_t>(r.operand);
      list.push_back({.weight = b.input<const base::Bf16>(2 * group) + r.first,
                      .remainder = b.input<const int16_t>(2 * group + 1) + r.first,
                      .average = b.output<float>(group) + r.first,
                      .count = r.count});
    }
    return split(list);
  }
  with_stat(b.out_type(0).dtype, [&]<class P>(P) {
    std::vector<kernels::EmaRange<P>> list;
    for (const program::FlatRange& r : ranges) {
      const auto group = static_cast<size_t>(r.operand);
      list.push_back({.weight = b.input<const P>(group) + r.first,
                      .average = b.output<P>(group) + r.first,
                      .count = r.count});
    }
    plain(list);
  });
}

// The ranges of an op that computes norms of parameters, as in with_update_ranges, but read-only. Calls
// plain(range, pair) or split(range, pair), where `pair` is the index of the parameter's two norms.
template <class Plain, class Split>
void with_norm_ranges(const Operands& b, Plain&& plain, Split&& split) {
  using graph::DType;
  const bool is_split = program::norms_of_split_master(*b.instr);
  const size_t each = program::operands_of_group(*b.instr), first_moment = is_split ? 3 : 2;
  const bool has_moments = each > first_moment;
  const DType gradient = b.in_type(0).dtype, master = is_split ? DType::F32 : b.in_type(1).dtype,
              moment = has_moments ? b.in_type(first_moment).dtype : master;
  const auto operand = [&]<class T>(T, const program::FlatRange& r, size_t i) {
    return const_cast<T*>(b.input<const T>(static_cast<size_t>(r.operand) * each + i)) + r.first;
  };
  const auto moment_of = [&]<class V>(V, const program::FlatRange& r, size_t i) {
    return has_moments ? operand(V{}, r, first_moment + i) : nullptr;
  };
  const auto pair_of = [](const program::FlatRange& r) { return r.row / 2 - 1; };
  const auto rates = [&](const program::FlatRange& r) {
    return program::update_rates(b.instr->attrs, r.row);
  };
  if (is_split)
    return with_f32_or_bf16(moment, "moments", [&]<class V>(V) {
      with_f32_or_bf16(gradient, "gradients", [&]<class G>(G) {
        for (const program::FlatRange& r : program::flat_ranges(*b.instr))
          split(kernels::SplitUpdateRange<V, G>{.weight = operand(base::Bf16{}, r, 1),
                                                .remainder = operand(int16_t{}, r, 2),
                                                .moment1 = moment_of(V{}, r, 0),
                                                .moment2 = moment_of(V{}, r, 1),
                                                .gradient = operand(G{}, r, 0),
                                                .count = r.count,
                                                .weight_decay = rates(r).weight_decay},
                pair_of(r));
      });
    });
  // No copy is written, but its type selects the kernel: bf16 gradients have kernels for bf16 weights only.
  const DType copy = gradient == DType::BF16 ? DType::BF16 : master;
  with_update_types({master, moment, gradient, copy}, [&]<class M, class V, class G, class C>(M, V, G, C) {
    for (const program::FlatRange& r : program::flat_ranges(*b.instr))
      plain(kernels::UpdateRange<M, V, G, C>{.master = operand(M{}, r, 1),
                                             .moment1 = moment_of(V{}, r, 0),
                                             .moment2 = moment_of(V{}, r, 1),
                                             .gradient = operand(G{}, r, 0),
                                             .copy = nullptr,
                                             .count = r.count,
                                             .weight_decay = rates(r).weight_decay},
            pair_of(r));
  });
}

}  // namespace quintet::exec
