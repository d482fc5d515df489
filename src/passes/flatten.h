// Flattening: a step graph has a node per parameter; programs update all parameters of a rank in one
// instruction. This pass merges elementwise nodes of equal op, attributes and scalars over all parameters of
// a pipeline stage into one node over whole parameter groups, with a table of ranges in the groups'
// coordinates. It merges across parameters, never along chains: what one node computes stays one kernel's
// rule, and so do its bits.
#pragma once

#include "layout/flat_step.h"

namespace quintet::passes {

// `local` is `step` after partitioning; `groups` are those of pipeline rank `stage_rank`. Matrices that
// are made orthogonal are dealt to owners (deal_matrices.h).
layout::FlatStep flatten(const graph::StepGraph& step, const layout::LocalGraph& local,
                         const std::vector<layout::Group>& groups, const layout::Mesh& mesh, int stage_rank);

}  // namespace quintet::passes
