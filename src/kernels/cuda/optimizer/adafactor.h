// Adafactor on ranges of elements of matrices; what the ops compute is in graph/ops/adafactor.cc, the
// contracts of the kernels in kernels/cpu/optimizer/adafactor.h. Pointers are device addresses.
#pragma once

#include <span>

#include "kernels/cuda/support/types.h"
#include "kernels/factored.h"

namespace quintet::kernels::cuda {

// Partial sums: kFactorSlices per column for sums over rows, kFactorTerms for sums over a matrix.
inline constexpr int kFactorSlices = 32, kFactorTerms = 256;
inline int64_t factor_sums_bytes(const FactoredRange& range) { return range.width() * kFactorSlices * 8; }
inline constexpr int64_t kFactorNormsBytes = int64_t{kFactorTerms} * 2 * 8;

// `workspace` has factor_sums_bytes(range).
template <class Gradient>
void factor_sums(const FactoredRange& range, const Gradient* grad, const double* clip_scale, void* workspace,
                 Stream stream);

template <class Average>
void update_factors(std::span<const FactoredShape> params, double* values, Average* averages,
                    const AdafactorScalars& scalars, Stream stream);

// `workspace` has kFactorNormsBytes.
template <class Master, class Gradient>
void factor_norms(const FactoredRange& range, const Master* p, const Gradient* grad,
                  const AdafactorScalars& scalars, void* workspace, Stream stream);
template <class Gradient>
void factor_norms_split(const FactoredRange& range, const Bf16* weight, const int16_t* remainder,
                        const Gradient* grad, const AdafactorScalars& scalars, void* workspace,
                        Stream stream);

void factor_sizes(std::span<const FactoredShape> params, const double* norms, double* sizes,
                  const AdafactorScalars& scalars, Stream stream);

template <class Master, class Gradient, class Copy>
void adafactor(const FactoredRange& range, Master* p, const Gradient* grad, Copy* copy,
               const AdafactorScalars& scalars, Stream stream);
template <class Gradient>
void adafactor_split(const FactoredRange& range, Bf16* weight, int16_t* remainder, const Gradient* grad,
                     const AdafactorScalars& scalars, Stream stream);

}  // namespace quintet::kernels::cuda
