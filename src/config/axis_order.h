// Which ranks are neighbours: the order of the mesh's axes (parallel.order), and the axis that takes the rest
// of the ranks (-1).
//
// Groups that do not cross the pipeline are counted in the ranks of one stage, numbered without pp, so that
// the place of pp in the order cuts none of them. Experts number the same ranks by [etp, ep, copies], in the
// order in which tp, ep and dp_shard appear; without "ep" in the order, ep comes after etp. For Megatron's
// orders these are the groups of its rank generators (tests/layout/axis_order_test.cc).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/recipe.h"
#include "config/report.h"

namespace quintet::config {

// Megatron's form, "tp-cp-ep-dp-pp", with dp for dp_shard and dp_replicate. Empty when a word is not known;
// `unknown` is then that word.
std::optional<AxisOrder> parse_axis_order(std::string_view text, std::string& unknown);
// The form of the recipe: "tp", "cp", "dp_shard", "dp_replicate", "pp".
std::string axis_order_text(const AxisOrder& order);
// For reports: tp-cp-dp_shard-dp_replicate-pp.
std::string axis_order_words(const AxisOrder& order);

// Appends axes of one rank that the order leaves out, and reports what is missing or twice.
void fill_in_order(Parallel& parallel, Report& report);

// Gives the axis of -1 the ranks that the others leave of parallel.world or, without it, of `known` ranks
// (0: unknown), and reports where that is impossible.
void fill_in_rest(Parallel& parallel, int64_t known, Report& report);

// An axis with the number of ranks of a stage that lie inside it; for pp, between two stages.
struct AxisSpan {
  MeshAxis axis;
  int64_t inner;
  int64_t size;
};
std::vector<AxisSpan> axis_spans(const Parallel& parallel);  // innermost first; all but ep
int64_t inner_of(const Parallel& parallel, MeshAxis axis);
// How far neighbours of an axis are apart in the numbers of all ranks.
int64_t stride_of(const Parallel& parallel, MeshAxis axis);

// Ranks of a stage inside each of the expert axes.
struct ExpertSpans {
  int64_t etp, ep, copies;
};
ExpertSpans expert_spans(const Parallel& parallel);

// reshard_after_forward = k: the inner k ranks of dp_shard x cp, as blocks [inner, outer) of the ranks of a
// stage, one per axis, outermost first.
struct RankBlock {
  int64_t inner, outer;
};
std::vector<RankBlock> reshard_blocks(const Parallel& parallel);

}  // namespace quintet::config
