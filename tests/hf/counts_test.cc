// Parameters of public models, and the bytes that ranks read of a large one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "base/file.h"
#include "compiler/compile.h"
#include "config/hf/config.h"
#include "config/parse.h"
#include "hf/strided.h"
#include "models/build.h"
#include "support/folders.h"

namespace quintet {
namespace {

// public_models.jsonl is written by count_parameters.py: counted by transformers from the same keys.
TEST(HfCounts, PublicModelsHaveTheirParameters) {
  std::istringstream lines(base::read_file(base::Path(test::source_dir()) / "tests/hf/public_models.jsonl"));
  int models = 0;
  for (std::string line; std::getline(lines, line); ++models) {
    const auto json = nlohmann::json::parse(line);
    SCOPED_TRACE(json.at("name").get<std::string>());
    const config::HfConfig c = config::read_hf_config(json.at("config").dump());
    ASSERT_TRUE(c.problems.empty()) << c.problems[0];
    const graph::Graph g = models::build(c.model, {.tokens = 8, .seq_len = 8});
    EXPECT_EQ(models::parameter_count(g), json.at("parameters").get<int64_t>());
    // And every parameter has a place in the family's files.
    std::vector<checkpoint::TensorInfo> ours;
    int64_t theirs = 0;
    for (const graph::Param& p : g.params()) {
      auto& info =
          ours.emplace_back(checkpoint::TensorInfo{.name = g.value(p.value).name, .dtype = {}, .shape = {}});
      for (const graph::DimSize& d : g.value(p.value).type.dims) info.shape.push_back(d.size);
    }
    const hf::NameMap map(*c.family, c.model, ours, {});
    for (const hf::TheirTensor& t : map.theirs()) {
      int64_t n = 1;
      for (const int64_t d : t.shape) n *= d;
      theirs += n;
    }
    EXPECT_EQ(theirs, models::parameter_count(g)) << "elements of all tensors";
  }
  EXPECT_GE(models, 60);
}

// A rank's weights, as regions of the parameters.
std::vector<std::pair<std::string, checkpoint::Region>> weights_of(const compiler::Compiled& c,
                                                                   base::RankId rank) {
  std::vector<std::pair<std::string, checkpoint::Region>> regions;
  for (const program::GroupSlot& slot : c.program.slots) {
    if (!program::holds_weights(slot)) continue;
    for (const layout::Segment& s : c.groups[static_cast<size_t>(slot.group)].segments) {
      const int64_t begin = std::max(s.offset, slot.first),
                    end = std::min(s.offset + s.count, slot.first + slot.count);
      if (begin >= end) continue;
      const layout::GlobalIndex global(s, c.layout.mesh, rank);
      auto clipped = checkpoint::clip(global.global_sizes(), global.begins(), global.local_sizes(),
                                      begin - s.offset, end - begin);
      if (clipped.region.count > 0) regions.emplace_back(s.name, std::move(clipped.region));
    }
  }
  return regions;
}

// 70B over 64 ranks: every rank reads its 64th of the file and no more, whatever the storage.
TEST(HfCounts, RanksOfALargeModelReadTheirShare) {
  const config::Recipe recipe = config::parse(
      "[model]\npreset = \"llama3-70b\"\n[data]\nseq_len = 8192\n[optimizer]\nlr = 1e-4\n[run]\nsteps = "
      "1\n[batch]\nglobal = 32\n"
      "micro = 1\n[parallel]\npp = 2\ntp = 8\ndp_shard = 4\nzero = 3\n[precision]\ncompute = \"bf16\"\n");
  const graph::Graph g = models::build(recipe.model, {.tokens = 8, .seq_len = 8});
  std::vector<checkpoint::TensorInfo> ours;
  for (const graph::Param& p : g.params()) {
    auto& info =
        ours.emplace_back(checkpoint::TensorInfo{.name = g.value(p.value).name, .dtype = {}, .shape = {}});
    for (const graph::DimSize& d : g.value(p.value).type.dims) info.shape.push_back(d.size);
  }
  const hf::NameMap map(*config::find_hf_family("llama"), recipe.model, ours, {});
  const int64_t file_bytes = 2 * models::parameter_count(g);
  ASSERT_EQ(file_bytes, 141107412992);
  int64_t all = 0, largest = 0, parts = 0;
  for (int first = 0; first < 64;
       first += 8) {  // of each tensor-parallel group, whose ranks have equal parts
    const base::RankId rank(first);
    const compiler::Compiled c = compiler::compile_unverified(recipe, {.rank = rank});
    int64_t bytes = 0;
    for (const auto& [name, region] : weights_of(c, rank)) {
      const hf::ReadCost cost = hf::cost_of_reading(map, name, region, base::DType::BF16, base::DType::F32);
      EXPECT_EQ(cost.bytes, 2 * region.count);
      bytes += cost.bytes, parts += 8 * cost.parts;
    }
    all += 8 * bytes;
    largest = std::max(largest, bytes);
  }
  // Norms are stored by every tensor-parallel rank.
  EXPECT_GE(all, file_bytes);
  EXPECT_LT(static_cast<double>(all), 1.0005 * static_cast<double>(file_bytes));
  EXPECT_LT(static_cast<double>(largest), 1.1 * static_cast<double>(file_bytes) / 64);
  RecordProperty("largest_share_bytes", fmt::format("{}", largest));
  fmt::print("70B over 64 ranks: {} of {} bytes read, at most {} by a rank, in {} parts of files\n", all,
             file_bytes, largest, parts);
}

}  // namespace
}  // namespace quintet
