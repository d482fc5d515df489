// Builds a recipe from a model name and a cluster, for plans without a recipe file. Every value that is
// filled in is listed.
#pragma once

#include <string>
#include <vector>

#include "config/recipe.h"
#include "hardware/cluster.h"

namespace quintet::plan {

struct RecipeRequest {
  std::string model;                                       // a preset
  std::vector<std::string> sets;                           // --set arguments: "parallel.tp=8"
  int64_t seq_len = 0, global_batch = 0, micro_batch = 0;  // 0: not given
  // A search will choose the layout: the recipe stays at one rank, and `sets` contains no layout keys.
  bool search = false;
};

struct FilledRecipe {
  config::Recipe recipe;
  std::vector<std::string> filled;  // "parallel.dp_shard = 128: the rest of the 16,384 devices"
};

// Defaults: bf16 (f32 on a CPU); sequences of 8,192 tokens, or the model's maximum if that is shorter; a
// micro-batch of one sequence; dp_shard as the remaining factor of the device count; sequence parallelism if
// tp > 1; zero 3 (zero 1 with a pipeline, because stage 3 would gather each stage's parameters for every
// micro-batch); a global batch of one micro-batch per rank (four per stage with a pipeline, one sequence per
// device for a search).
FilledRecipe recipe_from_model(const RecipeRequest& question, const hardware::Cluster& cluster);

}  // namespace quintet::plan
