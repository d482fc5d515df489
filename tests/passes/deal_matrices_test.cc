#include "passes/deal_matrices.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace quintet::passes::deal_matrices_test {
namespace {

using graph::Dim;
using layout::AtomList;
using layout::Group;
using layout::MatrixWindow;
using layout::Segment;

constexpr int kData = 0, kTensor = 1;  // atoms

// Blocks of two square matrices divided by rows over the tensor ranks, and one wide one divided by columns.
struct Stage {
  layout::Mesh mesh{{{layout::Axis::DpShard, 2}, {layout::Axis::Tp, 2}}};
  std::vector<Group> groups;
  std::vector<MatrixParam> params;

  Stage(int blocks, bool zero) {
    for (int b = 0; b < blocks; ++b) {
      Group g{
          .name = "block", .block = b, .data = {.all = {kData}, .shard = {}, .reshard = {}}, .segments = {}};
      if (zero) g.data.shard = {kData};
      for (int i = 0; i < 3; ++i) {
        const int64_t rows = 8, columns = i < 2 ? 8 : 24;
        Segment s{.name = "w", .placement = {.dims = {{}, {}}, .flat = {}, .partial = {}}};
        s.global = {graph::DType::F32, {{Dim::Ffn, rows}, {Dim::Embed, columns}}};
        s.local = s.global;
        s.placement.dims[i < 2 ? 0 : 1] = {kTensor};
        s.local.dims[i < 2 ? 0 : 1].size /= 2;
        s.count = s.local.count();
        s.offset = g.count;
        g.count += s.count;
        g.segments.push_back(std::move(s));
      }
      groups.push_back(std::move(g));
    }
    for (int b = 0; b < blocks; ++b)
      for (const Segment& s : groups[static_cast<size_t>(b)].segments)
        params.push_back({.group = b, .segment = &s, .each = 0, .rows = 1});
  }
  std::vector<MatrixWindow> deal() const { return deal_matrices(params, groups, mesh, graph::DType::F32); }
};

TEST(DealMatrices, AWindowHasAMatrixOfEachShapeForEveryRank) {
  const std::vector<MatrixWindow> windows = Stage(10, true).deal();
  // Four ranks: the wide matrices of four blocks.
  ASSERT_EQ(windows.size(), 3u);
  EXPECT_EQ(windows[0].groups, (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(windows[1].groups, (std::vector<int>{4, 5, 6, 7}));
  EXPECT_EQ(windows[2].groups, (std::vector<int>{8, 9}));
  for (const MatrixWindow& w : windows) {
    EXPECT_EQ(w.pieces, (AtomList{kData, kTensor}));
    EXPECT_TRUE(w.copies.empty());
    EXPECT_EQ(w.matrices.size(), 3 * w.groups.size());
  }
}

TEST(DealMatrices, ShapesAreDealtRoundRobin) {
  const std::vector<MatrixWindow> windows = Stage(4, true).deal();
  ASSERT_EQ(windows.size(), 1u);
  std::map<int, std::map<int64_t, int>> held;     // by owner and columns
  std::set<std::tuple<int, int64_t, int>> slots;  // each is used once
  for (const layout::OwnedMatrix& m : windows[0].matrices) {
    ++held[m.owner][m.columns];
    EXPECT_TRUE(slots.emplace(m.owner, m.columns, m.slot).second);
    EXPECT_LT(m.slot, m.columns == 8 ? 2 : 1);
  }
  ASSERT_EQ(held.size(), 4u);
  for (const auto& [owner, shapes] : held) {
    EXPECT_EQ(shapes.at(8), 2) << owner;
    EXPECT_EQ(shapes.at(24), 1) << owner;
  }
}

// Without ZeRO data ranks hold copies of what tensor ranks hold: they share the work, too.
TEST(DealMatrices, DataRanksShareTheWorkWithoutZero) {
  const std::vector<MatrixWindow> windows = Stage(4, false).deal();
  ASSERT_EQ(windows.size(), 1u);
  EXPECT_EQ(windows[0].copies, (AtomList{kData}));
  EXPECT_EQ(windows[0].pieces, (AtomList{kTensor}));
  std::set<int> owners;
  for (const layout::OwnedMatrix& m : windows[0].matrices) owners.insert(m.owner);
  EXPECT_EQ(owners, (std::set<int>{0, 1, 2, 3}));
}

TEST(DealMatrices, EveryExpertIsAMatrix) {
  Stage stage(1, true);
  Segment& s = stage.groups[0].segments[0];
  s.global = s.local = {graph::DType::F32, {{Dim::Experts, 3}, {Dim::Ffn, 4}, {Dim::Embed, 6}}};
  s.local.dims[1].size = 2;
  s.placement.dims = {{}, {kTensor}, {}};
  stage.params = {{.group = 0, .segment = &s, .each = 1, .rows = 1}};
  const std::vector<MatrixWindow> windows = stage.deal();
  ASSERT_EQ(windows.size(), 1u);
  ASSERT_EQ(windows[0].matrices.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(windows[0].matrices[i].offset, static_cast<int64_t>(12 * i));
    EXPECT_EQ(windows[0].matrices[i].rows, 4);
    EXPECT_EQ(windows[0].matrices[i].columns, 6);
  }
}

}  // namespace
}  // namespace quintet::passes::deal_matrices_test
