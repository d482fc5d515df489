// parameter_counts.txt holds "<preset> <count>" per line, written down independently of the graph builders.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "config/presets.h"
#include "models/build.h"

namespace quintet::models {
namespace {

std::map<std::string, int64_t> published_counts() {
  std::ifstream file(QUINTET_SOURCE_DIR "/tests/models/parameter_counts.txt");
  std::map<std::string, int64_t> counts;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string preset;
    int64_t count = 0;
    if (line.starts_with("#") || !(words >> preset >> count)) continue;
    EXPECT_TRUE(counts.emplace(preset, count).second) << preset << " stands twice";
  }
  return counts;
}

TEST(ParameterCount, OfEveryPreset) {
  std::map<std::string, int64_t> counts = published_counts();
  for (const config::Model& model : config::presets()) {
    SCOPED_TRACE(model.preset);
    ASSERT_TRUE(counts.contains(model.preset));
    const graph::Graph g = build(model, {.tokens = 8, .seq_len = 8});
    EXPECT_EQ(parameter_count(g), counts.at(model.preset));
    EXPECT_EQ(trainable_parameter_count(g), counts.at(model.preset));
    counts.erase(model.preset);
  }
  EXPECT_TRUE(counts.empty()) << "no preset called " << counts.begin()->first;
}

}  // namespace
}  // namespace quintet::models
