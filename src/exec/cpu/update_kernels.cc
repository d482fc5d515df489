// Ops of the step: sums over flat buffers, clipping, the optimizer's update.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "exec/cpu/kernel.h"
#include "kernels/cpu/optimizer.h"
#include "kernels/cpu/pointwise.h"
#include "kernels/cpu/reduce.h"

namespace quintet::exec::cpu {
namespace {

using graph::DType;
using program::Instr;
using program::Scalar;
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
  if (b.instr->attrs.integer("keep"))
    copy(b, false);
  else
    std::memset(b.out[0], 0, static_cast<size_t>(b.out_type(0).bytes()));
}

void sum_squares(const Bound& b, bool accumulate) {
  double* sum = b.output<double>(0);
  if (!accumulate) *sum = 0;
  const auto& ranges = b.instr->attrs.integers("ranges");
  with_type(b.in_type(0).dtype, [&]<class T>(T) {
    for (size_t i = 0; i < ranges.size(); i += 2)
      k::sum_squares<T>(b.input<T>(0) + ranges[i], ranges[i + 1], sum, true, b.workspace, *b.pool);
  });
}
int64_t sum_squares_bytes(const Instr& i, int) { return k::reduce_workspace_bytes(i.in[0].type.count()); }

// A non-finite loss or norm anywhere makes every rank skip: both numbers are already the same on all of them.
void clip_scale(const Bound& b, bool) {
  double* s = b.output<double>(0);
  const auto at = [&](Scalar x) -> double& { return s[static_cast<size_t>(x)]; };
  double& scale = at(Scalar::LossScale);
  const double norm = std::sqrt(at(Scalar::SumSquares)) / scale, limit = b.instr->attrs.real("max_norm");
  const auto window = static_cast<double>(b.instr->attrs.integer("window"));
  const bool finite = std::isfinite(at(Scalar::Loss)), ok = std::isfinite(norm) && finite;
  at(Scalar::Norm) = norm;
  at(Scalar::Ok) = ok;
  at(Scalar::ClipScale) = (limit > 0 && norm > limit ? limit / norm : 1.0) / scale;
  at(Scalar::UpdateCount) += ok;
  // A step that a smaller loss scale may mend is skipped, but no sign of a run gone wrong.
  const bool mended = window > 0 && finite && scale > 1;
  at(Scalar::SkippedInRow) = ok ? 0 : at(Scalar::SkippedInRow) + !mended;
  at(Scalar::SkippedTotal) += !ok;
  if (window == 0) return;
  double& good = at(Scalar::GoodSteps);
  good = ok ? good + 1 : 0;
  if (!ok) scale = std::max(scale / 2, 1.0);
  if (good >= window) {
    scale *= 2;
    good = 0;
  }
}

const double& scalar(const Bound& b, Scalar x) { return b.input<double>(1)[static_cast<size_t>(x)]; }

// Calls fn(first, count, weight decay) for every range of elements.
void each_range(const Bound& b, auto&& fn) {
  const auto& ranges = b.instr->attrs.integers("ranges");
  for (size_t i = 0; i < ranges.size(); i += 3)
    fn(ranges[i], ranges[i + 1], ranges[i + 2] ? b.instr->attrs.real("weight_decay") : 0.0);
}

// grad, scalars -> master, moments..., copy (when it has another dtype); or, with a split master, -> weight,
// remainder, moments... `plain` and `split` are called for every range.
void update(const Bound& b, size_t num_moments, auto&& plain, auto&& split) {
  const size_t first_moment = has_split_master(*b.instr) ? 2 : 1;
  const DType gradient = b.in_type(0).dtype;
  const DType moment = num_moments > 0     ? b.out_type(first_moment).dtype
                       : first_moment == 2 ? DType::F32
                                           : b.out_type(0).dtype;
  const auto moment_of = [&]<class V>(V, size_t i, int64_t first) {
    return num_moments > i ? b.output<V>(first_moment + i) + first : nullptr;
  };
  if (first_moment == 2)
    return with_f32_or_bf16(moment, "moments", [&]<class V>(V) {
      with_f32_or_bf16(gradient, "gradients", [&]<class G>(G) {
        each_range(b, [&](int64_t first, int64_t count, double decay) {
          split(b.output<base::Bf16>(0) + first, b.output<int16_t>(1) + first, moment_of(V{}, 0, first),
                moment_of(V{}, 1, first), b.input<const G>(0) + first, count, decay);
        });
      });
    });
  const bool has_copy = b.out.size() > 1 + num_moments;
  const DType master = b.out_type(0).dtype, copy = has_copy ? b.out_type(1 + num_moments).dtype : master;
  with_update_types({master, moment, gradient, copy}, [&]<class M, class V, class G, class C>(M, V, G, C) {
    each_range(b, [&](int64_t first, int64_t count, double decay) {
      plain(b.output<M>(0) + first, moment_of(V{}, 0, first), moment_of(V{}, 1, first),
            b.input<const G>(0) + first, has_copy ? b.output<C>(1 + num_moments) + first : nullptr, count,
            decay);
    });
  });
}

void adamw(const Bound& b, bool) {
  const graph::Attrs& a = b.instr->attrs;
  const int64_t step = static_cast<int64_t>(scalar(b, Scalar::UpdateCount));
  const int32_t ok = scalar(b, Scalar::Ok) != 0;
  const auto with = [&](double decay) {
    return k::AdamWScalars{.lr = &scalar(b, Scalar::LearningRate),
                           .step = &step,
                           .clip_scale = &scalar(b, Scalar::ClipScale),
                           .ok = &ok,
                           .beta1 = a.real("beta1"),
                           .beta2 = a.real("beta2"),
                           .eps = a.real("eps"),
                           .weight_decay = decay};
  };
  update(
      b, 2,
      [&]<class M, class V, class G, class C>(M* p, V* m, V* v, const G* grad, C* low, int64_t n,
                                              double decay) {
        k::adamw<M, V, G, C>(p, m, v, grad, low, n, with(decay), *b.pool);
      },
      [&]<class V, class G>(base::Bf16* weight, int16_t* remainder, V* m, V* v, const G* grad, int64_t n,
                            double decay) {
        k::adamw_split<V, G>(weight, remainder, m, v, grad, n, with(decay), *b.pool);
      });
}

void sgd(const Bound& b, bool) {
  const double momentum = b.instr->attrs.real("momentum");
  const int32_t ok = scalar(b, Scalar::Ok) != 0;
  const auto with = [&](double decay) {
    return k::SgdScalars{.lr = &scalar(b, Scalar::LearningRate),
                         .clip_scale = &scalar(b, Scalar::ClipScale),
                         .ok = &ok,
                         .momentum = momentum,
                         .weight_decay = decay};
  };
  update(
      b, momentum > 0 ? 1 : 0,
      [&]<class M, class V, class G, class C>(M* p, V* m, V*, const G* grad, C* low, int64_t n,
                                              double decay) {
        k::sgd<M, V, G, C>(p, m, grad, low, n, with(decay), *b.pool);
      },
      [&]<class V, class G>(base::Bf16* weight, int16_t* remainder, V* m, V*, const G* grad, int64_t n,
                            double decay) {
        k::sgd_split<V, G>(weight, remainder, m, grad, n, with(decay), *b.pool);
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
                                            {&graph::kSgd, sgd, nullptr}};
  return table;
}

}  // namespace quintet::exec::cpu
