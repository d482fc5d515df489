// What a recipe needs and does on a cluster, before anything runs: the real programs of one rank of every
// pipeline stage are compiled, their memory read off to the byte, and their time simulated.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/recipe.h"
#include "hardware/cluster.h"
#include "program/program.h"

namespace quintet::plan {

// What a plan assumes beyond the recipe.
struct Assumptions {
  hardware::Cluster cluster;
  hardware::Stack stack;
  // Plan-only: the arithmetic of matmuls, when the engine cannot run it yet (fp8, fp4). Else: compute's.
  std::optional<hardware::Arithmetic> matmul;
  // Dropless experts: rows of the busiest rank over the mean. What is planned is the worst case; what is
  // simulated is this.
  double imbalance = 1.0;
  bool timeline = false;  // keep every simulated span (trace, drawings)
  // Scratch of the kernels that would run (exec::workspace_of, which this room does not know); empty: none is
  // counted.
  std::function<int64_t(const program::Instr&)> workspace_bytes = {};
  // What a user should know of an instruction's kernel (exec::remark_on, which this room does not know):
  // noted, and attention of which there is something to say is simulated without tensor cores.
  std::function<std::string(const program::Instr&)> remark = {};
  int threads = 2;  // that compile
  // Steps of more than this are simulated with fewer micro-batches (sampled_steps.h).
  double most_instructions = 3e6;
};

struct RankMemory {
  base::RankId rank;
  int stage = 0;
  int64_t arena_bytes = 0;                                     // the program's plan
  std::array<int64_t, program::kNumMemoryClasses> by_class{};  // live at the moment of the peak
  int64_t runtime_bytes = 0;                                   // context and libraries
  std::string peak_at;                                         // "backward, block 31, attention_dx"
  // Of by_class: rows on the experts' side, where how many come is known in the step only. The room is for
  // the most that can come; and what they would take if as many came as are expected.
  int64_t routed_bytes = 0, expected_routed_bytes = 0;
  int64_t live_bytes() const;                                  // sum of by_class
  int64_t gaps() const { return arena_bytes - live_bytes(); }  // bytes between buffers at the peak
  int64_t total() const { return arena_bytes + runtime_bytes; }
};

// Live bytes at a moment of the simulated step.
struct MemoryPoint {
  double seconds = 0;
  std::array<int64_t, program::kNumMemoryClasses> by_class{};
  int64_t bytes() const;
};

struct Memory {
  std::vector<RankMemory> ranks;  // one of every pipeline stage; the others are equal to one of them
  size_t most_loaded = 0;         // index in ranks
  int64_t limit = 0;              // of a device
  // Of the most loaded rank over the step (memory_timeline.h), where Assumptions::timeline asks for it.
  std::vector<MemoryPoint> timeline;
  bool fits() const { return ranks[most_loaded].total() <= limit; }
};

// Seconds of the step, as the busiest stage's compute stream spends them; they add up to Time::step.
struct TimeShare {
  std::string what;  // "matmul", "attention", "other kernels", "optimizer", "wait tp", "wait dp_shard",
                     // "bubble", "host"
  double seconds = 0;
};

struct LinkBytes {
  std::string axes;    // of the communicator
  std::string link;    // the slowest link class that it crosses
  double bytes = 0;    // sent by a rank in a step
  double seconds = 0;  // of its collectives, hidden or not
  double exposed = 0;  // that computation waited for
};

struct Time {
  double step = 0;    // seconds
  double tokens = 0;  // of a step
  double tokens_per_s = 0, tokens_per_s_per_device = 0;
  double model_flops = 0;     // of a step over all devices: forward and backward without recompute
  double hardware_flops = 0;  // with recompute
  double peak_flops = 0;      // dense, of one device, in the plan's arithmetic
  double mfu = 0, hfu = 0;
  int devices = 1;
  double model_flops_per_device() const { return model_flops / step / devices; }  // per second
  int busiest = 0;          // pipeline place whose stream the shares are of
  double compute_rate = 0;  // share of the step in which the mean stage computes: 1 - bubble and waits
  std::vector<TimeShare> shares;
  std::vector<LinkBytes> links;  // of the busiest rank
};

struct Timeline;  // timeline.h

struct Report {
  config::Recipe recipe;
  Assumptions assumptions;
  int64_t parameters = 0, active_parameters = 0;
  Memory memory;
  Time time;
  std::vector<std::string> notes;            // plan-only precisions, assumptions that matter
  std::shared_ptr<const Timeline> timeline;  // where it was asked for
};

// A UserError where the recipe's world is not the cluster's, or the cluster's accelerator has no such
// arithmetic. A plan that does not fit is a report like any other: memory.fits() says so.
Report make_plan(const config::Recipe& recipe, const Assumptions& assumptions);

}  // namespace quintet::plan
