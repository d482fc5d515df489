// Ops of the step: sums over flat buffers, clipping, the optimizer's update. All scalars are doubles in
// device memory, so nothing here waits for the device.
#include "exec/cuda/kernel.h"
#include "exec/cuda_sizes/shapes.h"
#include "exec/with_type.h"
#include "kernels/cuda/optimizer.h"
#include "kernels/cuda/pointwise.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/scalars.h"

namespace quintet::exec::cuda {
namespace {

using graph::DType;
using program::Scalar;
namespace k = kernels::cuda;

void count_to_seed(const Bound& b, bool) {
  k::count_to_seed(b.input<double>(0), b.output<double>(0), b.stream);
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
  if (b.instr->attrs.integer("keep"))
    copy(b, false);
  else
    k::zero(b.out[0], b.out_type(0).bytes(), b.stream);
}

void sum_squares(const Bound& b, bool accumulate) {
  const std::vector<k::Range> ranges = squared_ranges(*b.instr);
  with_type(b.in_type(0).dtype, [&]<class T>(T) {
    k::sum_squares<T>(b.input<T>(0), ranges, b.output<double>(0), accumulate, b.workspace, b.stream);
  });
}

// A non-finite loss or norm anywhere makes every rank skip: both numbers are already the same on all of them.
void clip_scale(const Bound& b, bool) {
  double* s = b.output<double>(0);
  const auto at = [&](Scalar x) { return s + static_cast<size_t>(x); };
  k::clip_scale({.sum_squares = at(Scalar::SumSquares),
                 .loss = at(Scalar::Loss),
                 .norm = at(Scalar::Norm),
                 .clip_scale = at(Scalar::ClipScale),
                 .ok = at(Scalar::Ok),
                 .update_count = at(Scalar::UpdateCount),
                 .skipped_in_row = at(Scalar::SkippedInRow),
                 .skipped_total = at(Scalar::SkippedTotal)},
                b.instr->attrs.real("max_norm"), b.stream);
}

// grad, scalars -> master, moments..., copy (when it has another dtype)
void update(const Bound& b, size_t num_moments, auto&& apply) {
  const bool has_copy = b.out.size() > 1 + num_moments;
  const DType master = b.out_type(0).dtype;
  const DType moment = num_moments > 0 ? b.out_type(1).dtype : master;
  const DType copy = has_copy ? b.out_type(1 + num_moments).dtype : master;
  const auto& list = b.instr->attrs.integers("ranges");
  std::vector<k::UpdateRange> ranges;
  for (size_t i = 0; i + 2 < list.size(); i += 3) ranges.push_back({list[i], list[i + 1], list[i + 2] != 0});
  QUINTET_CHECK(b.in_type(0).dtype == master, "[{}] gradients of {} for master weights of {}",
                b.instr->op->name, base::to_string(b.in_type(0).dtype), base::to_string(master));
  with_state_types(master, moment, copy, [&]<class M, class V, class C>(M, V, C) {
    apply(b.output<M>(0), num_moments > 0 ? b.output<V>(1) : nullptr,
          num_moments > 1 ? b.output<V>(2) : nullptr, b.input<M>(0),
          has_copy ? b.output<C>(1 + num_moments) : nullptr, ranges);
  });
}

const double* scalar(const Bound& b, Scalar s) { return b.input<double>(1) + static_cast<size_t>(s); }

void adamw(const Bound& b, bool) {
  const graph::Attrs& a = b.instr->attrs;
  update(b, 2,
         [&]<class M, class V, class C>(M* p, V* m, V* v, const M* grad, C* low,
                                        const std::vector<k::UpdateRange>& ranges) {
           k::adamw<M, V, M, C>(p, m, v, grad, low, ranges,
                                {.lr = scalar(b, Scalar::LearningRate),
                                 .step = scalar(b, Scalar::UpdateCount),
                                 .clip_scale = scalar(b, Scalar::ClipScale),
                                 .ok = scalar(b, Scalar::Ok),
                                 .beta1 = a.real("beta1"),
                                 .beta2 = a.real("beta2"),
                                 .eps = a.real("eps"),
                                 .weight_decay = a.real("weight_decay")},
                                b.stream);
         });
}

void sgd(const Bound& b, bool) {
  const graph::Attrs& a = b.instr->attrs;
  const double momentum = a.real("momentum");
  update(b, momentum > 0 ? 1 : 0,
         [&]<class M, class V, class C>(M* p, V* m, V*, const M* grad, C* low,
                                        const std::vector<k::UpdateRange>& ranges) {
           k::sgd<M, V, M, C>(p, m, grad, low, ranges,
                              {.lr = scalar(b, Scalar::LearningRate),
                               .clip_scale = scalar(b, Scalar::ClipScale),
                               .ok = scalar(b, Scalar::Ok),
                               .momentum = momentum,
                               .weight_decay = a.real("weight_decay")},
                              b.stream);
         });
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
                                            {&graph::kSgd, sgd}};
  return table;
}

}  // namespace quintet::exec::cuda
