// Adafactor on ranges of elements of matrices; what the ops compute is in graph/ops/adafactor.cc. Arithmetic
// is in double. No result depends on the number of threads.
#pragma once

#include <span>

#include "kernels/cpu/support/types.h"
#include "kernels/factored.h"

namespace quintet::kernels::cpu {

// Adds squares of the clipped gradient to range.row and range.column. Instances of all templates here: float,
// double, Bf16 for Gradient; float, double for Master; those, Bf16 and F16 for Copy.
template <class Gradient>
void factor_sums(const FactoredRange& range, const Gradient* grad, double clip_scale, ThreadPool& pool);

// Sums become factors, averages are updated. `values` has as many sums as there are averages.
template <class Average>
void update_factors(std::span<const FactoredShape> params, double* values, Average* averages,
                    const AdafactorScalars& scalars);

// Adds the sums of squares of the weight and of the update to range.norms, per matrix.
template <class Master, class Gradient>
void factor_norms(const FactoredRange& range, const Master* p, const Gradient* grad,
                  const AdafactorScalars& scalars, ThreadPool& pool);
template <class Gradient>
void factor_norms_split(const FactoredRange& range, const Bf16* weight, const int16_t* remainder,
                        const Gradient* grad, const AdafactorScalars& scalars, ThreadPool& pool);

// sizes, per matrix, from its norms
void factor_sizes(std::span<const FactoredShape> params, const double* norms, double* sizes,
                  const AdafactorScalars& scalars);

// The update of the weight; `copy` may be null.
template <class Master, class Gradient, class Copy>
void adafactor(const FactoredRange& range, Master* p, const Gradient* grad, Copy* copy,
               const AdafactorScalars& scalars, ThreadPool& pool);
template <class Gradient>
void adafactor_split(const FactoredRange& range, Bf16* weight, int16_t* remainder, const Gradient* grad,
                     const AdafactorScalars& scalars, ThreadPool& pool);

}  // namespace quintet::kernels::cpu
