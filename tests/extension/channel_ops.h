// Two ops, a dim and a model that Quintet does not contain: what a user's project would define.
#pragma once

#include "compiler/custom_model.h"

namespace quintet::tests {

base::Dim channels();  // "channels"

// A residual network over token embeddings whose inner width is `channels`.
graph::Graph channel_model(const graph::BuildOptions& options, int64_t width, int64_t layers);

// channel_scale, channel_scale_dx, channel_scale_dw, squared_relu and squared_relu_dx.
const std::vector<compiler::OpPackage>& channel_packages();

}  // namespace quintet::tests
