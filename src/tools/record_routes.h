// `quintet routes`: the experts that a model's routers choose for the samples of a run, in a file that
// training repeats (data.routes).
#pragma once

#include <string>

#include "config/recipe.h"
#include "generate/source.h"

namespace quintet::tools {

struct RecordRoutesOptions {
  generate::SourceOptions source;
  int64_t first_step = 1, steps = 0;  // 1-based; 0 steps: up to run.steps
};

// Runs the model over the samples that the recipe's run trains on in these steps. Returns what was recorded,
// in words. UserError unless the model is that of the recipe.
std::string record_routes(const base::Path& model, config::Recipe recipe, const RecordRoutesOptions& options,
                          const base::Path& out);

}  // namespace quintet::tools
