// A recipe from a model's name and a cluster, for plans that need no file. What the author leaves open is
// filled in, and said.
#pragma once

#include <string>
#include <vector>

#include "config/recipe.h"
#include "hardware/cluster.h"

namespace quintet::plan {

struct RecipeRequest {
  std::string model;                                       // a preset
  std::vector<std::string> sets;                           // "parallel.tp=8", as after --set
  int64_t seq_len = 0, global_batch = 0, micro_batch = 0;  // 0: not given
  bool search =
      false;  // the layout is still to be found: it is left as one rank, and `sets` say nothing of it
};

struct FilledRecipe {
  config::Recipe recipe;
  std::vector<std::string> filled;  // "parallel.dp_shard = 128: what the other axes leave of 16,384 devices"
};

// Filled in where not given: bf16 (f32 on a CPU), sequences of 8,192 tokens (or what the model's positions
// allow), a micro-batch of one sequence, dp_shard as what the other axes leave of the cluster, sequence
// parallel with tp, zero 3 (with a pipeline zero 1: stage 3 would gather every stage's parameters again for
// every micro-batch), and a global batch of one micro-batch a rank (with a pipeline four per stage; for a
// search one sequence a device).
FilledRecipe recipe_from_model(const RecipeRequest& question, const hardware::Cluster& cluster);

}  // namespace quintet::plan
