// A recipe's layout with ranks as threads, and what came out of it as whole tensors: the raw material of
// every comparison between layouts.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "config/recipe.h"
#include "data/batch.h"
#include "train/rank.h"

namespace quintet::tools {

// A parameter or something of its shape, put together from the pieces of all ranks. Every element comes from
// exactly one rank, the owner of its piece; an element that nobody owns, or two do, is an InternalError.
struct Tensor {
  std::string name;
  std::vector<double> values;  // f32 and bf16 widen without rounding
};

struct LayoutOptions {
  int64_t steps = 2;
  bool poison = false;
  int threads = 1;                                   // of each rank's kernels
  compiler::ModelFn model;                           // empty: recipe.model
  bool verify_together = true;                       // programs of all ranks against one another
  bool capture = true, tune = false;                 // see exec::ExecutorOptions
  std::function<void(const std::string&)> log = {};  // what rank 0's executor has to say
  // Replaces the step itself, e.g. to feed tokens of one's own.
  std::function<train::StepResult(train::Rank&, int64_t step)> step;
  // Called on every rank when its weights are drawn.
  std::function<void(train::Rank&)> prepare;
};

struct Peak {
  int64_t planned = 0, measured = 0;  // bytes; measured needs two steps
};

// Tensors stand in model order: as the model declares its parameters. Frozen parameters have weights only.
struct StepState {
  train::StepResult result;       // of rank 0, checked to be bit-equal on all ranks
  std::vector<Tensor> gradients;  // after the reduction, before clipping, without the loss scale
  std::vector<Tensor> weights;    // after the update
  // After the update, each checked to be bit-equal on all ranks: what is kept beside the parameters (router
  // biases), and what adds up over the step, as "blocks.1.load".
  std::vector<Tensor> states, sums;
};

// A state that the optimizer keeps of every trained parameter.
struct Moments {
  std::string name;         // graph::StateDecl::slot
  bool of_squares = false;  // see graph::StateDecl
  std::vector<Tensor> tensors;
};

struct LayoutRun {
  exec::Device device = exec::Device::Cpu;
  std::vector<Tensor> initial;  // weights before step 1
  std::vector<StepState> steps;
  std::vector<Moments> moments;  // after the last step; none where the optimizer has none
  // AdamW: what the updates added to the weights, worked out from the moments that each step left:
  //   moves = - sum over steps t of lr_t m^_t / (sqrt(v^_t) + eps) x product over later steps s of (1 - lr_s
  //   decay)
  std::vector<Tensor> moves;
  std::vector<Peak> peaks;   // by rank
  int64_t longest_path = 0;  // ops in a row in the model's graph, forward and backward
};

// Compiles, verifies and runs every rank of the recipe's layout in this process. Replicas are compared at the
// end.
LayoutRun run_layout(const config::Recipe& recipe, const data::Batches& batches,
                     const LayoutOptions& options);

// The same in a world that exists already, such as one of MPI processes: `world` has the recipe's size and
// every rank calls. Complete on rank 0. Programs are not compared with one another.
LayoutRun run_layout_on(comm::World& world, const config::Recipe& recipe, const data::Batches& batches,
                        const LayoutOptions& options, int64_t local_rank);

// The same mathematics on one rank: no parallelism, nothing recomputed, and as few micro-batches as fit into
// kOneRankTokens rows and keep groups of sequences whole that share something (a capacity, a balance loss).
inline constexpr int64_t kOneRankTokens = 16384;
config::Recipe on_one_rank(config::Recipe recipe);

// The recipe's training data, or synthetic documents where it names none: tokens drawn from the seed, of a
// vocabulary's full range, in documents of uneven length.
data::Dataset training_data(const config::Recipe& recipe, bool synthetic);
data::Batches training_batches(const config::Recipe& recipe, const data::Dataset& dataset,
                               data::LabelMask mask = {});

}  // namespace quintet::tools
