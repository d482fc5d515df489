// parameter_counts.txt has one "<preset> <count>" per line, plus the active count for models with experts,
// computed independently of the graph builders.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "config/presets.h"
#include "models/build.h"
#include "support/folders.h"

namespace quintet::models {
namespace {

struct Counts {
  int64_t all = 0, active = 0;
};

std::map<std::string, Counts> published_counts() {
  std::ifstream file(test::source_dir() + "/tests/models/parameter_counts.txt");
  std::map<std::string, Counts> counts;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string preset;
    Counts c;
    if (line.starts_with("#") || !(words >> preset >> c.all)) continue;
    if (!(words >> c.active)) c.active = c.all;
    EXPECT_TRUE(counts.emplace(preset, c).second) << preset << " is listed twice";
  }
  return counts;
}

TEST(ParameterCount, OfEveryPreset) {
  std::map<std::string, Counts> counts = published_counts();
  for (const config::Model& model : config::presets()) {
    SCOPED_TRACE(model.preset);
    ASSERT_TRUE(counts.contains(model.preset));
    const Counts& want = counts.at(model.preset);
    const graph::Graph g = build(model, {.tokens = 8, .seq_len = 8});
    EXPECT_EQ(parameter_count(g), want.all);
    EXPECT_EQ(trainable_parameter_count(g), want.all);
    EXPECT_EQ(active_parameter_count(g, model), want.active);
    EXPECT_EQ(want.active<want.all, model.moe.experts> 0);
    counts.erase(model.preset);
  }
  EXPECT_TRUE(counts.empty()) << "unknown preset " << counts.begin()->first;
}

}  // namespace
}  // namespace quintet::models
