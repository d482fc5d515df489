// recipes/known: layouts that users know from other systems, at toy scale, each compared with one rank, and
// planned at full size with the verdict that its comment states. What the engine lacks is refused by name.
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "config/parse.h"
#include "plan/plan.h"
#include "plan/text.h"
#include "support/folders.h"
#include "tools/verify.h"

namespace quintet {
namespace {

std::vector<std::filesystem::path> known_recipes() {
  std::vector<std::filesystem::path> list;
  for (const auto& entry : std::filesystem::directory_iterator(test::source_dir() + "/recipes/known"))
    if (entry.path().extension() == ".toml") list.push_back(entry.path());
  std::sort(list.begin(), list.end());
  return list;
}

// "# full size: CLUSTER; fits|does not fit; KEY=VALUE KEY=VALUE"
struct FullSize {
  std::string cluster, verdict;
  std::vector<std::string> sets;
};
std::vector<FullSize> full_sizes(const std::filesystem::path& file) {
  constexpr std::string_view kMark = "# full size: ";
  std::vector<FullSize> list;
  std::istringstream text(base::read_file(file.string()));
  for (std::string line; std::getline(text, line);) {
    if (!line.starts_with(kMark)) continue;
    std::istringstream parts(line.substr(kMark.size()));
    FullSize f;
    std::getline(parts, f.cluster, ';');
    std::getline(parts >> std::ws, f.verdict, ';');
    for (std::string set; parts >> set;) f.sets.push_back(set);
    list.push_back(std::move(f));
  }
  return list;
}

TEST(KnownRecipes, RunAtToyScaleAsOneRankDoes) {
  const auto files = known_recipes();
  EXPECT_GE(files.size(), 12u);
  for (const auto& file : files) {
    SCOPED_TRACE(file.filename().string());
    // Rounding is not the subject: with f64 a difference is a difference.
    std::vector<std::string> sets = {"model.layers=4", "model.embed=32",  "model.head_dim=8",
                                     "model.ffn=48",   "data.seq_len=32", "run.steps=2"};
    config::Recipe r = config::load(file.string(), sets);
    const bool quantises = r.precision.quantises();
    if (!quantises) {
      sets.insert(sets.end(), {"precision.compute=f64", "precision.reduce=f64"});
      r = config::load(file.string(), sets);
    }
    const tools::VerifyResult result = tools::verify(r, {.steps = 1, .synthetic = true});
    EXPECT_TRUE(result.pass()) << tools::to_table(result);
  }
}

TEST(KnownRecipes, ArePlannedAtFullSize) {
  int fit = 0, not_fit = 0;
  for (const auto& file : known_recipes()) {
    const std::vector<FullSize> sizes = full_sizes(file);
    EXPECT_FALSE(sizes.empty()) << file;
    for (const FullSize& f : sizes) {
      SCOPED_TRACE(file.filename().string() + ": " + f.cluster);
      plan::Assumptions a;
      a.cluster = hardware::parse_cluster(f.cluster);
      a.verify = false;
      a.max_instructions = 2e5;
      const plan::Report report = plan::make_plan(config::load(file.string(), f.sets), a);
      ASSERT_TRUE(f.verdict == "fits" || f.verdict == "does not fit") << f.verdict;
      EXPECT_EQ(report.memory.fits(), f.verdict == "fits") << plan::to_text(report);
      (report.memory.fits() ? fit : not_fit) += 1;
    }
  }
  EXPECT_GE(fit, 10);
  EXPECT_GE(not_fit, 3);
}

// Recipes of other systems that need what this engine does not have.
TEST(KnownRecipes, OthersNameTheMissingFeature) {
  const std::string file = test::source_dir() + "/recipes/known/full-shard.toml";
  const auto refusal = [&](const std::string& set) {
    try {
      config::load(file, {set});
    } catch (const base::UserError& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  // ZeRO-3 with the optimizer on the host and parameters on NVMe; activations on the host.
  for (const char* set : {"memory.offload=optimizer", "memory.offload=nvme", "memory.offload=activations"}) {
    EXPECT_NE(refusal(set).find("memory.offload"), std::string::npos) << refusal(set);
    EXPECT_NE(refusal(set).find("not supported yet"), std::string::npos) << refusal(set);
  }
  EXPECT_NE(refusal("precision.linear=nvfp4").find("not supported yet"), std::string::npos);
  EXPECT_NE(refusal("run.backend=gloo").find("not supported yet"), std::string::npos);
}

}  // namespace
}  // namespace quintet
