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
                 .skipped_total = at(Scalar::SkippedTotal),
                 .loss_scale = at(Scalar::LossScale),
                 .good_steps = at(Scalar::GoodSteps)},
                b.instr->attrs.real("max_norm"), b.instr->attrs.integer("window"), b.stream);
}

const double* scalar(const Bound& b, Scalar s) { return b.input<double>(1) + static_cast<size_t>(s); }

using Ranges = std::vector<k::UpdateRange>;

// grad, scalars -> master, moments..., copy (when it has another dtype); or, with a split master, -> weight,
// remainder, moments...
void update(const Bound& b, size_t num_moments, auto&& plain, auto&& split) {
  const size_t first_moment = has_split_master(*b.instr) ? 2 : 1;
  const DType gradient = b.in_type(0).dtype;
  const DType moment = num_moments > 0     ? b.out_type(first_moment).dtype
                       : first_moment == 2 ? DType::F32
                                           : b.out_type(0).dtype;
  const auto moment_of = [&]<class V>(V, size_t i) {
    return num_moments > i ? b.output<V>(first_moment + i) : nullptr;
  };
  const auto& list = b.instr->attrs.integers("ranges");
  Ranges ranges;
  for (size_t i = 0; i + 2 < list.size(); i += 3) ranges.push_back({list[i], list[i + 1], list[i + 2] != 0});
  if (first_moment == 2)
    return with_f32_or_bf16(moment, "moments", [&]<class V>(V) {
      with_f32_or_bf16(gradient, "gradients", [&]<class G>(G) {
        split(b.output<base::Bf16>(0), b.output<int16_t>(1), moment_of(V{}, 0), moment_of(V{}, 1),
              b.input<const G>(0), ranges);
      });
    });
  const bool has_copy = b.out.size() > 1 + num_moments;
  const DType master = b.out_type(0).dtype, copy = has_copy ? b.out_type(1 + num_moments).dtype : master;
  with_update_types({master, moment, gradient, copy}, [&]<class M, class V, class G, class C>(M, V, G, C) {
    plain(b.output<M>(0), moment_of(V{}, 0), moment_of(V{}, 1), b.input<const G>(0),
          has_copy ? b.output<C>(1 + num_moments) : nullptr, ranges);
  });
}

void adamw(const Bound& b, bool) {
  const graph::Attrs& a = b.instr->attrs;
  const k::AdamWScalars scalars{.lr = scalar(b, Scalar::LearningRate),
                                .step = scalar(b, Scalar::UpdateCount),
                                .clip_scale = scalar(b, Scalar::ClipScale),
                                .ok = scalar(b, Scalar::Ok),
                                .beta1 = a.real("beta1"),
                                .beta2 = a.real("beta2"),
                                .eps = a.real("eps"),
                                .weight_decay = a.real("weight_decay")};
  update(
      b, 2,
      [&]<class M, class V, class G, class C>(M* p, V* m, V* v, const G* grad, C* low, const Ranges& ranges) {
        k::adamw<M, V, G, C>(p, m, v, grad, low, ranges, scalars, b.stream);
      },
      [&]<class V, class G>(base::Bf16* weight, int16_t* remainder, V* m, V* v, const G* grad,
                            const Ranges& ranges) {
        k::adamw_split<V, G>(weight, remainder, m, v, grad, ranges, scalars, b.stream);
      });
}

void sgd(const Bound& b, bool) {
  const graph::Attrs& a = b.instr->attrs;
  const double momentum = a.real("momentum");
  const k::SgdScalars scalars{.lr = scalar(b, Scalar::LearningRate),
                              .clip_scale = scalar(b, Scalar::ClipScale),
                              .ok = scalar(b, Scalar::Ok),
                              .momentum = momentum,
                              .weight_decay = a.real("weight_decay")};
  update(
      b, momentum > 0 ? 1 : 0,
      [&]<class M, class V, class G, class C>(M* p, V* m, V*, const G* grad, C* low, const Ranges& ranges) {
        k::sgd<M, V, G, C>(p, m, grad, low, ranges, scalars, b.stream);
      },
      [&]<class V, class G>(base::Bf16* weight, int16_t* remainder, V* m, V*, const G* grad,
                            const Ranges& ranges) {
        k::sgd_split<V, G>(weight, remainder, m, grad, ranges, scalars, b.stream);
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
