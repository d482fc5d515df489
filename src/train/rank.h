// One rank of a run: its compiled program, memory and state. The training loop (loop.h) and the verifier
// (room tools) see a training step as one call.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "compiler/compile.h"
#include "config/batch_ramp.h"
#include "config/demands.h"
#include "data/batch.h"
#include "exec/executor.h"
#include "program/saved_bytes.h"
#include "train/noise_scale.h"
#include "train/spike_guard.h"
#include "train/traffic.h"

namespace quintet::train {

struct RankOptions {
  compiler::ModelFn model;                           // empty: recipe.model
  int threads = 1;                                   // kernel threads
  bool evaluate = false;                             // also plan an evaluation pass
  bool infer = false;                                // plan a forward pass to logits instead of training
  std::optional<compiler::Serving> serving = {};     // plan these entries instead; implies infer
  bool poison = false;                               // see exec::ExecutorOptions
  int64_t local_rank = 0;                            // index on this host; selects the GPU
  bool capture = true;                               // see exec::ExecutorOptions
  bool tune = true;                                  // see exec::ExecutorOptions
  base::Path tuned = {};                             // see exec::ExecutorOptions
  std::function<void(const std::string&)> log = {};  // receives the executor's messages
  std::optional<compiler::Fit> fit = {};  // resolved memory.recompute = "fit" (train/memory_check.h)
  compiler::DisabledPasses disabled_passes = {};
  bool draw = true;            // initial weights; false: the caller loads them, or calls draw_weights
  int64_t schedule_steps = 0;  // the length of the run for learning-rate schedules; 0: run.steps
};

struct StepResult {
  double loss = 0;  // mean over the valid tokens of the global batch
  double grad_norm = 0;
  double lr = 0;
  double decay_ratio = 1;  // factor on weight decay (optimizer.weight_decay_ramp)
  double loss_scale = 1;   // the factor applied to this step's gradients
  int64_t tokens = 0;      // valid tokens of the global batch
  bool skipped = false;    // no rank applied the update: loss or gradient are not finite, or
  bool spike = false;      // ... exceed the limits of run.skip_spike
  int64_t skipped_in_row = 0, skipped_total = 0;
};

// The device that the recipe selects.
exec::Device device_of(const config::Recipe& recipe);
// The kernels of the ops that a model brings along.
std::vector<exec::OpKernels> kernels_of(const compiler::ModelFn& model);

class Rank {
 public:
  // Compiles and verifies, agrees with the other ranks (agreement.h), allocates the arena, creates
  // communicators and draws the weights. Collective over the world, whose size must match the recipe.
  Rank(const config::Recipe& recipe, comm::World& world, RankOptions options);
  ~Rank();

  StepResult step(int64_t step, const data::Batches& batches) {
    start_step(step, batches);
    return finish_step();
  }
  // The same in two calls: queue a step on the device, then wait for its result. Steps finish in the order
  // they were started; with may_run_ahead() the next step may be started before the previous one is finished.
  // Between the two calls nothing else may access the rank's state.
  void start_step(int64_t step, const data::Batches& batches);
  StepResult finish_step();
  // Whether the step that was started was abandoned (exec::Executor::abandon_next). It is over then, without
  // a result; all states are those of the step before.
  bool step_was_abandoned();
  // The same value on all ranks. False where the host reads back expert row counts in the middle of a step:
  // queueing such a step takes as long as running it.
  bool may_run_ahead() const {
    const bool has_experts = base::demanded(config::demands(recipe_.model), base::Dim::Experts) > 0;
    const bool reads_counts =
        has_experts && !recipe_.model.moe.pad && recipe_.parallel.ep * recipe_.parallel.etp > 1;
    const bool measuring =
        !in_flight_.empty() && (measures(in_flight_.back()) || measures(in_flight_.back() + 1));
    return executor_->runs_ahead() && !measuring && !reads_counts;
  }
  // Fills this rank's micro-batches of a step, reading only what its program takes: with context
  // parallelism, the ids and labels of its own positions. The result refers to `this` and to `batches`.
  exec::LoadBatch load_of(int64_t step, const data::Batches& batches);
  // Collective: from now on the inputs of steps are hashed as they are loaded, each position of the global
  // batch by one rank. At the start, where no step is in flight.
  void hash_inputs();
  // This rank's part of Batches::hash_of_step for a step that is finished, once. Earlier steps are forgotten.
  uint64_t take_input_hash(int64_t step);
  // A step on the caller's own tokens: `load` fills each micro-batch, `valid_tokens` is the number of valid
  // labels in all micro-batches of this data-parallel rank.
  StepResult step_with(int64_t step, const exec::LoadBatch& load, int64_t valid_tokens);
  // Starts a step on the caller's own tokens when those of every step are known in advance: the next step's
  // batch may be loaded while this one runs. finish_step() returns the result.
  void start_step_from(int64_t step, const std::function<exec::LoadBatch(int64_t step)>& load_of,
                       int64_t valid_tokens);
  // The squared norm of the gradient over the first micro-batches of a step (run.noise_scale_batch). Changes
  // nothing that lasts; no step may be in flight. The same on all ranks.
  GradientNorm measure_gradient(int64_t step, const data::Batches& batches);
  // Sum of losses and number of valid tokens over `count` global batches of one micro-batch each, starting at
  // `first`. The result is the same on all ranks.
  struct Evaluation {
    double loss_sum = 0;
    int64_t tokens = 0;
  };
  Evaluation evaluate(const data::Batches& batches, int64_t first, int64_t count);

  // Visits this rank's pieces of the selected states: consecutive elements of a parameter's local part.
  // `global` maps an element to its index in the whole parameter, or to -1 for padding.
  struct Piece {
    const layout::Segment* segment;
    const layout::Group* group;
    int64_t first, count;  // in the segment's local part
    exec::Range range;
    base::DType dtype;  // of the elements as read and written
    int64_t block = 1;  // elements for each that is stored; a piece begins with a block
    // Split master weights: `range` holds the upper halves, `lower` the lower ones.
    std::optional<exec::Range> lower = {};
    int64_t bytes() const { return (count + block - 1) / block * base::size_of(dtype); }
  };
  using Wanted = std::function<bool(const program::GroupSlot&)>;  // program::holds_weights, ...
  void visit(const Wanted& wanted,
             const std::function<void(const Piece&, const layout::GlobalIndex& global)>& fn) const;
  // Initial weights of all parameters that `wanted` accepts, and of their averages: functions of run.seed
  // and the name alone.
  using WantedState = std::function<bool(const program::GroupSlot&, const layout::Segment&)>;
  void draw_weights(const WantedState& wanted);
  // See exec::Executor.
  exec::HostBytes read(const exec::Range& range) const { return executor_->read(range); }
  void write(const exec::Range& range, const std::function<void(std::byte*)>& fill) {
    executor_->write(range, fill);
  }
  // The elements of a piece, piece.bytes() in size; split halves are joined.
  exec::HostBytes read(const Piece& piece) const;
  void write(const Piece& piece, const std::function<void(std::byte*)>& fill);
  // The dtype in which a parameter's weights are saved, on any rank; training only.
  base::DType weight_dtype(bool trainable) const {
    return trainable ? recipe_.precision.master_type() : recipe_.precision.compute;
  }
  // The ranks that hold the same piece, and this one's place among them.
  using Copies = layout::Copies;
  Copies copies(const Piece& piece) const;
  // The same ranks in their order; null when there are no others, or when pipeline stages share the piece.
  comm::Communicator* replicas(const Piece& piece) const;
  // True on exactly one of the ranks that hold the same piece.
  bool owns(const Piece& piece) const { return copies(piece).place == 0; }
  // Refreshes the compute copies after the master weights were written from outside (loading).
  void weights_changed();

  // Compares hashes of replicated weights among the ranks that hold them; throws when they differ.
  void check_replicas();

  // Per-block sums over a step (graph::StepSum), available after it; the same on all ranks.
  struct Sum {
    graph::SumKind kind;
    int block;
    std::span<const double> values;
    int scale = -1;  // graph::StepSum::scale
    double share =
        1;  // auxiliary losses: the share of a whole step's micro-batches that they were summed over
  };
  std::vector<Sum> step_sums() const;

  // Small persistent values that are not parameters (graph::ValueKind::State), such as router biases. Every
  // rank holds all of them in full, with the same contents.
  struct State {
    std::string_view name;
    exec::Range range;
    int64_t count;
    base::DType dtype;
  };
  std::vector<State> states() const;

  // Scalars that a step changes and the next one reads (program::ScalarKind::State), the same on all ranks.
  std::map<std::string, double> scalar_states() const;
  // Only of names that the program has. Returns those of the program that have no usable value here, which
  // keep theirs.
  std::vector<std::string> set_scalar_states(const std::map<std::string, double>& values);
  SpikeGuard& spike_guard() { return spikes_; }
  const config::Recipe& recipe() const { return recipe_; }
  // What was sent so far, against the plan (traffic.h). The first step checks it; so does the end of a run.
  const TrafficLedger& traffic() const { return *traffic_; }
  const comm::World& world() const { return world_; }

  int dp_index() const { return dp_index_; }
  const compiler::Compiled& compiled() const { return *compiled_; }
  exec::Executor& executor() { return *executor_; }
  int64_t planned_peak_bytes() const { return compiled_->program.arena_bytes; }
  int64_t measured_peak_bytes() const { return executor_->measured_peak_bytes(); }

 private:
  // Ranks that hold copies of the same parameters: replicated over `atoms`, or shared by pipeline stages.
  struct ReplicaGroup {
    layout::AtomList atoms;
    std::vector<int> shared_by;  // see layout::Group; empty: a group over `atoms`
    std::string name;
    std::shared_ptr<comm::Communicator> comm;
  };
  void draw_slot(const program::GroupSlot& slot, const WantedState& wanted);
  void set_loss_scale(double scale);
  void create_replica_groups();
  layout::AtomList replicated_over(const Piece& piece) const;
  exec::LoadBatch in_row_order(const exec::LoadBatch& load);
  int64_t columns_of(const graph::InputSpec& spec) const {
    return spec.kind == graph::InputKind::Routes ? route_columns_ : 1;
  }
  std::vector<data::PositionRange> positions_of_ranks(int64_t count) const;
  bool takes(graph::InputKind kind) const;
  // `own_labels`: valid labels among this rank's positions. Context-parallel ranks add theirs.
  void start_step(int64_t step, const exec::Inputs& inputs, const exec::Inputs* next, int64_t own_labels);
  void set_step_scalars(int64_t step, int64_t micro_batches, int64_t own_labels);
  // Of labels that are counted over whole sequences.
  int64_t own_part(int64_t valid_tokens) const { return cp_index_ == 0 ? valid_tokens : 0; }
  // The program of a step; by batch.ramp, it depends on the step.
  const program::Expanded& program_of(int64_t step) const;
  // The first two steps with each size of batch measure the memory that is actually touched: a smaller batch
  // may take more, in other places of the pipeline's frames.
  bool measures(int64_t step) const {
    const auto rounds = measured_rounds_.find(ramp_.at(step).accumulation);
    return rounds == measured_rounds_.end() || rounds->second < 2;
  }

  const config::Recipe recipe_;
  const config::BatchRamp ramp_;
  comm::World& world_;
  std::unique_ptr<compiler::Compiled> compiled_;  // the executor refers to its program
  std::unique_ptr<exec::Executor> executor_;
  std::unique_ptr<TrafficLedger> traffic_;
  std::vector<ReplicaGroup> replica_groups_;
  const int64_t route_columns_;  // of InputKind::Routes
  std::map<graph::InputSpec, std::vector<int32_t>>
      whole_rows_;  // cp > 1: inputs of a micro-batch before slicing
  std::function<void(const std::string&)> log_;
  SpikeGuard spikes_;
  const config::RunPoint schedule_end_;
  std::deque<int64_t> in_flight_;  // steps that are started and not finished
  double loss_scale_ = 1;          // of the next step
  bool sets_up_ = true;            // no step has ended: waits last up to run.setup_timeout
  int dp_index_ = 0, cp_index_ = 0;
  // Of every sequence: the positions that this rank trains on, and those whose ids and labels it loads. None:
  // all of them.
  std::vector<data::PositionRange> own_, loaded_;
  bool takes_tokens_ = false;  // the program takes ids or labels
  bool hashes_ids_ = false, hashes_labels_ = false;
  std::mutex hashes_mutex_;  // the thread that loads inputs is not always the one that finishes steps
  // Of steps in flight, by micro-batch and whether it is that of the labels.
  std::map<int64_t, std::map<std::pair<int, bool>, uint64_t>> hashes_;
  std::map<int64_t, int> measured_rounds_;  // by micro-batches of the step
};

}  // namespace quintet::train
