// The families behind models/build.h. Each emits everything from the embedding to the head.
#pragma once

#include "config/recipe.h"
#include "graph/builder.h"

namespace quintet::models {

void build_llama(graph::Builder& builder, const config::Model& model);
void build_gpt2(graph::Builder& builder, const config::Model& model);

// Standard deviations of initial weights, after GPT-2: projections that write into the residual stream shrink
// with the number of writes, 2 per block, so that the stream's variance does not grow with depth.
inline constexpr double kInitStddev = 0.02;
double residual_stddev(const config::Model& model);

}  // namespace quintet::models
