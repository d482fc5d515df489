// A run as a Hugging Face folder, and a run from that folder.
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "generate/source.h"
#include "hf/tensor_source.h"
#include "support/folders.h"
#include "support/hf_folders.h"
#include "tokenizer/tokenizer.h"
#include "tools/model_files.h"
#include "train/support.h"

namespace quintet {
namespace {

using test::SmallRun;

const std::vector<std::string> kCheckpoint = {"checkpoint.every=100", "precision.compute='bf16'"};

TEST(HfExport, ARunBecomesAFolderAndARunAgain) {
  const SmallRun small;
  small.train(kCheckpoint);
  const base::Path out = small / "out";
  const std::string line =
      tools::export_model(small.run_dir(), out, {.dtype = base::DType::F32, .shard_bytes = 20000, .log = {}});
  EXPECT_CONTAINS(line, "21 tensors");
  for (const char* name : {"config.json", "generation_config.json", "model.safetensors.index.json"})
    EXPECT_TRUE(base::file_exists(out / name)) << name;
  EXPECT_EQ(test::read_json(out / "config.json").at("model_type"), "llama");
  const tools::DiffReport same = tools::diff_models(small.run_dir(), out);
  EXPECT_TRUE(same.equal) << same.text;
  EXPECT_CONTAINS(same.text, "equal: 21 tensors");

  // One step that changes nothing, in another layout: what comes out is what went in.
  const std::vector<std::string> again = {"model.hf='" + out.string() + "'",
                                          "data.tokenizer='" + out.string() + "'",
                                          "run.steps=1",
                                          "optimizer.name='sgd'",
                                          "optimizer.lr=1e-300",
                                          "optimizer.weight_decay=0",
                                          "parallel.tp=1",
                                          "parallel.sequence_parallel=false",
                                          "parallel.pp=2",
                                          "checkpoint.every=100",
                                          "run.dir='" + (small / "second").string() + "'"};
  small.train(again);
  const base::Path second = small / "second-out";
  tools::export_model(small / "second", second, {.dtype = {}, .log = {}});
  const tools::DiffReport round = tools::diff_models(second, out);
  EXPECT_TRUE(round.equal) << round.text;
  EXPECT_EQ(base::read_file(second / "config.json"), base::read_file(out / "config.json"));

  // A difference is named.
  const tools::DiffReport other = tools::diff_models(small.run_dir(), [&] {
    const base::Path narrow = small / "narrow";
    tools::convert_model(out, narrow, {.dtype = base::DType::BF16, .log = {}});
    return narrow;
  }());
  EXPECT_FALSE(other.equal);
  EXPECT_CONTAINS(other.text, "first different tensor: lm_head.weight");
}

// The folder of a run from scratch has the tokenizer under the names that transformers looks for, and says
// which token ends a text; and generating from it, or from the run, ends there.
TEST(HfExport, ARunFromScratchHasItsTokenizerAndEnds) {
  const SmallRun small;
  const base::Path file = small / "my.json";
  auto json = nlohmann::ordered_json::parse(
      base::read_file(base::Path(test::source_dir()) / "tests/hf/lm_eval/tokenizer.json"));
  const auto tokenizer = tokenizer::load_hf_tokenizer(json.dump());
  const std::string word = tokenizer->token(0);
  base::write_file_atomically(file, json.dump());
  std::vector<std::string> sets = kCheckpoint;
  sets.insert(sets.end(),
              {"data.tokenizer='" + file.string() + "'", "data.end='" + word + "'", "model.vocab=512"});
  small.train(sets);
  const base::Path out = small / "out";
  tools::export_model(small.run_dir(), out, {.dtype = {}, .log = {}});
  EXPECT_EQ(base::read_file(out / "tokenizer.json"), base::read_file(file));
  EXPECT_EQ(test::read_json(out / "tokenizer_config.json").at("eos_token"), word);
  for (const char* name : {"config.json", "generation_config.json"}) {
    EXPECT_EQ(test::read_json(out / name).at("eos_token_id"), 0) << name;
    EXPECT_TRUE(test::read_json(out / name).at("bos_token_id").is_null()) << name;
  }
  EXPECT_EQ(config::read_hf_config(base::read_file(out / "config.json")).problems.size(), 0u);
  for (const base::Path& path : {small.run_dir(), out}) {
    const generate::Source source = generate::open_source(path, {});
    EXPECT_EQ(source.ends, std::vector<int32_t>{0}) << path;
    EXPECT_EQ(source.tokenizer->token(0), word);
  }
}

// The byte tokenizer becomes a byte-level BPE with the same ids; no token ends a text, and the files say so.
TEST(HfExport, TheByteTokenizerIsAFileToo) {
  const SmallRun small;
  small.train(kCheckpoint);
  const base::Path out = small / "out";
  tools::export_model(small.run_dir(), out, {.dtype = {}, .log = {}});
  const auto tokenizer = tokenizer::load_tokenizer(out.string());
  const std::string text = "a\tb \x7f z\u00e4\u20ac\n";
  std::vector<int32_t> bytes;
  for (const char c : text) bytes.push_back(static_cast<uint8_t>(c));
  EXPECT_EQ(tokenizer->encode(text), bytes);
  EXPECT_EQ(tokenizer->decode(bytes), text);
  EXPECT_EQ(tokenizer->vocab_size(), 256);
  EXPECT_TRUE(test::read_json(out / "generation_config.json").at("eos_token_id").is_null());
}

// A model of masked tokens has a head that is tied unless the recipe says otherwise, as BERT has, so it is of
// a known family; the byte tokenizer's mask is a token of the folder.
TEST(HfExport, AnEncoderFromScratchHasItsMask) {
  const SmallRun small;
  std::vector<std::string> sets = kCheckpoint;
  sets.insert(sets.end(), {"model.family='bert'", "model.kv_heads=4", "model.max_positions=32",
                           "model.init='normal'", "data.tokenizer='bytes'"});
  EXPECT_TRUE(small.recipe(sets).model.tied);
  small.train(sets);
  const base::Path out = small / "out";
  tools::export_model(small.run_dir(), out, {.dtype = base::DType::F32, .log = {}});
  const auto tokenizer = tokenizer::load_tokenizer(out.string());
  EXPECT_EQ(tokenizer->id("[MASK]"), 256);
  EXPECT_EQ(tokenizer->vocab_size(), 257);
  EXPECT_EQ(test::read_json(out / "tokenizer_config.json").at("mask_token"), "[MASK]");
  EXPECT_EQ(test::read_json(out / "config.json").at("vocab_size"), 257);
  EXPECT_TRUE(tools::diff_models(small.run_dir(), out).equal);
  sets.push_back("model.tied=false");
  EXPECT_FALSE(small.recipe(sets).model.tied);
}

TEST(HfExport, OtherFormatsAreAnsweredWithWhatToDo) {
  const auto refusal = [](const std::string& name) {
    const test::TempFolder folder;
    base::write_file_atomically(folder / name, "x");
    return test::user_error([&] { hf::open_tensors(folder.path()); });
  };
  EXPECT_CONTAINS(refusal("zero_pp_rank_0_mp_rank_00_optim_states.pt"), "zero_to_fp32.py . OUT");
  EXPECT_CONTAINS(refusal("mp_rank_00_model_states.pt"), "--ckpt-format torch_dist");
  EXPECT_CONTAINS(refusal("model-Q4_K_M.gguf"), "quantised for llama.cpp");
  EXPECT_CONTAINS(refusal("flax_model.msgpack"), "another framework");
  EXPECT_CONTAINS(refusal("readme.txt"), "expected *.safetensors");
}

// A finite number that the type cannot hold would become infinity.
TEST(HfExport, NumbersOutOfRangeAreRefused) {
  const test::TempFolder temp;
  const base::Path wide = temp / "wide.safetensors", out = temp / "out.safetensors";
  const auto convert = [&](base::DType from, double value, base::DType to) {
    checkpoint::write_safetensors(wide.string(), {{"x", from, {3}}}, {}, [&](size_t, auto bytes) {
      if (from == base::DType::F64)
        reinterpret_cast<double*>(bytes.data())[2] = value;
      else
        reinterpret_cast<float*>(bytes.data())[2] = static_cast<float>(value);
    });
    try {
      tools::convert_model(wide, out, {.dtype = to, .overwrite = true, .log = {}});
    } catch (const base::UserError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  using base::DType;
  EXPECT_EQ(convert(DType::F32, 65519, DType::F16), "");
  EXPECT_CONTAINS(convert(DType::F32, -65520, DType::F16),
                  "x: element 2 is -65520, which f16 does not reach");
  EXPECT_EQ(convert(DType::F32, std::numeric_limits<float>::infinity(), DType::F16), "");
  EXPECT_EQ(convert(DType::F32, 3e38, DType::BF16), "");
  EXPECT_CONTAINS(convert(DType::F32, 3.4e38, DType::BF16), "which bf16 does not reach");
  EXPECT_CONTAINS(convert(DType::F64, 1e39, DType::F32), "element 2 is 1e+39");
  EXPECT_EQ(base::list_folder(temp.path()).size(), 2U) << "nothing is left of a file that was refused";
}

// Code that auto_map names travels with the folder.
TEST(HfExport, CodeOfAFolderIsCarriedAlong) {
  const test::TempFolder temp;
  const base::Path folder = temp / "folder", out = temp / "out";
  test::begin_folder(
      folder, R"({"model_type": "llama", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
      "num_attention_heads": 2, "vocab_size": 8, "auto_map": {"AutoConfig": "configuration_x.XConfig"}})");
  checkpoint::write_safetensors((folder / "model.safetensors").string(), {{"x", base::DType::F32, {2}}}, {},
                                [](size_t, std::span<std::byte>) {});
  base::write_file_atomically(folder / "configuration_x.py", "class XConfig: pass\n");
  tools::convert_model(folder, out, {.dtype = {}, .log = {}});
  EXPECT_EQ(base::read_file(out / "configuration_x.py"), "class XConfig: pass\n");
}

TEST(HfExport, NothingIsOverwritten) {
  const SmallRun small;
  base::make_directories(small / "full");
  base::write_file_atomically(small / "full/x", "1");
  EXPECT_CONTAINS(test::user_error([&] { tools::export_model(small.run_dir(), small / "full", {}); }),
                  "is not empty");
  EXPECT_CONTAINS(test::user_error([&] { tools::export_model(small.run_dir(), small / "new", {}); }),
                  "is neither a checkpoint nor a run that has one");
  EXPECT_CONTAINS(test::user_error([&] { tools::convert_model(small / "full", small / "new", {}); }),
                  "has no weights");
  EXPECT_FALSE(base::directory_exists(small / "new"));
}

}  // namespace
}  // namespace quintet
