#include "models/build.h"

#include <cmath>

#include "base/error.h"
#include "models/families.h"

namespace quintet::models {
namespace {

void require_resolved(const config::Model& m) {
  const auto positive = [](const char* key, int64_t value) {
    if (value <= 0) base::fail_user("model.{} must be at least 1, got {}", key, value);
  };
  positive("layers", m.layers);
  positive("embed", m.embed);
  positive("ffn", m.ffn);
  positive("heads", m.heads);
  positive("kv_heads", m.kv_heads);
  positive("head_dim", m.head_dim);
  positive("vocab", m.vocab);
}

}  // namespace

double init_stddev(const config::Model& model) {
  return model.init == config::InitScheme::Neox ? std::sqrt(2.0 / (5.0 * static_cast<double>(model.embed)))
                                                : model.init_stddev;
}

double residual_stddev(const config::Model& model) {
  const double layers = static_cast<double>(model.layers);
  switch (model.init) {
    case config::InitScheme::Gpt2:  // 2 projections per block: the stream's variance does not grow with depth
      return model.init_stddev / std::sqrt(2.0 * layers);
    case config::InitScheme::Normal:
      return model.init_stddev;
    case config::InitScheme::Neox:
      return 2.0 / (layers * std::sqrt(static_cast<double>(model.embed)));
  }
  return model.init_stddev;
}

std::vector<graph::ParamGroup> param_groups(const config::Optimizer& optimizer) {
  std::vector<graph::ParamGroup> groups;
  for (const config::ParamGroup& g : optimizer.groups) groups.push_back({g.match, g.update});
  return groups;
}

graph::Graph build(const config::Model& model, const graph::BuildOptions& options) {
  require_resolved(model);
  graph::Builder builder(options);
  switch (model.family) {
    case config::Family::Llama:
      build_llama(builder, model);
      break;
    case config::Family::Gpt2:
    case config::Family::Neox:
      build_gpt2(builder, model);
      break;
    case config::Family::Bert:
      build_bert(builder, model);
      break;
    case config::Family::Custom:
      base::fail_user("model.family is \"custom\", and no model was supplied (docs/api.md)");
  }
  return builder.finish();
}

int64_t parameter_count(const graph::Graph& graph) {
  int64_t count = 0;
  for (const graph::Param& p : graph.params()) count += graph.type(p.value).count();
  return count;
}

int64_t active_parameter_count(const graph::Graph& graph, const config::Model& model) {
  int64_t count = 0;
  for (const graph::Param& p : graph.params()) {
    const graph::Type& type = graph.type(p.value);
    const bool of_experts = type.dims[0].name == graph::Dim::Experts && model.moe.experts > 0;
    count += of_experts ? type.count() / model.moe.experts * model.moe.top_k : type.count();
  }
  return count;
}

int64_t trainable_parameter_count(const graph::Graph& graph) {
  int64_t count = 0;
  for (const graph::Param& p : graph.params())
    if (p.trainable) count += graph.type(p.value).count();
  return count;
}

}  // namespace quintet::models
