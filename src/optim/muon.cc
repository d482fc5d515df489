// Muon (Jordan, 2024; torch.optim.Muon): momentum, orthogonalised by Newton-Schulz, with decoupled weight
// decay. It updates the weights of linear layers, with one matrix per expert; AdamW updates all other
// parameters (embeddings, head, norms, biases, router).
#include <algorithm>
#include <cmath>

#include "optim/step_builder.h"

namespace quintet::optim {
namespace {

struct Matrix {
  int each = 0, rows = 0;  // number of leading dims that index matrices, then of those that form the rows
  int64_t num_rows = 1, num_columns = 1;
};

// The parameter as linear layers read it; rows = 0 if another op reads it or it is a vector.
Matrix matrix_of(const graph::Graph& model, const graph::Param& p) {
  Matrix matrix;
  const graph::Type& type = model.type(p.value);
  for (const graph::Node& node : model.nodes()) {
    if (std::find(node.inputs.begin(), node.inputs.end(), p.value) == node.inputs.end()) continue;
    if (node.op == &graph::kLinear) {
      matrix = {.rows = type.num_dims() - (model.type(node.inputs[0]).num_dims() - 1)};
    } else if (node.op == &graph::kGroupedLinear) {
      matrix = {.each = 1, .rows = 1};
    } else if (node.op != &graph::kLinearDx && node.op != &graph::kGroupedLinearDx) {
      return {};
    }
  }
  const bool of_vocab = std::any_of(type.dims.begin(), type.dims.end(),
                                    [](const graph::DimSize& d) { return d.name == graph::Dim::Vocab; });
  if (matrix.rows == 0 || of_vocab) return {};
  for (int d = matrix.each; d < type.num_dims(); ++d)
    (d < matrix.each + matrix.rows ? matrix.num_rows : matrix.num_columns) *= type.size(d);
  return std::min(matrix.num_rows, matrix.num_columns) > 1 ? matrix : Matrix{};
}

double scale_of(const Matrix& m, config::MuonScale scale) {
  const auto rows = static_cast<double>(m.num_rows), columns = static_cast<double>(m.num_columns);
  return scale == config::MuonScale::Original ? std::sqrt(std::max(1.0, rows / columns))
                                              : 0.2 * std::sqrt(std::max(rows, columns));
}

}  // namespace

void muon(StepBuilder& b, Trained& t) {
  const Matrix matrix = matrix_of(b.model(), *t.param);
  if (matrix.rows == 0) return adamw(b, t);
  const config::Optimizer& o = b.optimizer();
  const ValueId m = b.moment(t, "muon.m");
  b.update(graph::kMuon,
           {{"momentum", o.muon.momentum},
            {"nesterov", int64_t{o.muon.nesterov}},
            {"each", int64_t{matrix.each}},
            {"rows", int64_t{matrix.rows}},
            {"scale", scale_of(matrix, o.muon.scale)}},
           t, {m});
}

}  // namespace quintet::optim
