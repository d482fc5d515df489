// What a model asks of a layout, as plain data: the dims that ranks may divide, with their sizes. Recipes are
// checked with it before any graph exists; layout::demands_of() reads the same off a graph, and a test
// compares the two for every preset.
#pragma once

#include "config/recipe.h"

namespace quintet::config {

// Ordered by dim (as base/dim.h lists them) and size, each once. Of a custom model: what its program
// supplied.
base::DimDemands demands(const Model& model);

// The ranks that divide a dim, and the key that says so.
int64_t ranks_of(const Parallel& parallel, base::Dim dim);
const char* axis_key(base::Dim dim);

}  // namespace quintet::config
