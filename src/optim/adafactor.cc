// Adafactor (Shazeer and Stern, 2018; torch.optim.Adafactor): the second moment of a matrix is the outer
// product of averages by row and by column. Every expert's weights are a matrix of their own, vectors and
// biases have an average per element. The averages of all parameters are one vector, replicated on all ranks.
#include <algorithm>

#include "optim/matrix.h"
#include "optim/step_builder.h"

namespace quintet::optim {
namespace {

// As linear layers read it; tables of embeddings by their first dim. Biases are vectors, however many dims
// they have.
Matrix factored_matrix(const graph::Graph& model, const graph::Param& p) {
  if (const Matrix m = linear_matrix(model, p); m.rows > 0) return m;
  const graph::Type& type = model.type(p.value);
  const bool bias = std::any_of(model.nodes().begin(), model.nodes().end(), [&](const graph::Node& n) {
    return n.op == &graph::kBiasAdd && std::find(n.inputs.begin(), n.inputs.end(), p.value) != n.inputs.end();
  });
  return type.num_dims() == 2 && !bias ? matrix_of(type, 0, 1) : Matrix{};
}

}  // namespace

void adafactor(StepBuilder& b, Trained& t) {
  const Matrix m = factored_matrix(b.model(), *t.param);
  b.update_by_factors(
      t, m.rows == 0 ? graph::FactoredParam{.columns = t.type.count()}
                     : graph::FactoredParam{.each = m.count, .rows = m.num_rows, .columns = m.num_columns});
}

}  // namespace quintet::optim
