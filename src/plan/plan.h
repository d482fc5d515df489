// What a recipe needs and how fast it runs on a cluster, without running it: the real program of one rank per
// pipeline stage is compiled, its memory read off to the byte, and its time simulated.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/custom_model.h"
#include "compiler/optional_passes.h"
#include "config/recipe.h"
#include "hardware/cluster.h"
#include "plan/model_state.h"
#include "program/program.h"
#include "program/saved_bytes.h"

namespace quintet::compiler {
struct Ranks;  // compile.h
}

namespace quintet::plan {

// What a plan assumes in addition to the recipe.
// The file system of checkpoints, for all ranks together, per second.
struct FileSystemRates {
  double write = 0, read = 0;  // bytes; 0: not known
  double metadata = 50e3;      // operations: an assumption for a parallel file system
};

struct Assumptions {
  hardware::Cluster cluster;
  hardware::Stack stack;
  // Plan-only: matmul arithmetic that the engine cannot run yet (fp8, fp4). Unset: that of precision.compute.
  std::optional<hardware::Arithmetic> matmul;
  // The model of a recipe with model.family = "custom", and the packages of its ops; empty: recipe.model.
  compiler::ModelFn model = {};
  // Dropless experts: rows on the busiest rank relative to the mean. Memory is planned for the worst case;
  // time is simulated with this.
  double imbalance = 1.0;
  // Packed documents: how many keys a query sees on average; 0: a sequence is one document.
  double visible_keys = 0;
  FileSystemRates storage;
  bool timeline = false;  // keep every simulated span (traces, timeline drawings)
  // Scratch bytes of the kernel that would run (exec::workspace_of, passed in because this room must not
  // include exec). Empty: none is counted.
  std::function<int64_t(const program::Instr&)> workspace_bytes = {};
  // What a user should know about an instruction's kernel (exec::remark_on, passed in for the same reason).
  // Remarks become notes; attention with a remark is simulated without tensor cores.
  std::function<std::string(const program::Instr&)> remark = {};
  compiler::DisabledPasses disabled_passes = {};
  int threads = 2;  // for compiling
  // false: one of many trials, whose programs are not verified (search, advice).
  bool verify = true;
  // Steps with more instructions than this are simulated with fewer micro-batches (sampled_steps.h).
  double max_instructions = 3e6;
};

struct RankMemory {
  base::RankId rank;
  int stage = 0;
  int64_t arena_bytes = 0;                                     // from the program's memory plan
  std::array<int64_t, program::kNumMemoryClasses> by_class{};  // live at the peak
  int64_t runtime_bytes = 0;                                   // context and libraries
  // Copies of the state for checkpoints (program::SavingMemory): on CPUs in the device's memory, otherwise in
  // that of the host.
  int64_t device_copies = 0, host_copies = 0;
  std::string peak_at;  // "backward, block 31, attention_dx"
  // Part of by_class: expert-side row buffers, whose row count is known only during the step. Bytes reserved
  // for the most rows that can arrive, and bytes used by the expected number of rows.
  int64_t routed_bytes = 0, expected_routed_bytes = 0;
  int64_t live_bytes() const;                                  // sum of by_class
  int64_t gaps() const { return arena_bytes - live_bytes(); }  // unused bytes between buffers at the peak
  int64_t total() const { return arena_bytes + runtime_bytes + device_copies; }
};

// Live bytes at one moment of the simulated step.
struct MemoryPoint {
  double seconds = 0;
  std::array<int64_t, program::kNumMemoryClasses> by_class{};
  int64_t bytes() const;
};

struct Memory {
  std::vector<RankMemory> ranks;  // one per pipeline stage; every other rank equals one of these
  size_t most_loaded = 0;         // index in ranks
  int64_t limit = 0;              // memory of a device
  // Of a node, beside its accelerators: what copies of the state take if every device has those of the rank
  // that copies most, and what there is; 0: not known.
  int64_t host_copies = 0, host_limit = 0;
  // The most loaded rank over the step (memory_timeline.h); filled if Assumptions::timeline is set.
  std::vector<MemoryPoint> timeline;
  bool fits_device() const { return ranks[most_loaded].total() <= limit; }
  bool fits_host() const { return host_limit == 0 || host_copies <= host_limit; }
  bool fits() const { return fits_device() && fits_host(); }
};

// How the compute stream of the busiest stage spends the step; the seconds add up to Time::step.
enum class TimeKind : uint8_t { Kernels, Communication, Bubble, Host };
struct TimeShare {
  TimeKind kind = TimeKind::Kernels;
  std::string what;  // "matmul", "attention", "other kernels", "optimizer", "wait tp", "wait dp_shard",
                     // "bubble", "host"
  double seconds = 0;
  std::string axes = {};  // Communication: of the communicators
};

struct LinkBytes {
  std::string axes;    // of the communicator
  bool data = false;   // ... which connects data ranks
  std::string link;    // the slowest link class it crosses
  double bytes = 0;    // sent per rank and step
  double count = 0;    // collectives per step
  double seconds = 0;  // duration of its collectives, exposed or not
  double exposed = 0;  // seconds that compute waited for them
};

struct Time {
  double step = 0;    // seconds
  double tokens = 0;  // per step
  double tokens_per_s = 0, tokens_per_s_per_device = 0;
  double model_flops = 0;     // per step over all devices: forward and backward without recompute
  double hardware_flops = 0;  // with recompute
  double peak_flops = 0;      // dense peak of one device in the plan's arithmetic
  double mfu = 0, hfu = 0;
  int devices = 1;
  double model_flops_per_device() const { return model_flops / step / devices; }  // per second
  int busiest = 0;                    // pipeline position that `shares` describes
  double compute_rate = 0;            // fraction of the step in which a stage computes, averaged over stages
  std::vector<double> stage_seconds;  // compute per step, by pipeline position
  // Their standard deviation over their mean; 0: balanced, or no pipeline.
  double stage_variation() const;
  std::vector<TimeShare> shares;
  std::vector<LinkBytes> links;  // of the busiest rank
};

// A checkpoint of the recipe. Every rank writes an equal part: with checkpoint.every from a copy in host
// memory, at the end of a run directly.
struct CheckpointPlan {
  int64_t bytes = 0;           // of all tensors
  int64_t bytes_per_rank = 0;  // written
  program::SavingMemory host;  // of the rank that copies most
  std::vector<program::SavingMemory> host_by_stage;
  int64_t files = 0;                // shards, those of frozen tensors, manifest and pointer
  int64_t frozen_files = 0;         // of which later checkpoints link
  int64_t metadata_operations = 0;  // of the file system, in one save: create, flush, close, rename, open
  int64_t disk_bytes = 0;           // with those that are kept, while one is written
  int64_t load_operations = 0;      // the same in one load
  double write_rate = 0;            // bytes per second: the file system's, at most checkpoint.bandwidth
  double save_seconds = 0;          // at that rate, with the metadata operations; 0: it is not known
  double load_seconds = 0;          // at the rate of reading
};
CheckpointPlan checkpoint_plan(const config::Recipe& recipe, const compiler::Ranks& ranks,
                               const FileSystemRates& storage = {});

struct Timeline;  // timeline.h

struct Report {
  config::Recipe recipe;
  Assumptions assumptions;
  int64_t parameters = 0, active_parameters = 0;
  ModelState state;
  CheckpointPlan checkpoint;
  Memory memory;
  Time time;
  std::vector<std::string> warnings;         // of layout_warnings.h
  std::vector<std::string> notes;            // plan-only precisions, assumptions that matter
  std::shared_ptr<const Timeline> timeline;  // set if Assumptions::timeline is set
};

// Throws UserError if the recipe's world size differs from the cluster's, or if the accelerator lacks the
// requested arithmetic. A plan that does not fit is a regular report; see memory.fits().
Report make_plan(const config::Recipe& recipe, const Assumptions& assumptions);

// Verifies the programs that make_plan simulates, of a plan made with assumptions.verify off.
void verify_programs(const config::Recipe& recipe, const Assumptions& assumptions);

}  // namespace quintet::plan
