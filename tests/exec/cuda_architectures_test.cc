#include "exec/cuda_architectures.h"

#include <gtest/gtest.h>

namespace quintet::exec::cuda {
namespace {

TEST(CudaCode, RunsOnItsOwnGpusAndWhereTheDriverTranslates) {
  EXPECT_TRUE(has_code("90a", 9, 0));
  EXPECT_TRUE(has_code("90a-real", 9, 0));
  EXPECT_FALSE(has_code("90a-real", 10, 0));
  EXPECT_FALSE(has_code("90a", 8, 0));
  EXPECT_FALSE(has_code("90a", 10, 0));  // such code runs on one architecture only
  EXPECT_TRUE(has_code("80,90a,100", 8, 6));
  EXPECT_TRUE(has_code("80;90a;100", 12, 0));
  EXPECT_FALSE(has_code("80,90a,100", 7, 5));
  EXPECT_TRUE(has_code("80-real", 8, 9));
  EXPECT_FALSE(has_code("80-real", 9, 0));
  EXPECT_TRUE(has_code("80-virtual", 9, 0));
  EXPECT_TRUE(has_code("100f", 10, 3));
  EXPECT_FALSE(has_code("100f", 12, 0));
  EXPECT_TRUE(has_code("native", 7, 0));
}

TEST(CudaCode, NamesAGpusArchitecture) {
  EXPECT_EQ(architecture_of(8, 0), "80");
  EXPECT_EQ(architecture_of(9, 0), "90a");
  EXPECT_EQ(architecture_of(10, 3), "103");
  for (const auto& [major, minor] : {std::pair{8, 6}, {9, 0}, {10, 0}, {12, 0}})
    EXPECT_TRUE(has_code(architecture_of(major, minor), major, minor));
}

}  // namespace
}  // namespace quintet::exec::cuda
