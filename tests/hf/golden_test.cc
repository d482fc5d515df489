// Folders that transformers wrote (models_test.py --write-goldens), with the logits that it computes in f64.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/temp_folder.h"
#include "comm/local.h"
#include "config/hf/config.h"
#include "hf/diff.h"
#include "hf/folder_writer.h"
#include "hf/mapped_source.h"
#include "hf/model_folder.h"
#include "support/hf_goldens.h"
#include "tools/assemble_tensors.h"
#include "train/load_hf.h"

namespace quintet {
namespace {

using test::expect_logits;
using test::golden_names;
using test::golden_recipe;
using test::TempFolder;

const base::Path kGoldens = test::golden_folder();

TEST(HfGolden, LogitsAreThoseOfTransformers) {
  for (const std::string& name : golden_names()) {
    SCOPED_TRACE(name);
    expect_logits(golden_recipe(kGoldens / name), kGoldens / name);
  }
}

config::Recipe upcycled_recipe(const std::string& name, std::vector<std::string> sets = {}) {
  config::Recipe r = golden_recipe(kGoldens / name, std::move(sets));
  r.model.moe.experts = 4;
  r.model.moe.top_k = 2;
  r.model.moe.ffn = r.model.ffn;
  r.model.moe.upcycle = true;
  return r;
}

// Equal experts whose weights sum to 1 compute what the dense network did, whatever the router chooses.
TEST(HfGolden, UpcycledModelsStartAsTheDenseOnes) {
  for (const std::string name : {"llama", "phi3", "qwen3", "olmo2"}) {
    SCOPED_TRACE(name);
    expect_logits(upcycled_recipe(name), kGoldens / name);
  }
}

config::Recipe sliced_recipe(const std::string& name, std::vector<std::string> sets = {}) {
  config::Recipe r = upcycled_recipe(name, std::move(sets));
  r.model.moe.experts = 8;
  r.model.moe.top_k = 4;
  r.model.moe.upcycle_slices = 2;
  r.model.moe.ffn = r.model.ffn / 2;
  r.model.ffn = r.model.moe.ffn;
  return r;
}

// The two slices of a network have equal rows in the router, so both are chosen, each with half of the
// network's weight and twice its output.
TEST(HfGolden, SlicedModelsStartAsTheDenseOnes) {
  for (const std::string name : {"llama", "phi3", "qwen3", "olmo2"}) {
    SCOPED_TRACE(name);
    expect_logits(sliced_recipe(name), kGoldens / name);
  }
}

std::vector<tools::Tensor> weights_in(const config::Recipe& recipe, int64_t* bytes_read) {
  std::vector<tools::Tensor> all;
  std::mutex mutex;
  int64_t bytes = 0;
  comm::run_local_world(static_cast<int>(recipe.parallel.world()), [&](comm::World& world) {
    train::Rank rank(recipe, world, {.draw = false});
    hf::ModelFolder folder(recipe.model.hf, recipe.model, train::model_tensors(rank));
    const train::HfLoad load = train::load_hf(rank, folder);
    tools::TensorAssembler assembler(rank.compiled().logical, [](const graph::Param&) { return true; });
    assembler.take(rank, program::holds_weights);
    assembler.sum(world.world());
    std::vector<tools::Tensor> tensors = assembler.finish("weights");
    for (tools::Tensor& t : tools::states_of(rank)) tensors.push_back(std::move(t));
    const std::lock_guard lock(mutex);
    bytes += load.bytes_read;
    if (world.rank().value == 0) all = std::move(tensors);
  });
  if (bytes_read != nullptr) *bytes_read = bytes;
  return all;
}

TEST(HfGolden, EveryLayoutLoadsTheSameWeights) {
  for (const std::string& name : golden_names()) {
    SCOPED_TRACE(name);
    const base::Path folder = kGoldens / name;
    const config::Recipe one = golden_recipe(folder);
    const std::vector<tools::Tensor> expected = weights_in(one, nullptr);
    std::vector<std::vector<std::string>> layouts = {
        {"parallel.tp=2", "parallel.dp_shard=2", "parallel.zero=3"},
        {"parallel.pp=2", "parallel.dp_shard=2", "parallel.zero=1"}};
    if (one.model.moe.experts > 0)
      layouts.push_back({"parallel.tp=2", "parallel.dp_shard=2", "parallel.zero=3"});
    for (size_t i = 0; i < layouts.size(); ++i) {
      config::Recipe recipe = golden_recipe(folder, layouts[i]);
      if (i == 2) recipe.parallel.ep = 2;
      const std::vector<tools::Tensor> got = weights_in(recipe, nullptr);
      ASSERT_EQ(got.size(), expected.size());
      for (size_t t = 0; t < got.size(); ++t) {
        EXPECT_EQ(got[t].name, expected[t].name);
        EXPECT_EQ(got[t].values, expected[t].values) << got[t].name << " with " << layouts[i][0];
      }
    }
  }
}

TEST(HfGolden, UpcycledExpertsAreEqualInEveryLayout) {
  const std::vector<tools::Tensor> expected = weights_in(upcycled_recipe("phi3"), nullptr);
  config::Recipe spread =
      upcycled_recipe("phi3", {"parallel.dp_shard=2", "parallel.tp=2", "parallel.zero=3"});
  spread.parallel.ep = 2;
  const std::vector<tools::Tensor> got = weights_in(spread, nullptr);
  ASSERT_EQ(got.size(), expected.size());
  for (size_t t = 0; t < got.size(); ++t) {
    EXPECT_EQ(got[t].values, expected[t].values) << got[t].name;
    const auto zeros = std::ranges::count(got[t].values, 0.0);
    EXPECT_LT(zeros, std::ssize(got[t].values)) << got[t].name << ": routers, which no file has, are drawn";
  }
}

const tools::Tensor& weight_named(const std::vector<tools::Tensor>& list, const std::string& name) {
  const auto found = std::ranges::find(list, name, &tools::Tensor::name);
  if (found == list.end()) base::fail_internal("no tensor {}", name);
  return *found;
}

TEST(HfGolden, SlicesAreEqualInEveryLayout) {
  const std::vector<tools::Tensor> expected = weights_in(sliced_recipe("phi3"), nullptr);
  for (const int64_t etp : {1, 2}) {
    config::Recipe spread =
        sliced_recipe("phi3", {"parallel.dp_shard=2", "parallel.tp=2", "parallel.zero=3"});
    spread.parallel.ep = 4 / etp;
    spread.parallel.etp = etp;
    const std::vector<tools::Tensor> got = weights_in(spread, nullptr);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t t = 0; t < got.size(); ++t)
      EXPECT_EQ(got[t].values, expected[t].values) << got[t].name << " with etp " << etp;
  }
  // Experts 0 and 1 are the rows of the network in turn; the output of each counts twice.
  const std::vector<tools::Tensor> whole = weights_in(golden_recipe(kGoldens / "phi3"), nullptr);
  const std::string block = "blocks.0.ffn.";
  const auto& up = weight_named(whole, block + "up.weight").values;
  const auto& down = weight_named(whole, block + "down.weight").values;
  const auto& sliced_up = weight_named(expected, block + "experts.up.weight").values;
  const auto& sliced_down = weight_named(expected, block + "experts.down.weight").values;
  const auto& router = weight_named(expected, block + "router.weight").values;
  const config::Model m = sliced_recipe("phi3").model;
  const auto inner = static_cast<size_t>(m.moe.ffn), embed = static_cast<size_t>(m.embed);
  for (size_t e = 0; e < 8; ++e)
    for (size_t i = 0; i < inner; ++i)
      for (size_t c = 0; c < embed; ++c) {
        const size_t row = e % 2 * inner + i;
        ASSERT_EQ(sliced_up[(e * inner + i) * embed + c], up[row * embed + c]) << e;
        ASSERT_EQ(sliced_down[(e * embed + c) * inner + i], 2 * down[c * 2 * inner + row]) << e;
      }
  for (size_t c = 0; c < embed; ++c) {
    EXPECT_EQ(router[c], router[embed + c]);
    EXPECT_NE(router[c], router[2 * embed + c]);
  }
}

// Our names, then theirs again.
TEST(HfGolden, ExportIsByteIdentical) {
  for (const std::string& name : golden_names()) {
    SCOPED_TRACE(name);
    const TempFolder temp;
    const base::Path folder = kGoldens / name;
    const config::Recipe recipe = golden_recipe(folder);
    const base::Path own = temp / "own.safetensors";
    comm::run_local_world(1, [&](comm::World& world) {
      const train::Rank rank(recipe, world, {});
      const std::vector<checkpoint::TensorInfo> tensors = train::model_tensors(rank);
      hf::ModelFolder files(folder, recipe.model, tensors);
      hf::ModelFolder::OpenReader reader = files.open_reader();
      std::vector<checkpoint::TensorInfo> saved = tensors;
      for (checkpoint::TensorInfo& t : saved) t.dtype = base::DType::F32;
      checkpoint::write_safetensors(own.string(), saved, {}, [&](size_t i, std::span<std::byte> out) {
        reader.weights.read(saved[i].name, checkpoint::Region::whole(saved[i].shape), base::DType::F32, out);
      });
      hf::MappedSource mapped(hf::open_tensors(own),
                              hf::NameMap(files.map().family(), recipe.model, saved, {}));
      const auto original = hf::open_tensors(folder);
      const hf::Difference d = hf::compare(mapped, *original);
      EXPECT_TRUE(d.is_equal()) << (d.tensors.empty() ? "names" : d.tensors[0].name);
      EXPECT_EQ(d.compared, static_cast<int64_t>(original->tensors().size()));
      const base::Path out = temp / "out";
      hf::write_folder(out, mapped, {.dtype = [](const auto& t) { return t.dtype; }, .shard_bytes = 4000});
      const auto again = hf::open_tensors(out);
      EXPECT_TRUE(hf::compare(*again, *original).is_equal());
      EXPECT_GT(base::list_folder(out).size(), 3u) << "several files and an index";
    });
    const std::string text = base::read_file(folder / "config.json");
    const config::HfConfig c = config::read_hf_config(text);
    const config::HfConfig back =
        config::read_hf_config(config::hf_config_text(c.model, *c.family, text, "float32", 64));
    EXPECT_TRUE(back.problems.empty());
    EXPECT_TRUE(back.model == c.model);
  }
}

// Files as BERT was published: gamma and beta in norms, a pooler and a head for next sentences, and the tied
// head under its own names.
TEST(HfGolden, OldFilesOfBertLoad) {
  const auto source = hf::open_tensors(kGoldens / "bert");
  const std::vector<tools::Tensor> expected = weights_in(golden_recipe(kGoldens / "bert"), nullptr);
  struct Extra {
    std::string name, from;  // a copy of another tensor; empty: of no role
    bool changed = false;
  };
  const auto loaded = [&](const std::vector<Extra>& extras) {
    const TempFolder temp;
    std::vector<checkpoint::TensorInfo> list = source->tensors();
    std::vector<std::string> from;
    for (checkpoint::TensorInfo& t : list) {
      from.push_back(t.name);
      for (const auto& [now, old] :
           {std::pair("LayerNorm.weight", "LayerNorm.gamma"), {"LayerNorm.bias", "LayerNorm.beta"}})
        if (t.name.ends_with(now)) t.name = t.name.substr(0, t.name.size() - std::string(now).size()) + old;
    }
    for (const Extra& e : extras) {
      list.push_back(e.from.empty() ? checkpoint::TensorInfo{e.name, base::DType::F32, {2}}
                                    : *source->find(e.from));
      list.back().name = e.name;
      from.push_back(e.from);
    }
    const size_t own = source->tensors().size();
    checkpoint::write_safetensors(temp / "model.safetensors", list, {},
                                  [&](size_t i, std::span<std::byte> out) {
                                    if (!from[i].empty()) source->read(*source->find(from[i]), 0, out);
                                    if (i >= own && extras[i - own].changed) out[5] ^= std::byte{1};
                                  });
    base::write_file_atomically(temp / "config.json", base::read_file(kGoldens / "bert/config.json"));
    const config::Recipe recipe = golden_recipe(temp.path());
    comm::run_local_world(1, [&](comm::World& world) {
      const train::Rank rank(recipe, world, {.draw = false});
      hf::ModelFolder(recipe.model.hf, recipe.model, train::model_tensors(rank)).check_copies();
    });
    return weights_in(recipe, nullptr);
  };
  const std::string table = "bert.embeddings.word_embeddings.weight", head = "cls.predictions.decoder.weight";
  const std::vector<tools::Tensor> got = loaded({{"bert.pooler.dense.weight", ""},
                                                 {"cls.seq_relationship.bias", ""},
                                                 {"bert.embeddings.position_ids", ""},
                                                 {"cls.predictions.decoder.bias", "cls.predictions.bias"},
                                                 {head, table}});
  ASSERT_EQ(got.size(), expected.size());
  for (size_t t = 0; t < got.size(); ++t) EXPECT_EQ(got[t].values, expected[t].values) << got[t].name;
  EXPECT_CONTAINS(test::user_error([&] { loaded({{head, table, true}}); }), head + " differs from " + table);
  EXPECT_CONTAINS(test::user_error([&] {
                    loaded({{"bert.encoder.layer.9.output.dense.bias", ""}});
                  }),
                  "is unexpected");
}

// transformers has no multi-token prediction, so a folder with its layer is made here: names and shapes are
// those of DeepSeek-V3's and GLM-4.5's files.
TEST(HfGolden, MultiTokenPredictionIsLoadedAndExported) {
  for (const std::string name : {"deepseek_v3", "glm4_moe"}) {
    SCOPED_TRACE(name);
    const TempFolder temp;
    const base::Path folder = temp / "folder";
    config::Recipe plain = golden_recipe(kGoldens / name);
    plain.model.mtp = {.layers = 1, .loss = 0.3};
    config::Recipe recipe = plain;
    recipe.model.hf = folder.string();
    const std::string original = base::read_file(kGoldens / name / "config.json");
    const config::HfFamily& family = *config::read_hf_config(original).family;
    comm::run_local_world(1, [&](comm::World& world) {
      const train::Rank rank(plain, world, {});
      std::vector<checkpoint::TensorInfo> tensors = train::model_tensors(rank);
      for (checkpoint::TensorInfo& t : tensors) t.dtype = base::DType::F32;
      const base::Path own = temp / "own.safetensors";
      checkpoint::write_safetensors(own.string(), tensors, {}, [&](size_t i, std::span<std::byte> out) {
        auto* const values = reinterpret_cast<float*>(out.data());
        for (size_t k = 0; k < out.size() / 4; ++k)
          values[k] = static_cast<float>(static_cast<int>((k * 37 + i * 101) % 1009) - 504) / 1024;
      });
      hf::MappedSource mapped(hf::open_tensors(own), hf::NameMap(family, plain.model, tensors, {}));
      hf::write_folder(folder, mapped, {.dtype = [](const auto& t) { return t.dtype; }, .shard_bytes = 4000});
    });
    base::write_file_atomically(folder / "config.json",
                                config::hf_config_text(plain.model, family, original, "float32", 64));
    const config::HfConfig written = config::read_hf_config(base::read_file(folder / "config.json"));
    EXPECT_EQ(written.predict_layers, 1);
    EXPECT_EQ(written.model.mtp.layers, 0) << "a recipe decides";

    const auto source = hf::open_tensors(folder);
    const int64_t embed = plain.model.embed, vocab = plain.model.vocab;
    const std::string layer = fmt::format("model.layers.{}.", plain.model.layers);
    using Shape = std::vector<int64_t>;
    for (const auto& [tensor, shape] :
         std::map<std::string, Shape>{{"embed_tokens.weight", {vocab, embed}},
                                      {"enorm.weight", {embed}},
                                      {"hnorm.weight", {embed}},
                                      {"eh_proj.weight", {embed, 2 * embed}},
                                      {"input_layernorm.weight", {embed}},
                                      {"shared_head.norm.weight", {embed}},
                                      {"shared_head.head.weight", {vocab, embed}}}) {
      ASSERT_NE(source->find(layer + tensor), nullptr) << tensor;
      EXPECT_EQ(source->find(layer + tensor)->shape, shape) << tensor;
    }

    const std::vector<tools::Tensor> expected = weights_in(recipe, nullptr);
    // The embedding of the next token is the first half of eh_proj's input.
    std::vector<float> joined(static_cast<size_t>(2 * embed));
    source->read(*source->find(layer + "eh_proj.weight"), 0, std::as_writable_bytes(std::span(joined)));
    for (const auto& [ours, at] :
         {std::pair{".join_embed.weight", int64_t{0}}, std::pair{".join_hidden.weight", embed}}) {
      const auto found = std::find_if(expected.begin(), expected.end(),
                                      [&](const tools::Tensor& t) { return t.name.ends_with(ours); });
      ASSERT_NE(found, expected.end());
      for (int64_t k = 0; k < embed; ++k)
        EXPECT_EQ(found->values[static_cast<size_t>(k)],
                  static_cast<double>(joined[static_cast<size_t>(at + k)]));
    }
    for (const auto& layout :
         std::vector<std::vector<std::string>>{{"parallel.tp=2", "parallel.dp_shard=2", "parallel.zero=3"},
                                               {"parallel.pp=2", "parallel.dp_shard=2", "parallel.zero=1"}}) {
      config::Recipe spread = golden_recipe(kGoldens / name, layout);
      spread.model = recipe.model;
      const std::vector<tools::Tensor> got = weights_in(spread, nullptr);
      ASSERT_EQ(got.size(), expected.size());
      for (size_t t = 0; t < got.size(); ++t)
        EXPECT_EQ(got[t].values, expected[t].values) << got[t].name << " with " << layout[0];
    }

    // Files whose copies are not equal have another model, and files without the layer none.
    const auto refusal = [&](const std::string& without, const std::string& changed) {
      const TempFolder other;
      std::vector<checkpoint::TensorInfo> list;
      for (const checkpoint::TensorInfo& t : source->tensors())
        if (t.name != without) list.push_back(t);
      checkpoint::write_safetensors(other / "model.safetensors", list, {}, [&](size_t i, auto out) {
        source->read(*source->find(list[i].name), 0, out);
        if (list[i].name == changed) out[5] ^= std::byte{1};
      });
      base::write_file_atomically(other / "config.json", base::read_file(folder / "config.json"));
      config::Recipe here = recipe;
      here.model.hf = other.path().string();
      return test::user_error([&] {
        comm::run_local_world(1, [&](comm::World& world) {
          const train::Rank rank(here, world, {});
          hf::ModelFolder(here.model.hf, here.model, train::model_tensors(rank)).check_copies();
        });
      });
    };
    EXPECT_CONTAINS(refusal("", layer + "shared_head.head.weight"), "differs from lm_head.weight");
    EXPECT_CONTAINS(refusal("", layer + "embed_tokens.weight"), "differs from model.embed_tokens.weight");
    EXPECT_CONTAINS(refusal(layer + "eh_proj.weight", ""), layer + "eh_proj.weight is missing");
  }
}

// A folder as models with images are published, and as transformers 5 saves them: the text part loads in
// every layout, and an export has the other parts again.
TEST(HfGolden, PartsForImagesAreLeftOutAndExported) {
  const auto text = hf::open_tensors(kGoldens / "gemma3_text");
  auto config = nlohmann::ordered_json::parse(base::read_file(kGoldens / "gemma3_text/config.json"));
  const nlohmann::ordered_json outer = {{"model_type", "gemma3"},
                                        {"architectures", {"Gemma3ForConditionalGeneration"}},
                                        {"text_config", config},
                                        {"vision_config", {{"hidden_size", 4}}}};
  const std::vector<tools::Tensor> expected = weights_in(golden_recipe(kGoldens / "gemma3_text"), nullptr);
  for (const std::string prefix : {"language_model.model.", "model.language_model."}) {
    SCOPED_TRACE(prefix);
    const TempFolder temp;
    const base::Path folder = temp / "folder";
    base::make_directories(folder);
    base::write_file_atomically(folder / "config.json", outer.dump());
    std::vector<checkpoint::TensorInfo> tensors = text->tensors();
    for (checkpoint::TensorInfo& t : tensors) {
      ASSERT_TRUE(t.name.starts_with("model."));
      t.name = prefix + t.name.substr(6);
    }
    const std::string vision = prefix[0] == 'm' ? "model.vision_tower.x.weight" : "vision_tower.x.weight";
    tensors.push_back({vision, base::DType::F32, {3, 2}});
    checkpoint::write_safetensors((folder / "model.safetensors").string(), tensors, {},
                                  [&](size_t i, auto out) {
                                    const std::string& name = tensors[i].name;
                                    if (name == vision)
                                      std::ranges::fill(out, std::byte{7});
                                    else
                                      text->read(*text->find("model." + name.substr(prefix.size())), 0, out);
                                  });
    for (const auto& layout :
         std::vector<std::vector<std::string>>{{}, {"parallel.tp=2", "parallel.dp_shard=2"}}) {
      const std::vector<tools::Tensor> got = weights_in(golden_recipe(folder, layout), nullptr);
      ASSERT_EQ(got.size(), expected.size());
      for (size_t t = 0; t < got.size(); ++t) EXPECT_EQ(got[t].values, expected[t].values) << got[t].name;
    }
    const config::Recipe recipe = golden_recipe(folder);
    comm::run_local_world(1, [&](comm::World& world) {
      const train::Rank rank(recipe, world, {});
      std::vector<checkpoint::TensorInfo> ours = train::model_tensors(rank);
      hf::ModelFolder files(folder, recipe.model, ours);
      ASSERT_EQ(files.notes().size(), 1u);
      EXPECT_CONTAINS(files.notes()[0], "1 tensors of the parts for images are left out");
      hf::ModelFolder::OpenReader reader = files.open_reader();
      for (checkpoint::TensorInfo& t : ours) t.dtype = base::DType::F32;
      const base::Path own = temp / "own.safetensors";
      checkpoint::write_safetensors(own.string(), ours, {}, [&](size_t i, std::span<std::byte> out) {
        reader.weights.read(ours[i].name, checkpoint::Region::whole(ours[i].shape), base::DType::F32, out);
      });
      const std::shared_ptr<hf::TensorSource> original = hf::open_tensors(folder);
      const auto has = [&](const std::string& name) { return original->find(name) != nullptr; };
      hf::MappedSource mapped(hf::open_tensors(own),
                              hf::NameMap(files.map().family(), recipe.model, ours, has), original);
      const hf::Difference d = hf::compare(mapped, *original);
      EXPECT_TRUE(d.is_equal()) << (d.tensors.empty() ? "names" : d.tensors[0].name);
      EXPECT_EQ(d.compared, static_cast<int64_t>(tensors.size()));
      EXPECT_FALSE(mapped.is_state(*mapped.find(vision)));
    });
  }
}

TEST(HfGolden, DamagedFoldersAreRefusedByName) {
  const base::Path source = kGoldens / "llama";
  const std::string config_text = base::read_file(source / "config.json");
  const auto tensors = hf::open_tensors(source);
  // The folder with some tensors changed, then its refusal.
  const auto refusal =
      [&](const std::function<void(std::vector<checkpoint::TensorInfo>&)>& change) -> std::string {
    const TempFolder temp;
    std::vector<checkpoint::TensorInfo> list = tensors->tensors();
    change(list);
    checkpoint::write_safetensors(temp / "model.safetensors", list, {}, [](size_t, std::span<std::byte>) {});
    base::write_file_atomically(temp / "config.json", config_text);
    const config::Recipe recipe = golden_recipe(temp.path());
    return test::user_error([&] { weights_in(recipe, nullptr); });
  };
  using List = std::vector<checkpoint::TensorInfo>;
  const auto at = [](List& list, const std::string& name) {
    return std::find_if(list.begin(), list.end(), [&](const auto& t) { return t.name == name; });
  };
  EXPECT_CONTAINS(refusal([&](List& l) { l.erase(at(l, "model.norm.weight")); }),
                  "model.norm.weight is missing");
  EXPECT_CONTAINS(refusal([&](List& l) { at(l, "model.norm.weight")->shape = {15}; }),
                  "has shape [15], but the model needs [16]");
  EXPECT_CONTAINS(refusal([&](List& l) { at(l, "model.norm.weight")->dtype = base::DType::I32; }),
                  "has type i32");
  EXPECT_CONTAINS(refusal([&](List& l) {
                    l.push_back({"model.layers.9.mlp.up_proj.weight", base::DType::F32, {2}});
                  }),
                  "model.layers.9.mlp.up_proj.weight is unexpected");
}

TEST(HfGolden, MissingAndTruncatedFilesAreRefused) {
  const TempFolder temp;
  const base::Path folder = temp / "sharded";
  const auto source = hf::open_tensors(kGoldens / "llama");
  hf::write_folder(folder, *source, {.dtype = [](const auto& t) { return t.dtype; }, .shard_bytes = 4000});
  EXPECT_TRUE(hf::compare(*hf::open_tensors(folder), *source).is_equal());
  std::vector<base::Path> shards;
  for (const base::Path& entry : base::list_folder(folder))
    if (entry.string().ends_with(".safetensors")) shards.push_back(folder / entry.filename());
  ASSERT_GE(shards.size(), 3u);
  const base::Path single = folder / "model.safetensors";
  base::write_file_atomically(single, base::read_file(kGoldens / "llama/model.safetensors"));
  EXPECT_CONTAINS(test::user_error([&] { hf::open_tensors(folder); }), "has weights twice");
  base::remove_file(single);
  const std::string bytes = base::read_file(shards[1]);
  base::write_file_atomically(
      shards[1], "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize " + bytes.substr(0, 99));
  EXPECT_CONTAINS(test::user_error([&] { hf::open_tensors(folder); }), "git lfs pull");
  base::write_file_atomically(shards[1], bytes.substr(0, bytes.size() - 100));
  EXPECT_CONTAINS(test::user_error([&] { hf::open_tensors(folder); }), "truncated");
  base::remove_file(shards[1]);
  const std::string why = test::user_error([&] { hf::open_tensors(folder); });
  EXPECT_CONTAINS(why, "lacks " + shards[1].filename().string());
  EXPECT_CONTAINS(why, "is the download complete?");
}

}  // namespace
}  // namespace quintet
