// Files of recorded choices of experts (data.routes): safetensors with ids i32[samples, seq_len], routes
// i16[samples, seq_len, choices] and, in the metadata, "first_sample", the place of the first sample in the
// order of the run (0 where it is missing).
#pragma once

#include <memory>

#include "config/recipe.h"
#include "data/route_table.h"

namespace quintet::train {

inline constexpr const char *kRouteIds = "ids", *kRoutes = "routes", *kFirstSample = "first_sample";

// Opens recipe.data.routes; null when it is not set. UserError unless its sizes are those of the recipe, the
// choices of every row are distinct experts of the model, and it has every sample up to the end of the run.
std::shared_ptr<const data::RouteTable> open_routes(const config::Recipe& recipe);

}  // namespace quintet::train
