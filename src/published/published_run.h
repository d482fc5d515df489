// Training runs that others published, and what the planner predicts for them. A row of the table becomes a
// recipe and assumptions; what the row does not say is taken from its source's documented habits, listed in
// sources.cc and named in `assumed`. Nothing here is fitted to a row.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/plan.h"

namespace quintet::published {

// One row as it stands; an empty number was not published.
struct PublishedRun {
  std::string id, source, model, gpu, precision;
  std::string ffn, kv_heads, fsdp, sp, schedule, micro_batch, global_batch, recompute, verified;
  std::optional<int64_t> layers, hidden, heads, vocab, seq, gpus;
  std::optional<int64_t> dp, tp, pp, vpp, cp, ep;
  std::optional<double> tokens_per_s, tflops, mfu, memory_gib;  // per GPU
  std::string problem;                                          // what could not be read; empty: nothing

  std::string collection() const { return id.substr(0, id.find('-')); }  // "TT" of "TT-001"
};

// The rows of a table in the format of published_runs.csv. `name` is for messages.
std::vector<PublishedRun> read_published_runs(std::string_view text, std::string_view name);

struct ModelledRun {
  config::Recipe recipe;  // resolved
  plan::Assumptions assumptions;
  double tokens_per_s = 0;           // per GPU; published, or derived as `convention` says; 0: none
  std::string convention;            // "tokens/s", "TFLOP/s with the recomputed forward", ...
  std::vector<std::string> assumed;  // what the row does not say, and what the model only comes near to
  bool stated = true;                // model, layout and hardware are all in the row
  // What the row's software holds beside the plan.
  double logit_bytes = 0;      // more for each logit: it is copied to f32 and differentiated there
  double parameter_bytes = 0;  // more for each parameter of a rank: its gradient in a second precision
  double driver_bytes = 0;     // counted by the source: the context, where memory is the driver's figure
};

// A row as the planner sees it, or why it cannot.
struct Mapping {
  std::optional<ModelledRun> run;
  std::string reason;
};
Mapping map_run(const PublishedRun& row);

// FLOPs that a token costs in training, as publications count them.
enum class FlopCount {
  Causal,    // attention at half: what a causal mask leaves
  Full,      // attention as if nothing were masked
  Hardware,  // as Full, and the forward of the blocks counted twice (recompute)
};
double flops_per_token(const config::Model& model, int64_t seq_len, FlopCount count);

}  // namespace quintet::published
