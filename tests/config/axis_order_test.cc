// The order of the axes, and the axis that takes the rest of the ranks.
#include "config/axis_order.h"

#include <gtest/gtest.h>

#include "config/print.h"
#include "config/support.h"
#include "config/validate.h"

namespace quintet::config {
namespace {

using enum MeshAxis;

TEST(AxisOrder, IsAListOrMegatronsString) {
  const auto order = [](const std::string& text) {
    return parse(kGood, {"parallel.order=" + text}).parallel.order;
  };
  const AxisOrder other = {Tp, Pp, Cp, DpShard, DpReplicate};
  EXPECT_EQ(parse(kGood).parallel.order, (AxisOrder{Tp, Cp, DpShard, DpReplicate, Pp}));
  EXPECT_EQ(order("['tp', 'pp', 'cp', 'dp_shard', 'dp_replicate']"), other);
  EXPECT_EQ(order("'tp-pp-cp-dp'"), other);
  EXPECT_EQ(order("'TP-pp-cp-dp_shard-dp_replicate'"), other);
  EXPECT_EQ(order("['tp', 'pp', 'cp', 'dp']"), other);
  EXPECT_EQ(order("'tp-cp-ep-dp-pp'"), Parallel{}.order) << "without experts their place means nothing";
  EXPECT_EQ(order("'dp-tp'"), (AxisOrder{DpShard, DpReplicate, Tp, Cp, Pp}))
      << "axes of one rank are outside";
}

TEST(AxisOrder, ReadsBackAsPrinted) {
  const Recipe r =
      parse(kGood, {"model.preset='tiny-moe'", "parallel.ep=4", "parallel.order='dp-ep-tp-cp-pp'"});
  EXPECT_EQ(r.parallel.order, (AxisOrder{DpShard, DpReplicate, Ep, Tp, Cp, Pp}));
  EXPECT_EQ(parse(to_toml(r)).parallel, r.parallel);
}

TEST(AxisOrder, PlacesEveryAxis) {
  Parallel p{.dp_shard = 4, .tp = 2, .pp = 3, .cp = 5};
  p.order = {Tp, Pp, DpShard, Cp, DpReplicate};
  EXPECT_EQ(inner_of(p, DpShard), 2) << "of the ranks of a stage";
  EXPECT_EQ(stride_of(p, DpShard), 6);
  EXPECT_EQ(inner_of(p, Cp), 8);
  EXPECT_EQ(stride_of(p, Cp), 24);
  EXPECT_EQ(stride_of(p, Tp), 1);
}

TEST(Rest, IsWhatTheOtherAxesLeave) {
  EXPECT_EQ(parse(kGood, {"parallel.dp_shard=-1", "parallel.world=8"}).parallel.dp_shard, 4);
  EXPECT_EQ(parse(kGood, {"parallel.tp=-1", "parallel.world=16"}).parallel.tp, 4);
  EXPECT_EQ(parse(kGood, {"parallel.pp=-1", "parallel.world=16", "batch.micro=2"}).parallel.pp, 2);
  EXPECT_EQ(parse(kGood, {"parallel.dp_shard=-1"}, "recipe", nullptr, {.ranks = 4}).parallel.dp_shard, 2);
  EXPECT_EQ(parse(kGood, {"parallel.dp_shard=-1", "parallel.world=8"}, "recipe", nullptr, {.ranks = 4})
                .parallel.dp_shard,
            4)
      << "the recipe's number comes first";
  EXPECT_EQ(parse(kGood, {}, "recipe", nullptr, {.ranks = 4}).parallel.dp_shard, 4)
      << "only -1 asks for the number";
  Recipe r = parse(kGood);
  r.parallel.dp_shard = -1;
  r.parallel.ranks = 16;
  r.batch = {};
  EXPECT_EQ(resolve(r).parallel.dp_shard, 8);
}

TEST(Rest, IsANumberInTheResolvedRecipe) {
  const Recipe r = parse(kGood, {"parallel.dp_shard=-1"}, "recipe", nullptr, {.ranks = 8});
  EXPECT_NE(to_toml(r).find("dp_shard = 4\n"), std::string::npos);
  EXPECT_EQ(parse(to_toml(r)), r) << "without the number of ranks";
}

}  // namespace
}  // namespace quintet::config
