// Quantised linear layers (precision.linear): chosen linears of the logical graph, forward and backward,
// compute on codes (graph/fp8_ops.h).
//
//   linear     -> scaled_linear(quantize(x), quantize(w))
//   linear_dx  -> scaled_linear_dx(quantize(dy), transposed quantize(w))
//   linear_dw  -> scaled_linear_dw(transposed quantize(dy), transposed quantize(x))
//
// Weights are quantised where they are read: in the forward pass and again in the backward pass. The backward
// pass reads transposed codes of x, one byte per element, unless it keeps x itself anyway: then x is
// quantised again.
//
// Linears that read the same x (q, k and v; gate and up) form a set, whatever the layout: so a layout may
// compute the set as one GEMM (passes/pack.h), and every layout rounds alike.
//  - Delayed scales: x and w are E4M3, dy is E5M2. A set has three scales, one each for x, for the weights
//    and for their dy. They come from magnitudes over all ranks and micro-batches of earlier steps, so they
//    are known when a step starts.
//  - Block scales: all are E4M3, with a scale for each block of values, along what the GEMM contracts. The
//    ops are quantize_blocks and block_linear.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace quintet::passes {

// Scales of blocks: `size` values that follow one another along the contracted dims.
struct BlockScales {
  int64_t size = 0;
  bool square_weights = false;  // blocks of weights are size x size
};

struct QuantizeOptions {
  // Patterns of weights ('*' and '?'); empty: all linears of the blocks. A pattern that matches no weight of
  // a linear that can be quantised is an error.
  std::vector<std::string> match;
  bool head = false;       // also the head
  double step_tokens = 1;  // of a whole step: gradients of the mean loss are about that much smaller than 1
  std::optional<BlockScales> blocks;  // without: delayed scales
};

// Sizes of a GEMM's operands must be multiples of this: 16 bytes.
inline constexpr int64_t kQuantizedMultiple = 16;

// After differentiation. Never quantised: embeddings, routers, experts and attention, weights that several
// linears use, and linears whose input or output size is not a multiple of kQuantizedMultiple and of a block.
graph::Graph quantize(const graph::Graph& graph, const QuantizeOptions& options);

// Removes results of quantize nodes that nothing reads: recomputed nodes have all results of the originals.
void drop_unused_codes(graph::Graph& graph);

// UserError unless a rank's part of every GEMM on codes of one byte has sizes in multiples of
// kQuantizedMultiple. The rules of recipes report this earlier, and better, for the built-in models.
void require_code_sizes(const graph::Graph& local);

}  // namespace quintet::passes
