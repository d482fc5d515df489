#include "compiler/custom_model.h"

#include "base/error.h"
#include "layout/layout.h"

namespace quintet::compiler {

std::vector<layout::OpRule> ModelFn::rules() const {
  std::vector<layout::OpRule> list;
  for (const OpPackage& p : packages_)
    if (p.rule != nullptr) list.push_back({p.op, p.rule});
  return list;
}

std::vector<const graph::OpDef*> ModelFn::ops() const {
  std::vector<const graph::OpDef*> list;
  for (const OpPackage& p : packages_) list.push_back(p.op);
  return list;
}

config::Model custom_model(const ModelFn& model, int64_t seq_len) {
  QUINTET_CHECK(model, "no model to describe");
  const graph::Graph graph = model({.mode = graph::Mode::Evaluate, .tokens = seq_len, .seq_len = seq_len});
  config::Model m;
  m.family = config::Family::Custom;
  m.layers = graph.num_blocks - 2;
  m.demands = layout::demands_of(graph);
  m.vocab = base::demanded(m.demands, base::Dim::Vocab);
  return m;
}

}  // namespace quintet::compiler
