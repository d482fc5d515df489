// Quantised files, against what the publishers' conversions make of them (models_test.py --write-goldens).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>

#include "base/temp_folder.h"
#include "comm/local.h"
#include "hf/diff.h"
#include "hf/safetensors_source.h"
#include "support/folders.h"
#include "support/hf_folders.h"
#include "tools/assemble_tensors.h"
#include "tools/model_files.h"
#include "train/load_hf.h"

namespace quintet::hf {
namespace {

const base::Path kFiles = base::Path(test::source_dir()) / "tests/hf/quantised";

// Files of which some tensors are raw codes, which checkpoint::write_safetensors has no types for.
void write_file(const base::Path& file, const std::vector<checkpoint::SafetensorsEntry>& tensors,
                uint32_t seed) {
  nlohmann::ordered_json header;
  std::string data;
  std::minstd_rand random(seed);
  for (const checkpoint::SafetensorsEntry& t : tensors) {
    int64_t count = 1;
    for (const int64_t d : t.shape) count *= d;
    const size_t begin = data.size();
    for (int64_t i = 0; i < count; ++i) {
      const auto draw = static_cast<uint32_t>(random() >> 8);
      if (t.dtype == "BF16") {
        const base::Bf16 value(static_cast<float>(draw % 201) / 100 - 1);
        data.append(reinterpret_cast<const char*>(&value), 2);
      } else if (t.dtype == "F32") {
        const float value = static_cast<float>(draw % 100 + 1) / 4096;
        data.append(reinterpret_cast<const char*>(&value), 4);
      } else {
        const uint32_t code = t.name.ends_with("_scales") ? 118 + draw % 8 : draw % 256;
        data += static_cast<char>(t.dtype == "F8_E4M3" && (code & 0x7f) == 0x7f ? 0 : code);  // no NaN
      }
    }
    header[t.name] = {{"dtype", t.dtype}, {"shape", t.shape}, {"data_offsets", {begin, data.size()}}};
  }
  const std::string text = header.dump();
  const uint64_t size = text.size();
  base::write_file_atomically(file,
                              std::string(reinterpret_cast<const char*>(&size), sizeof(size)) + text + data);
}

// Experts as [experts, out, groups of in, 16].
void write_quantised_gpt_oss(const base::Path& folder) {
  std::vector<checkpoint::SafetensorsEntry> entries;
  for (const TensorInfo& t : test::begin_folder(folder, R"({"model_type": "gpt_oss", "hidden_size": 64,
      "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
      "head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2, "vocab_size": 40, "sliding_window": 7,
      "quantization_config": {"quant_method": "mxfp4"}})")) {
    checkpoint::SafetensorsEntry e{.name = t.name, .dtype = "BF16", .shape = t.shape};
    if (t.shape.size() == 3) {
      e = {.name = t.name + "_scales", .dtype = "U8", .shape = {t.shape[0], t.shape[2], t.shape[1] / 32}};
      entries.push_back(e);
      e.name = t.name + "_blocks", e.shape.push_back(16);
    }
    entries.push_back(std::move(e));
  }
  write_file(folder / "model.safetensors", entries, 3);
}

// Matrices with several blocks of 128 x 128, the last ones smaller.
void write_quantised_llama(const base::Path& folder) {
  std::vector<checkpoint::SafetensorsEntry> entries;
  for (const TensorInfo& t : test::begin_folder(folder, R"({"model_type": "llama", "hidden_size": 144,
      "intermediate_size": 200, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
      "vocab_size": 40, "quantization_config": {"quant_method": "fp8"}})")) {
    checkpoint::SafetensorsEntry e{.name = t.name, .dtype = "BF16", .shape = t.shape};
    if (t.name.find("_proj") != std::string::npos) {
      e.dtype = "F8_E4M3";
      entries.push_back({.name = t.name + "_scale_inv",
                         .dtype = "F32",
                         .shape = {(t.shape[0] + 127) / 128, (t.shape[1] + 127) / 128}});
    }
    entries.push_back(std::move(e));
  }
  write_file(folder / "model.safetensors", entries, 4);
}

std::vector<tools::Tensor> loaded_weights(const base::Path& folder, const std::vector<std::string>& layout) {
  const config::Recipe recipe = test::golden_recipe(folder, layout);
  std::vector<tools::Tensor> all;
  std::mutex mutex;
  comm::run_local_world(static_cast<int>(recipe.parallel.world()), [&](comm::World& world) {
    train::Rank rank(recipe, world, {.draw = false});
    train::load_hf(rank, ModelFolder(recipe.model.hf, recipe.model, train::model_tensors(rank)));
    tools::TensorAssembler assembler(rank.compiled().logical, [](const graph::Param&) { return true; });
    assembler.take(rank, program::holds_weights);
    assembler.sum(world.world());
    std::vector<tools::Tensor> tensors = assembler.finish("weights");
    const std::lock_guard lock(mutex);
    if (world.rank().value == 0) all = std::move(tensors);
  });
  return all;
}

void expect_equal_weights(const base::Path& quantised, const base::Path& plain) {
  const std::vector<tools::Tensor> expected = loaded_weights(plain, {});
  for (const auto& layout :
       std::vector<std::vector<std::string>>{{},
                                             {"parallel.tp=2", "parallel.dp_shard=2", "parallel.zero=3"},
                                             {"parallel.pp=2", "parallel.dp_shard=2", "parallel.zero=1"}}) {
    const std::vector<tools::Tensor> got = loaded_weights(quantised, layout);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t t = 0; t < got.size(); ++t)
      EXPECT_EQ(got[t].values, expected[t].values) << got[t].name << " with " << layout.size() << " keys";
  }
}

void expect_equal(const char* name, const char* expected_name) {
  const auto got = open_tensors(kFiles / name), expected = open_tensors(kFiles / expected_name);
  const Difference d = compare(*got, *expected);
  EXPECT_TRUE(d.is_equal()) << (d.tensors.empty() ? "names" : d.tensors[0].name);
  EXPECT_EQ(d.compared, static_cast<int64_t>(expected->tensors().size()));
  EXPECT_TRUE(d.types.empty());
}

TEST(Quantised, Fp8BlocksAreThoseOfDeepSeek) {
  expect_equal("fp8.safetensors", "fp8_expected.safetensors");
  // Any part of a tensor has the numbers of the whole.
  const auto source = open_tensors(kFiles / "fp8.safetensors"),
             expected = open_tensors(kFiles / "fp8_expected.safetensors");
  const TensorInfo &t = *source->find("wide.weight"), &e = *expected->find("wide.weight");
  for (int64_t first = 0; first < t.count(); first += 37) {
    std::vector<std::byte> a(static_cast<size_t>(2 * std::min<int64_t>(37, t.count() - first))), b(a.size());
    source->read(t, first, a), expected->read(e, first, b);
    for (size_t i = 0; i < a.size(); i += 2)
      if ((static_cast<uint8_t>(a[i + 1]) & 0x7f) != 0x7f) {
        EXPECT_TRUE(a[i] == b[i] && a[i + 1] == b[i + 1]);
      }
  }
}

// Any part of a tensor has the numbers of the whole, in its order and in the files'.
TEST(Quantised, Mxfp4IsThatOfTransformers) {
  expect_equal("mxfp4.safetensors", "mxfp4_expected.safetensors");
  const auto source = open_tensors(kFiles / "mxfp4.safetensors"),
             expected = open_tensors(kFiles / "mxfp4_expected.safetensors");
  const TensorInfo &t = *source->find("x"), &e = *expected->find("x");
  EXPECT_TRUE(source->is_transposed(t));
  std::vector<base::Bf16> whole(static_cast<size_t>(t.count()));
  expected->read(e, 0, std::as_writable_bytes(std::span(whole)));
  for (int64_t first = 0; first < t.count(); first += 11)
    for (const int64_t n : {1, 7, 64, 200}) {
      std::vector<base::Bf16> part(static_cast<size_t>(std::min(n, t.count() - first)));
      source->read(t, first, std::as_writable_bytes(std::span(part)));
      EXPECT_EQ(0, std::memcmp(part.data(), whole.data() + first, part.size() * 2)) << first;
    }
}

TEST(Quantised, NumbersOfFp8) {
  EXPECT_EQ(fp8_e4m3(0x38), 1.0f);
  EXPECT_EQ(fp8_e4m3(0x7e), 448.0f);
  EXPECT_EQ(fp8_e4m3(0x01), std::ldexp(1.0f, -9));
  EXPECT_EQ(fp8_e4m3(0x88), -std::ldexp(8.0f, -9));
  EXPECT_TRUE(std::isnan(fp8_e4m3(0x7f)) && std::isnan(fp8_e4m3(0xff)));
}

// A published folder of GPT-OSS: the experts' matrices in MXFP4, as `quintet convert` and every layout see
// them.
TEST(Quantised, Mxfp4FoldersLoadInEveryLayout) {
  const test::TempFolder temp;
  const base::Path blocks = temp / "blocks", plain = temp / "plain";
  write_quantised_gpt_oss(blocks);
  tools::convert_model(blocks, plain, {.dtype = {}, .log = {}});
  const std::string same = tools::diff_models(blocks, plain).text;
  EXPECT_CONTAINS(same, "equal: ");
  EXPECT_CONTAINS(tools::diff_models(plain, blocks).text, "equal: ");
  expect_equal_weights(blocks, plain);
}

TEST(Quantised, Fp8FoldersLoadInEveryLayout) {
  const test::TempFolder temp;
  const base::Path codes = temp / "codes", plain = temp / "plain";
  write_quantised_llama(codes);
  tools::convert_model(codes, plain, {.dtype = {}, .log = {}});
  EXPECT_CONTAINS(tools::diff_models(codes, plain).text, "equal: ");
  expect_equal_weights(codes, plain);
}

TEST(Quantised, ScalesMustBeThere) {
  const test::TempFolder folder;
  const std::string header = R"({"x.weight":{"dtype":"F8_E4M3","shape":[2,2],"data_offsets":[0,4]}}     )";
  std::string text(8, '\0');
  text[0] = static_cast<char>(header.size());
  base::write_file_atomically(folder / "x.safetensors", text + header + "abcd");
  EXPECT_CONTAINS(test::user_error([&] { open_tensors(folder / "x.safetensors"); }),
                  "x.weight_scale_inv is missing");
}

}  // namespace
}  // namespace quintet::hf
