// Golden program texts of the shipped recipes and of every kind of layout. A text changes only on purpose:
// run test_program with QUINTET_UPDATE_GOLDENS=1 and review the difference with the change.
//
// A file holds the checksums of every rank's whole text (program::to_text, full), body by body, and rank 0's
// bodies at both ends of a step for reading. The layouts in kWhole are stored whole.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "base/checksum.h"
#include "base/file.h"
#include "program/support.h"
#include "program/text.h"
#include "support/folders.h"

namespace quintet::program {
namespace {

using namespace testing;
namespace fs = std::filesystem;

const fs::path kFolder = fs::path(test::source_dir()) / "tests/golden/programs";
fs::path golden_path(const std::string& name) { return kFolder / (name + ".txt"); }

// In addition to all_layouts(): what only affects the end of a step.
std::vector<testing::Layout> step_layouts() {
  return {
      {"frozen",
       {"optimizer.groups=[{match=\"*attn*\", update=false}]", "parallel.dp_shard=2", "parallel.zero=1"}},
      {"frozen_zero3",
       {"optimizer.groups=[{match=\"*norm*\", update=false}, {match=\"head*\", update=false}]",
        "parallel.dp_shard=2", "parallel.zero=3"}},
      {"frozen_stage",
       {"optimizer.groups=[{match=\"embed*\", update=false}, {match=\"blocks.0.*\", update=false}]",
        "parallel.pp=2", "batch.accumulation=2"}},
      {"groups",
       {"optimizer.groups=[{match=\"embed*\", lr=1e-4}, {match=\"*norm*\", name=\"lion\", weight_decay=0.2}]",
        "parallel.dp_shard=2", "parallel.zero=3"}},
      {"lamb_inf",
       {"optimizer.name=lamb", "optimizer.clip=inf", "parallel.dp_shard=2", "parallel.zero=1",
        "parallel.tp=2"}},
      {"lars_split",
       {"optimizer.name=lars", "optimizer.momentum=0.9", "precision.compute=bf16", "precision.master=split",
        "parallel.pp=2", "batch.accumulation=2"}},
      {"sgd", {"optimizer.name=sgd", "optimizer.momentum=0.0", "parallel.dp_replicate=2"}},
      {"sgd_momentum_split",
       {"optimizer.name=sgd", "optimizer.momentum=0.9", "precision.compute=bf16", "precision.master=split"}},
      {"f16", {"precision.compute=f16", "parallel.dp_shard=2", "parallel.zero=2", "batch.accumulation=2"}},
      {"bf16_moments",
       {"precision.compute=bf16", "precision.moments=bf16", "optimizer.clip_norm=0", "parallel.tp=2"}},
      {"f64", {"precision.compute=f64"}},
      {"padded_segments", {"model.embed=13", "parallel.dp_shard=3", "parallel.zero=1"}},
      {"bias",
       {"model.moe.experts=4", "model.moe.top_k=2", "model.moe.first_dense=1", "model.moe.ffn=12",
        "model.moe.score=sigmoid", "model.moe.bias_rate=0.01", "parallel.pp=2", "batch.accumulation=2"}},
      {"muon_zero2_tp",
       {"optimizer.name=muon", "parallel.dp_shard=2", "parallel.zero=2", "parallel.tp=2",
        "batch.accumulation=2"}},
      {"muon_experts",
       {"optimizer.name=muon", "model.moe.experts=4", "model.moe.top_k=2", "model.moe.first_dense=1",
        "model.moe.ffn=12", "parallel.dp_shard=2", "parallel.zero=1", "parallel.ep=2"}},
      {"adafactor_zero3", {"optimizer.name=adafactor", "parallel.dp_shard=2", "parallel.zero=3"}},
      {"adamw8bit_zero1",
       {"optimizer.name=adamw8bit", "optimizer.block_size=8", "model.head_dim=8", "parallel.dp_shard=2",
        "parallel.zero=1"}},
      {"ema_split",
       {"optimizer.ema=0.99", "precision.compute=bf16", "precision.master=split", "parallel.dp_shard=2",
        "parallel.zero=2"}},
      {"stochastic_moments",
       {"optimizer.groups=[{match=\"*.wq.*\", name=\"lamb\"}, {match=\"*.ffn.*\", name=\"muon\"}]",
        "precision.compute=bf16", "precision.moments=bf16", "precision.moments_rounding=stochastic",
        "parallel.dp_shard=2", "parallel.zero=1", "parallel.tp=2"}},
      {"fp8_sp",
       {"precision.compute=bf16", "precision.linear=fp8-delayed", "model.embed=32", "model.ffn=64",
        "model.head_dim=16", "data.seq_len=16", "parallel.tp=2", "parallel.sequence_parallel=true"}},
      {"fp8_muon",
       {"precision.compute=bf16", "precision.linear=fp8-delayed", "optimizer.name=muon", "model.embed=32",
        "model.ffn=64", "model.head_dim=16", "data.seq_len=16", "parallel.dp_shard=2", "parallel.zero=1"}},
      {"receive_bound",
       {"model.moe.experts=4", "model.moe.top_k=2", "model.moe.first_dense=1", "model.moe.ffn=12",
        "model.moe.receive_bound=1.0", "parallel.dp_shard=2", "parallel.zero=1", "parallel.ep=2"}},
      {"ramp_experts",
       {"model.moe.experts=4", "model.moe.top_k=2", "model.moe.first_dense=1", "model.moe.ffn=12",
        "model.moe.balance_loss=0.01", "model.moe.z_loss=0.001", "batch.accumulation=4", "run.steps=4",
        "batch.ramp=[{until=2, global=2}]"}},
  };
}

// Generation from a model: entries of one program over the same parameters and caches.
compiler::Serving serving() {
  return {.entries = {{graph::Mode::Prefill, 8}, {graph::Mode::Decode, 2}, {graph::Mode::Score, 16}},
          .cache = {.pages = 4, .page_rows = 8, .sequences = 2, .pages_per_sequence = 2},
          .sampling = {}};
}
const std::string kGenerate = "generate_tp";

const std::vector<std::string> kWhole = {"single", "tp_sp", "pp_1f1b_tied_tp_zero2"};

std::string checksum(std::string_view text) {
  return fmt::format("{:016x}",
                     base::checksum_of({reinterpret_cast<const std::byte*>(text.data()), text.size()}));
}

// The full text in parts: the lines before the first body, every body, and the calls.
std::vector<std::pair<std::string, std::string>> parts_of(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> parts = {{"tables", ""}};
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("body ")) parts.emplace_back(line, "");
    if ((line.starts_with("call ") || line.starts_with("eval_call ")) && parts.back().first != "calls")
      parts.emplace_back("calls", "");
    parts.back().second += line + "\n";
  }
  return parts;
}

std::string golden_text(const std::string& name, const config::Recipe& recipe,
                        const std::optional<compiler::Serving>& serving = {}) {
  const auto world =
      compiler::compile_world(recipe, {.evaluate = recipe.eval.every > 0, .serving = serving}, 2);
  std::string text;
  for (size_t r = 0; r < world.size(); ++r) {
    text += fmt::format("rank {}\n", r);
    for (const auto& [part, lines] : parts_of(to_text(world[r].program, world[r].step, {.full = true})))
      text += fmt::format("  {} {}\n", checksum(lines), part);
    text += fmt::format("  {} issues and waits\n", checksum(to_text(world[r].program, world[r].step,
                                                                    {.form = TextOptions::Form::Expanded})));
  }
  text += "\n";
  if (std::find(kWhole.begin(), kWhole.end(), name) != kWhole.end())
    return text + to_text(world[0].program, world[0].step);
  for (const Body& body : world[0].program.bodies) {
    if (body.kind != BodyKind::Begin && body.kind != BodyKind::Step) continue;
    text += fmt::format("body {}\n", to_string(body.kind));
    for (const Instr& instr : body.instrs) text += "  " + to_text(world[0].program, instr) + "\n";
  }
  return text;
}

void expect_golden(const fs::path& path, const std::string& now) {
  SCOPED_TRACE(path.stem().string());
  if (std::getenv("QUINTET_UPDATE_GOLDENS")) {
    std::ofstream(path) << now;
    return;
  }
  std::ifstream file(path);
  ASSERT_TRUE(file.good()) << path << " is missing: run with QUINTET_UPDATE_GOLDENS=1";
  std::stringstream stored;
  stored << file.rdbuf();
  // Line by line, so that a failure shows the first difference and not two whole files.
  std::istringstream a(stored.str()), b(now);
  std::string was, is;
  for (int line = 1;; ++line) {
    const bool more_a = !std::getline(a, was).fail(), more_b = !std::getline(b, is).fail();
    if (!more_a && !more_b) break;
    ASSERT_TRUE(more_a && more_b && was == is)
        << path.string() << ":" << line << "\n  stored: " << (more_a ? was : "(end)")
        << "\n  now:    " << (more_b ? is : "(end)")
        << "\nIf the change is meant, run with QUINTET_UPDATE_GOLDENS=1 and review the difference.";
  }
}

TEST(GoldenPrograms, OfEveryKindOfLayout) {
  for (const auto& list : {all_layouts(), step_layouts()})
    for (const testing::Layout& layout : list)
      expect_golden(golden_path(layout.name), golden_text(layout.name, small_recipe(layout.overrides)));
}

TEST(GoldenPrograms, OfGeneration) {
  expect_golden(golden_path(kGenerate), golden_text(kGenerate, small_recipe({"parallel.tp=2"}), serving()));
}

// The model that a recipe names must be downloaded: instead a small one of its family, with room for bytes.
Overrides overrides_of(const fs::path& recipe) {
  if (recipe.stem() != "finetune") return {};
  std::string config = base::read_file(fs::path(test::source_dir()) / "tests/hf/golden/qwen2/config.json");
  const std::string vocab = "\"vocab_size\": ";
  config.insert(config.find(vocab) + vocab.size(), "3");
  const fs::path folder = fs::path(test::binary_dir()) / "golden_finetune";
  fs::create_directories(folder);
  std::ofstream(folder / "config.json") << config;
  return {"model.hf=" + folder.string(), "data.tokenizer=bytes", "data.seq_len=16"};
}

// Without recipes/known: their layouts are among those of OfEveryKindOfLayout.
std::vector<fs::path> shipped_recipes() {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry :
       fs::recursive_directory_iterator(fs::path(test::source_dir()) / "recipes"))
    if (entry.path().extension() == ".toml" && entry.path().parent_path().filename() != "known")
      files.push_back(entry.path());
  return files;
}

TEST(GoldenPrograms, OfTheShippedRecipes) {
  const std::vector<fs::path> files = shipped_recipes();
  ASSERT_GE(files.size(), 5u);
  for (const fs::path& file : files)
    expect_golden(
        golden_path("recipe_" + file.stem().string()),
        golden_text("recipe_" + file.stem().string(), config::load(file.string(), overrides_of(file))));
}

// The parser's fuzz corpus must be current: an outdated text would be refused at its first line.
TEST(GoldenPrograms, OfTheFuzzCorpus) {
  const std::vector<testing::Layout> layouts = {
      {"good_one", {}},
      {"good_tp_zero3", {"parallel.tp=2", "parallel.dp_shard=2", "parallel.zero=3"}},
      {"good_pp", {"parallel.pp=2", "batch.accumulation=4", "parallel.schedule=1f1b"}}};
  for (const testing::Layout& layout : layouts) {
    const auto world = compiler::compile_world(small_recipe(layout.overrides), {}, 2);
    expect_golden(fs::path(test::source_dir()) / "tests/fuzz/corpus/program" / layout.name,
                  to_text(world[0].program, world[0].step, {.full = true}));
  }
}

// Every stored text must be read by a test.
TEST(GoldenPrograms, AllStoredTextsAreCompared) {
  std::vector<std::string> known = {kGenerate};
  for (const auto& list : {all_layouts(), step_layouts()})
    for (const testing::Layout& layout : list) known.push_back(layout.name);
  for (const fs::path& file : shipped_recipes()) known.push_back("recipe_" + file.stem().string());
  for (const fs::directory_entry& entry : fs::directory_iterator(kFolder)) {
    const std::string name = entry.path().stem().string();
    EXPECT_TRUE(std::find(known.begin(), known.end(), name) != known.end()) << entry.path();
  }
}

}  // namespace
}  // namespace quintet::program
