#include "train/weights_file.h"

#include <cmath>
#include <cstring>

#include "base/f16.h"
#include "comm/local.h"
#include "models/build.h"
#include "train/run_data.h"
#include "train/support.h"

namespace quintet {
namespace {

using checkpoint::SafetensorsFile;
using test::SmallRun;
using test::user_error;

std::map<std::string, std::string> tensors_of(const base::Path& path) {
  const SafetensorsFile file(path.string());
  std::map<std::string, std::string> out;
  for (const auto& t : file.tensors()) {
    const auto bytes = file.bytes(t);
    out[t.name] = std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return out;
}

// The weights before the first step, saved from a layout.
std::map<std::string, std::string> initial(const SmallRun& small, const std::vector<std::string>& sets) {
  const config::Recipe recipe = small.recipe(sets);
  const std::string path = (small / "initial.safetensors").string();
  comm::run_local_world(static_cast<int>(recipe.parallel.world()), [&](comm::World& world) {
    const train::Rank rank(recipe, world, {});
    train::save_weights(rank, world, path, {});
  });
  return tensors_of(path);
}

TEST(Save, EveryLayoutSavesTheSameBytes) {
  const SmallRun small;
  const auto one = initial(small, test::kOneRank);
  EXPECT_EQ(one.size(), 2u * 9u + 3u) << "nine tensors a block; embedding, final norm, head";
  EXPECT_EQ(one.at("embed.weight").size(), 256u * 32u * 4u);
  for (const std::vector<std::string>& sets :
       {std::vector<std::string>{},
        {"parallel.zero=1"},
        {"parallel.zero=2"},
        {"parallel.zero=0"},
        {"parallel.tp=4", "parallel.dp_shard=1", "parallel.zero=0"},
        {"parallel.dp_replicate=2", "parallel.tp=1", "parallel.sequence_parallel=false"}})
    EXPECT_EQ(initial(small, sets), one);
}

TEST(Save, OneLayoutLoadsWhatAnotherSaved) {
  const SmallRun small;
  small.train();
  const std::string from = small.run_folder().weights().string(), to = (small / "again.safetensors").string();
  const config::Recipe recipe = small.recipe({"parallel.tp=4", "parallel.zero=2", "run.seed=9"});
  comm::run_local_world(8, [&](comm::World& world) {
    train::Rank rank(recipe, world, {});
    train::load_weights(rank, from);
    train::save_weights(rank, world, to, {});
  });
  EXPECT_EQ(tensors_of(from), tensors_of(to));
  EXPECT_NE(tensors_of(from), initial(small, {}));
}

// The file of averages has the names, types and shapes of the weights', so whatever reads the one reads the
// other; frozen parameters are in both.
TEST(Save, AveragesAreAFileOfTheirOwn) {
  const SmallRun small;
  const std::vector<std::string> sets = {"optimizer.ema=0.5",
                                         "optimizer.groups=[{match=\"*attn*\", update=false}]"};
  small.train(sets);
  const auto weights = tensors_of(small.run_folder().weights()),
             averages = tensors_of(small.run_folder().averages());
  ASSERT_EQ(weights.size(), averages.size());
  int frozen = 0;
  for (const auto& [name, bytes] : weights) {
    ASSERT_TRUE(averages.contains(name)) << name;
    EXPECT_EQ(bytes.size(), averages.at(name).size()) << name;
    const bool is_frozen = name.find("attn") != std::string::npos;
    EXPECT_EQ(bytes == averages.at(name), is_frozen) << name;
    frozen += is_frozen;
  }
  EXPECT_GT(frozen, 0);
  // Loading weights starts the averages again.
  const std::string to = (small / "again.safetensors").string();
  const config::Recipe recipe = small.recipe(sets);
  comm::run_local_world(static_cast<int>(recipe.parallel.world()), [&](comm::World& world) {
    train::Rank rank(recipe, world, {});
    train::load_weights(rank, small.run_folder().averages().string());
    train::save_weights(rank, world, to, {}, train::Saved::Averages);
  });
  EXPECT_EQ(tensors_of(to), averages);
}

TEST(Save, PipelinesSaveTheWholeModel) {
  for (const char* tied : {"model.tied=false", "model.tied=true"}) {
    const SmallRun small, single;
    small.train({"parallel.pp=2", "parallel.tp=1", "parallel.sequence_parallel=false", "eval.every=3", tied,
                 "precision.compute=f64"});
    const auto pipeline = tensors_of(small.run_folder().weights());
    auto sets = test::kOneRank;
    sets.insert(sets.end(), {tied, "precision.compute=f64", "run.steps=1"});
    single.train(sets);
    const auto one = tensors_of(single.run_folder().weights());
    ASSERT_EQ(pipeline.size(), one.size());
    for (const auto& [name, bytes] : one) EXPECT_EQ(pipeline.at(name).size(), bytes.size()) << name;
  }
}

TEST(Save, LoadedMastersReachTheComputeCopies) {
  const SmallRun small;
  small.train({"precision.compute=bf16"});
  const std::string from = small.run_folder().weights().string();
  const auto next_loss = [&](const std::vector<std::string>& sets) {
    const config::Recipe recipe = small.recipe(sets);
    const train::RunData data = train::load_data(recipe);
    double loss = 0;
    comm::run_local_world(static_cast<int>(recipe.parallel.world()), [&](comm::World& world) {
      train::Rank rank(recipe, world, {});
      train::load_weights(rank, from);
      const double mine = rank.step(6, data.train).loss;
      if (world.rank().value == 0) loss = mine;
    });
    return loss;
  };
  auto sets = test::kOneRank;
  sets.push_back("precision.compute=bf16");
  const double four = next_loss({"precision.compute=bf16"}), one = next_loss(sets);
  EXPECT_LT(four, 5.0) << "trained weights, not the initial ones";
  EXPECT_NEAR(four, one, 0.02);
}

// A file from another program may contain f16 or bf16: loading converts the values.
TEST(Save, WeightsInF16AreLoaded) {
  const SmallRun small;
  initial(small, test::kOneRank);
  const std::string halves = (small / "halves.safetensors").string(),
                    again = (small / "again.safetensors").string();
  std::map<std::string, std::string> want;
  {
    const SafetensorsFile file((small / "initial.safetensors").string());
    std::vector<checkpoint::TensorInfo> list = file.tensors();
    for (auto& t : list) t.dtype = base::DType::F16;
    checkpoint::write_safetensors(halves, list, {}, [&](size_t i, std::span<std::byte> out) {
      const auto from = file.bytes(file.tensors()[i]);
      std::string& wide = want[list[i].name];
      for (size_t at = 0; at < from.size(); at += sizeof(float)) {
        float f;
        std::memcpy(&f, from.data() + at, sizeof(f));
        const base::F16 half(f);
        std::memcpy(out.data() + at / 2, &half, sizeof(half));
        f = static_cast<float>(half);
        wide.append(reinterpret_cast<const char*>(&f), sizeof(f));
      }
    });
  }
  const config::Recipe recipe = small.recipe({"run.seed=9"});
  comm::run_local_world(static_cast<int>(recipe.parallel.world()), [&](comm::World& world) {
    train::Rank rank(recipe, world, {});
    train::load_weights(rank, halves);
    train::save_weights(rank, world, again, {});
  });
  EXPECT_EQ(tensors_of(again), want);
}

TEST(Save, FrozenWeightsStayAsTheyWere) {
  const SmallRun small;
  const std::vector<std::string> freeze = {
      "optimizer.groups=[{match=\"embed.*\", update=false}, {match=\"blocks.0.*\", update=false}]"};
  const auto before = initial(small, freeze);
  small.train(freeze);
  const auto after = tensors_of(small.run_folder().weights());
  ASSERT_EQ(before.size(), after.size());
  for (const auto& [name, bytes] : before) {
    const bool frozen = name.starts_with("embed.") || name.starts_with("blocks.0.");
    EXPECT_EQ(bytes == after.at(name), frozen) << name;
  }
}

TEST(Save, BiasesOfRoutersAreSavedAndLoaded) {
  const std::vector<std::string> moe = {
      "model.moe.experts=4",       "model.moe.top_k=2",     "model.moe.ffn=16", "model.ffn=16",
      "model.moe.bias_rate=0.125", "precision.compute=f64", "run.steps=3",      "model.moe.score=sigmoid"};
  const auto with = [&](const std::vector<std::string>& sets) {
    std::vector<std::string> all = moe;
    all.insert(all.end(), sets.begin(), sets.end());
    return all;
  };
  const SmallRun small, pipeline;
  small.train(with({"parallel.ep=4"}));
  pipeline.train(with({"parallel.pp=2", "parallel.tp=1", "parallel.sequence_parallel=false"}));
  const std::string from = small.run_folder().weights().string(), to = (small / "again.safetensors").string();
  const auto saved = tensors_of(from), from_pipeline = tensors_of(pipeline.run_folder().weights());
  const auto biases = [](const std::string& bytes) {
    std::vector<double> values(bytes.size() / sizeof(double));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  };
  for (const char* name : {"blocks.0.ffn.router.bias", "blocks.1.ffn.router.bias"}) {
    const std::vector<double> values = biases(saved.at(name));
    ASSERT_EQ(values.size(), 4u);
    double moved = 0;
    for (const double v : values) {
      EXPECT_EQ(v * 8, std::round(v * 8)) << "three steps of an eighth";
      moved += std::abs(v);
    }
    EXPECT_GT(moved, 0);
    EXPECT_EQ(values, biases(from_pipeline.at(name)));
  }
  comm::run_local_world(2, [&](comm::World& world) {
    const auto sets = with({"parallel.dp_shard=1", "parallel.ep=2", "parallel.zero=0"});
    train::Rank rank(small.recipe(sets), world, {});
    train::load_weights(rank, from);
    train::save_weights(rank, world, to, {});
  });
  EXPECT_EQ(tensors_of(to), saved);
}

TEST(Save, AnotherModelsFileIsRefused) {
  const SmallRun small;
  small.train();
  const std::string from = small.run_folder().weights().string();
  const auto load = [&](const std::vector<std::string>& sets) {
    const config::Recipe recipe = small.recipe(sets);
    return user_error([&] {
      comm::run_local_world(static_cast<int>(recipe.parallel.world()), [&](comm::World& world) {
        train::Rank rank(recipe, world, {});
        train::load_weights(rank, from);
      });
    });
  };
  EXPECT_CONTAINS(load({"model.ffn=128"}), "[64, 32], expected [128, 32]");
  EXPECT_CONTAINS(load({"model.layers=3"}), "lacks tensor blocks.2.");
  EXPECT_CONTAINS(load({"model.layers=1"}), "belongs to a different model");
}

TEST(Save, AFolderThatCannotBeWrittenEndsAllRanks) {
  const SmallRun small;
  const config::Recipe recipe = small.recipe();
  EXPECT_CONTAINS(user_error([&] {
                    comm::run_local_world(4, [&](comm::World& world) {
                      const train::Rank rank(recipe, world, {});
                      train::save_weights(rank, world, "/proc/no/model.safetensors", {});
                    });
                  }),
                  "/proc/no/model.safetensors");
}

}  // namespace
}  // namespace quintet
