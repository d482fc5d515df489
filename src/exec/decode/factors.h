// Ops of Adafactor, as the kernels of every backend are given them.
#pragma once

#include "exec/decode/step.h"
#include "kernels/factored.h"

namespace quintet::exec {

inline kernels::AdafactorScalars adafactor_settings(const program::Instr& instr) {
  const graph::Attrs& a = instr.attrs;
  return {.decay = a.real("decay"),
          .eps1 = a.real("eps1"),
          .eps2 = a.real("eps2"),
          .clip = a.real("clip"),
          .relative = a.integer("relative") != 0};
}
// Of ops on parameters.
inline kernels::AdafactorScalars adafactor_scalars(const Operands& b) {
  kernels::AdafactorScalars k = adafactor_settings(*b.instr);
  const UpdateScalars s = update_scalars(b);
  k.lr = s.lr;
  k.clip_scale = s.clip_scale;
  k.ok = s.ok;
  k.step = s.count;
  k.decay_ratio = s.decay_ratio;
  return k;
}
// Of update_factors: sums, averages, ok, update count.
inline kernels::AdafactorScalars update_factors_scalars(const Operands& b) {
  kernels::AdafactorScalars k = adafactor_settings(*b.instr);
  k.ok = b.input<double>(2);
  k.step = b.input<double>(3);
  return k;
}

inline std::vector<kernels::FactoredShape> factored_shapes(const program::Instr& instr) {
  std::vector<kernels::FactoredShape> list;
  for (const graph::FactoredParam& p : graph::factored_params(instr.attrs))
    list.push_back({p.first, p.each, p.rows, p.columns, p.matrix});
  return list;
}

// Calls fn(flat range, factored range) for every range. `factors` has the averages' sums or factors, then the
// sizes; `norms` may be null.
template <class F>
void each_factored(const program::Instr& instr, double* factors, double* norms, F&& fn) {
  const std::vector<graph::FactoredParam> params = graph::factored_params(instr.attrs);
  const int64_t averages = instr.attrs.integer("averages");
  const std::vector<program::FlatRange> ranges = program::flat_ranges(instr);
  const std::vector<kernels::Origin> origins = update_origins(instr, ranges.size());
  for (size_t i = 0; i < ranges.size(); ++i) {
    const program::FlatRange& r = ranges[i];
    const graph::FactoredParam& p = params.at(static_cast<size_t>(r.row / 2 - 1));
    const program::UpdateRates rates = program::update_rates(instr.attrs, r.row);
    fn(r, kernels::FactoredRange{.count = r.count,
                                 .origin = origins[i],
                                 .rows = p.rows,
                                 .columns = p.columns,
                                 .elements = p.each * p.matrix_count(),
                                 .row = factors + p.first,
                                 .column = factors + p.first + p.each * p.rows,
                                 .size = factors + averages + p.matrix,
                                 .norms = norms == nullptr ? nullptr : norms + 2 * p.matrix,
                                 .lr_factor = rates.lr_factor,
                                 .weight_decay = rates.weight_decay});
  }
}

template <class F>
void with_gradient_type(graph::DType dtype, F&& fn) {
  if (dtype == graph::DType::F64) return fn(double{});
  with_f32_or_bf16(dtype, "gradients", fn);
}

// factor_sums: fn(range, gradient).
template <class F>
void with_factor_sums(const Operands& b, F&& fn) {
  if (program::updated_groups(*b.instr) == 0) return;
  with_gradient_type(b.in_type(0).dtype, [&]<class G>(G) {
    each_factored(*b.instr, b.output<double>(0), nullptr,
                  [&](const program::FlatRange& r, const kernels::FactoredRange& range) {
                    fn(range, b.input<const G>(static_cast<size_t>(r.operand)) + r.first);
                  });
  });
}

// factor_norms: plain(range, weight, gradient) or split(range, weight, remainder, gradient).
template <class Plain, class Split>
void with_factor_norms(const Operands& b, Plain&& plain, Split&& split) {
  if (program::updated_groups(*b.instr) == 0) return;
  const bool is_split = program::norms_of_split_master(*b.instr);
  const size_t each = program::operands_of_group(*b.instr);
  double* const factors = b.input<double>(b.in.size() - 1);
  const auto operand = [&]<class T>(T, const program::FlatRange& r, size_t i) {
    return b.input<const T>(static_cast<size_t>(r.operand) * each + i) + r.first;
  };
  with_gradient_type(b.in_type(0).dtype, [&]<class G>(G) {
    each_factored(*b.instr, factors, b.output<double>(0),
                  [&](const program::FlatRange& r, const kernels::FactoredRange& range) {
                    const G* const gradient = operand(G{}, r, 0);
                    if constexpr (std::is_same_v<G, double>) {
                      plain(range, operand(double{}, r, 1), gradient);
                    } else {
                      if (is_split)
                        split(range, operand(base::Bf16{}, r, 1), operand(int16_t{}, r, 2), gradient);
                      else
                        plain(range, operand(float{}, r, 1), gradient);
                    }
                  });
  });
}

// adafactor: plain(range, weight, gradient, copy) or split(range, weight, remainder, gradient).
template <class Plain, class Split>
void with_factored_updates(const Operands& b, Plain&& plain, Split&& split) {
  const size_t results = program::results_of_group(*b.instr);
  double* const factors = b.input<double>(b.in.size() - 1);
  const auto result = [&]<class T>(T, const program::FlatRange& r, size_t i) {
    return b.output<T>(static_cast<size_t>(r.operand) * results + i) + r.first;
  };
  const auto gradient_of = [&]<class G>(G, const program::FlatRange& r) {
    return b.input<const G>(static_cast<size_t>(r.operand)) + r.first;
  };
  const graph::DType gradient = b.in_type(0).dtype;
  if (program::has_split_master(*b.instr))
    return with_f32_or_bf16(gradient, "gradients", [&]<class G>(G) {
      each_factored(*b.instr, factors, nullptr,
                    [&](const program::FlatRange& r, const kernels::FactoredRange& range) {
                      split(range, result(base::Bf16{}, r, 0), result(int16_t{}, r, 1), gradient_of(G{}, r));
                    });
    });
  const graph::DType master = b.out_type(0).dtype, copy = results > 1 ? b.out_type(1).dtype : master;
  with_update_types({master, master, gradient, copy}, [&]<class M, class V, class G, class C>(M, V, G, C) {
    if constexpr (std::is_same_v<M, V>)
      each_factored(
          *b.instr, factors, nullptr, [&](const program::FlatRange& r, const kernels::FactoredRange& range) {
            plain(range, result(M{}, r, 0), gradient_of(G{}, r), results > 1 ? result(C{}, r, 1) : nullptr);
          });
  });
}

}  // namespace quintet::exec
