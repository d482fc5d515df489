// How fast a recipe's step is on this machine: what `quintet bench step` does. Tokens are random and of full
// sequences, so no data is needed and every token counts.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/recipe.h"
#include "graph/graph.h"

namespace quintet::tools {

struct StepBenchOptions {
  int64_t steps = 20;         // timed, after the warm-up
  int64_t warmup = 5;         // at least 3: two steps measure memory, and a GPU's second is captured
  double warmup_seconds = 0;  // at least so long, whatever the number of steps
  double peak_tflops = 0;     // of one device; 0: from the catalogue of accelerators by the device's name
  double alone_seconds =
      0;  // how long each kind of instruction is timed alone, for the floors; 0: not at all
  std::function<void(const std::string&)> log = {};
};

// Time of the instructions of one class in one traced step of rank 0, and the least they could take: products
// and attention what they take alone, everything else its bytes at the speed of a copy.
struct OpClassTime {
  std::string name;
  int64_t instructions = 0;
  double seconds = 0;
  double alone_seconds = 0, floor_seconds = 0;
};

struct StepBench {
  std::string name, device, dtype;
  int64_t world = 1, parameters = 0, tokens_per_step = 0, steps = 0;
  double setup_seconds = 0;  // compile, allocate, tune, draw the weights
  double first_step_seconds = 0;
  double until_first_step_seconds = 0;  // from the start of the process to the end of the first step
  double step_seconds = 0;              // median; all ranks in step
  double fastest_seconds = 0, slowest_seconds = 0;
  double tokens_per_s = 0;
  double model_flops = 0;    // of a step, see model_flops_per_token
  double program_flops = 0;  // of a step on all ranks, as the program computes it: recomputing included
  double tflops = 0;         // model FLOPs, of one device
  double peak_tflops = 0;    // of one device; 0: unknown
  std::string peak_source;
  double mfu = 0;
  int64_t planned_bytes = 0, measured_bytes = 0, extra_bytes = 0;  // of rank 0
  double loss = 0;                                                 // of the last step
  double traced_seconds = 0;                                       // first start to last end
  std::vector<OpClassTime> classes;                                // longest first
  bool floors_wanted = false;
  double copy_bytes_per_s = 0;  // with floors; 0: there are none
  double floor_seconds = 0;     // of all classes
};

// 6 FLOPs per weight that a token is multiplied with (forward 2, backward 4; of experts those that it takes,
// of embeddings none unless the table is the head), and 6 per head, per dim of its queries and of its values,
// and per key that a token sees on average (the causal half, or the window).
double model_flops_per_token(const config::Recipe& recipe, const graph::Graph& model);
inline constexpr const char* kModelFlopsFormula =
    "6 x weights in matrix products + 6 x layers x heads x (qk + v dims) x mean keys seen, per token";

// Ranks are threads of this process, or this process is one of an MPI job; empty on its ranks other than 0.
std::optional<StepBench> bench_step(const config::Recipe& recipe, const StepBenchOptions& options);

std::string to_table(const StepBench& bench);
std::string to_json(const StepBench& bench);

}  // namespace quintet::tools
