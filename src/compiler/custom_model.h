// What a program supplies beyond its recipe: a model, an optimizer, and the ops they use beyond the built-in
// ones.
#pragma once

#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include "compiler/op_package.h"
#include "config/recipe.h"
#include "graph/builder.h"
#include "optim/step_builder.h"

namespace quintet::compiler {

// Builds the model's graph for the given options; the graph depends on nothing else. Empty: recipe.model.
class ModelFn {
 public:
  ModelFn() = default;
  template <class F>
  requires(!std::is_same_v<std::decay_t<F>, ModelFn> &&
           std::is_invocable_r_v<graph::Graph, F&, const graph::BuildOptions&>)
      ModelFn(F build, std::vector<OpPackage> packages = {})
      : build_(std::move(build)), packages_(std::move(packages)) {}

  // The optimizer of recipes with optimizer.name = "custom", for this model or, without one, recipe.model.
  ModelFn& use_optimizer(optim::Optimizer optimizer, const std::vector<OpPackage>& packages = {}) {
    optimizer_ = optimizer;
    packages_.insert(packages_.end(), packages.begin(), packages.end());
    return *this;
  }
  optim::Optimizer optimizer() const { return optimizer_; }  // null: none

  // Whether there is a model.
  explicit operator bool() const { return static_cast<bool>(build_); }
  graph::Graph operator()(const graph::BuildOptions& options) const { return build_(options); }
  const std::vector<OpPackage>& packages() const { return packages_; }
  std::vector<layout::OpRule> rules() const;
  std::vector<const graph::OpDef*> ops() const;

 private:
  std::function<graph::Graph(const graph::BuildOptions&)> build_;
  std::vector<OpPackage> packages_;
  optim::Optimizer optimizer_ = nullptr;
};

// The [model] section of a recipe whose model is `model`: family custom, with the blocks, the vocabulary and
// the dims that its graph has. Sequences have `seq_len` tokens.
config::Model custom_model(const ModelFn& model, int64_t seq_len);

}  // namespace quintet::compiler
