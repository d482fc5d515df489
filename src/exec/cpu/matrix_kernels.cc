// Muon: momentum, pieces of matrices, Newton-Schulz, and the update by its result.
#include "exec/cpu/kernel.h"
#include "exec/decode/matrices.h"
#include "kernels/cpu/optimizer/newton_schulz.h"
#include "kernels/cpu/optimizer/optimizer.h"

namespace quintet::exec::cpu {
namespace {

namespace k = kernels::cpu;

void muon_momentum(const Bound& b, bool) {
  const UpdateScalars s = update_scalars(b);
  if (*s.ok == 0) return;
  const double momentum = b.instr->attrs.real("momentum");
  with_momentum_ranges(b, [&](auto* m, const auto* gradient, int64_t count, const kernels::Origin& origin) {
    const k::Rounding rounding{origin, static_cast<int64_t>(*s.count)};
    k::muon_momentum(m, gradient, count, *s.clip_scale, momentum, origin.random() ? &rounding : nullptr,
                     *b.pool);
  });
}

void gather_directions(const Bound& b, bool) {
  const graph::Attrs& a = b.instr->attrs;
  const double clip = *b.input<double>(b.in.size() - 1), momentum = a.real("momentum");
  const bool nesterov = a.integer("nesterov") != 0;
  with_direction_pieces(b, [&](const auto* m, const auto* gradient, auto* direction, int64_t count) {
    k::muon_direction(m, gradient, direction, count, clip, momentum, nesterov, *b.pool);
  });
}

// A plain gradient-descent step: the directions include all other factors already.
void apply_directions(const Bound& b, bool) {
  const int32_t ok = *b.input<double>(2) != 0;
  const double ratio = b.instr->in.size() > 3 ? *b.input<double>(3) : 1;  // of weight decay
  double lr = 0;                                                          // of the range
  const auto with = [&](const auto& range) {
    lr = *b.input<double>(1) * range.lr_factor;
    return k::SgdScalars{.lr = &lr, .ok = &ok, .weight_decay = ratio * range.weight_decay};
  };
  with_applied_pieces(
      b,
      [&](const auto& ranges) {
        for (const auto& r : ranges)
          k::sgd(r.master, r.moment1, r.gradient, r.copy, r.count, with(r), *b.pool);
      },
      [&](const auto& ranges) {
        for (const auto& r : ranges)
          k::sgd_split(r.weight, r.remainder, r.moment1, r.gradient, r.count, with(r), *b.pool);
      });
}

void newton_schulz(const Bound& b, bool) {
  const std::vector<kernels::MatrixPiece> pieces = kernel_pieces(*b.instr);
  with_matrix_type(b.in_type(0).dtype, [&]<class T>(T) {
    k::newton_schulz(newton_schulz_problem<k::NewtonSchulz>(*b.instr), b.output<T>(0), std::span(pieces),
                     b.workspace, b.instr->workspace_bytes, *b.pool);
  });
}
}  // namespace

const std::vector<Kernel>& matrix_kernels() {
  static const std::vector<Kernel> table = {{&graph::kMuonMomentum, muon_momentum},
                                            {&graph::kGatherDirections, gather_directions},
                                            {&graph::kNewtonSchulz, newton_schulz},
                                            {&graph::kApplyDirections, apply_directions}};
  return table;
}

}  // namespace quintet::exec::cpu
