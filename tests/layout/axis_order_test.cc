// Rank groups of every order of the axes, compared with Megatron's rank generator, which is written down here
// anew: a group fixes the coordinates on all axes but those it spans, the first axis of the order innermost.
#include "config/axis_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "config/mesh_cuts.h"
#include "layout/layout.h"

namespace quintet::layout {
namespace {

using Groups = std::vector<std::vector<int>>;
using Sizes = std::vector<std::pair<std::string, int>>;  // by axis, innermost first

Groups megatron_groups(const Sizes& sizes, const std::vector<std::string>& spanned) {
  const auto spans = [&](const std::string& axis) {
    return std::find(spanned.begin(), spanned.end(), axis) != spanned.end();
  };
  int groups = 1, members = 1;
  for (const auto& [axis, size] : sizes) (spans(axis) ? members : groups) *= size;
  Groups list;
  for (int g = 0; g < groups; ++g) {
    std::vector<int> group;
    for (int m = 0; m < members; ++m) {
      int rank = 0, stride = 1, of_group = g, of_member = m;
      for (const auto& [axis, size] : sizes) {
        int& rest = spans(axis) ? of_member : of_group;
        rank += rest % size * stride;
        rest /= size;
        stride *= size;
      }
      group.push_back(rank);
    }
    list.push_back(group);
  }
  std::sort(list.begin(), list.end());
  return list;
}

Groups groups_of(const Mesh& mesh, AtomList atoms) {
  std::sort(atoms.begin(), atoms.end());
  Groups list;
  for (int r = 0; r < mesh.world(); ++r) {
    if (!mesh.is_first(RankId(r), atoms)) continue;
    std::vector<int> group;
    for (const RankId member : mesh.group(RankId(r), atoms)) group.push_back(member.value);
    list.push_back(group);
  }
  std::sort(list.begin(), list.end());
  return list;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : "-") + word;
  return text;
}

config::AxisOrder order_of(const std::string& text) {
  std::string unknown;
  const auto order = config::parse_axis_order(text, unknown);
  EXPECT_TRUE(order) << unknown;
  return order.value_or(config::AxisOrder());
}

config::Model model_of(const config::Parallel& p) { return {.heads = p.tp, .kv_heads = p.tp}; }

// All sizes of n axes whose product is at most `most`.
void sizes_up_to(int64_t most, size_t n, const std::vector<int64_t>& start,
                 std::vector<std::vector<int64_t>>& out) {
  if (start.size() == n) return out.push_back(start);
  for (int64_t size = 1; size <= most; ++size) {
    std::vector<int64_t> next = start;
    next.push_back(size);
    sizes_up_to(most / size, n, next, out);
  }
}

TEST(AxisOrder, DenseGroupsAreMegatrons) {
  std::vector<std::vector<int64_t>> all;
  sizes_up_to(64, 4, {}, all);
  std::vector<std::string> order = {"cp", "dp", "pp", "tp"};
  int64_t compared = 0;
  do
    for (const std::vector<int64_t>& n : all) {
      // Every size of a world of 64, and a third of the smaller ones: the seconds are better spent elsewhere.
      const int64_t world = n[0] * n[1] * n[2] * n[3];
      if (world < 64 && (n[0] + 2 * n[1] + 3 * n[2] + n[3]) % 3 != 0) continue;
      const int64_t replicas = n[2] % 2 == 0 && n[0] % 2 == 1 ? 2 : 1;
      const config::Parallel p{.dp_replicate = replicas,
                               .dp_shard = n[2] / replicas,
                               .tp = n[0],
                               .pp = n[3],
                               .cp = n[1],
                               .cp_method = config::ContextMethod::Gather,
                               .order = order_of(joined(order))};
      const Layout layout = make_layout(p, model_of(p));
      ASSERT_EQ(layout.mesh.world(), world);
      const std::map<std::string, int> size = {{"tp", static_cast<int>(n[0])},
                                               {"cp", static_cast<int>(n[1])},
                                               {"dp", static_cast<int>(n[2])},
                                               {"pp", static_cast<int>(n[3])}};
      Sizes sizes;
      for (const std::string& axis : order) sizes.emplace_back(axis, size.at(axis));
      const std::map<std::string, AtomList> atoms = {{"tp", layout.tensor},
                                                     {"cp", layout.context.atoms},
                                                     {"dp", layout.samples},
                                                     {"pp", layout.pipeline}};
      for (const std::vector<std::string>& spanned :
           std::vector<std::vector<std::string>>{{"tp"},
                                                 {"cp"},
                                                 {"dp"},
                                                 {"pp"},
                                                 {"dp", "cp"},
                                                 {"tp", "pp"},
                                                 {"tp", "cp"},
                                                 {"tp", "dp"},
                                                 {"tp", "dp", "cp"}}) {
        AtomList of;
        for (const std::string& axis : spanned) of = concat(of, atoms.at(axis));
        ASSERT_EQ(groups_of(layout.mesh, of), megatron_groups(sizes, spanned))
            << joined(spanned) << " of " << joined(order) << " with tp " << n[0] << " cp " << n[1] << " dp "
            << n[2] << " pp " << n[3];
        ++compared;
      }
    }
  while (std::next_permutation(order.begin(), order.end()));
  EXPECT_GT(compared, 100000);
}

// Megatron numbers the ranks of experts by [etp, ep, copies, pp] in the same order, and accepts a layout only
// if that leaves the pipelines as they are.
TEST(AxisOrder, ExpertGroupsAreMegatrons) {
  std::vector<std::string> order = {"cp", "dp", "ep", "pp", "tp"};
  int64_t compared = 0, refused = 0;
  do
    for (const std::vector<int64_t>& n : std::vector<std::vector<int64_t>>{// tp, cp, dp, pp, ep, etp
                                                                           {2, 1, 4, 1, 4, 1},
                                                                           {2, 1, 4, 2, 2, 2},
                                                                           {4, 1, 4, 1, 4, 2},
                                                                           {4, 2, 4, 2, 8, 1},
                                                                           {2, 2, 2, 2, 4, 1},
                                                                           {2, 2, 4, 4, 2, 2},
                                                                           {1, 2, 8, 2, 8, 1},
                                                                           {3, 1, 4, 2, 2, 3},
                                                                           {8, 1, 4, 2, 8, 4},
                                                                           {2, 3, 2, 2, 3, 2},
                                                                           {4, 1, 8, 2, 4, 1},
                                                                           {2, 1, 2, 4, 2, 1}}) {
      const config::Parallel p{.dp_shard = n[2],
                               .tp = n[0],
                               .pp = n[3],
                               .cp = n[1],
                               .cp_method = config::ContextMethod::Gather,
                               .ep = n[4],
                               .etp = n[5],
                               .order = order_of(joined(order))};
      const auto copies = static_cast<int>(n[0] * n[1] * n[2] / (n[4] * n[5]));
      const std::map<std::string, int> dense = {{"tp", static_cast<int>(n[0])},
                                                {"cp", static_cast<int>(n[1])},
                                                {"dp", static_cast<int>(n[2])},
                                                {"pp", static_cast<int>(n[3])},
                                                {"ep", 1}},
                                       expert = {{"tp", static_cast<int>(n[5])},
                                                 {"cp", 1},
                                                 {"dp", copies},
                                                 {"pp", static_cast<int>(n[3])},
                                                 {"ep", static_cast<int>(n[4])}};
      Sizes of_dense, of_experts;
      for (const std::string& axis : order) {
        of_dense.emplace_back(axis, dense.at(axis));
        of_experts.emplace_back(axis, expert.at(axis));
      }
      const std::vector<config::Cut> cuts = config::mesh_cuts(
          p,
          {{base::Dim::KvHeads, n[0], base::DimNeed::Share}, {base::Dim::Experts, 8, base::DimNeed::Divide}});
      if (megatron_groups(of_dense, {"pp"}) != megatron_groups(of_experts, {"pp"}) ||
          config::first_bad_cut(cuts) != cuts.size()) {
        ++refused;
        continue;
      }
      const Layout layout = make_layout(p, model_of(p));
      const ExpertMesh& x = layout.experts;
      for (const auto& [spanned, atoms] :
           std::vector<std::pair<std::vector<std::string>, AtomList>>{{{"ep"}, x.ep},
                                                                      {{"tp"}, x.etp},
                                                                      {{"dp"}, x.edp},
                                                                      {{"ep", "tp"}, x.group()},
                                                                      {{"pp"}, layout.pipeline}}) {
        ASSERT_EQ(groups_of(layout.mesh, atoms), megatron_groups(of_experts, spanned))
            << joined(spanned) << " of " << joined(order) << " with tp " << n[0] << " cp " << n[1] << " dp "
            << n[2] << " pp " << n[3] << " ep " << n[4] << " etp " << n[5];
        ++compared;
      }
    }
  while (std::next_permutation(order.begin(), order.end()));
  EXPECT_GT(compared, 2000);
  EXPECT_GT(refused, 100);
}

TEST(AxisOrder, WithoutAWordForThemExpertsComeAfterTensorRanks) {
  config::Parallel p{.dp_shard = 8, .tp = 2, .ep = 4};
  const auto [etp, ep, copies] = config::expert_spans(p);
  EXPECT_EQ(etp, 1);
  EXPECT_EQ(ep, 1);
  EXPECT_EQ(copies, 4);
  p.order = order_of("dp-tp-cp-pp");
  EXPECT_EQ(config::expert_spans(p).copies, 1);
  EXPECT_EQ(config::expert_spans(p).ep, 4);
  p.order = order_of("dp-ep-tp-cp-pp");
  EXPECT_EQ(config::expert_spans(p).ep, 4);
  EXPECT_EQ(config::expert_spans(p).etp, 16);
}

TEST(AxisOrder, ReshardsOverTheInnermostRanks) {
  config::Parallel p{.dp_shard = 4, .zero = 3, .tp = 2, .cp = 2, .cp_method = config::ContextMethod::Gather};
  p.reshard_after_forward = {config::ReshardAfterForward::Kind::ToRanks, 4};
  const auto near = [&](const std::string& order) {
    p.order = order_of(order);
    const Layout layout = make_layout(p, model_of(p));
    std::vector<int> members;
    for (const RankId r : layout.mesh.group(RankId(0), layout.dense.reshard)) members.push_back(r.value);
    return members;
  };
  EXPECT_EQ(near("tp-cp-dp-pp"), (std::vector<int>{0, 2, 4, 6}));  // both of cp, two of dp
  EXPECT_EQ(near("cp-dp-tp-pp"), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(near("dp-tp-cp-pp"), (std::vector<int>{0, 1, 2, 3}));  // all of dp, none of cp
  EXPECT_EQ(near("cp-tp-dp-pp"), (std::vector<int>{0, 1, 4, 5}));  // around tp
}

}  // namespace
}  // namespace quintet::layout
