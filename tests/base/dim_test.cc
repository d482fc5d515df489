#include "base/dim.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"

namespace quintet::base {
namespace {

TEST(Dim, BuiltInOnesKeepTheirNames) {
  EXPECT_EQ(to_string(Dim::Tokens), "tokens");
  EXPECT_EQ(to_string(Dim::Counts), "counts");
  EXPECT_EQ(intern_dim("kv_heads"), Dim::KvHeads);
  EXPECT_EQ(parse_dim("expert_ffn"), Dim::ExpertFfn);
  EXPECT_FALSE(is_user_dim(Dim::Counts));
}

TEST(Dim, OneNameIsOneDim) {
  static int run = 0;  // names last as long as the process, and the test may be repeated
  const std::string name = "frames_" + std::to_string(++run);
  EXPECT_EQ(parse_dim(name), std::nullopt);
  const Dim frames = intern_dim(name);
  EXPECT_TRUE(is_user_dim(frames));
  EXPECT_EQ(intern_dim(name), frames);
  EXPECT_EQ(parse_dim(name), frames);
  EXPECT_NE(intern_dim("pixels"), frames);
  EXPECT_EQ(to_string(frames), name);
}

TEST(Dim, NamesArePlain) {
  for (const char* name : {"", "Frames", "a b", "x=3"}) EXPECT_THROW(intern_dim(name), UserError) << name;
}

TEST(Dim, ThreadsAgree) {
  std::vector<std::vector<Dim>> found(4);
  std::vector<std::thread> threads;
  for (std::vector<Dim>& list : found)
    threads.emplace_back([&list] {
      for (int i = 0; i < 50; ++i) list.push_back(intern_dim("shared_" + std::to_string(i)));
    });
  for (std::thread& t : threads) t.join();
  for (const std::vector<Dim>& list : found) EXPECT_EQ(list, found[0]);
  EXPECT_EQ(std::set<Dim>(found[0].begin(), found[0].end()).size(), 50u);
}

TEST(Dim, DemandsOfADimAreItsLargest) {
  const DimDemands demands = {{Dim::Ffn, 8}, {Dim::Ffn, 32}, {Dim::Vocab, 5, DimNeed::Pad}};
  EXPECT_EQ(demanded(demands, Dim::Ffn), 32);
  EXPECT_EQ(demanded(demands, Dim::Heads), 0);
}

}  // namespace
}  // namespace quintet::base
