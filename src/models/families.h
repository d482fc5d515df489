// The model families of models/build.h. Each emits everything from the embedding to the head.
#pragma once

#include <string>

#include "config/recipe.h"
#include "graph/builder.h"
#include "models/rope_frequencies.h"

namespace quintet::models {

void build_llama(graph::Builder& builder, const config::Model& model);
void build_gpt2(graph::Builder& builder, const config::Model& model);
void build_bert(graph::Builder& builder, const config::Model& model);

// Parts of blocks. `name` is the prefix of their parameters, such as "blocks.3.ffn."; x is already
// normalised.
graph::ValueId dense_feed_forward(graph::Builder& builder, const config::Model& model, graph::ValueId x,
                                  int64_t ffn, const std::string& name);  // llama.cc: gated
graph::ValueId expert_feed_forward(graph::Builder& builder, const config::Model& model, graph::ValueId x,
                                   const std::string& name);  // experts.cc
graph::ValueId latent_attention(graph::Builder& builder, const config::Model& model, graph::ValueId x,
                                const std::string& name);  // latent_attention.cc

// Of families with LayerNorm and biases everywhere (biased_parts.cc); these end with the model's dropout.
struct BiasedAttention {
  const RopeFrequencies* rope = nullptr;  // of Q and K; null: none
  bool both_sides = false;
};
graph::ValueId layer_norm(graph::Builder& builder, const config::Model& model, graph::ValueId x,
                          const std::string& name);
graph::ValueId biased_attention(graph::Builder& builder, const config::Model& model, graph::ValueId x,
                                const std::string& name, const BiasedAttention& options);
graph::ValueId biased_feed_forward(graph::Builder& builder, const config::Model& model, graph::ValueId x,
                                   const std::string& name, graph::Builder::GeluForm form);

// Standard deviations of initial weights (config::InitScheme): of projections into the residual stream, and
// of all others.
double init_stddev(const config::Model& model);
double residual_stddev(const config::Model& model);

}  // namespace quintet::models
