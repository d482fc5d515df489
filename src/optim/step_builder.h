// Builds the optimizer step as a graph: per parameter, over named dims, in terms of the parameter, its
// gradient, its states and the step's scalars. Ranks, shards and buffers are unknown here.
#pragma once

#include <span>

#include "config/recipe.h"
#include "graph/op.h"
#include "graph/step_graph.h"

namespace quintet::optim {

using graph::ValueId;

// What applies to one parameter: the recipe's settings, or those of its group (config::ParamGroup).
struct ParamSettings {
  config::OptimizerKind kind;
  double lr_factor = 1;     // multiplies the step's learning rate
  double weight_decay = 0;  // 0 where none applies
  // How an update's range refers to these two: 2 x group + whether weight decay applies. Group 0 uses the
  // attribute "weight_decay", group g the g-th pair (lr factor, weight decay) of the attribute "groups".
  int64_t row = 0;
};
ParamSettings settings_of(const config::Optimizer& optimizer, const graph::Param& p);

// A trained parameter as an optimizer sees it. update() replaces its values with the updated ones.
struct Trained {
  std::string name;
  const graph::Param* param;
  graph::Type type;  // of `weight`
  ParamSettings settings;
  ValueId gradient;
  ValueId weight;  // what the optimizer updates: the master weight if there is one
  ValueId copy;    // the weight rounded to precision.compute; invalid if matmuls read `weight` itself
};

// Reasons to skip a step, in addition to a non-finite loss or gradient norm.
struct Guards {
  bool spikes = false;  // the loss or the norm exceeds a limit that the host sets
};

class StepBuilder;
// An optimizer adds the update of one parameter. Each has its own file.
using Optimizer = void (*)(StepBuilder& builder, Trained& t);

class StepBuilder {
 public:
  // `custom` is optimizer.name = "custom"; null: there is none.
  StepBuilder(const graph::Graph& model, const config::Optimizer& optimizer,
              const config::Precision& precision, const Guards& guards, int64_t seed, Optimizer custom);

  const config::Optimizer& optimizer() const { return optimizer_; }
  const graph::Graph& model() const { return model_; }

  // Declares a state with the parameter's shape and the type precision.moments, initially zero. `name` is
  // prefixed with its optimizer: "adamw.m".
  ValueId moment(const Trained& t, const std::string& name);
  ValueId second_moment(const Trained& t, const std::string& name);  // an average of squares
  // Declares codes of 8 bits for every element, and a scale of the master's type for every block of
  // optimizer.block_size elements. `name` of scales is that of their codes with ".scale".
  ValueId codes(const Trained& t, const std::string& name, bool of_squares);
  ValueId scales(const Trained& t, const std::string& name);
  // One elementwise update of the parameter and its states (graph::OpDef::elementwise). Every update reads
  // lr, clip scale, ok and the update count, and writes nothing when ok is 0. The attributes for weight decay
  // and for the parameter's group are added here.
  void update(const graph::OpDef& op, graph::Attrs attrs, Trained& t, const std::vector<ValueId>& states);

  // The same for an op that reads norms of whole parameters (graph::OpDef::reads_norms). The op `norms`
  // computes them from gradient, weight and `read`, for all parameters at once. Parameters without weight
  // decay (norms, biases) are updated without a trust ratio.
  void update_by_ratio(const graph::OpDef& norms, const graph::OpDef& op, graph::Attrs attrs, Trained& t,
                       std::vector<ValueId> states, std::vector<ValueId> read);

  // For optimizers with nodes that span parameters: `add` is called once, after all parameters, with those
  // that named it. It may use everything below.
  using AddTogether = void (*)(StepBuilder& builder, std::span<Trained* const> params);
  void update_together(AddTogether add, Trained& t);

  graph::Graph& graph() { return out_.graph; }
  ValueId ok() const { return ok_; }
  ValueId update_count() const { return update_count_; }
  // The attributes of an op over all of `params` (graph::StepKind::ParameterNorms), added to its own: each
  // parameter is a pair of "groups", so that rows of "ranges" tell them apart.
  graph::Attrs with_rates(graph::Attrs attrs, std::span<Trained* const> params) const;
  // Appends the scalars of an update, and the attribute that belongs to them.
  void add_scalars(std::vector<ValueId>& in, graph::Attrs& attrs) const;
  // Declares a vector that all ranks hold, of the masters' type.
  ValueId replicated_state(const std::string& name, int64_t count, bool of_squares);
  // One update whose attributes are complete; `norms` is its last operand, if valid.
  void add_update(const graph::OpDef& op, graph::Attrs attrs, Trained& t, const std::vector<ValueId>& states,
                  ValueId norms);

  graph::StepGraph build();

 private:
  struct RatioUpdate {
    Trained* param;
    std::vector<ValueId> states, read;
  };
  struct RatioUpdates {
    const graph::OpDef *norms, *op;
    graph::Attrs attrs;
    std::vector<RatioUpdate> of;
  };
  void add_ratio_updates(RatioUpdates& updates);
  Optimizer find(config::OptimizerKind kind) const;
  void add_sums();
  void add_norm();
  Trained add_param(const graph::Param& p);
  void add_average(const Trained& t);  // of the updated weight
  void add_bias_updates();
  void add_amax_history();
  ValueId scalar(std::string name);                            // set before the step runs
  ValueId scalar_state(std::string name, double initial = 0);  // persists from step to step
  ValueId declare(const Trained& t, std::string name, std::string slot, graph::Role role, graph::Keep keep,
                  graph::DType dtype);

  const graph::Graph& model_;
  const config::Optimizer& optimizer_;
  const config::Precision& precision_;
  const Guards guards_;
  const int64_t seed_;
  const Optimizer custom_;
  graph::StepGraph out_;
  std::vector<Trained> trained_;
  std::vector<RatioUpdates> by_ratio_;
  std::vector<std::pair<AddTogether, std::vector<Trained*>>> together_;
  std::vector<double> rates_;  // the attribute "groups" of updates; empty without groups
  std::vector<ValueId> sums_;  // the model's step sums, reduced over all ranks
  ValueId amax_;               // and its maxima
  ValueId lr_, clip_scale_, ok_, update_count_;
  ValueId decay_ratio_;  // of weight decay in this step; invalid: it is constant
};

Optimizer find_optimizer(config::OptimizerKind kind);  // null: custom
// One function for each row: adamw, adam, ...
#define QUINTET_OPTIMIZER(kind, name, ...) void name(StepBuilder& builder, Trained& t);
#include "config/optimizers.inc"

// The whole step: gradient norm, clipping, the check for non-finite numbers, every parameter's update, and
// the updates that belong to the model (router biases).
graph::StepGraph build_step(const graph::Graph& model, const config::Optimizer& optimizer,
                            const config::Precision& precision, const Guards& guards = {}, int64_t seed = 0,
                            Optimizer custom = nullptr);

}  // namespace quintet::optim
