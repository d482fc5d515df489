#include "tools/matrix_moves.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "graph/op.h"
#include "tools/assemble_tensors.h"

namespace quintet::tools {

namespace {

using Values = std::vector<double>;

// a (m x k) times b (k x n)
Values times(const Values& a, const Values& b, size_t m, size_t k, size_t n) {
  Values c(m * n, 0.0);
  for (size_t i = 0; i < m; ++i)
    for (size_t x = 0; x < k; ++x)
      for (size_t j = 0; j < n; ++j) c[i * n + j] += a[i * k + x] * b[x * n + j];
  return c;
}

Values transposed(const Values& a, size_t rows, size_t columns) {
  Values t(a.size());
  for (size_t i = 0; i < rows; ++i)
    for (size_t j = 0; j < columns; ++j) t[j * rows + i] = a[i * columns + j];
  return t;
}

Values newton_schulz(Values x, size_t rows, size_t columns) {
  if (rows > columns)
    return transposed(newton_schulz(transposed(x, rows, columns), columns, rows), columns, rows);
  double squares = 0;
  for (const double v : x) squares += v * v;
  const double norm = std::max(std::sqrt(squares), graph::kNewtonSchulzEps);
  for (double& v : x) v /= norm;
  const auto& [a, b, c] = graph::kNewtonSchulzCoefficients;
  for (int step = 0; step < graph::kNewtonSchulzSteps; ++step) {
    const Values gram = times(x, transposed(x, rows, columns), rows, columns, rows);
    Values factor = times(gram, gram, rows, rows, rows);
    for (size_t i = 0; i < factor.size(); ++i) factor[i] = b * gram[i] + c * factor[i];
    const Values orthogonal = times(factor, x, rows, rows, columns);
    for (size_t i = 0; i < x.size(); ++i) x[i] = a * x[i] + orthogonal[i];
  }
  return x;
}

}  // namespace

std::map<std::string, Matrices> matrices_of(const graph::StepGraph& step) {
  std::map<std::string, Matrices> list;
  for (const graph::Node& node : step.graph.nodes()) {
    if (node.op != &graph::kMuon) continue;
    const graph::Type& type = step.graph.type(node.inputs[0]);
    const int64_t each = node.attrs.integer("each"), rows = node.attrs.integer("rows");
    Matrices m{.scale = node.attrs.real("scale")};
    for (int d = 0; d < type.num_dims(); ++d)
      (d < each ? m.count : d < each + rows ? m.rows : m.columns) *= type.size(d);
    const graph::StateDecl* const state = step.find(node.inputs[0]);
    QUINTET_CHECK(state != nullptr, "an update of matrices without a gradient");
    list[state->param] = m;
  }
  return list;
}

void add_matrix_moves(LayoutRun& run, const std::vector<Moments>& moments,
                      const std::vector<Tensor>& gradients, const config::Optimizer& o,
                      const train::StepResult& result) {
  const double clip =
      o.clip_norm > 0 && result.grad_norm > o.clip_norm ? o.clip_norm / result.grad_norm : 1.0;
  for (const Moments& momenta : moments) {
    if (momenta.op != &graph::kMuon) continue;
    for (const Tensor& m : momenta.tensors) {
      const Matrices& matrices = run.matrices.at(m.name);
      const Tensor* const gradient = find(gradients, m.name);
      QUINTET_CHECK(gradient != nullptr, "{} has momentum and no gradient", m.name);
      auto moves =
          std::find_if(run.moves.begin(), run.moves.end(), [&](const Tensor& x) { return x.name == m.name; });
      if (moves == run.moves.end()) moves = run.moves.insert(moves, {m.name, Values(m.values.size(), 0.0)});
      const optim::ParamSettings& s = run.settings.at(m.name);
      const double lr = result.lr * s.lr_factor;
      const auto rows = static_cast<size_t>(matrices.rows), columns = static_cast<size_t>(matrices.columns);
      for (size_t first = 0; first < m.values.size(); first += rows * columns) {
        Values direction(rows * columns);
        for (size_t i = 0; i < direction.size(); ++i) {
          const double g = clip * gradient->values[first + i], mean = m.values[first + i];
          direction[i] = o.muon.nesterov ? g + o.muon.momentum * (mean - g) : mean;
        }
        const Values orthogonal = newton_schulz(std::move(direction), rows, columns);
        for (size_t i = 0; i < orthogonal.size(); ++i) {
          double& move = moves->values[first + i];
          move = move * (1 - lr * result.decay_ratio * s.weight_decay) - lr * matrices.scale * orthogonal[i];
        }
      }
    }
  }
}

}  // namespace quintet::tools
