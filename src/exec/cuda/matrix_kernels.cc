// Muon: momentum, pieces of matrices, Newton-Schulz, and the update by its result.
#include "exec/cuda/kernel.h"
#include "exec/cuda/libraries.h"
#include "exec/decode/matrices.h"
#include "kernels/cuda/optimizer/newton_schulz.h"
#include "kernels/cuda/optimizer/optimizer.h"

namespace quintet::exec::cuda {
namespace {

namespace k = kernels::cuda;

void muon_momentum(const Bound& b, bool) {
  const UpdateScalars s = update_scalars(b);
  const double momentum = b.instr->attrs.real("momentum");
  with_momentum_ranges(b, [&](auto* m, const auto* gradient, int64_t count, const kernels::Origin& origin) {
    k::muon_momentum(m, gradient, count, s.clip_scale, s.ok, s.count, momentum, origin, b.stream);
  });
}

void gather_directions(const Bound& b, bool) {
  const graph::Attrs& a = b.instr->attrs;
  const double* const clip = b.input<double>(b.in.size() - 1);
  const double momentum = a.real("momentum");
  const bool nesterov = a.integer("nesterov") != 0;
  with_direction_pieces(b, [&](const auto* m, const auto* gradient, auto* direction, int64_t count) {
    k::muon_direction(m, gradient, direction, count, clip, momentum, nesterov, b.stream);
  });
}

// A plain gradient-descent step: the directions include all other factors already.
void apply_directions(const Bound& b, bool) {
  const k::SgdScalars scalars{.lr = b.input<double>(1),
                              .ok = b.input<double>(2),
                              .decay_ratio = b.instr->in.size() > 3 ? b.input<double>(3) : nullptr};
  const auto launch = [&](const auto& ranges) { k::sgd(std::span(ranges), scalars, b.stream); };
  with_applied_pieces(b, launch, launch);
}

void newton_schulz(const Bound& b, bool) {
  const std::vector<kernels::MatrixPiece> pieces = kernel_pieces(*b.instr);
  with_matrix_type(b.in_type(0).dtype, [&]<class T>(T) {
    k::newton_schulz(newton_schulz_problem<k::NewtonSchulz>(*b.instr), b.output<T>(0), std::span(pieces),
                     b.libraries->matmul(), b.workspace, b.instr->workspace_bytes, b.stream);
  });
}
void prepare_newton_schulz(Bound& b) {
  if (!b.libraries->tunes() || kernel_pieces(*b.instr).empty()) return;
  for (const kernels::GemmArgs& args : k::newton_schulz_products(
           newton_schulz_problem<k::NewtonSchulz>(*b.instr), b.in_type(0).dtype, b.workspace))
    b.libraries->matmul().tune(args, k::Matmul::kWorkspaceBytes, b.stream);
}

}  // namespace

const std::vector<Kernel>& matrix_kernels() {
  static const std::vector<Kernel> table = {{&graph::kMuonMomentum, muon_momentum},
                                            {&graph::kGatherDirections, gather_directions},
                                            {&graph::kNewtonSchulz, newton_schulz, prepare_newton_schulz},
                                            {&graph::kApplyDirections, apply_directions}};
  return table;
}

}  // namespace quintet::exec::cuda
