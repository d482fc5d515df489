#include "extension/soft_sign.h"

#include <cmath>

#include "exec/cpu/kernel.h"
#include "exec/decode/step.h"
#include "graph/update_op.h"

namespace quintet::tests {
namespace {

// The derivative of m / (|m| + softness) is largest at 0; momentum adds up to no more than its gradients.
double gain(const graph::Attrs& attrs) { return 1 / attrs.real("softness"); }

graph::OpDef define() {
  graph::OpDef op = graph::update_op(
      "soft_sign", /*moments=*/1,
      graph::with_update_attrs({{"beta", graph::AttrKind::Real}, {"softness", graph::AttrKind::Real}}),
      graph::update_cost<2>);
  op.step.gain = gain;
  return op;
}
const graph::OpDef kSoftSign = define();

void run(const exec::cpu::Bound& b, bool) {
  const exec::UpdateScalars step = exec::update_scalars(b);
  if (*step.ok == 0) return;
  const double beta = b.instr->attrs.real("beta"), softness = b.instr->attrs.real("softness");
  exec::with_update_ranges(
      b, /*num_moments=*/1,
      [&]<class M, class V, class G, class C>(const std::vector<kernels::UpdateRange<M, V, G, C>>& ranges) {
        if constexpr (std::is_same_v<G, double> && std::is_same_v<V, double>)
          for (const auto& r : ranges)
            for (int64_t i = 0; i < r.count; ++i) {
              const double g = *step.clip_scale * r.gradient[i], lr = *step.lr * r.lr_factor;
              const double m = r.moment1[i] = beta * r.moment1[i] + (1 - beta) * g;
              r.master[i] =
                  (1 - lr * step.decay(r.weight_decay)) * r.master[i] - lr * m / (std::abs(m) + softness);
            }
        else
          base::fail_internal("soft_sign has a kernel for f64 only");
      },
      [](const auto&) { base::fail_internal("soft_sign has no kernel for split masters"); });
}

}  // namespace

void soft_sign(optim::StepBuilder& b, optim::Trained& t) {
  const graph::ValueId m = b.moment(t, "soft_sign.m");
  b.update(kSoftSign, {{"beta", kSoftSignBeta}, {"softness", kSoftness}}, t, {m});
}

const std::vector<compiler::OpPackage>& soft_sign_packages() {
  static const exec::cpu::Kernel kKernel = {&kSoftSign, run, nullptr};
  static const std::vector<compiler::OpPackage> kPackages = {{.op = &kSoftSign, .cpu = &kKernel}};
  return kPackages;
}

}  // namespace quintet::tests
