// Ops of the step: sums over flat buffers, clipping, the optimizer's update.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "exec/cpu/kernel.h"
#include "exec/decode/step.h"
#include "kernels/cpu/elementwise/pointwise.h"
#include "kernels/cpu/optimizer/optimizer.h"
#include "kernels/cpu/reduce/reduce.h"

namespace quintet::exec::cpu {
namespace {

namespace k = kernels::cpu;

void count_to_seed(const Bound& b, bool) {
  const double count = *b.input<double>(0);
  *b.output<double>(0) = count > 0 ? *b.input<double>(1) / count : 0.0;
}

void accumulate(const Bound& b, bool accumulate) {
  const graph::Type& x = b.in_type(0);
  if (!accumulate) {
    std::memcpy(b.out[0], b.in[0], static_cast<size_t>(x.bytes()));
    return;
  }
  with_type(x.dtype,
            [&]<class T>(T) { k::accumulate<T, T>(b.input<T>(0), b.output<T>(0), 1.0, x.count(), *b.pool); });
}

void swap_blocks(const Bound& b, bool) {
  const BlockGrid grid = block_grid(b);
  const auto block = static_cast<size_t>(grid.block_bytes);
  if (block == 0) return;
  b.pool->parallel_for(0, grid.b, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t o = 0; o < grid.a; ++o)
        std::memcpy(b.out[0] + static_cast<size_t>(i * grid.a + o) * block,
                    b.in[0] + static_cast<size_t>(o * grid.b + i) * block, block);
  });
}
void copy(const Bound& b, bool) { std::memcpy(b.out[0], b.in[0], static_cast<size_t>(b.in_type(0).bytes())); }

void zero_unless_first(const Bound& b, bool) {
  if (b.instr->attrs.integer("keep")) {
    if (b.out[0] != b.in[0]) copy(b, false);
  } else {
    std::memset(b.out[0], 0, static_cast<size_t>(b.out_type(0).bytes()));
  }
}

void sum_squares(const Bound& b, bool accumulate) {
  double* sum = b.output<double>(0);
  if (!accumulate) *sum = 0;
  with_type(b.in_type(0).dtype, [&]<class T>(T) {
    for (const program::FlatRange& r : program::flat_ranges(*b.instr))
      k::sum_squares<T>(b.input<T>(static_cast<size_t>(r.operand)) + r.first, r.count, sum, true, b.workspace,
                        *b.pool);
  });
}

void max_abs(const Bound& b, bool accumulate) {
  double* largest = b.output<double>(0);
  if (!accumulate) *largest = 0;
  with_type(b.in_type(0).dtype, [&]<class T>(T) {
    for (const program::FlatRange& r : program::flat_ranges(*b.instr))
      k::max_abs<T>(b.input<T>(static_cast<size_t>(r.operand)) + r.first, r.count, largest, b.workspace,
                    *b.pool);
  });
}

// A non-finite loss or norm, or a spike, makes every rank skip: all numbers are already the same on all of
// them.
void clip_scale(const Bound& b, bool) {
  const ClipOperands s = clip_operands(b);
  const double norm = (s.largest ? *s.sum_squares : std::sqrt(*s.sum_squares)) / *s.loss_scale;
  const bool finite_loss = std::isfinite(*s.loss), all_finite = std::isfinite(norm) && finite_loss;
  const bool spike = s.loss_limit != nullptr && (*s.loss > *s.loss_limit * *s.count || norm > *s.norm_limit);
  const bool ok = all_finite && !spike;
  *s.norm = norm;
  *s.clip_scale = (s.max_norm > 0 && norm > s.max_norm ? s.max_norm / norm : 1.0) / *s.loss_scale;
  *s.ok = ok;
  *s.update_count += ok;
  // An overflow that a smaller loss scale may avoid does not mean divergence.
  const bool overflow = !all_finite && s.window > 0 && finite_loss && *s.loss_scale > s.least;
  *s.skipped_in_row = ok ? 0 : *s.skipped_in_row + !overflow;
  *s.skipped_total += !ok;
  if (s.window == 0) return;
  *s.good_steps = all_finite ? *s.good_steps + 1 : 0;
  const bool grows = *s.good_steps >= static_cast<double>(s.window);
  const double overflows = (s.overflows != nullptr ? *s.overflows : 0) + !all_finite;
  if (!all_finite && overflows >= static_cast<double>(s.hysteresis))
    *s.loss_scale = std::max(*s.loss_scale / 2, s.least);
  if (grows) {
    *s.loss_scale *= 2;
    *s.good_steps = 0;
  }
  if (s.overflows != nullptr) *s.overflows = grows ? 0 : overflows;
}

// Calls kernel(range, scalars) for every range; `scalars` are `rule` with those of the step and of the range.
template <class S, class Ranges, class F>
void update_each(const UpdateScalars& step, S rule, const Ranges& ranges, F&& kernel) {
  const int32_t ok = *step.ok != 0;
  rule.clip_scale = step.clip_scale;
  rule.ok = &ok;
  for (const auto& r : ranges) {
    S scalars = rule;
    const double lr = *step.lr * r.lr_factor;
    scalars.lr = &lr;
    scalars.weight_decay = step.decay(r.weight_decay);
    if constexpr (requires { scalars.rounding, r.origin; }) {
      const k::Rounding rounding{r.origin, static_cast<int64_t>(*step.count)};
      if (r.origin.random()) scalars.rounding = &rounding;
      kernel(r, scalars);
    } else {
      kernel(r, scalars);
    }
  }
}

// Calls plain(range, scalars) or split(range, scalars) for every range of an update.
template <class S, class Plain, class Split>
void update(const Bound& b, size_t num_moments, S rule, Plain&& plain, Split&& split) {
  const UpdateScalars step = update_scalars(b);
  with_update_ranges(
      b, num_moments, [&](const auto& ranges) { update_each(step, rule, ranges, plain); },
      [&](const auto& ranges) { update_each(step, rule, ranges, split); });
}

void adamw(const Bound& b, bool) {
  const auto step = static_cast<int64_t>(*update_scalars(b).count);
  auto rule = adamw_rule<k::AdamWScalars>(*b.instr);
  rule.step = &step;
  update(
      b, 2, rule,
      [&](const auto& r, const auto& s) {
        k::adamw(r.master, r.moment1, r.moment2, r.gradient, r.copy, r.count, s, *b.pool);
      },
      [&](const auto& r, const auto& s) {
        k::adamw_split(r.weight, r.remainder, r.moment1, r.moment2, r.gradient, r.count, s, *b.pool);
      });
}

void sgd(const Bound& b, bool) {
  const auto rule = sgd_rule<k::SgdScalars>(*b.instr);
  update(
      b, rule.momentum > 0 ? 1 : 0, rule,
      [&](const auto& r, const auto& s) {
        k::sgd(r.master, r.moment1, r.gradient, r.copy, r.count, s, *b.pool);
      },
      [&](const auto& r, const auto& s) {
        k::sgd_split(r.weight, r.remainder, r.moment1, r.gradient, r.count, s, *b.pool);
      });
}

void lion(const Bound& b, bool) {
  update(
      b, 1, lion_rule<k::LionScalars>(*b.instr),
      [&](const auto& r, const auto& s) {
        k::lion(r.master, r.moment1, r.gradient, r.copy, r.count, s, *b.pool);
      },
      [&](const auto& r, const auto& s) {
        k::lion_split(r.weight, r.remainder, r.moment1, r.gradient, r.count, s, *b.pool);
      });
}

void adamw8bit(const Bound& b, bool) {
  const UpdateScalars step = update_scalars(b);
  const auto count = static_cast<int64_t>(*step.count);
  const int64_t block = b.instr->attrs.integer("block");
  auto rule = adamw_rule<k::AdamWScalars>(*b.instr);
  rule.step = &count;
  const auto codes = [&](const auto& r) { return k::Codes{r.m, r.v, r.m_scale, r.v_scale, block}; };
  with_block_ranges(
      b,
      [&](const auto& ranges) {
        update_each(step, rule, ranges, [&](const auto& r, const auto& s) {
          k::adamw8bit(r.master, codes(r), r.gradient, r.copy, r.count, s, *b.pool);
        });
      },
      [&](const auto& ranges) {
        update_each(step, rule, ranges, [&](const auto& r, const auto& s) {
          k::adamw8bit_split(r.weight, r.remainder, codes(r), r.gradient, r.count, s, *b.pool);
        });
      });
}

void ema(const Bound& b, bool) {
  if (*update_scalars(b).ok == 0) return;
  const double decay = b.instr->attrs.real("decay");
  with_average_ranges(
      b,
      [&](const auto& ranges) {
        for (const auto& r : ranges) k::ema(r.weight, r.average, r.count, decay, *b.pool);
      },
      [&](const auto& ranges) {
        for (const auto& r : ranges) k::ema_split(r.weight, r.remainder, r.average, r.count, decay, *b.pool);
      });
}

// An op that makes norms of parameters: calls plain(range, scalars, norms) or split(...) for every range,
// with the pair of norms to add to. In a step that is skipped the norms may be anything: no update reads
// them.
template <class S, class Plain, class Split>
void norms(const Bound& b, S rule, Plain&& plain, Split&& split) {
  double* const all = b.output<double>(0);
  std::fill_n(all, b.out_type(0).count(), 0.0);
  const UpdateScalars step = update_scalars(b);
  rule.clip_scale = step.clip_scale;
  const auto with = [&](const auto& range) {
    S scalars = rule;
    scalars.weight_decay = step.decay(range.weight_decay);
    return scalars;
  };
  with_norm_ranges(
      b, [&](const auto& range, int64_t pair) { plain(range, with(range), all + 2 * pair); },
      [&](const auto& range, int64_t pair) { split(range, with(range), all + 2 * pair); });
}

void lamb_norms(const Bound& b, bool) {
  const auto step = static_cast<int64_t>(*update_scalars(b).count);
  auto rule = lamb_rule<k::LambScalars>(*b.instr);
  rule.step = &step;
  norms(
      b, rule,
      [&]<class M, class V, class G, class C>(const kernels::UpdateRange<M, V, G, C>& r, const auto& s,
                                              double* sums) {
        k::lamb_norms<M, V, G, C>(r.master, r.moment1, r.moment2, r.gradient, r.count, s, sums, b.workspace,
                                  *b.pool);
      },
      [&]<class V, class G>(const kernels::SplitUpdateRange<V, G>& r, const auto& s, double* sums) {
        k::lamb_norms_split<V, G>(r.weight, r.remainder, r.moment1, r.moment2, r.gradient, r.count, s, sums,
                                  b.workspace, *b.pool);
      });
}

void lamb(const Bound& b, bool) {
  const auto step = static_cast<int64_t>(*update_scalars(b).count);
  auto rule = lamb_rule<k::LambScalars>(*b.instr);
  rule.step = &step;
  update(
      b, 2, rule,
      [&](const auto& r, auto s) {
        s.norms = r.norms;
        k::lamb(r.master, r.moment1, r.moment2, r.gradient, r.copy, r.count, s, *b.pool);
      },
      [&](const auto& r, auto s) {
        s.norms = r.norms;
        k::lamb_split(r.weight, r.remainder, r.moment1, r.moment2, r.gradient, r.count, s, *b.pool);
      });
}

void lars_norms(const Bound& b, bool) {
  norms(
      b, lars_rule<k::LarsScalars>(*b.instr),
      [&]<class M, class V, class G, class C>(const kernels::UpdateRange<M, V, G, C>& r, const auto& s,
                                              double* sums) {
        k::lars_norms<M, V, G, C>(r.master, r.gradient, r.count, s, sums, b.workspace, *b.pool);
      },
      [&]<class V, class G>(const kernels::SplitUpdateRange<V, G>& r, const auto& s, double* sums) {
        k::lars_norms_split<V, G>(r.weight, r.remainder, r.gradient, r.count, s, sums, b.workspace, *b.pool);
      });
}

void lars(const Bound& b, bool) {
  const auto rule = lars_rule<k::LarsScalars>(*b.instr);
  update(
      b, rule.momentum > 0 ? 1 : 0, rule,
      [&](const auto& r, auto s) {
        s.norms = r.norms;
        k::lars(r.master, r.moment1, r.gradient, r.copy, r.count, s, *b.pool);
      },
      [&](const auto& r, auto s) {
        s.norms = r.norms;
        k::lars_split(r.weight, r.remainder, r.moment1, r.gradient, r.count, s, *b.pool);
      });
}

}  // namespace

#include "exec/bind/step.inc"

}  // namespace quintet::exec::cpu
