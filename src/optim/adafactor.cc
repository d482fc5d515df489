// Adafactor (Shazeer and Stern, 2018; torch.optim.Adafactor): the second moment of a matrix is the outer
// product of averages by row and by column. Every expert's weights are a matrix of their own, vectors and
// biases have an average per element. The averages of all parameters are one vector, replicated on all ranks.
#include <algorithm>

#include "graph/adafactor_ops.h"
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
    return n.op->op_class == graph::OpClass::Bias &&
           std::find(n.inputs.begin(), n.inputs.end(), p.value) != n.inputs.end();
  });
  return type.num_dims() == 2 && !bias ? matrix_of(type, 0, 1) : Matrix{};
}

graph::FactoredParam shape_of(const graph::Graph& model, const Trained& t) {
  const Matrix m = factored_matrix(model, *t.param);
  return m.rows == 0 ? graph::FactoredParam{.columns = t.type.count()}
                     : graph::FactoredParam{.each = m.count, .rows = m.num_rows, .columns = m.num_columns};
}

// One node each for the sums and the norms of all parameters, so that their sums over ranks are two messages.
void add_all(StepBuilder& b, std::span<Trained* const> params) {
  std::vector<graph::FactoredParam> shapes;
  int64_t averages = 0, matrices = 0;
  for (const Trained* t : params) {
    graph::FactoredParam shape = shape_of(b.model(), *t);
    shape.first = averages;
    shape.matrix = matrices;
    averages += shape.averages();
    matrices += shape.each;
    shapes.push_back(shape);
  }
  const config::Adafactor& a = b.optimizer().adafactor;
  const graph::Attrs settings = {{"decay", a.decay},
                                 {"eps1", a.eps1},
                                 {"eps2", a.eps2},
                                 {"clip", a.clip},
                                 {"relative", int64_t{a.relative}},
                                 {"averages", averages},
                                 {"matrices", matrices},
                                 {"factors", graph::to_attribute(shapes)}};
  const std::string name(graph::kFactorState);
  const ValueId state = b.replicated_state(name, averages, /*of_squares=*/true);
  graph::Attrs attrs = settings;
  std::vector<ValueId> gradients, both;
  for (const Trained* t : params) {
    gradients.push_back(t->gradient);
    both.insert(both.end(), {t->gradient, t->weight});
  }
  b.add_scalars(gradients, attrs);
  b.add_scalars(both, attrs);
  attrs = b.with_rates(std::move(attrs), params);
  graph::Graph& g = b.graph();
  const auto add = [&](const graph::OpDef& op, std::vector<ValueId> in, const graph::Attrs& with,
                       std::initializer_list<std::string> names) {
    const std::vector<ValueId> out = g.add_node(op, std::move(in), with, graph::Phase::F, 0).outputs;
    for (size_t i = 0; i < names.size(); ++i) g.value(out[i]).name = names.begin()[i];
    return out;
  };
  const ValueId sums = add(graph::kFactorSums, std::move(gradients), attrs, {"factor_sums"})[0];
  const ValueId factors =
      add(graph::kUpdateFactors, {sums, state, b.ok(), b.update_count()}, settings, {"factors", name})[0];
  both.push_back(factors);
  const ValueId norms = add(graph::kFactorNorms, std::move(both), attrs, {"factor_norms"})[0];
  const ValueId sizes = add(graph::kFactorSizes, {norms, factors}, settings, {"factors"})[0];
  const std::vector<int64_t> rows = attrs.integers("ranges");
  for (size_t i = 0; i < params.size(); ++i) {
    attrs.set("ranges", std::vector<int64_t>{0, 0, params[i]->type.count(), rows[4 * i + 3]});
    b.add_update(graph::kAdafactor, attrs, *params[i], {}, sizes);
  }
}

}  // namespace

void adafactor(StepBuilder& b, Trained& t) { b.update_together(add_all, t); }

}  // namespace quintet::optim
