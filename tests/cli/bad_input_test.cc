// Invalid input: exit code 2, a message that names the problem, and no files left behind.
#include <algorithm>

#include "cli/support.h"
#include "config/print.h"
#include "data/token_file.h"

namespace quintet {
namespace {

using test::Outcome;
using test::quintet;
using test::quoted;
using test::SmallRun;

struct BadCase {
  std::string options;             // after the recipe; %F is the test's folder
  std::vector<std::string> parts;  // substrings of the message
};

constexpr const char* kHasGpu =
    "this build has CUDA and this machine has a GPU, so nothing is missing: run this test in a build without "
    "QUINTET_CUDA, or with CUDA_VISIBLE_DEVICES empty";

// A build without CUDA, or a machine without a GPU: one message with a remedy.
TEST(BadInput, CudaWithoutAGpu) {
  const SmallRun small;
  const Outcome o = quintet("train " + quoted(small.recipe_file().string()) + " --set run.device=cuda");
  if (o.code == 0) GTEST_SKIP() << kHasGpu;
  EXPECT_EQ(o.code, 2) << o.err;
  EXPECT_CONTAINS(o.err, "run.device is \"cuda\", but this");
  EXPECT_CONTAINS(o.err, "use run.device = \"cpu\"");
  EXPECT_FALSE(base::file_exists(small.run_dir()));
}

// A run folder from a GPU machine, used on one without.
TEST(BadInput, GenerateFromACudaRunWithoutAGpu) {
  const SmallRun small;
  small.train(test::kOneRank);
  const std::string generate = "generate " + quoted(small.run_dir().string()) + " --tokens 4 --seed 3";
  const Outcome here = quintet(generate);
  ASSERT_EQ(here.code, 0) << here.err;
  EXPECT_EQ(here.err, "");
  config::Recipe recipe = config::load(small.run_folder().recipe_file().string());
  recipe.run.device = config::DeviceKind::Cuda;
  recipe.precision.tf32 = true;  // not available on a CPU
  const base::Path manifest = checkpoint::find_checkpoint(small.run_dir()) / checkpoint::kManifestFile;
  checkpoint::Manifest saved = checkpoint::parse_manifest(base::read_file(manifest), "test");
  saved.run["recipe"] = config::to_toml(recipe);
  base::write_file_atomically(manifest, to_text(saved));

  const Outcome asked = quintet(generate + " --device cpu");
  EXPECT_EQ(asked.code, 0);
  EXPECT_EQ(asked.out, here.out);
  EXPECT_EQ(asked.err, "") << "an explicit request needs no note";
  const Outcome cuda = quintet(generate + " --device cuda");
  if (cuda.code == 0) GTEST_SKIP() << kHasGpu;
  EXPECT_EQ(cuda.code, 2);
  EXPECT_CONTAINS(cuda.err, "--device cuda: this");
  EXPECT_CONTAINS(cuda.err, "use --device cpu");
  EXPECT_EQ(cuda.out, "");
  for (const char* json : {"", " --json"}) {
    const Outcome o = quintet(generate + json);
    EXPECT_EQ(o.code, 0);
    EXPECT_EQ(o.out, quintet(generate + json + " --device cpu").out);
    EXPECT_CONTAINS(o.err, "run.device = \"cuda\", but this");
    EXPECT_CONTAINS(o.err, "generating on the CPU, as with --device cpu");
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
  }
}

// What `quintet prepare` wrote, damaged at the same size, within the vocabulary.
TEST(BadInput, DamagedTokenFilesAreRefused) {
  const SmallRun small;
  const std::string folder = (small / "prepared").string(), prefix = folder + "/tokens";
  ASSERT_EQ(quintet("prepare --tokenizer bytes " + quoted((small / "data.txt").string()) + " --out " +
                    quoted(folder))
                .code,
            0);
  const std::string train =
      "train " + quoted(small.recipe_file().string()) + " --set data.path=" + quoted(folder);
  EXPECT_EQ(quintet(train + " --dry-run").code, 0);
  std::string tokens = base::read_file(prefix + ".bin");
  tokens[7000] ^= 1;
  base::write_file_atomically(prefix + ".bin", tokens);
  const Outcome o = quintet(train);
  EXPECT_EQ(o.code, 2) << o.err;
  EXPECT_CONTAINS(o.err, "tokens.bin' is damaged: block 0 of 1");
  EXPECT_CONTAINS(o.err, "[Q2003]");
  EXPECT_CONTAINS(o.err, "'quintet explain Q2003' says more");
  EXPECT_FALSE(base::file_exists(small.run_dir()));
}

// What was meant, in words of the tool rather than of its libraries.
TEST(BadInput, MessagesNameTheLikelyMistake) {
  const SmallRun small;
  const auto write = [&](const char* name, std::string_view text) {
    base::write_file_atomically(small / name, text);
    return quoted((small / name).string());
  };
  const std::string recipe = quoted(small.recipe_file().string()),
                    folder = quoted((small / "texts").string());
  base::make_directories(small / "texts");
  write("texts/a.txt", "some text");
  const std::pair<std::string, std::string> cases[] = {
      {"train " + recipe + " one two", "unexpected argument 'one'"},
      {"report a b c", "RUN: takes at most 2, got 3"},
      {"train " + recipe + " --steps", "--steps needs a value"},
      {"verify " + recipe + " --dtype int8", "--dtype: must be one of f64, f32, bf16, f16, got 'int8'"},
      {"check " + recipe + " --set optimizer.betas=[0.9]", "got [0.9]; nearest"},
      {"check " + recipe + " --set optimizer.betas=0.9", "got 0.9; nearest"},
      {"check " + recipe + " --set run.seed=99999999999999999999", "--set run.seed: 99999999999999999999"},
      {"check " + recipe + " --set data.path=/dev/null", "'/dev/null' is neither a file nor a folder"},
      {"train " + recipe + " --run-dir " + recipe + "/x", "cannot be created: '"},
      {"check " + write("a.yaml", "name: a\n"), "looks like YAML"},
      {"check " + write("a.json", "\n {\"name\": \"a\"}"), "looks like JSON"},
      {"check " + write("a.toml", std::string("\xff\xfen\0", 4)), "is UTF-16"},
      {"check " + write("b.toml", "name = \"caf\xe9\""), "is not UTF-8"},
      {"check " + write("c.toml", "name = \"a\n"), "no closing quote"},
      {"prepare " + folder + " --tokenizer bytes --out " + folder, "the folder that is written"},
  };
  for (const auto& [command, part] : cases) {
    const Outcome o = quintet(command);
    EXPECT_EQ(o.code, 2) << command;
    EXPECT_CONTAINS(o.err, part) << command;
  }
  EXPECT_EQ(quintet("check " + recipe + " --set ' run.steps = 4'").code, 0) << "spaces around a key";
}

TEST(BadInput, IsRefusedBeforeAnythingIsWritten) {
  const SmallRun small;
  base::write_file_atomically(small / "empty.txt", "");
  base::write_file_atomically(small / "short.txt", "too short");
  base::write_file_atomically(small / "binary.txt", std::string("a\0b", 3));
  base::make_directories(small / "nothing");
  const auto write_tokens = [&](const char* name, int64_t vocab) {
    data::TokenFileWriter writer(small / name, vocab);
    writer.add_document(std::vector<int32_t>(5000, 1));
    writer.finish();
  };
  write_tokens("wide", 1000);
  write_tokens("cut", 256);
  std::filesystem::resize_file(small / "cut.bin", 100);
  write_tokens("damaged", 200);  // one byte per token, so 255 can be stored
  {
    std::string tokens = base::read_file(small / "damaged.bin");
    std::fill(tokens.begin(), tokens.end(), '\xff');
    base::write_file_atomically(small / "damaged.bin", tokens);
  }

  const BadCase cases[] = {
      {"--set data.path=%F/missing.txt", {"no data at", "missing.txt"}},
      {"--set data.path=[]", {"data.path is not set"}},
      {"--set data.path=%F/empty.txt", {"empty"}},
      {"--set data.path=%F/nothing", {"no text in"}},
      {"--set data.path=%F/binary.txt", {"not a text file"}},
      {"--set data.path=%F/short.txt", {"9"}},
      {"--set data.seq_len=100000", {"100,000", "20,000"}},
      {"--set data.path=%F/wide", {"1000", "256"}},
      {"--set data.path=%F/cut", {"truncated"}},
      {"--set checkpoint.dir=/proc/none", {"cannot create folder '/proc/none'"}},
      {"--set data.path=%F/damaged", {"is damaged: block 0 of 1 (bytes 0 to 4999) has checksum"}},
      {"--set 'data.path=[\"%F/data.txt\", \"%F/wide\"]'", {"must be the only path"}},
      {"--set model.layers=0", {"model.layers"}},
      {"--set model.embed=-4", {"model.embed", "-4"}},
      {"--set model.preset=llama-tyni", {"llama-tyni", "llama-tiny"}},
      {"--set parallel.tp=3", {"parallel.tp", "3 does not divide"}},
      {"--set parallel.tq=2", {"parallel.tq", "parallel.tp"}},
      {"--set batch.global=7", {"batch.global", "7"}},
      {"--set 'optimizer.groups=[{match=\"blocks.*.atn.wq.weight\", lr=1}]'",
       {"blocks.*.atn.wq.weight", "matches no parameter", "blocks.0.attn.wq.weight"}},
      {"--set 'optimizer.groups=[{match=\"*norm*\"}, {match=\"final_norm.*\", lr=1}]'",
       {"\"final_norm.*\" has no effect", "belongs to \"*norm*\"", "narrower pattern first"}},
      {"--set 'optimizer.freeze=\"embed.*\"'", {"groups = [{ match = \"embed.*\", update = false }]"}},
      {"--set run.backend=mpi", {"needs 4 ranks, but 1"}},
      {"--run-dir %F/data.txt/run", {"data.txt/run"}},
      {"--run-dir /proc/quintet-run", {"/proc/quintet-run"}},
      {"--trace steps=9", {"steps=9-9", "the last step, 6"}},
      {"--trace 5-6", {"steps=5-6"}},
      {"--steps 0", {"--steps"}},
      {"--steps many", {"--steps"}},
      {"--dtype fp16", {"--dtype"}},
      {"--disable-pass in_place", {"'in_place' is not an optional pass", "fold", "share_memory"}},
      {"--set", {"--set"}},
      {"--set nonsense", {"nonsense"}},
      {"--no-such-option", {"--no-such-option"}},
  };
  const auto files = base::list_files(small / ".");
  for (const BadCase& c : cases) {
    std::string options = c.options;
    for (size_t at; (at = options.find("%F")) != std::string::npos;)
      options.replace(at, 2, (small / "").string());
    const Outcome o = quintet("train " + quoted(small.recipe_file().string()) + " " + options);
    SCOPED_TRACE(options + "\n" + o.err);
    EXPECT_EQ(o.code, 2);
    for (const std::string& part : c.parts) EXPECT_CONTAINS(o.err, part);
    EXPECT_EQ(o.out, "");
    EXPECT_FALSE(base::directory_exists(small.run_dir()));
    EXPECT_EQ(base::list_files(small / "."), files);
  }
}

// --run-dir belongs to the one verb that writes a run folder, --steps to those that count steps.
TEST(BadInput, OptionsWithoutEffectAreRefused) {
  const SmallRun small;
  const std::string recipe = " " + quoted(small.recipe_file().string()) + " ";
  for (const char* verb : {"check", "verify", "program", "plan", "doctor", "bench step"}) {
    const Outcome o = quintet(verb + recipe + "--run-dir elsewhere");
    EXPECT_EQ(o.code, 2) << verb;
    EXPECT_CONTAINS(o.err, "--run-dir");
  }
  EXPECT_EQ(quintet("bench checkpoint" + recipe + "--steps 3").code, 2);
  EXPECT_EQ(quintet("logits" + recipe + "--ids 1 --out x --steps 3").code, 2);
}

TEST(BadInput, MissingAndBrokenRecipes) {
  const SmallRun small;
  base::write_file_atomically(small / "broken.toml", "name = [");
  for (const char* verb : {"train", "check", "verify", "program"}) {
    const Outcome missing = quintet(std::string(verb) + " /no/such/recipe.toml");
    EXPECT_EQ(missing.code, 2) << verb;
    EXPECT_CONTAINS(missing.err, "/no/such/recipe.toml");
    const Outcome broken = quintet(std::string(verb) + " " + quoted((small / "broken.toml").string()));
    EXPECT_EQ(broken.code, 2) << verb;
    EXPECT_CONTAINS(broken.err, "broken.toml");
  }
}

TEST(BadInput, GenerateNeedsACheckpoint) {
  const SmallRun small;
  EXPECT_CONTAINS(quintet("generate /no/such/folder").err, "is not a checkpoint");
  EXPECT_EQ(quintet("generate /no/such/folder").code, 2);
  small.train();
  const std::string folder = "generate " + quoted(small.run_dir().string());
  EXPECT_EQ(quintet(folder + " --tokens 1").code, 0);
  for (const auto& [options, part] : {std::pair{" --tokens 0", "--tokens"},
                                      {" --temperature -1", "--temperature"},
                                      {" --prompt ''", "--prompt"},
                                      {" --seed x", "--seed"},
                                      {" --device gpu", "cuda"}}) {
    const Outcome o = quintet(folder + options);
    EXPECT_EQ(o.code, 2) << options;
    EXPECT_CONTAINS(o.err, part);
  }
  EXPECT_CONTAINS(quintet(folder + " --ema").err, "optimizer.ema");
  EXPECT_CONTAINS(quintet(folder + " --step 5").err, "it has that of step 6");
  std::filesystem::resize_file(small.run_dir() / "checkpoints/step-00000006/rank-00001.safetensors", 1000);
  const Outcome cut = quintet(folder + " --tokens 1");
  EXPECT_EQ(cut.code, 2);
  EXPECT_CONTAINS(cut.err, "rank-00001.safetensors' is truncated");
}

}  // namespace
}  // namespace quintet
