// Muon (Jordan, 2024; torch.optim.Muon): momentum, orthogonalised by Newton-Schulz, with decoupled weight
// decay. It updates the weights of linear layers, with one matrix per expert; AdamW updates all other
// parameters (embeddings, head, norms, biases, router).
#include <algorithm>
#include <cmath>

#include "optim/matrix.h"
#include "optim/step_builder.h"

namespace quintet::optim {
namespace {

Matrix muon_matrix(const graph::Graph& model, const graph::Param& p) {
  const graph::Type& type = model.type(p.value);
  const bool of_vocab = std::any_of(type.dims.begin(), type.dims.end(),
                                    [](const graph::DimSize& d) { return d.name == graph::Dim::Vocab; });
  return of_vocab ? Matrix{} : linear_matrix(model, p);
}

double scale_of(const Matrix& m, config::MuonScale scale) {
  const auto rows = static_cast<double>(m.num_rows), columns = static_cast<double>(m.num_columns);
  return scale == config::MuonScale::Original ? std::sqrt(std::max(1.0, rows / columns))
                                              : 0.2 * std::sqrt(std::max(rows, columns));
}

}  // namespace

void muon(StepBuilder& b, Trained& t) {
  const Matrix matrix = muon_matrix(b.model(), *t.param);
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
