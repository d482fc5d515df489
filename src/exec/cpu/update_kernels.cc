// Ops of the step: sums over flat buffers, clipping, the optimizer's update.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "exec/cpu/kernel.h"
#include "exec/updates.h"
#include "kernels/cpu/elementwise/pointwise.h"
#include "kernels/cpu/optimizer/optimizer.h"
#include "kernels/cpu/reduce/reduce.h"

namespace quintet::exec::cpu {
namespace {

using program::Instr;
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
  const int64_t outer = b.instr->attrs.integer("a"), inner = b.instr->attrs.integer("b");
  if (outer * inner == 0) return;
  const size_t block = static_cast<size_t>(b.in_type(0).bytes() / (outer * inner));
  b.pool->parallel_for(0, inner, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t o = 0; o < outer; ++o)
        std::memcpy(b.out[0] + static_cast<size_t>(i * outer + o) * block,
                    b.in[0] + static_cast<size_t>(o * inner + i) * block, block);
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
int64_t sum_squares_bytes(const Instr& i, int) {
  int64_t bytes = 0;
  for (const program::Operand& o : i.in) bytes = std::max(bytes, k::reduce_workspace_bytes(o.type.count()));
  return bytes;
}

// A non-finite loss or norm anywhere makes every rank skip: both numbers are already the same on all of them.
void clip_scale(const Bound& b, bool) {
  const double sum_squares = *b.input<double>(0), loss = *b.input<double>(1);
  double &scale = *b.output<double>(3), &updates = *b.output<double>(4),
         &skipped_in_row = *b.output<double>(5), &skipped_total = *b.output<double>(6),
         &good = *b.output<double>(7);
  const double norm = std::sqrt(sum_squares) / scale, limit = b.instr->attrs.real("max_norm");
  const auto window = static_cast<double>(b.instr->attrs.integer("window"));
  const bool finite = std::isfinite(loss), ok = std::isfinite(norm) && finite;
  *b.output<double>(0) = norm;
  *b.output<double>(1) = (limit > 0 && norm > limit ? limit / norm : 1.0) / scale;
  *b.output<double>(2) = ok;
  updates += ok;
  // A step that a smaller loss scale may mend is skipped, but no sign of a run gone wrong.
  const bool mended = window > 0 && finite && scale > 1;
  skipped_in_row = ok ? 0 : skipped_in_row + !mended;
  skipped_total += !ok;
  if (window == 0) return;
  good = ok ? good + 1 : 0;
  if (!ok) scale = std::max(scale / 2, 1.0);
  if (good >= window) {
    scale *= 2;
    good = 0;
  }
}

// AdamW, and Adam, whose decay is coupled.
void adamw(const Bound& b, bool) {
  const graph::Attrs& a = b.instr->attrs;
  const UpdateScalars s = update_scalars(b);
  const auto step = static_cast<int64_t>(*s.count);
  const int32_t ok = *s.ok != 0;
  const auto with = [&](bool decay) {
    return k::AdamWScalars{.lr = s.lr,
                           .step = &step,
                           .clip_scale = s.clip_scale,
                           .ok = &ok,
                           .beta1 = a.real("beta1"),
                           .beta2 = a.real("beta2"),
                           .eps = a.real("eps"),
                           .weight_decay = decay ? a.real("weight_decay") : 0.0,
                           .coupled = b.instr->op == &graph::kAdam};
  };
  with_update_ranges(
      b, 2,
      [&](const auto& ranges) {
        for (const auto& r : ranges)
          k::adamw(r.master, r.moment1, r.moment2, r.gradient, r.copy, r.count, with(r.decay), *b.pool);
      },
      [&](const auto& ranges) {
        for (const auto& r : ranges)
          k::adamw_split(r.weight, r.remainder, r.moment1, r.moment2, r.gradient, r.count, with(r.decay),
                         *b.pool);
      });
}

void sgd(const Bound& b, bool) {
  const graph::Attrs& a = b.instr->attrs;
  const double momentum = a.real("momentum");
  const UpdateScalars s = update_scalars(b);
  const int32_t ok = *s.ok != 0;
  const auto with = [&](bool decay) {
    return k::SgdScalars{.lr = s.lr,
                         .clip_scale = s.clip_scale,
                         .ok = &ok,
                         .momentum = momentum,
                         .weight_decay = decay ? a.real("weight_decay") : 0.0,
                         .nesterov = a.integer("nesterov") != 0};
  };
  with_update_ranges(
      b, momentum > 0 ? 1 : 0,
      [&](const auto& ranges) {
        for (const auto& r : ranges)
          k::sgd(r.master, r.moment1, r.gradient, r.copy, r.count, with(r.decay), *b.pool);
      },
      [&](const auto& ranges) {
        for (const auto& r : ranges)
          k::sgd_split(r.weight, r.remainder, r.moment1, r.gradient, r.count, with(r.decay), *b.pool);
      });
}

void lion(const Bound& b, bool) {
  const graph::Attrs& a = b.instr->attrs;
  const UpdateScalars s = update_scalars(b);
  const int32_t ok = *s.ok != 0;
  const auto with = [&](bool decay) {
    return k::LionScalars{.lr = s.lr,
                          .clip_scale = s.clip_scale,
                          .ok = &ok,
                          .beta1 = a.real("beta1"),
                          .beta2 = a.real("beta2"),
                          .weight_decay = decay ? a.real("weight_decay") : 0.0};
  };
  with_update_ranges(
      b, 1,
      [&](const auto& ranges) {
        for (const auto& r : ranges)
          k::lion(r.master, r.moment1, r.gradient, r.copy, r.count, with(r.decay), *b.pool);
      },
      [&](const auto& ranges) {
        for (const auto& r : ranges)
          k::lion_split(r.weight, r.remainder, r.moment1, r.gradient, r.count, with(r.decay), *b.pool);
      });
}

}  // namespace

const std::vector<Kernel>& update_kernels() {
  static const std::vector<Kernel> table = {{&graph::kCountToSeed, count_to_seed, nullptr},
                                            {&graph::kAccumulate, accumulate, nullptr},
                                            {&graph::kCopy, copy, nullptr},
                                            {&graph::kSwapBlocks, swap_blocks, nullptr},
                                            {&graph::kZeroUnlessFirst, zero_unless_first, nullptr},
                                            {&graph::kSumSquares, sum_squares, sum_squares_bytes},
                                            {&graph::kClipScale, clip_scale, nullptr},
                                            {&graph::kAdamW, adamw, nullptr},
                                            {&graph::kAdam, adamw, nullptr},
                                            {&graph::kSgd, sgd, nullptr},
                                            {&graph::kLion, lion, nullptr}};
  return table;
}

}  // namespace quintet::exec::cpu
