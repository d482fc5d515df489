#include "kernels/cpu/optimizer/optimizer.h"

#include "base/split_float.h"
#include "kernels/cpu/support/isa.h"

namespace quintet::kernels::cpu {

QUINTET_SELECT_VARIANT(optimizer_variants, OptimizerVariants)

template <class Master, class Moment, class Gradient, class Copy>
void adamw(Master* p, Moment* m, Moment* v, const Gradient* grad, Copy* copy, int64_t n,
           const AdamWScalars& scalars, ThreadPool& pool) {
  variants<OptimizerTypes<Master, Moment, Gradient, Copy>>().adamw(p, m, v, grad, copy, n, scalars, pool);
}

template <class Moment, class Gradient>
void adamw_split(Bf16* weight, int16_t* remainder, Moment* m, Moment* v, const Gradient* grad, int64_t n,
                 const AdamWScalars& scalars, ThreadPool& pool) {
  variants<SplitOptimizerTypes<Moment, Gradient>>().adamw(weight, remainder, m, v, grad, n, scalars, pool);
}

template <class Master, class Moment, class Gradient, class Copy>
void sgd(Master* p, Moment* velocity, const Gradient* grad, Copy* copy, int64_t n, const SgdScalars& scalars,
         ThreadPool& pool) {
  variants<OptimizerTypes<Master, Moment, Gradient, Copy>>().sgd(p, velocity, grad, copy, n, scalars, pool);
}

template <class Moment, class Gradient>
void sgd_split(Bf16* weight, int16_t* remainder, Moment* velocity, const Gradient* grad, int64_t n,
               const SgdScalars& scalars, ThreadPool& pool) {
  variants<SplitOptimizerTypes<Moment, Gradient>>().sgd(weight, remainder, velocity, grad, n, scalars, pool);
}

template <class Master, class Moment, class Gradient, class Copy>
void lion(Master* p, Moment* m, const Gradient* grad, Copy* copy, int64_t n, const LionScalars& scalars,
          ThreadPool& pool) {
  variants<OptimizerTypes<Master, Moment, Gradient, Copy>>().lion(p, m, grad, copy, n, scalars, pool);
}

template <class Moment, class Gradient>
void lion_split(Bf16* weight, int16_t* remainder, Moment* m, const Gradient* grad, int64_t n,
                const LionScalars& scalars, ThreadPool& pool) {
  variants<SplitOptimizerTypes<Moment, Gradient>>().lion(weight, remainder, m, grad, n, scalars, pool);
}

namespace {

// Memory-bound: one build serves every instruction set.
template <class P, class Read>
void average_of(const Read& read, P* average, int64_t n, double decay, ThreadPool& pool) {
  const P step = P(1.0 - decay);
  pool.parallel_for(0, n, 4096, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) average[i] += step * (read(i) - average[i]);
  });
}

}  // namespace

template <class Master>
void ema(const Master* weight, Master* average, int64_t n, double decay, ThreadPool& pool) {
  average_of([weight](int64_t i) { return weight[i]; }, average, n, decay, pool);
}
template void ema(const float*, float*, int64_t, double, ThreadPool&);
template void ema(const double*, double*, int64_t, double, ThreadPool&);

void ema_split(const Bf16* weight, const int16_t* remainder, float* average, int64_t n, double decay,
               ThreadPool& pool) {
  average_of([=](int64_t i) { return base::join_float(weight[i], remainder[i]); }, average, n, decay, pool);
}

template <class Master, class Moment, class Gradient, class Copy>
void lamb(Master* p, Moment* m, Moment* v, const Gradient* grad, Copy* copy, int64_t n,
          const LambScalars& scalars, ThreadPool& pool) {
  variants<OptimizerTypes<Master, Moment, Gradient, Copy>>().lamb(p, m, v, grad, copy, n, scalars, pool);
}

template <class Moment, class Gradient>
void lamb_split(Bf16* weight, int16_t* remainder, Moment* m, Moment* v, const Gradient* grad, int64_t n,
                const LambScalars& scalars, ThreadPool& pool) {
  variants<SplitOptimizerTypes<Moment, Gradient>>().lamb(weight, remainder, m, v, grad, n, scalars, pool);
}

template <class Master, class Moment, class Gradient, class Copy>
void lamb_norms(const Master* p, const Moment* m, const Moment* v, const Gradient* grad, int64_t n,
                const LambScalars& scalars, double* norms, void* workspace, ThreadPool& pool) {
  variants<OptimizerTypes<Master, Moment, Gradient, Copy>>().lamb_norms(p, m, v, grad, n, scalars, norms,
                                                                        workspace, pool);
}

template <class Moment, class Gradient>
void lamb_norms_split(const Bf16* weight, const int16_t* remainder, const Moment* m, const Moment* v,
                      const Gradient* grad, int64_t n, const LambScalars& scalars, double* norms,
                      void* workspace, ThreadPool& pool) {
  variants<SplitOptimizerTypes<Moment, Gradient>>().lamb_norms(weight, remainder, m, v, grad, n, scalars,
                                                               norms, workspace, pool);
}

template <class Master, class Moment, class Gradient, class Copy>
void lars(Master* p, Moment* velocity, const Gradient* grad, Copy* copy, int64_t n,
          const LarsScalars& scalars, ThreadPool& pool) {
  variants<OptimizerTypes<Master, Moment, Gradient, Copy>>().lars(p, velocity, grad, copy, n, scalars, pool);
}

template <class Moment, class Gradient>
void lars_split(Bf16* weight, int16_t* remainder, Moment* velocity, const Gradient* grad, int64_t n,
                const LarsScalars& scalars, ThreadPool& pool) {
  variants<SplitOptimizerTypes<Moment, Gradient>>().lars(weight, remainder, velocity, grad, n, scalars, pool);
}

template <class Master, class Moment, class Gradient, class Copy>
void lars_norms(const Master* p, const Gradient* grad, int64_t n, const LarsScalars& scalars, double* norms,
                void* workspace, ThreadPool& pool) {
  variants<OptimizerTypes<Master, Moment, Gradient, Copy>>().lars_norms(p, grad, n, scalars, norms, workspace,
                                                                        pool);
}

template <class Moment, class Gradient>
void lars_norms_split(const Bf16* weight, const int16_t* remainder, const Gradient* grad, int64_t n,
                      const LarsScalars& scalars, double* norms, void* workspace, ThreadPool& pool) {
  variants<SplitOptimizerTypes<Moment, Gradient>>().lars_norms(weight, remainder, grad, n, scalars, norms,
                                                               workspace, pool);
}

#define INSTANTIATE(M, V, G, C)                                     \
  template decltype(adamw<M, V, G, C>) adamw<M, V, G, C>;           \
  template decltype(sgd<M, V, G, C>) sgd<M, V, G, C>;               \
  template decltype(lion<M, V, G, C>) lion<M, V, G, C>;             \
  template decltype(lamb<M, V, G, C>) lamb<M, V, G, C>;             \
  template decltype(lamb_norms<M, V, G, C>) lamb_norms<M, V, G, C>; \
  template decltype(lars<M, V, G, C>) lars<M, V, G, C>;             \
  template decltype(lars_norms<M, V, G, C>) lars_norms<M, V, G, C>;
QUINTET_OPTIMIZER_TYPES(INSTANTIATE)
#undef INSTANTIATE
#define INSTANTIATE(V, G)                                           \
  template decltype(adamw_split<V, G>) adamw_split<V, G>;           \
  template decltype(sgd_split<V, G>) sgd_split<V, G>;               \
  template decltype(lion_split<V, G>) lion_split<V, G>;             \
  template decltype(lamb_split<V, G>) lamb_split<V, G>;             \
  template decltype(lamb_norms_split<V, G>) lamb_norms_split<V, G>; \
  template decltype(lars_split<V, G>) lars_split<V, G>;             \
  template decltype(lars_norms_split<V, G>) lars_norms_split<V, G>;
QUINTET_SPLIT_OPTIMIZER_TYPES(INSTANTIATE)
#undef INSTANTIATE

}  // namespace quintet::kernels::cpu
