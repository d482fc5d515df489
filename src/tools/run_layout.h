// Runs a recipe's layout with ranks as threads and returns the results as whole tensors, for comparing
// layouts.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/recipe.h"
#include "data/batch.h"
#include "optim/step_builder.h"
#include "train/rank.h"

namespace quintet::tools {

// A parameter, or a state of its shape, assembled from the pieces of all ranks. Every element comes from the
// one rank that owns it; an element with no owner or two owners is an InternalError.
struct Tensor {
  std::string name;
  std::vector<double> values;                        // f32 and bf16 widen without rounding
  std::optional<graph::SumKind> sum = std::nullopt;  // set if this is a step sum
  int block = 0;                                     // of a step sum
};

struct LayoutOptions {
  int64_t steps = 2;
  bool poison = false;
  int threads = 1;          // kernel threads per rank
  compiler::ModelFn model;  // empty: recipe.model
  compiler::DisabledPasses disabled_passes = {};
  std::optional<compiler::Fit> fit = {};             // what is recomputed, instead of the recipe's policy
  bool verify_together = true;                       // check the programs of all ranks against each other
  bool capture = true, tune = false;                 // see exec::ExecutorOptions
  std::function<void(const std::string&)> log = {};  // messages of rank 0's executor
  // Replaces the step, for example to use other tokens.
  std::function<train::StepResult(train::Rank&, int64_t step)> step;
  // Called on every rank after its weights are initialised.
  std::function<void(train::Rank&)> prepare;
};

struct Peak {
  int64_t planned = 0, measured = 0;  // bytes; measured needs two steps
  int place = 0;                      // the rank's along the pipeline
  bool uneven = false;  // Muon: a rank of this rank's class may own fewer matrices than the plan
};

// Tensors are in model order: the order in which the model declares its parameters. Frozen parameters have
// only weights.
struct StepState {
  train::StepResult result;       // of rank 0, checked to be bit-equal on all ranks
  std::vector<Tensor> gradients;  // after the reduction, before clipping, without the loss scale
  std::vector<Tensor> weights;    // after the update
  // After the update, checked to be bit-equal on all ranks: persistent states that are not parameters (router
  // biases), and sums over the step, such as "blocks.1.load".
  std::vector<Tensor> states, sums;
};

// A state that an optimizer keeps of every parameter that it updates.
struct Moments {
  std::string name;                    // graph::StateDecl::slot
  const graph::OpDef* op = nullptr;    // the update that writes it
  double gain = 1;                     // graph::StepTraits::gain of that update
  bool of_squares = false;             // see graph::StateDecl
  bool of_weights = false;             // an average of the weights instead of the gradients
  bool codes = false, scales = false;  // of 8 bits, and of blocks of those
  std::vector<Tensor> tensors;
};

// A parameter that Muon updates: `count` matrices of rows x columns.
struct Matrices {
  int64_t count = 1, rows = 1, columns = 1;
  double scale = 1;  // of an orthogonal matrix, before lr
};

// A parameter that Adafactor updates, and its averages as the gradients of the run make them.
struct FactoredMatrices {
  int64_t count = 1, rows = 0, columns = 0;  // a vector has no rows
  std::vector<double> row_averages, column_averages;
};

struct LayoutRun {
  exec::Device device = exec::Device::Cpu;
  std::vector<Tensor> initial;  // weights before step 1
  std::vector<StepState> steps;
  std::map<std::string, optim::ParamSettings> settings;  // of trained parameters
  std::map<std::string, int> routed;                     // parameters of experts and routers, and their block
  std::map<std::string, double> gains;                   // of their updates: graph::StepTraits::gain
  std::map<std::string, Matrices> matrices;              // of those that Muon updates
  std::map<std::string, FactoredMatrices> factored;      // of those that Adafactor updates
  std::vector<Tensor> unsure;    // Lion: 1 where the sign of an update is that of a rounding error
  std::vector<Moments> moments;  // after the last step; empty when the optimizer has none
  // AdamW, Adam, LAMB, LARS, Adafactor: the sum of updates to the weights, recomputed from each step. AdamW:
  //   moves = - sum over steps t of lr_t m^_t / (sqrt(v^_t) + eps) x product over later steps s of
  //           (1 - lr_s decay)
  std::vector<Tensor> moves;
  std::vector<Tensor> average_moves;  // the same of the averages of the weights (optimizer.ema)
  std::vector<Peak> peaks;            // by rank
  int64_t longest_path = 0;           // longest chain of ops in the model's graph, forward and backward
};

// Compiles, verifies and runs every rank of the recipe's layout in this process, and compares replicas at the
// end.
LayoutRun run_layout(const config::Recipe& recipe, const data::Batches& batches,
                     const LayoutOptions& options);

// The same in an existing world, such as one of MPI processes: `world` has the recipe's size and every rank
// calls. Complete on rank 0. Does not check programs against each other.
LayoutRun run_layout_on(comm::World& world, const config::Recipe& recipe, const data::Batches& batches,
                        const LayoutOptions& options, int64_t local_rank);

// The same computation on one rank: no parallelism, no recompute, and as few micro-batches as fit into
// kOneRankTokens rows and keep together sequences that share something (a capacity, a balance loss).
inline constexpr int64_t kOneRankTokens = 16384;
config::Recipe on_one_rank(config::Recipe recipe);

// The recipe's training data, or synthetic documents when it has none: random tokens over the whole
// vocabulary, in documents of uneven length.
data::Dataset training_data(const config::Recipe& recipe, bool synthetic);
// With data.routes, random choices are repeated instead of those of the file.
data::Batches training_batches(const config::Recipe& recipe, const data::Dataset& dataset,
                               data::LabelMask mask = {});

}  // namespace quintet::tools
