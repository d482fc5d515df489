// What a sequence is made into does not depend on which others are in its micro-batch: every value with
// token rows, forward and backward, has the same bits whether a micro-batch holds one sequence or several.
// (Gradients of parameters are sums over sequences, whose order micro-batches change.)
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "comm/local.h"
#include "support/small_recipe.h"
#include "tools/run_layout.h"

namespace quintet {
namespace {

struct Rows {
  std::string op;
  std::vector<std::byte> bytes;
};
using Shown = std::map<std::pair<int, int>, Rows>;  // by value and micro-batch

// Every value of a step whose first dim is token rows.
Shown values_of(const config::Recipe& recipe, const data::Dataset& dataset) {
  Shown shown;
  comm::run_local_world(1, [&](comm::World& world) {
    train::Rank rank(recipe, world, {});
    EXPECT_TRUE(rank.executor().observe(
        [&](const program::Instr& instr, const program::Call& call, std::span<std::byte* const> out, auto) {
          for (size_t i = 0; i < std::min(instr.values.size(), out.size()); ++i) {
            const graph::Type& type = instr.out[i].type;
            if (!instr.values[i].valid() || type.dims.empty() || type.dims[0].name != base::Dim::Tokens)
              continue;
            shown[{instr.values[i].value, call.micro}] = {std::string(instr.op->name),
                                                          {out[i], out[i] + type.bytes()}};
          }
        }));
    rank.step(0, tools::training_batches(recipe, dataset));
  });
  return shown;
}

TEST(BatchInvariance, ASequenceHasTheSameBitsInEveryMicroBatch) {
  using Sets = std::vector<std::string>;
  const std::vector<Sets> models = {
      {},
      {"precision.compute=bf16"},
      {"model.family=gpt2", "model.kv_heads=4", "model.max_positions=64", "model.dropout=0.1"},
      {"model.moe.every=2", "model.moe.experts=4", "model.moe.top_k=2", "model.moe.ffn=24",
       "precision.compute=bf16"},
      {"model.sliding_window=8", "data.seq_len=64", "model.embed=64", "model.ffn=128", "model.head_dim=16"},
  };
  for (const Sets& model : models)
    for (const int64_t micro : {2, 4}) {
      SCOPED_TRACE(::testing::PrintToString(model) + " micro " + std::to_string(micro));
      const auto recipe = [&](int64_t sequences) {
        return test::small_recipe(model, {"batch.global=4", "batch.micro=" + std::to_string(sequences)});
      };
      const data::Dataset dataset = tools::training_data(recipe(1), true);
      const Shown one = values_of(recipe(1), dataset), several = values_of(recipe(micro), dataset);
      ASSERT_GT(one.size(), 100u);
      int compared = 0;
      for (const auto& [key, whole] : several) {
        const auto [value, m] = key;
        for (int i = 0; i < static_cast<int>(micro); ++i) {
          const auto own = one.find({value, m * static_cast<int>(micro) + i});
          ASSERT_NE(own, one.end()) << whole.op;
          const size_t bytes = own->second.bytes.size();
          ASSERT_EQ(whole.bytes.size(), bytes * static_cast<size_t>(micro)) << whole.op;
          EXPECT_EQ(std::memcmp(whole.bytes.data() + static_cast<size_t>(i) * bytes, own->second.bytes.data(),
                                bytes),
                    0)
              << "[" << whole.op << "] %" << value << ", sequence " << i << " of micro-batch " << m;
          ++compared;
        }
      }
      EXPECT_GT(compared, 100);
    }
}

}  // namespace
}  // namespace quintet
