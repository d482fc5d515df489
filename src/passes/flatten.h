// Flattening: a step graph has one node per parameter; a program updates all parameters of a rank in one
// instruction. This pass merges elementwise nodes of equal op, attributes and scalars over all parameters of
// a pipeline stage into one node over whole parameter groups, with a table of ranges in group coordinates.
// It merges across parameters, never along chains: one kernel still computes what one node did, with the
// same bits.
#pragma once

#include "layout/flat_step.h"

namespace quintet::passes {

// `local` is `step` after partitioning; `groups` are those of pipeline rank `stage_rank`. Matrices to be
// orthogonalised are assigned to owners (deal_matrices.h).
layout::FlatStep flatten(const graph::StepGraph& step, const layout::LocalGraph& local,
                         const std::vector<layout::Group>& groups, const layout::Mesh& mesh, int stage_rank);

}  // namespace quintet::passes
