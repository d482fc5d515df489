// Ops of the step: sums over flat buffers, clipping, the optimizer's update. All scalars are doubles in
// device memory, so nothing here waits for the device.
#include "exec/cuda/kernel.h"
#include "exec/decode/step.h"
#include "kernels/cuda/elementwise/pointwise.h"
#include "kernels/cuda/optimizer/blockwise.h"
#include "kernels/cuda/optimizer/optimizer.h"
#include "kernels/cuda/optimizer/scalars.h"
#include "kernels/cuda/reduce/reduce.h"

namespace quintet::exec::cuda {
namespace {

namespace k = kernels::cuda;

void count_to_seed(const Bound& b, bool) {
  k::count_to_seed(b.input<double>(0), b.input<double>(1), b.output<double>(0), b.stream);
}

void copy(const Bound& b, bool) { k::copy(b.in[0], b.out[0], b.in_type(0).bytes(), b.stream); }

void accumulate(const Bound& b, bool accumulate) {
  const graph::Type& x = b.in_type(0);
  if (!accumulate) return copy(b, false);
  with_type(x.dtype, [&]<class T>(T) {
    k::accumulate<T, T>(b.input<T>(0), b.output<T>(0), 1.0, x.count(), b.stream);
  });
}

void swap_blocks(const Bound& b, bool) {
  if (const BlockGrid grid = block_grid(b); grid.block_bytes > 0)
    k::swap_blocks(b.in[0], b.out[0], grid.a, grid.b, grid.block_bytes, b.stream);
}

void zero_unless_first(const Bound& b, bool) {
  if (b.instr->attrs.integer("keep")) {
    if (b.out[0] != b.in[0]) copy(b, false);
  } else {
    k::zero(b.out[0], b.out_type(0).bytes(), b.stream);
  }
}

void sum_squares(const Bound& b, bool accumulate) {
  with_type(b.in_type(0).dtype, [&]<class T>(T) {
    std::vector<std::span<const T>> parts;
    for (const program::FlatRange& r : program::flat_ranges(*b.instr))
      parts.emplace_back(b.input<T>(static_cast<size_t>(r.operand)) + r.first, static_cast<size_t>(r.count));
    k::sum_squares<T>(parts, b.output<double>(0), accumulate, b.workspace, b.stream);
  });
}

void max_abs(const Bound& b, bool accumulate) {
  with_type(b.in_type(0).dtype, [&]<class T>(T) {
    std::vector<std::span<const T>> parts;
    for (const program::FlatRange& r : program::flat_ranges(*b.instr))
      parts.emplace_back(b.input<T>(static_cast<size_t>(r.operand)) + r.first, static_cast<size_t>(r.count));
    k::max_abs<T>(parts, b.output<double>(0), accumulate, b.workspace, b.stream);
  });
}

// A non-finite loss or norm, or a spike, makes every rank skip: all numbers are already the same on all of
// them.
void clip_scale(const Bound& b, bool) {
  const ClipOperands s = clip_operands(b);
  k::clip_scale({.sum_squares = s.sum_squares,
                 .loss = s.loss,
                 .count = s.count,
                 .loss_limit = s.loss_limit,
                 .norm_limit = s.norm_limit,
                 .norm = s.norm,
                 .clip_scale = s.clip_scale,
                 .ok = s.ok,
                 .update_count = s.update_count,
                 .skipped_in_row = s.skipped_in_row,
                 .skipped_total = s.skipped_total,
                 .loss_scale = s.loss_scale,
                 .good_steps = s.good_steps,
                 .overflows = s.overflows},
                s.max_norm, {.window = s.window, .least = s.least, .hysteresis = s.hysteresis}, s.largest,
                b.stream);
}

// Calls launch(ranges, scalars) for all ranges of an update at once; `scalars` are `rule` with those of the
// step.
template <class S, class Launch>
void update(const Bound& b, size_t num_moments, S rule, Launch&& launch) {
  const UpdateScalars step = update_scalars(b);
  rule.lr = step.lr;
  rule.clip_scale = step.clip_scale;
  rule.ok = step.ok;
  rule.decay_ratio = step.decay_ratio;
  const auto all = [&](const auto& ranges) { launch(std::span(ranges), rule); };
  with_update_ranges(b, num_moments, all, all);
}

void adamw(const Bound& b, bool) {
  auto rule = adamw_rule<k::AdamWScalars>(*b.instr);
  rule.step = update_scalars(b).count;
  update(b, 2, rule, [&](auto ranges, const auto& s) { k::adamw(ranges, s, b.stream); });
}
void sgd(const Bound& b, bool) {
  auto rule = sgd_rule<k::SgdScalars>(*b.instr);
  rule.step = update_scalars(b).count;
  update(b, rule.momentum > 0 ? 1 : 0, rule,
         [&](auto ranges, const auto& s) { k::sgd(ranges, s, b.stream); });
}
void lion(const Bound& b, bool) {
  auto rule = lion_rule<k::LionScalars>(*b.instr);
  rule.step = update_scalars(b).count;
  update(b, 1, rule, [&](auto ranges, const auto& s) { k::lion(ranges, s, b.stream); });
}

void adamw8bit(const Bound& b, bool) {
  const UpdateScalars step = update_scalars(b);
  auto rule = adamw_rule<k::AdamWScalars>(*b.instr);
  rule.lr = step.lr;
  rule.step = step.count;
  rule.clip_scale = step.clip_scale;
  rule.ok = step.ok;
  rule.decay_ratio = step.decay_ratio;
  const int64_t block = b.instr->attrs.integer("block");
  const auto launch = [&](const auto& ranges) { k::adamw8bit(std::span(ranges), block, rule, b.stream); };
  with_block_ranges(b, launch, launch);
}

void ema(const Bound& b, bool) {
  const k::EmaScalars scalars{.ok = update_scalars(b).ok, .decay = b.instr->attrs.real("decay")};
  const auto launch = [&](const auto& ranges) { k::ema(std::span(ranges), scalars, b.stream); };
  with_average_ranges(b, launch, launch);
}

// An op that makes norms of parameters: calls add(range, scalars, norms) for every range, with the pair of
// norms to add to. In a step that is skipped the norms may be anything: no update reads them.
template <class S, class Add>
void norms(const Bound& b, S rule, Add&& add) {
  double* const all = b.output<double>(0);
  k::zero(all, b.out_type(0).bytes(), b.stream);
  rule.clip_scale = update_scalars(b).clip_scale;
  rule.decay_ratio = update_scalars(b).decay_ratio;
  const auto each = [&](const auto& range, int64_t pair) { add(range, rule, all + 2 * pair); };
  with_norm_ranges(b, each, each);
}

void lamb_norms(const Bound& b, bool) {
  auto rule = lamb_rule<k::LambScalars>(*b.instr);
  rule.step = update_scalars(b).count;
  norms(b, rule, [&](const auto& range, const auto& s, double* sums) {
    k::lamb_norms(range, s, sums, b.workspace, b.stream);
  });
}
void lamb(const Bound& b, bool) {
  auto rule = lamb_rule<k::LambScalars>(*b.instr);
  rule.step = update_scalars(b).count;
  update(b, 2, rule, [&](auto ranges, const auto& s) { k::lamb(ranges, s, b.stream); });
}
void lars_norms(const Bound& b, bool) {
  norms(b, lars_rule<k::LarsScalars>(*b.instr), [&](const auto& range, const auto& s, double* sums) {
    k::lars_norms(range, s, sums, b.workspace, b.stream);
  });
}
void lars(const Bound& b, bool) {
  auto rule = lars_rule<k::LarsScalars>(*b.instr);
  rule.step = update_scalars(b).count;
  update(b, rule.momentum > 0 ? 1 : 0, rule,
         [&](auto ranges, const auto& s) { k::lars(ranges, s, b.stream); });
}

}  // namespace

#include "exec/bind/step.inc"

}  // namespace quintet::exec::cuda
