// Adafactor.
#include "exec/cuda/kernel.h"
#include "exec/decode/factors.h"
#include "kernels/cuda/elementwise/pointwise.h"
#include "kernels/cuda/optimizer/adafactor.h"

namespace quintet::exec::cuda {
namespace {

namespace k = kernels::cuda;

// In a step that is skipped sums, norms and sizes may be anything: no update reads them.
void factor_sums(const Bound& b, bool) {
  k::zero(b.output<double>(0), b.out_type(0).bytes(), b.stream);
  const double* const clip_scale = update_scalars(b).clip_scale;
  with_factor_sums(b, [&](const auto& range, const auto* gradient) {
    k::factor_sums(range, gradient, clip_scale, b.workspace, b.stream);
  });
}

void update_factors(const Bound& b, bool) {
  const std::vector<kernels::FactoredShape> params = factored_shapes(*b.instr);
  const kernels::AdafactorScalars scalars = update_factors_scalars(b);
  if (b.out_type(1).dtype == graph::DType::F64)
    k::update_factors(std::span(params), b.output<double>(0), b.output<double>(1), scalars, b.stream);
  else
    k::update_factors(std::span(params), b.output<double>(0), b.output<float>(1), scalars, b.stream);
}

void factor_norms(const Bound& b, bool) {
  k::zero(b.output<double>(0), b.out_type(0).bytes(), b.stream);
  const kernels::AdafactorScalars scalars = adafactor_scalars(b);
  with_factor_norms(
      b,
      [&](const auto& range, const auto* weight, const auto* gradient) {
        k::factor_norms(range, weight, gradient, scalars, b.workspace, b.stream);
      },
      [&](const auto& range, const auto* weight, const auto* remainder, const auto* gradient) {
        k::factor_norms_split(range, weight, remainder, gradient, scalars, b.workspace, b.stream);
      });
}

void factor_sizes(const Bound& b, bool) {
  const std::vector<kernels::FactoredShape> params = factored_shapes(*b.instr);
  k::factor_sizes(params, b.input<double>(0), b.output<double>(0) + b.instr->attrs.integer("averages"),
                  adafactor_settings(*b.instr), b.stream);
}

void adafactor(const Bound& b, bool) {
  const kernels::AdafactorScalars scalars = adafactor_scalars(b);
  with_factored_updates(
      b,
      [&](const auto& range, auto* weight, const auto* gradient, auto* copy) {
        k::adafactor(range, weight, gradient, copy, scalars, b.stream);
      },
      [&](const auto& range, auto* weight, auto* remainder, const auto* gradient) {
        k::adafactor_split(range, weight, remainder, gradient, scalars, b.stream);
      });
}

}  // namespace

#include "exec/bind/factor.inc"

}  // namespace quintet::exec::cuda
