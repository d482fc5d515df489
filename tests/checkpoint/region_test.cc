#include "checkpoint/region.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace quintet::checkpoint {
namespace {

// Element by element: the index in the tensor of every element of a region.
std::vector<int64_t> elements(const Region& r) {
  std::vector<int64_t> out;
  for (int64_t i = r.first; i < r.first + r.count; ++i) {
    int64_t rest = i, at = 0, stride = 1;
    for (size_t d = r.shape.size(); d-- > 0;) {
      at += (r.begin[d] + rest % r.size[d]) * stride;
      rest /= r.size[d];
      stride *= r.shape[d];
    }
    out.push_back(at);
  }
  return out;
}

Region random_region(std::mt19937& random, const std::vector<int64_t>& shape) {
  const auto upto = [&](int64_t n) { return std::uniform_int_distribution<int64_t>(0, n)(random); };
  Region r = Region::whole(shape);
  for (size_t d = 0; d < shape.size(); ++d) {
    if (upto(2) == 0) continue;
    r.begin[d] = upto(shape[d] - 1);
    r.size[d] = 1 + upto(shape[d] - r.begin[d] - 1);
  }
  r.first = upto(r.box_count() - 1);
  r.count = 1 + upto(r.box_count() - r.first - 1);
  return r;
}

const std::vector<std::vector<int64_t>> kShapes = {{}, {12}, {3, 4}, {2, 6}, {2, 3, 2}, {1, 12}};

TEST(Region, RunsAreItsElementsInOrder) {
  std::mt19937 random(1);
  for (int n = 0; n < 500; ++n) {
    const Region r = random_region(random, kShapes[static_cast<size_t>(n) % kShapes.size()]);
    ASSERT_TRUE(is_valid(r, r.shape.empty() ? 1 : 12));
    const std::vector<int64_t> expected = elements(r);
    std::vector<int64_t> found;
    const Runs runs(r);
    for (int64_t i = 0; i < runs.size(); ++i) {
      EXPECT_EQ(runs[i].at, static_cast<int64_t>(found.size()));
      for (int64_t k = 0; k < runs[i].length; ++k) found.push_back(runs[i].tensor + k);
    }
    ASSERT_EQ(found, expected);
    for (int64_t e = 0; e < 12; ++e) {
      int64_t first = 0;
      while (first < runs.size() && runs[first].tensor + runs[first].length <= e) ++first;
      ASSERT_EQ(runs.first_after(e), first);
    }
  }
}

// Also between regions of different factorings of the same number of elements.
TEST(Region, CommonRunsAreTheCommonElements) {
  std::mt19937 random(2);
  for (int n = 0; n < 1000; ++n) {
    const auto shape = [&] { return kShapes[1 + random() % (kShapes.size() - 1)]; };
    const Region a = random_region(random, shape()), b = random_region(random, shape());
    std::map<int64_t, int64_t> in_b;
    const std::vector<int64_t> of_a = elements(a), of_b = elements(b);
    for (size_t i = 0; i < of_b.size(); ++i) in_b[of_b[i]] = static_cast<int64_t>(i);
    std::map<int64_t, int64_t> expected, found;
    for (size_t i = 0; i < of_a.size(); ++i)
      if (in_b.contains(of_a[i])) expected[static_cast<int64_t>(i)] = in_b[of_a[i]];
    for_each_common_run(a, b, [&](int64_t x, int64_t y, int64_t length) {
      for (int64_t k = 0; k < length; ++k) found[x + k] = y + k;
    });
    ASSERT_EQ(found, expected);
  }
}

TEST(Region, ClippingLeavesPaddingOut) {
  // Two ranks share 5 columns, padded to 3 each, of 2 rows.
  const Clipped second = clip({2, 5}, {0, 3}, {2, 3}, 1, 4);
  EXPECT_EQ(elements(second.region), (std::vector<int64_t>{4, 8, 9}));
  EXPECT_EQ(elements(second.memory), (std::vector<int64_t>{1, 3, 4}));
  EXPECT_FALSE(second.is_contiguous());
  EXPECT_EQ(clip({2, 5}, {0, 3}, {2, 3}, 2, 1).region.count, 0);
  EXPECT_EQ(clip({2}, {2}, {1}, 0, 1).region.count, 0) << "a rank with padding only";
  EXPECT_TRUE(clip({4, 6}, {2, 0}, {2, 6}, 3, 5).is_contiguous());
}

TEST(Region, ImpossibleRegionsAreInvalid) {
  const auto invalid = [](Region r) { EXPECT_FALSE(is_valid(r, 12)); };
  const Region good = Region::whole({3, 4});
  EXPECT_TRUE(is_valid(good, 12));
  EXPECT_FALSE(is_valid(good, 13));
  Region r = good;
  r.begin = {1, 0};
  invalid(r);
  r = good, r.begin = {INT64_MAX, 0};
  invalid(r);
  r = good, r.size = {3, 5};
  invalid(r);
  r = good, r.size = {0, 4};
  invalid(r);
  r = good, r.count = 13;
  invalid(r);
  r = good, r.first = INT64_MAX, r.count = INT64_MAX;
  invalid(r);
  r = good, r.first = -1;
  invalid(r);
  r = good, r.shape = {INT64_MAX, INT64_MAX};
  invalid(r);
  r = good, r.begin = {0};
  invalid(r);
}

}  // namespace
}  // namespace quintet::checkpoint
