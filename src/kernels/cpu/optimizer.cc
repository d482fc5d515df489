#include "kernels/cpu/optimizer.h"

#include "kernels/cpu/isa.h"
#include "kernels/cpu/optimizer_variants.h"

namespace quintet::kernels::cpu {

QUINTET_SELECT_VARIANT(optimizer_variants, OptimizerVariants)

template <class Master, class Moment, class Copy>
void adamw(Master* p, Moment* m, Moment* v, const Master* grad, Copy* copy, int64_t n,
           const AdamWScalars& scalars, ThreadPool& pool) {
  variants<OptimizerTypes<Master, Moment, Copy>>().adamw(p, m, v, grad, copy, n, scalars, pool);
}

template <class Master, class Moment, class Copy>
void sgd(Master* p, Moment* velocity, const Master* grad, Copy* copy, int64_t n, const SgdScalars& scalars,
         ThreadPool& pool) {
  variants<OptimizerTypes<Master, Moment, Copy>>().sgd(p, velocity, grad, copy, n, scalars, pool);
}

#define INSTANTIATE(M, V, C)                        \
  template decltype(adamw<M, V, C>) adamw<M, V, C>; \
  template decltype(sgd<M, V, C>) sgd<M, V, C>;
QUINTET_OPTIMIZER_TYPES(INSTANTIATE)
#undef INSTANTIATE

}  // namespace quintet::kernels::cpu
