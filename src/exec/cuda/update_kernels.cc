// Ops of the step: sums over flat buffers, clipping, the optimizer's update. All scalars are doubles in
// device memory, so nothing here waits for the device.
#include "exec/cuda/kernel.h"
#include "exec/updates.h"
#include "kernels/cuda/elementwise/pointwise.h"
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
  const int64_t outer = b.instr->attrs.integer("a"), inner = b.instr->attrs.integer("b");
  if (outer * inner == 0) return;
  k::swap_blocks(b.in[0], b.out[0], outer, inner, b.in_type(0).bytes() / (outer * inner), b.stream);
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

// A non-finite loss or norm anywhere makes every rank skip: both numbers are already the same on all of them.
void clip_scale(const Bound& b, bool) {
  k::clip_scale({.sum_squares = b.input<double>(0),
                 .loss = b.input<double>(1),
                 .norm = b.output<double>(0),
                 .clip_scale = b.output<double>(1),
                 .ok = b.output<double>(2),
                 .update_count = b.output<double>(4),
                 .skipped_in_row = b.output<double>(5),
                 .skipped_total = b.output<double>(6),
                 .loss_scale = b.output<double>(3),
                 .good_steps = b.output<double>(7)},
                b.instr->attrs.real("max_norm"), b.instr->attrs.integer("window"), b.stream);
}

void adamw(const Bound& b, bool) {
  const graph::Attrs& a = b.instr->attrs;
  const UpdateScalars s = update_scalars(b);
  const k::AdamWScalars scalars{.lr = s.lr,
                                .step = s.count,
                                .clip_scale = s.clip_scale,
                                .ok = s.ok,
                                .beta1 = a.real("beta1"),
                                .beta2 = a.real("beta2"),
                                .eps = a.real("eps"),
                                .weight_decay = a.real("weight_decay"),
                                .coupled = b.instr->op == &graph::kAdam};
  const auto launch = [&](const auto& ranges) { k::adamw(std::span(ranges), scalars, b.stream); };
  with_update_ranges(b, 2, launch, launch);
}

void sgd(const Bound& b, bool) {
  const graph::Attrs& a = b.instr->attrs;
  const double momentum = a.real("momentum");
  const UpdateScalars s = update_scalars(b);
  const k::SgdScalars scalars{.lr = s.lr,
                              .clip_scale = s.clip_scale,
                              .ok = s.ok,
                              .momentum = momentum,
                              .weight_decay = a.real("weight_decay"),
                              .nesterov = a.integer("nesterov") != 0};
  const auto launch = [&](const auto& ranges) { k::sgd(std::span(ranges), scalars, b.stream); };
  with_update_ranges(b, momentum > 0 ? 1 : 0, launch, launch);
}

void lion(const Bound& b, bool) {
  const graph::Attrs& a = b.instr->attrs;
  const UpdateScalars s = update_scalars(b);
  const k::LionScalars scalars{.lr = s.lr,
                               .clip_scale = s.clip_scale,
                               .ok = s.ok,
                               .beta1 = a.real("beta1"),
                               .beta2 = a.real("beta2"),
                               .weight_decay = a.real("weight_decay")};
  const auto launch = [&](const auto& ranges) { k::lion(std::span(ranges), scalars, b.stream); };
  with_update_ranges(b, 1, launch, launch);
}

}  // namespace

const std::vector<Kernel>& update_kernels() {
  static const std::vector<Kernel> table = {{&graph::kCountToSeed, count_to_seed},
                                            {&graph::kAccumulate, accumulate},
                                            {&graph::kCopy, copy},
                                            {&graph::kSwapBlocks, swap_blocks},
                                            {&graph::kZeroUnlessFirst, zero_unless_first},
                                            {&graph::kSumSquares, sum_squares},
                                            {&graph::kClipScale, clip_scale},
                                            {&graph::kAdamW, adamw},
                                            {&graph::kAdam, adamw},
                                            {&graph::kSgd, sgd},
                                            {&graph::kLion, lion}};
  return table;
}

}  // namespace quintet::exec::cuda
