// Tiny models for tests on a GPU: recipes, runs, and bitwise comparison.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tools/run_layout.h"

namespace quintet::test {

// A recipe by name (see support.cc) on the GPU, changed by settings such as "precision.compute=\"bf16\"".
config::Recipe gpu_recipe(const std::string& model, const std::string& dtype,
                          std::vector<std::string> settings = {});
const std::vector<std::string>& dense_models();
const std::vector<std::string>& expert_models();
// One for what distinguishes each family.
const std::vector<std::string>& family_models();
// With other optimizers than AdamW, and with averages of the weights.
const std::vector<std::string>& update_models();
// With the settings of bench/gpu: attention's gradient in its fastest form, so that bits differ from run to
// run.
const std::vector<std::string>& fast_models();

config::Recipe on_cpu(config::Recipe recipe);

tools::LayoutRun run(const config::Recipe& recipe, tools::LayoutOptions options);

// Saves the state of a rank of this recipe in a folder; loads the weights that are saved there.
void save_state(train::Rank& rank, comm::World& world, config::Recipe recipe, const base::Path& folder);
void load_weights(train::Rank& rank, const base::Path& folder);

// Every number of the two runs has the same bits.
void expect_same_bits(const tools::LayoutRun& a, const tools::LayoutRun& b);

// Losses of `steps` steps on learnable text, which is one document, or documents of these lengths in turn.
std::vector<double> loss_curve(const config::Recipe& recipe, int64_t steps, int threads,
                               const std::vector<size_t>& documents = {});

}  // namespace quintet::test
