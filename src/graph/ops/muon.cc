// Ops of Muon (optim/muon.cc). A step graph has one node [muon] for each parameter of matrices. Newton-Schulz
// needs whole matrices and ranks hold pieces of them: in programs it is muon_momentum on what a rank stores,
// gather_directions, an exchange with the owners, newton_schulz, an exchange back, and apply_directions.
#include <algorithm>
#include <limits>

#include "graph/ops/support.h"

namespace quintet::graph {
namespace {

constexpr int kAnyNumber = std::numeric_limits<int>::max();
// lr, clip scale, ok, update count and, with a ramp, the factor on weight decay
std::ptrdiff_t num_scalars(const Attrs& attrs) { return attrs.find("decay_ramp") != nullptr ? 5 : 4; }

std::vector<Type> same(const std::vector<Type>& in, const Attrs&) { return {in[0]}; }

// gradient, what is updated..., scalars -> what is updated, with the gradient's dims
std::vector<Type> updated(const std::vector<Type>& in, const Attrs& attrs) {
  std::vector<Type> out(in.begin() + 1, in.end() - num_scalars(attrs));
  for (const Type& t : out)
    OP_REQUIRE("muon", t.dims == in[0].dims, "expects states of the gradient's dims, got {} and {}",
               to_string(in[0]), to_string(t));
  const int64_t each = attrs.integer("each"), rows = attrs.integer("rows");
  OP_REQUIRE("muon", each >= 0 && rows > 0 && each + rows < in[0].num_dims(),
             "expects {} dims that count matrices, {} of rows, and columns, got {}", each, rows,
             to_string(in[0]));
  return out;
}

// Momentum is read and written.
Cost cost_momentum(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  double elements = 0;
  for (const Type& t : out) elements += static_cast<double>(t.count());
  return {.flops = 3 * elements, .bytes = total_bytes(in, out) + total_bytes({}, out)};
}
// Masters are read and written, a rounded copy is written.
Cost cost_apply(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  Cost cost{.flops = 3 * static_cast<double>(in[0].count()), .bytes = total_bytes(in, out)};
  for (const Type& t : out)
    if (t.dtype == out[0].dtype || t.dtype == DType::I16) cost.bytes += static_cast<double>(t.bytes());
  return cost;
}

// Three GEMMs an iteration, on m x n with m <= n: X X^T, its square, and a polynomial of it times X.
struct Iterations {
  double matrices, m, n;
  double flops() const { return matrices * kNewtonSchulzSteps * (4 * m * m * n + 2 * m * m * m); }
};
Iterations iterations(const Attrs& attrs) {
  const int64_t rows = attrs.integer("rows"), columns = attrs.integer("columns");
  return {static_cast<double>(attrs.integer("matrices")), static_cast<double>(std::min(rows, columns)),
          static_cast<double>(std::max(rows, columns))};
}
Cost cost_newton_schulz(const std::vector<Type>& in, const std::vector<Type>&, const Attrs& attrs) {
  const Iterations i = iterations(attrs);
  const double element = static_cast<double>(base::size_of(in[0].dtype));
  // X and its square matrices, each written once and read about twice.
  const double elements = i.matrices * kNewtonSchulzSteps * (4 * i.m * i.n + 6 * i.m * i.m);
  return {.flops = i.flops(), .bytes = elements * element};
}
Gemm gemm_newton_schulz(const std::vector<Type>&, const std::vector<Type>&, const Attrs& attrs) {
  const Iterations i = iterations(attrs);
  return {.m = i.m, .n = i.n, .k = i.m, .groups = i.flops() / (2 * i.m * i.n * i.m)};
}

}  // namespace

// gradient, weight, momentum, copy..., scalars -> the same after an update (operands as in update.cc). The
// first `each` dims count matrices, the next `rows` dims are rows, the others columns. With g = clip scale x
// gradient:
//   m += (1 - momentum) (g - m);  d = nesterov ? g + momentum (m - g) : m;
//   w = (1 - lr weight_decay) w - lr scale orthogonal(d)
const OpDef kMuon = {.name = "muon",
                     .min_inputs = 7,
                     .max_inputs = kAnyNumber,
                     .attrs = {{"momentum", AttrKind::Real},
                               {"nesterov", AttrKind::Integer},
                               {"weight_decay", AttrKind::Real},
                               {"groups", AttrKind::Reals, /*optional=*/true},
                               {"decay_ramp", AttrKind::Integer, /*optional=*/true},
                               {"each", AttrKind::Integer},
                               {"rows", AttrKind::Integer},
                               {"scale", AttrKind::Real},
                               {"seed", AttrKind::Integer, /*optional=*/true},
                               kRanges},
                     .infer = updated,
                     .cost = cost_by_bytes,
                     .step = {.kind = StepKind::Matrices},
                     .gated = true,
                     .op_class = OpClass::Optimizer};

// Programs only, from here on.
// gradients, lr, clip scale, ok, update count -> for each gradient: momentum. Seed and origins as in
// update.cc.
const OpDef kMuonMomentum = {.name = "muon_momentum",
                             .min_inputs = 5,
                             .max_inputs = kAnyNumber,
                             .attrs = {{"momentum", AttrKind::Real},
                                       {"seed", AttrKind::Integer, /*optional=*/true},
                                       kOrigins,
                                       kRanges},
                             .infer = same,
                             .cost = cost_momentum,
                             .step = {.kind = StepKind::Update},
                             .gated = true,
                             .op_class = OpClass::Optimizer};
// gradient and momentum of each group, clip scale -> pieces of directions, one after another. A row of
// "ranges" (program/matrix_pieces.h) says where a piece is.
const OpDef kGatherDirections = {
    .name = "gather_directions",
    .min_inputs = 3,
    .max_inputs = kAnyNumber,
    .attrs = {{"momentum", AttrKind::Real}, {"nesterov", AttrKind::Integer}, kRanges},
    .infer = same,
    .cost = cost_by_bytes,
    .step = {.kind = StepKind::FlatPieces},
    .op_class = OpClass::Optimizer};
// Pieces of whole matrices -> the same pieces of the orthogonalized ones times `scale`. All have one shape; a
// rank owns up to `matrices` of them.
const OpDef kNewtonSchulz = {.name = "newton_schulz",
                             .min_inputs = 1,
                             .max_inputs = 1,
                             .attrs = {{"rows", AttrKind::Integer},
                                       {"columns", AttrKind::Integer},
                                       {"matrices", AttrKind::Integer},
                                       {"scale", AttrKind::Real},
                                       kRanges},
                             .infer = same,
                             .cost = cost_newton_schulz,
                             .in_place = {{0, 0}},
                             .step = {.kind = StepKind::MatrixPieces},
                             .op_class = OpClass::Matmul,
                             .gemm = gemm_newton_schulz};
// Pieces of orthogonalized directions, lr, ok and, with a ramp, the factor on weight decay -> of each group:
// weight, and a copy or a remainder. Rates as in update.cc.
const OpDef kApplyDirections = {.name = "apply_directions",
                                .min_inputs = 3,
                                .max_inputs = 4,
                                .attrs = {{"weight_decay", AttrKind::Real},
                                          {"groups", AttrKind::Reals, /*optional=*/true},
                                          {"decay_ramp", AttrKind::Integer, /*optional=*/true},
                                          kRanges},
                                .infer = same,
                                .cost = cost_apply,
                                .step = {.kind = StepKind::FlatPieces},
                                .gated = true,
                                .op_class = OpClass::Optimizer};

}  // namespace quintet::graph
