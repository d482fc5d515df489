// Training runs published by others, and the planner's predictions for them. A row of the table becomes a
// recipe and assumptions; what the row omits follows the documented practice of its source, listed in
// sources.cc and reported in `assumed`. Nothing here is fitted to a single row.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/plan.h"

namespace quintet::published {

// One row as published; an empty number was not published.
struct PublishedRun {
  std::string id, source, model, gpu, precision;
  std::string ffn, kv_heads, fsdp, sp, schedule, micro_batch, global_batch, recompute, verified;
  std::optional<int64_t> layers, hidden, heads, vocab, seq, gpus;
  std::optional<int64_t> dp, tp, pp, vpp, cp, ep;
  std::optional<double> tokens_per_s, tflops, mfu, memory_gib;  // per GPU
  std::string problem;  // why the row could not be read; empty: it could

  std::string collection() const { return id.substr(0, id.find('-')); }  // "TT" of "TT-001"
};

// Reads the rows of a table in the format of published_runs.csv. `name` identifies it in messages.
std::vector<PublishedRun> read_published_runs(std::string_view text, std::string_view name);

struct ModelledRun {
  config::Recipe recipe;  // resolved
  plan::Assumptions assumptions;
  double tokens_per_s = 0;           // per GPU; published, or derived according to `convention`; 0: none
  std::string convention;            // "tokens/s", "TFLOP/s with the recomputed forward", ...
  std::vector<std::string> assumed;  // what the row omits, and what the planner only approximates
  bool stated = true;                // model, layout and hardware are all in the row
  // What the row's software holds in addition to the plan.
  double logit_bytes = 0;      // per logit: an f32 copy that is differentiated
  double parameter_bytes = 0;  // per parameter of a rank: its gradient in a second precision
  double driver_bytes = 0;     // the context, where the source reports the driver's memory figure
};

// The row in the planner's terms, or the reason it cannot be modelled.
struct Mapping {
  std::optional<ModelledRun> run;
  std::string reason;
};
Mapping map_run(const PublishedRun& row);

// Training FLOPs per token, by the conventions used in publications.
enum class FlopCount {
  Causal,    // attention counted at half: only what a causal mask keeps
  Full,      // attention counted as if nothing were masked
  Hardware,  // as Full, with the forward pass of the blocks counted twice (recompute)
};
double flops_per_token(const config::Model& model, int64_t seq_len, FlopCount count);

}  // namespace quintet::published
