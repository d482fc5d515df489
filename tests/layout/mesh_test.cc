#include "layout/mesh.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace quintet::layout {
namespace {

// Coordinates of every rank, by counting like an odometer.
std::vector<std::vector<int>> coordinates(const std::vector<int>& sizes) {
  std::vector<std::vector<int>> out(1, std::vector<int>(sizes.size(), 0));
  for (;;) {
    std::vector<int> next = out.back();
    size_t k = sizes.size();
    while (k > 0 && ++next[k - 1] == sizes[k - 1]) next[--k] = 0;
    if (k == 0) return out;
    out.push_back(next);
  }
}

// Ordered lists of distinct atoms.
void lists(int n, const AtomList& start, std::vector<AtomList>& out) {
  out.push_back(start);
  for (int a = 0; a < n; ++a)
    if (!contains(start, a)) lists(n, concat(start, {a}), out);
}

TEST(Mesh, GroupsAndIndicesByDefinition) {
  for (const std::vector<int>& sizes :
       std::vector<std::vector<int>>{{1}, {5}, {2, 3}, {3, 1, 2}, {2, 2, 2}, {2, 3, 1, 2}}) {
    std::vector<Atom> atoms;
    for (size_t i = 0; i < sizes.size(); ++i) atoms.push_back({Axis::Tp, sizes[i]});
    const Mesh mesh(atoms);
    const auto where = coordinates(sizes);
    ASSERT_EQ(mesh.world(), static_cast<int>(where.size()));
    std::vector<AtomList> all;
    lists(mesh.num_atoms(), {}, all);
    for (int r = 0; r < mesh.world(); ++r) {
      const std::vector<int>& at = where[static_cast<size_t>(r)];
      for (int a = 0; a < mesh.num_atoms(); ++a)
        EXPECT_EQ(mesh.coordinate(RankId(r), a), at[static_cast<size_t>(a)]);
      for (const AtomList& list : all) {
        // Members: equal in every other atom; order: by their coordinates in the list's order.
        const auto key = [&](int rank) {
          std::vector<int> k;
          for (const int a : list) k.push_back(where[static_cast<size_t>(rank)][static_cast<size_t>(a)]);
          return k;
        };
        std::vector<int> members;
        for (int other = 0; other < mesh.world(); ++other) {
          bool same = true;
          for (int a = 0; a < mesh.num_atoms(); ++a)
            same &= contains(list, a) ||
                    where[static_cast<size_t>(other)][static_cast<size_t>(a)] == at[static_cast<size_t>(a)];
          if (same) members.push_back(other);
        }
        std::sort(members.begin(), members.end(), [&](int x, int y) { return key(x) < key(y); });
        const std::vector<RankId> group = mesh.group(RankId(r), list);
        ASSERT_EQ(group.size(), members.size());
        ASSERT_EQ(static_cast<int>(group.size()), mesh.size(list));
        for (size_t i = 0; i < members.size(); ++i) {
          EXPECT_EQ(group[i].value, members[i]);
          if (members[i] == r) {
            EXPECT_EQ(mesh.index(RankId(r), list), static_cast<int>(i));
          }
        }
        EXPECT_EQ(mesh.is_first(RankId(r), list), group[0].value == r);
      }
    }
  }
}

TEST(Mesh, AxesAndNames) {
  const Mesh mesh(
      {{Axis::DpReplicate, 1}, {Axis::DpShard, 2}, {Axis::DpShard, 3}, {Axis::Tp, 2}, {Axis::Tp, 1}});
  EXPECT_EQ(mesh.axis(Axis::DpReplicate), AtomList{});
  EXPECT_EQ(mesh.axis(Axis::DpShard), (AtomList{1, 2}));
  EXPECT_EQ(mesh.axis(Axis::Tp), AtomList{3});
  EXPECT_EQ(mesh.parts({2, 3}), (std::vector<AxisPart>{{Axis::DpShard, 1}, {Axis::Tp}}));
  EXPECT_EQ(mesh.name({1, 2}), "dp_shard");
  EXPECT_EQ(mesh.name({2}), "dp_shard[1]");
  EXPECT_EQ(mesh.name({1, 2, 3}), "dp_shard+tp");
  EXPECT_EQ(mesh.name({}), "none");
}

TEST(Mesh, PartsOfAxesFromText) {
  for (const std::vector<AxisPart>& parts :
       {std::vector<AxisPart>{{Axis::Tp}}, {{Axis::DpShard, 0}, {Axis::DpShard, 12}, {Axis::Cp}}})
    EXPECT_EQ(parse_axis_parts(to_string(parts)), parts);
  for (const char* wrong :
       {"", "none", "ep", "tp+", "+tp", "tp[", "tp[]", "tp[1", "tp[-1]", "tp[1]x", "tp cp"})
    EXPECT_FALSE(parse_axis_parts(wrong)) << wrong;
}

TEST(Mesh, SetOperationsKeepTheOrder) {
  EXPECT_EQ(without({3, 1, 2}, {1}), (AtomList{3, 2}));
  EXPECT_EQ(intersection({3, 1, 2}, {2, 3}), (AtomList{3, 2}));
  EXPECT_EQ(set_union({3, 1}, {2, 1}), (AtomList{1, 2, 3}));
  EXPECT_EQ(concat({3, 1}, {2}), (AtomList{3, 1, 2}));
}

}  // namespace
}  // namespace quintet::layout
