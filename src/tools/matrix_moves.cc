#include "tools/matrix_moves.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "graph/adafactor_ops.h"
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

std::map<std::string, FactoredMatrices> factored_of(const graph::StepGraph& step) {
  std::map<std::string, FactoredMatrices> list;
  for (const graph::Node& node : step.graph.nodes()) {
    if (node.op != &graph::kAdafactor) continue;
    const graph::FactoredParam p =
        graph::factored_params(node.attrs).at(static_cast<size_t>(node.attrs.integers("ranges")[3] / 2 - 1));
    list[step.find(node.inputs[0])->param] = {p.each, p.rows, p.columns,
                                              Values(static_cast<size_t>(p.each * p.rows), 0.0),
                                              Values(static_cast<size_t>(p.each * p.columns), 0.0)};
  }
  return list;
}

namespace {

double mean_square(const Values& x) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  return sum / static_cast<double>(x.size());
}

// The update of matrix e from its clipped gradient, before the rate.
Values factored_direction(FactoredMatrices& m, size_t e, Values g, const config::Adafactor& a, double t) {
  const auto rows = static_cast<size_t>(m.rows), columns = static_cast<size_t>(m.columns);
  const double weight = std::pow(t, -a.decay);
  const auto mean_of = [&](size_t first, size_t stride, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; ++i) sum += g[first + i * stride] * g[first + i * stride];
    return sum / static_cast<double>(count);
  };
  for (size_t c = 0; c < columns; ++c) {
    double& average = m.column_averages[e * columns + c];
    average += weight * (mean_of(c, columns, std::max<size_t>(rows, 1)) - average);
  }
  double mean = 0;
  for (size_t r = 0; r < rows; ++r) {
    double& average = m.row_averages[e * rows + r];
    average += weight * (mean_of(r * columns, 1, columns) - average);
    mean += average / static_cast<double>(rows);
  }
  for (size_t i = 0; i < g.size(); ++i) {
    double v = m.column_averages[e * columns + i % columns];
    if (rows > 0) v *= m.row_averages[e * rows + i / columns] / std::max(mean, a.eps1);
    g[i] /= std::max(std::sqrt(v), a.eps1);
  }
  const double too_large = std::max(1.0, std::sqrt(mean_square(g)) / a.clip);
  for (double& u : g) u /= too_large;
  return g;
}

}  // namespace

void add_factored_moves(LayoutRun& run, const std::vector<Tensor>& gradients, const config::Optimizer& o,
                        const train::StepResult& result, int64_t update) {
  const config::Adafactor& a = o.adafactor;
  const double clip = o.clip_norm > 0 && result.grad_norm > o.clip_norm ? o.clip_norm / result.grad_norm : 1,
               t = static_cast<double>(update);
  for (auto& [name, matrices] : run.factored) {
    const Tensor* const gradient = find(gradients, name);
    QUINTET_CHECK(gradient != nullptr, "{} has no gradient", name);
    const Values& before = find(run.steps.empty() ? run.initial : run.steps.back().weights, name)->values;
    auto moves =
        std::find_if(run.moves.begin(), run.moves.end(), [&](const Tensor& x) { return x.name == name; });
    if (moves == run.moves.end())
      moves = run.moves.insert(moves, {name, Values(gradient->values.size(), 0.0)});
    const optim::ParamSettings& s = run.settings.at(name);
    const double lr = result.lr * s.lr_factor, keep = 1 - lr * result.decay_ratio * s.weight_decay;
    const size_t count = gradient->values.size() / static_cast<size_t>(matrices.count);
    for (size_t e = 0; e < static_cast<size_t>(matrices.count); ++e) {
      const auto first = static_cast<std::ptrdiff_t>(e * count),
                 end = first + static_cast<std::ptrdiff_t>(count);
      Values g(gradient->values.begin() + first, gradient->values.begin() + end);
      for (double& x : g) x *= clip;
      const Values direction = factored_direction(matrices, e, std::move(g), a, t);
      double rate = lr;
      if (a.relative)
        rate = std::min(lr, 1 / std::sqrt(t)) *
               std::max(a.eps2, std::sqrt(mean_square({before.begin() + first, before.begin() + end})));
      for (size_t i = 0; i < count; ++i) {
        double& move = moves->values[e * count + i];
        move = move * keep - rate * direction[i];
      }
    }
  }
}

}  // namespace quintet::tools
