// How many blocks each virtual stage of a pipeline gets where parallel.stages does not say.
#pragma once

#include <cstdint>
#include <vector>

#include "config/recipe.h"
#include "graph/graph.h"
#include "schedule/schedule.h"

namespace quintet::compiler {

// Work of a micro-batch by block label and phase; `b` includes what is recomputed. Only ratios matter.
struct BlockWork {
  std::vector<double> f, b, w;
};

// Of the model's graph before other passes. The head computes its gradients in the forward phase
// (docs/decisions/0005). What memory.recompute_first selects depends on the stages, and "fit" on their
// memory: neither is counted.
BlockWork block_work(const config::Recipe& recipe, const graph::Graph& model);

// Blocks per virtual stage of a recipe with a pipeline: parallel.stages, or balanced. Multi-token prediction
// is the last block; where the list leaves it out, it stays with the head.
std::vector<int64_t> blocks_per_stage(const config::Recipe& recipe, const BlockWork& work);

// Time of `micro_batches` micro-batches in the schedule, which may be a shorter one of the same kind.
double scheduled_work(const BlockWork& work, const std::vector<int64_t>& sizes,
                      const schedule::Schedule& schedule, int64_t micro_batches);

// Blocks per virtual stage, contiguous, at least one each, without the embedding, which counts in the first
// stage, and the head, which counts in the last. First the split whose most expensive stage is cheapest (ties
// give earlier stages more); then single blocks move between stages as long as scheduled_work() becomes less
// and no rank gets much more than the busiest one has, in pipelines of many stages for a bounded number of
// tries.
std::vector<int64_t> balance_stages(const BlockWork& work, const schedule::Schedule& schedule,
                                    int64_t micro_batches);

}  // namespace quintet::compiler
