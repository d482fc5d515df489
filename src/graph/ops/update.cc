// Ops of the step program: they work on flat group buffers and scalars, and never occur in a model's graph.
#include "graph/ops/support.h"

namespace quintet::graph {
namespace {

std::vector<Type> same(const std::vector<Type>& in, const Attrs&) { return {in[0]}; }
std::vector<Type> scalar(const std::vector<Type>&, const Attrs&) { return {{DType::F64, {}}}; }

Cost cost_update(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  return {.flops = 12.0 * static_cast<double>(in[0].count()), .bytes = total_bytes(in, out)};
}

}  // namespace

// count -> seed = 1 / count
const OpDef kCountToSeed = {"count_to_seed", 1, 1, {}, scalar, nullptr, cost_by_bytes};
// y += x
const OpDef kAccumulate = {"accumulate", 1, 1, {}, same, nullptr, cost_by_bytes};
// ranges of a gradient -> sum of squares; ranges are pairs (first, count) that this rank counts
const OpDef kSumSquares = {"sum_squares", 1, 1, {{"ranges", AttrKind::Integers}}, scalar, nullptr,
                           cost_by_bytes};
// sum of squares, loss -> norm, clip scale, ok flag, counters
const OpDef kClipScale = {"clip_scale", 2, 2, {{"max_norm", AttrKind::Real}}, scalar, nullptr, cost_by_bytes};
const OpDef kAdamW = {"adamw",
                      1,
                      8,
                      {{"beta1", AttrKind::Real},
                       {"beta2", AttrKind::Real},
                       {"eps", AttrKind::Real},
                       {"weight_decay", AttrKind::Real}},
                      same,
                      nullptr,
                      cost_update};
const OpDef kSgd = {
    "sgd", 1,       8,          {{"momentum", AttrKind::Real}, {"weight_decay", AttrKind::Real}},
    same,  nullptr, cost_update};
const OpDef kCopy = {"copy", 1, 1, {}, same, nullptr, cost_by_bytes};

}  // namespace quintet::graph
