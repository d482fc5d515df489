// Resolving valid recipes: defaults, presets, overrides, batch sizes, worlds.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "base/file.h"
#include "base/temp_folder.h"
#include "config/batch_ramp.h"
#include "config/key_docs.h"
#include "config/length.h"
#include "config/presets.h"
#include "config/print.h"
#include "config/stage_layout.h"
#include "config/support.h"
#include "config/validate.h"
#include "support/folders.h"

namespace quintet::config {
namespace {

// Every key is documented, and every example is a value that the key takes.
TEST(RecipeKeys, AreDocumented) {
  std::set<std::string> known;
  for (const KeyFacts& k : recipe_keys()) {
    known.insert(k.key);
    EXPECT_FALSE(k.meaning.empty()) << "add a row to src/config/key_docs_table.cc for " << k.key;
    EXPECT_FALSE(k.type.empty()) << k.key;
    ASSERT_FALSE(k.example.empty()) << k.key;
    for (const Problem& p : problems_with({k.key + "=" + k.example}))
      EXPECT_FALSE(p.key == k.key &&
                   (p.name == "values have the type of their key" || p.name == "numbers are within limits"))
          << to_string(p);
    EXPECT_LE(describe(k).find('\n'), 80u);
  }
  for (const KeyDoc& doc : key_docs()) EXPECT_TRUE(known.contains(std::string(doc.key))) << doc.key;
  std::set<std::string_view> sections;
  for (const SectionDoc& s : section_docs()) sections.insert(s.section);
  for (const KeyFacts& k : recipe_keys()) EXPECT_TRUE(sections.contains(k.section())) << k.section();
}

TEST(Recipe, DemoRecipeIsAsDescribed) {
  const Recipe r = load(test::source_dir() + "/recipes/tiny.toml");
  EXPECT_EQ(r.name, "tiny");
  EXPECT_EQ(r.model.layers, 4);
  EXPECT_EQ(r.model.kv_heads, 2);
  const std::string root = test::source_dir() + "/";
  EXPECT_EQ(r.data.path, (std::vector<std::string>{root + "src", root + "docs", root + "README.md"}));
  EXPECT_EQ(r.parallel.world(), 4);
  EXPECT_EQ(r.parallel.dp(), 2);
  EXPECT_TRUE(r.parallel.sequence_parallel);
  EXPECT_EQ(r.batch, (Batch{.global = 16, .micro = 4, .accumulation = 2}));
  EXPECT_EQ(r.precision, Precision::of(base::DType::F32));
  EXPECT_EQ(r.optimizer.lr, 3e-3);
  EXPECT_EQ(r.optimizer.schedule.decay, (Length{Length::Unit::Steps, 130}));
  EXPECT_EQ(r.run.dir, "runs/tiny");
}

TEST(Recipe, OneGpuRecipeIsLegal) {
  const Recipe r = load(test::source_dir() + "/recipes/gpu.toml");
  EXPECT_EQ(r.run.device, DeviceKind::Cuda);
  EXPECT_EQ(r.precision.compute, base::DType::BF16);
  EXPECT_EQ(r.parallel.world(), 1);
}

TEST(Recipe, DemoRecipeWithExpertsIsAsDescribed) {
  const Recipe r = load(test::source_dir() + "/recipes/tiny-moe.toml");
  EXPECT_EQ(r.model.moe.experts, 8);
  EXPECT_EQ(r.model.moe.top_k, 2);
  EXPECT_EQ(r.parallel.world(), 4);
  EXPECT_EQ(r.parallel.ep, 4) << "may exceed the data-parallel ranks";
  EXPECT_EQ(r.parallel.dp(), 2);
  Recipe dense = load(test::source_dir() + "/recipes/tiny.toml");
  EXPECT_EQ(r.data, dense.data);
  EXPECT_EQ(r.batch, dense.batch);
}

TEST(Recipe, EveryShippedRecipeIsLegal) {
  int count = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(test::source_dir() + "/recipes")) {
    if (entry.path().extension() != ".toml") continue;
    ++count;
    if (entry.path().filename() == "finetune.toml") {  // legal but for the folder, which a user downloads
      try {
        load(entry.path().string());
      } catch (const RecipeError& e) {
        EXPECT_EQ(e.problems().size(), 1u) << e.what();
        EXPECT_EQ(e.problems()[0].name, "model.hf is a Hugging Face folder");
      }
      continue;
    }
    EXPECT_NO_THROW(load(entry.path().string())) << entry.path();
  }
  EXPECT_GE(count, 8);
}

TEST(Recipe, OverridesAreTomlValuesOrPlainWords) {
  const Recipe r =
      parse(kGood, {"parallel.tp=1", "optimizer.lr=5e-4", "data.path=[\"a\", \"b\"]", "name=plain-word",
                    "optimizer.name=sgd", "run.dir=out/a b", "optimizer.schedule.kind=cosine",
                    "optimizer.groups=[{match=\"blocks.*.norm\", weight_decay=0}]", "data.pack=false",
                    "parallel.tp=2"});
  EXPECT_EQ(r.parallel.tp, 2);  // later overrides win
  EXPECT_EQ(r.optimizer.lr, 5e-4);
  EXPECT_EQ(r.data.path, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(r.name, "plain-word");
  EXPECT_EQ(r.optimizer.kind, OptimizerKind::Sgd);
  EXPECT_EQ(r.run.dir, "out/a b");
  EXPECT_EQ(r.optimizer.schedule.kind, ScheduleKind::Cosine);
  ASSERT_EQ(r.optimizer.groups.size(), 1u);
  EXPECT_EQ(r.optimizer.groups[0].match, "blocks.*.norm");
  EXPECT_EQ(r.optimizer.groups[0].weight_decay, 0.0);
  EXPECT_FALSE(r.optimizer.groups[0].lr);
  EXPECT_FALSE(r.data.pack);
}

TEST(Recipe, AnOverrideCannotSmuggleInOtherKeys) {
  // All of it is the value, which as a path may not have a line break.
  try {
    (void)parse(kGood, {"run.dir=\"a\"\nname = \"b\""});
    FAIL() << "accepted";
  } catch (const base::UserError& e) {
    EXPECT_NE(std::string(e.what()).find("run.dir: contains a control character"), std::string::npos)
        << e.what();
  }
}

TEST(Recipe, NeutralValuesOfLaterKeysAreAccepted) {
  EXPECT_EQ(parse(kGood, {"memory.offload=none"}), parse(kGood));
}

TEST(Recipe, PrecisionFollowsCompute) {
  EXPECT_EQ(parse(kGood, {"precision.compute=f64"}).precision, Precision::of(base::DType::F64));
  EXPECT_EQ(parse(kGood, {"precision.compute=bf16"}).precision, Precision::of(base::DType::BF16));
  EXPECT_EQ(parse(kGood, {"precision.compute=f16"}).precision, Precision::of(base::DType::F16));
  EXPECT_EQ(parse(kGood, {"precision.compute=bf16", "precision.reduce=bf16"}).precision.reduce,
            base::DType::BF16);
  const Precision narrow =
      parse(kGood, {"precision.compute=bf16", "precision.master=split", "precision.gradients=bf16"})
          .precision;
  EXPECT_EQ(narrow.master, Master::Split);
  EXPECT_EQ(narrow.moments, base::DType::F32);
  EXPECT_EQ(narrow.gradients, base::DType::BF16);
  EXPECT_EQ(narrow.reduce, base::DType::BF16);
  EXPECT_EQ(narrow.master_type(), base::DType::F32);
  EXPECT_EQ(parse(kGood, {"precision.compute=bf16", "precision.gradients=bf16", "precision.reduce=f32"})
                .precision.reduce,
            base::DType::F32);
}

TEST(Recipe, LossScaleIsANumberOrDynamic) {
  EXPECT_EQ(parse(kGood).precision.loss_scale, (LossScale{false, 1}));
  EXPECT_EQ(parse(kGood, {"precision.compute=f16"}).precision.loss_scale, (LossScale{.dynamic = true}));
  EXPECT_EQ(parse(kGood, {"precision.compute=f16", "precision.loss_scale=8"}).precision.loss_scale,
            (LossScale{false, 8}));
  EXPECT_EQ(parse(kGood, {"precision.loss_scale=512"}).precision.loss_scale, (LossScale{false, 512}));
  const Recipe r = parse(kGood, {"precision.loss_scale=dynamic", "precision.loss_scale_window=10"});
  EXPECT_EQ(r.precision.loss_scale, (LossScale{.dynamic = true}));
  EXPECT_EQ(parse(to_toml(r)), r);
}

TEST(Recipe, StagesTakeMegatronsLayoutStrings) {
  const auto stages = [](const std::string& text) {
    const StageLayout layout = parse_stage_layout(text);
    EXPECT_EQ(layout.error, "") << text;
    return layout.stages;
  };
  using Stages = std::vector<int64_t>;
  EXPECT_EQ(stages("Ett|tt|ttL"), (Stages{2, 2, 2}));
  EXPECT_EQ(stages("E|(tt|)*3,L"), (Stages{0, 2, 2, 2, 0}));
  EXPECT_EQ(stages("Et*3|(tt|)*29,t|L").size(), 32u);
  EXPECT_EQ(stages("Et*3|(tt|)*29,t|L")[0], 3);
  EXPECT_EQ(stages("Et*3|(tt|)*29,t|L").back(), 0);
  EXPECT_EQ(stages("E,t|(t*2|t|)*2t,L"), (Stages{1, 2, 1, 2, 1, 1}));
  EXPECT_EQ(stages("((Et))|(t)*1L"), (Stages{1, 1}));
  EXPECT_EQ(stages("Ett||L"), (Stages{2, 0, 0}));
  EXPECT_EQ(stages("Et|tmL"), (Stages{1, 2}));
  EXPECT_EQ(stages("Et*3|(tt|)*2,t|m|L"), (Stages{3, 2, 2, 1, 1, 0}));
  for (const auto& [text, part] : std::vector<std::pair<std::string, std::string>>{
           {"tt|ttL", "E once"},
           {"tt|EttL", "E once"},
           {"EEt|tL", "E once"},
           {"Ett|tt", "L once"},
           {"Et|Lt", "L once"},
           {"Et*2|tt|ttL|", "L once"},
           {"Etm|tL", "m after the last t"},
           {"Et|mt|L", "m after the last t"},
           {"Et|(tL", "\"(\" without"},
           {"Et)|tL", "\")\" at character 3"},
           {"Et*|tL", "without a number"},
           {"Et*0|tL", "without a number"},
           {"Ex|tL", "\"x\" at character 2"},
           {"E(((t*1000)*1000)*1000)*1000|L", "more than 65536"},
           {"E" + std::string(100000, '(') + "t", "more than 16 brackets"},
           {"", "E once"}})
    EXPECT_NE(parse_stage_layout(text).error.find(part), std::string::npos)
        << text << ": " << parse_stage_layout(text).error;
  EXPECT_EQ(parse(kGood, {"parallel.pp=2", "parallel.stages='Ett|ttL'"}).parallel.stages, (Stages{2, 2}));
  // Written as the list that it means.
  const Recipe r = parse(kGood, {"parallel.pp=2", "parallel.stages='Et|tttL'"});
  EXPECT_EQ(parse(to_toml(r)), r);
}

TEST(Recipe, ReshardAfterForwardTakesThreeForms) {
  using Kind = ReshardAfterForward::Kind;
  EXPECT_EQ(parse(kGood).parallel.reshard_after_forward, (ReshardAfterForward{Kind::Yes, 0}));
  EXPECT_EQ(parse(kGood, {"parallel.reshard_after_forward=false"}).parallel.reshard_after_forward,
            (ReshardAfterForward{Kind::No, 0}));
  EXPECT_EQ(parse(kGood, {"parallel.reshard_after_forward=2"}).parallel.reshard_after_forward,
            (ReshardAfterForward{Kind::ToRanks, 2}));
}

TEST(Recipe, SchedulesFillInTheirDecay) {
  using Unit = Length::Unit;
  const auto decay = [](std::vector<std::string> o) { return parse(kGood, o).optimizer.schedule.decay; };
  const auto steps = [](double n) { return Length{Unit::Steps, n}; };
  EXPECT_EQ(decay({}), steps(0));
  EXPECT_EQ(decay({"optimizer.schedule.kind=linear", "optimizer.schedule.warmup=30"}), steps(70));
  EXPECT_EQ(decay({"optimizer.schedule.kind=cosine", "optimizer.schedule.warmup=30", "run.steps=5"}),
            steps(1));
  EXPECT_EQ(decay({"optimizer.schedule.kind=wsd"}), steps(10));
  EXPECT_EQ(decay({"optimizer.schedule.kind=wsd", "run.steps=19"}), steps(1));
  EXPECT_EQ(decay({"optimizer.schedule.kind=wsd", "optimizer.schedule.decay=25"}), steps(25));
  EXPECT_EQ(decay({"optimizer.schedule.kind=wsd", "optimizer.schedule.decay=0.333"}), steps(33));
  EXPECT_EQ(decay({"optimizer.schedule.kind=inverse_sqrt", "optimizer.schedule.warmup=5"}), steps(0));
  // 100 steps of 16 sequences of 64 tokens; the rest of the run in the warm-up's unit.
  EXPECT_EQ(decay({"optimizer.schedule.kind=cosine", "optimizer.schedule.warmup='2.4K tokens'"}),
            (Length{Unit::Tokens, 102400 - 2400}));
  EXPECT_EQ(decay({"optimizer.schedule.kind=cosine", "optimizer.schedule.warmup='40 sequences'"}),
            (Length{Unit::Sequences, 1560}));
}

TEST(Recipe, LengthsTakeFourForms) {
  using Unit = Length::Unit;
  const auto warmup = [](const std::string& v) {
    return parse(kGood, {"optimizer.schedule.warmup=" + v}).optimizer.schedule.warmup;
  };
  EXPECT_EQ(warmup("7"), (Length{Unit::Steps, 7}));
  EXPECT_EQ(warmup("'7 steps'"), (Length{Unit::Steps, 7}));
  EXPECT_EQ(warmup("0.02"), (Length{Unit::Steps, 2})) << "a fraction of run.steps";
  EXPECT_EQ(warmup("0.0001"), (Length{Unit::Steps, 1}));
  EXPECT_EQ(warmup("0.0"), (Length{Unit::Steps, 0}));
  EXPECT_EQ(warmup("'2B tokens'"), (Length{Unit::Tokens, 2e9}));
  EXPECT_EQ(warmup("'1.1m tokens'"), (Length{Unit::Tokens, 1100000}));
  EXPECT_EQ(warmup("'1 sequence'"), (Length{Unit::Sequences, 1}));
  for (const char* text : {"2B", "tokens", "-1 tokens", "0.5 tokens", "2B tokenz", "1e9 tokens",
                           "99999999T tokens", "2BB tokens", ""})
    EXPECT_FALSE(parse_length(text)) << text;
  for (const double count : {1.0, 999.0, 1000.0, 1500.0, 2e9, 3e12, 123456789.0})
    for (const Unit unit : {Unit::Steps, Unit::Sequences, Unit::Tokens}) {
      const Length length{unit, count};
      EXPECT_EQ(parse_length(length_text(length)), length) << length_text(length);
    }
}

TEST(Recipe, CheckpointIntervalsAreReadAndPrinted) {
  using Unit = SaveInterval::Unit;
  EXPECT_EQ(parse_interval("90s"), (SaveInterval{Unit::Seconds, 90}));
  EXPECT_EQ(parse_interval("10min"), (SaveInterval{Unit::Seconds, 600}));
  EXPECT_EQ(parse_interval("2 h"), (SaveInterval{Unit::Seconds, 7200}));
  EXPECT_EQ(parse_interval("200 steps"), (SaveInterval{Unit::Steps, 200}));
  EXPECT_EQ(parse_interval("auto"), (SaveInterval{Unit::Auto, 0}));
  for (const char* text : {"", "0s", "-1s", "10", "10 weeks", "1.5h", "1e9h", "min", "99999999999999999999s"})
    EXPECT_FALSE(parse_interval(text)) << text;
  for (const SaveInterval& interval :
       {SaveInterval{Unit::Seconds, 61}, SaveInterval{Unit::Seconds, 120}, SaveInterval{Unit::Steps, 1},
        SaveInterval{Unit::Seconds, 3600}, SaveInterval{Unit::Auto, 0}})
    EXPECT_EQ(parse_interval(interval_text(interval)), interval) << interval_text(interval);
}

TEST(Recipe, TheNearestCheckpointIntervalIsNamed) {
  for (const auto& [given, nearest] :
       std::map<std::string, std::string>{{"\"1.5min\"", "\"90s\""},
                                          {"\"1h30min\"", "\"90min\""},
                                          {"\"2 d\"", "\"48h\""},
                                          {"\" 10min \"", "\"10min\""},
                                          {"\"0.2s\"", "\"1s\""},
                                          {"\"99999999999999h\"", "\"1073741824s\""},
                                          {"\"automatic\"", "\"auto\""},
                                          {"\"5\"", "5"},
                                          {"-3", "0"},
                                          {"1.5", "2"},
                                          {"9223372036854775807", "1073741824"},
                                          {"\"0s\"", "\"10min\""},
                                          {"\"-1min\"", "\"10min\""},
                                          {"\"3 weeks\"", "\"10min\""},
                                          {"\"min\"", "\"10min\""},
                                          {"true", "\"10min\""},
                                          {"[5]", "\"10min\""}}) {
    SCOPED_TRACE(given);
    const std::string message = test::user_error(
        [&, &given = given] { parse("name = \"x\"\n[checkpoint]\nevery = " + given + "\n", {}, "recipe"); });
    EXPECT_CONTAINS(message, "; nearest: " + nearest + " [");
  }
}

// Stages end with whole steps, and every step begins where the one before ended.
TEST(BatchRamp, CountsEverySequenceOnce) {
  Recipe r = parse(kGood);
  r.run.steps = 30;
  r.batch.ramp = {{{Length::Unit::Sequences, 20}, 8},
                  {{Length::Unit::Tokens, 64 * 50}, 12},
                  {{Length::Unit::Steps, 9}, 14}};
  const BatchRamp ramp(r);
  // 3 steps of 8 reach 24 >= 20; 3 steps of 12 reach 60 >= 50; then steps until 9.
  ASSERT_EQ(ramp.stages().size(), 4u);
  const int64_t first_step[] = {0, 3, 6, 9}, first_sequence[] = {0, 24, 60, 102};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(ramp.stages()[i].first_step, first_step[i]) << i;
    EXPECT_EQ(ramp.stages()[i].first_sequence, first_sequence[i]) << i;
  }
  int64_t consumed = 0;
  for (int64_t step = 0; step < 30; ++step) {
    EXPECT_EQ(ramp.after(step).sequences, consumed);
    consumed += ramp.at(step).global;
    for (int64_t n = ramp.after(step).sequences + 1; n <= consumed; ++n)
      EXPECT_EQ(ramp.steps_until({Length::Unit::Sequences, static_cast<double>(n)}), step + 1) << n;
  }
  EXPECT_EQ(ramp.end().sequences, 102 + 21 * 16);
  EXPECT_EQ(ramp.end().tokens, 64 * ramp.end().sequences);
}

TEST(Recipe, ModelKeysOverrideThePreset) {
  Model m = parse(kGood, {"model.layers=2"}).model;
  EXPECT_EQ(m.layers, 2);
  EXPECT_EQ(m.embed, 128);
  m = parse(kGood, {"model.embed=64"}).model;
  EXPECT_EQ(m.head_dim, 16) << "derived from embed, as in the preset";
  EXPECT_EQ(m.ffn, 352);
  m = parse(kGood, {"model.preset=qwen3-tiny", "model.embed=64"}).model;
  EXPECT_EQ(m.head_dim, 64) << "explicit in the preset";
  m = parse(kGood, {"model.preset=gpt2-tiny", "model.embed=96", "model.heads=6"}).model;
  EXPECT_EQ(m.head_dim, 16);
  EXPECT_EQ(m.kv_heads, 6);
  EXPECT_EQ(m.ffn, 384);
  m = parse(kGood, {"model.preset=llama3-8b", "model.rope_scaling.kind=none"}).model;
  EXPECT_EQ(m.rope_scaling, RopeScaling{});
  m = parse(kGood, {"model.preset=llama3-8b", "model.rope_scaling.factor=4"}).model;
  EXPECT_EQ(m.rope_scaling.kind, RopeScalingKind::Llama3);
  EXPECT_EQ(m.rope_scaling.factor, 4);
  EXPECT_EQ(m.rope_scaling.original_positions, 8192);
}

TEST(Recipe, ExpertKeysOverrideThePreset) {
  EXPECT_EQ(parse(kGood,
                  {"model.preset=llama-tiny", "model.moe.experts=4", "model.moe.top_k=2", "model.moe.ffn=64"})
                .model.ffn,
            64)
      << "no block has the preset's width";
  Model m = parse(kGood, {"model.preset=tiny-moe", "model.moe.ffn=64"}).model;
  EXPECT_EQ(m.moe.ffn, 64);
  EXPECT_EQ(m.ffn, 64) << "one width with two names";
  m = parse(kGood, {"model.preset=mixtral-8x7b", "model.ffn=1024"}).model;
  EXPECT_EQ(m.moe.ffn, 1024);
  m = parse(kGood, {"model.preset=tiny-moe", "model.moe.first_dense=1", "model.ffn=352", "model.moe.ffn=176"})
          .model;
  EXPECT_EQ(m.ffn, 352);
  EXPECT_FALSE(m.moe.in_block(0));
  EXPECT_TRUE(m.moe.in_block(1));
  m = parse(kGood, {"model.preset=tiny-moe", "model.moe.experts=0"}).model;
  EXPECT_EQ(m.moe, Moe{}) << "a dense model";
  EXPECT_EQ(m.ffn, 176);
  m = parse(kGood, {"model.preset=tiny-deepseek", "model.mla.kv_rank=0", "model.moe.experts=0"}).model;
  EXPECT_EQ(m.mla, Mla{});
  EXPECT_EQ(m.head_dim, 32);
  m = parse(kGood, {"model.preset=tiny-deepseek", "model.mla.rope_dim=8", "model.heads=8"}).model;
  EXPECT_EQ(m.head_dim, 40);
  EXPECT_EQ(m.kv_heads, 8);
  m = parse(kGood, {"model.moe.experts=4", "model.moe.top_k=1"}).model;
  EXPECT_EQ(m.moe.ffn, m.ffn);
}

TEST(Recipe, AModelWithoutAPresetGetsTheFamilysDefaults) {
  const std::string text =
      "[model]\nlayers = 2\nembed = 64\nffn = 96\nheads = 4\n[data]\nseq_len = 8\n[optimizer]\nlr = "
      "1e-3\n[run]\nsteps=1\n";
  const Model m = parse(text).model;
  EXPECT_EQ(m.family, Family::Llama);
  EXPECT_EQ(m.kv_heads, 4);
  EXPECT_EQ(m.head_dim, 16);
  EXPECT_EQ(m.vocab, 256);
  EXPECT_EQ(m.rope_theta, 10000);
  const Model y = parse(text, {"model.rope_scaling={kind='yarn', factor=4, original_positions=2}"}).model;
  EXPECT_EQ(y.rope_scaling.attention_factor, 0.1 * std::log(4.0) + 1);
}

TEST(Recipe, PresetsAreLegalAndNamedOnce) {
  EXPECT_EQ(presets().size(), 66u);
  for (const Model& preset : presets()) {
    EXPECT_EQ(find_preset(preset.preset), &preset) << preset.preset;
    const Recipe r = parse(kGood, {"model.preset=" + preset.preset, "parallel.tp=1"});
    EXPECT_EQ(r.model, preset) << preset.preset << " is fully resolved";
  }
  EXPECT_EQ(find_preset("nothing"), nullptr);
  // Initialisation as the authors document it.
  EXPECT_EQ(find_preset("pythia-12b")->init, InitScheme::Neox);
  EXPECT_EQ(std::pair(find_preset("deepseek-v3")->init, find_preset("deepseek-v3")->init_stddev),
            std::pair(InitScheme::Normal, 0.006));
}

TEST(Recipe, AFlagshipLayoutIsLegal) {
  const Recipe r = parse(kGood, {"model.preset=llama3-405b", "parallel.tp=8", "parallel.dp_shard=128",
                                 "parallel.sequence_parallel=true", "batch={micro=1, accumulation=16}",
                                 "data.seq_len=8192", "precision.compute=bf16", "data.path=[]"});
  EXPECT_EQ(r.batch.global, 2048);
  EXPECT_EQ(r.parallel.world(), 1024);
}

TEST(Recipe, PaddedExpertsWorkWithEverySharding) {
  for (const char* cut : {"parallel.tp=2", "parallel.cp=2", "parallel.sequence_parallel=true"})
    EXPECT_TRUE(
        parse(kGood, {"model.preset='tiny-moe'", "model.moe.capacity_factor=1", "model.moe.pad=true", cut})
            .model.moe.pad)
        << cut;
}

TEST(Recipe, TpMayExceedKvHeadsAsAMultiple) {
  EXPECT_EQ(parse(kGood, {"parallel.tp=4"}).parallel.tp, 4);  // 2 KV heads
}

// Over all small triples: missing sizes are derived, and the recipe is accepted exactly when the division is
// exact.
TEST(Recipe, BatchArithmeticHoldsForEveryWayToWriteIt) {
  for (int64_t dp : {1, 2, 3})
    for (int64_t micro = 1; micro <= 4; ++micro)
      for (int64_t accumulation = 1; accumulation <= 4; ++accumulation) {
        const Batch full{micro * accumulation * dp, micro, accumulation};
        for (int given = 0; given < 8; ++given) {
          Recipe r = parse(kGood, {"parallel.dp_shard=1", "parallel.zero=0"});
          r.parallel.dp_replicate = dp;
          r.batch = {given & 1 ? full.global : 0, given & 2 ? micro : 0, given & 4 ? accumulation : 0};
          const Batch b = resolve(r).batch;
          EXPECT_EQ(b.global, b.micro * b.accumulation * dp);
          if (given & 1) {
            EXPECT_EQ(b.global, full.global);
          }
          if (given & 2) {
            EXPECT_EQ(b.micro, micro);
          }
          if (given & 4) {
            EXPECT_EQ(b.accumulation, accumulation);
          }
          const int how_many = (given & 1) + (given >> 1 & 1) + (given >> 2 & 1);
          if (how_many >= 2) {
            EXPECT_EQ(b, full);
          }
        }
        Recipe r = parse(kGood, {"parallel.dp_shard=1", "parallel.zero=0"});
        r.parallel.dp_replicate = dp;
        r.batch = full;
        r.batch.global += 1;
        EXPECT_THROW(resolve(r), RecipeError);
      }
}

TEST(Recipe, ResolvingTwiceChangesNothing) {
  const Recipe r = parse(kGood);
  EXPECT_EQ(resolve(r), r);
}

TEST(Recipe, AWorldThatDoesNotFitIsExplained) {
  const Recipe r = parse(kGood);  // dp_shard 4 x tp 2
  EXPECT_NO_THROW(check_world(r, 8));
  const auto message = [&](int64_t world) -> std::string {
    try {
      check_world(r, world);
    } catch (const base::UserError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_NE(message(4).find("dp_replicate 1 x dp_shard 4 x tp 2 needs 8 ranks, but 4 were started"),
            std::string::npos)
      << message(4);
  EXPECT_NE(message(4).find(
                "8 ranks, or --set parallel.dp_shard=2 --set batch.accumulation=4, or --set parallel.tp=1"),
            std::string::npos)
      << message(4);
  // dp_replicate 2 fits the batch of 16 = micro 2 x accumulation 1 x dp 8 once accumulation may change.
  EXPECT_NE(message(16).find("--set parallel.dp_replicate=2"), std::string::npos) << message(16);
  EXPECT_EQ(message(7).find("--set"), std::string::npos) << message(7);
  EXPECT_NE(message(0).find("but 0 were started"), std::string::npos) << message(0);
}

TEST(Recipe, PathsAreRelativeToTheFileAndInOverridesToTheWorkingDirectory) {
  const test::TempFolder folder;
  std::string text = kGood;
  text.replace(text.find("[run]"), 5, "[run]\ndir = \"out\"");
  base::make_directories(folder / "text");
  base::write_file_atomically(folder / "recipe.toml", text);
  const std::string file = (folder / "recipe.toml").string();
  EXPECT_EQ(load(file).data.path, std::vector<std::string>{(folder / "text").string()});
  EXPECT_EQ(load(file).run.dir, (folder / "out").string());
  const std::string here = std::filesystem::current_path().string() + "/";
  EXPECT_EQ(load(file, {"data.path=['a']", "run.dir=b"}).data.path, std::vector<std::string>{here + "a"});
  EXPECT_EQ(load(file, {"data.path=['a']", "run.dir=b"}).run.dir, here + "b");
  for (const char* key : {"run.dir", "checkpoint.dir"})  // as from an unset shell variable
    EXPECT_NE(test::user_error([&] {
                load(file, {fmt::format("{}=''", key)});
              }).find(fmt::format("{}: is empty", key)),
              std::string::npos);
  base::write_file_atomically(folder / "resolved.toml", to_toml(load(file)));
  EXPECT_EQ(load((folder / "resolved.toml").string()).checkpoint.dir, "") << "in a file it is the run folder";
}

// Nesting as deep would overflow the stack when the tree is taken apart.
TEST(Recipe, KeysOfManyPartsAreRefused) {
  const std::string part = "a recipe has keys of at most 32";
  std::string key = "a";
  for (int i = 0; i < 50'000; ++i) key += ".a";
  for (const std::string& text : {key + " = 1", "[" + key + "]", "x = {" + key + " = 1}", key + ".\"b\" = 1",
                                  "'" + key + "'." + key + " = 1"})
    EXPECT_NE(test::user_error([&] { parse(text); }).find(part), std::string::npos);
  EXPECT_NE(test::user_error([&] { parse(kGood, {key + "=1"}); }).find(part), std::string::npos);
  const std::string dots(1000, '.');
  for (const std::string& harmless :
       {"# " + dots, "[data]\nend = \"" + dots + "\"", "[data]\nend = '''\n" + dots + "'''",
        "[data]\nend = \"\\\"" + dots + "\"", "[data]\nend = '\\'\n# " + dots})
    EXPECT_EQ(test::user_error([&] { parse(harmless); }).find(part), std::string::npos) << harmless;
}

TEST(Recipe, ALongUnknownKeyIsRefusedAtOnce) {
  const std::string message = test::user_error([&] { parse(std::string(1'000'000, 'k') + " = 1"); });
  EXPECT_NE(message.find("kkk... (line 1): is not a recipe key"), std::string::npos);
  EXPECT_LT(message.size(), 10'000u);
  const std::string word =
      test::user_error([&] { parse(kGood, {"run.device=" + std::string(1'000'000, 'k')}); });
  EXPECT_NE(word.find("kkk...\""), std::string::npos);
  EXPECT_LT(word.size(), 10'000u);
}

}  // namespace
}  // namespace quintet::config
