// Ops of the step: sums over flat buffers, clipping, the optimizer's update.
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
  *b.output<double>(0) = count > 0 ? 1.0 / count : 0.0;
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
    if constexpr (!std::is_same_v<T, base::Bf16>)
      for (size_t i = 0; i < ranges.size(); i += 2)
        k::sum_squares<T>(b.input<T>(0) + ranges[i], ranges[i + 1], sum, true, b.workspace, *b.pool);
    else
      base::fail_internal("gradients are not kept in bf16");
  });
}
int64_t sum_squares_bytes(const Instr& i, int) { return k::reduce_workspace_bytes(i.in[0].type.count()); }

// A non-finite loss or norm anywhere makes every rank skip: both numbers are already the same on all of them.
void clip_scale(const Bound& b, bool) {
  double* s = b.output<double>(0);
  const auto at = [&](Scalar x) -> double& { return s[static_cast<size_t>(x)]; };
  const double norm = std::sqrt(at(Scalar::SumSquares)), limit = b.instr->attrs.real("max_norm");
  const bool ok = std::isfinite(norm) && std::isfinite(at(Scalar::Loss));
  at(Scalar::Norm) = norm;
  at(Scalar::Ok) = ok;
  at(Scalar::ClipScale) = limit > 0 && norm > limit ? limit / norm : 1.0;
  at(Scalar::UpdateCount) += ok;
  at(Scalar::SkippedInRow) = ok ? 0 : at(Scalar::SkippedInRow) + 1;
  at(Scalar::SkippedTotal) += !ok;
}

// grad, scalars -> master, moments..., copy (when it has another dtype)
void update(const Bound& b, size_t num_moments, auto&& apply) {
  const bool has_copy = b.out.size() > 1 + num_moments;
  const DType master = b.out_type(0).dtype;
  const DType moment = num_moments > 0 ? b.out_type(1).dtype : master;
  const DType copy = has_copy ? b.out_type(1 + num_moments).dtype : master;
  const double* s = b.input<double>(1);
  const int64_t step = static_cast<int64_t>(s[static_cast<size_t>(Scalar::UpdateCount)]);
  const int32_t ok = s[static_cast<size_t>(Scalar::Ok)] != 0;
  const auto& ranges = b.instr->attrs.integers("ranges");
  with_state_types(master, moment, copy, [&]<class M, class V, class C>(M, V, C) {
    for (size_t i = 0; i < ranges.size(); i += 3) {
      const int64_t first = ranges[i], count = ranges[i + 1];
      const double decay = ranges[i + 2] ? b.instr->attrs.real("weight_decay") : 0.0;
      M* p = b.output<M>(0) + first;
      V* m1 = num_moments > 0 ? b.output<V>(1) + first : nullptr;
      V* m2 = num_moments > 1 ? b.output<V>(2) + first : nullptr;
      C* low = has_copy ? b.output<C>(1 + num_moments) + first : nullptr;
      apply(p, m1, m2, b.input<M>(0) + first, low, count, decay, s, &step, &ok);
    }
  });
}

void adamw(const Bound& b, bool) {
  const graph::Attrs& a = b.instr->attrs;
  update(b, 2,
         [&]<class M, class V, class C>(M* p, V* m, V* v, const M* grad, C* low, int64_t n, double decay,
                                        const double* s, const int64_t* step, const int32_t* ok) {
           k::adamw<M, V, C>(p, m, v, grad, low, n,
                             {.lr = &s[static_cast<size_t>(Scalar::LearningRate)],
                              .step = step,
                              .clip_scale = &s[static_cast<size_t>(Scalar::ClipScale)],
                              .ok = ok,
                              .beta1 = a.real("beta1"),
                              .beta2 = a.real("beta2"),
                              .eps = a.real("eps"),
                              .weight_decay = decay},
                             *b.pool);
         });
}

void sgd(const Bound& b, bool) {
  const double momentum = b.instr->attrs.real("momentum");
  update(b, momentum > 0 ? 1 : 0,
         [&]<class M, class V, class C>(M* p, V* m, V*, const M* grad, C* low, int64_t n, double decay,
                                        const double* s, const int64_t*, const int32_t* ok) {
           k::sgd<M, V, C>(p, m, grad, low, n,
                           {.lr = &s[static_cast<size_t>(Scalar::LearningRate)],
                            .clip_scale = &s[static_cast<size_t>(Scalar::ClipScale)],
                            .ok = ok,
                            .momentum = momentum,
                            .weight_decay = decay},
                           *b.pool);
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
