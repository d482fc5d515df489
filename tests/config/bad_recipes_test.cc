// Invalid recipes, each rejected for one reason, with a message that gives the key, the values and a
// suggestion. Every rule must be violated at least once.
#include "config/bad_recipes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "config/codes.h"
#include "config/support.h"
#include "config/validate.h"

namespace quintet::config {
namespace {

<<<<<<< HEAD
=======
std::vector<Bad> other_bad_recipes() {
  return {
      // Keys.
      {{"modle.layers=2"}, "unknown key", "modle.layers", {"not a recipe key"}, "model.layers"},
      {{"parallel.dp_shrd=2"}, "unknown key", "parallel.dp_shrd", {"not a recipe key"}, "parallel.dp_shard"},
      {{"tp=2"}, "unknown key", "tp", {"not a recipe key"}, "parallel.tp"},
      {{"run.learning_rate=1"}, "unknown key", "run.learning_rate", {"not a recipe key"}, "optimizer.lr"},
      {{"optimizer.shedule.kind='linear'"},
       "unknown key",
       "optimizer.shedule.kind",
       {"not a recipe key"},
       "optimizer.schedule.kind"},
      {{"extra={}"}, "unknown key", "extra", {"not a recipe key"}, ""},
      {{"batch.size=4"}, "unknown key", "batch.size", {"not a recipe key"}, ""},
      {{"model.n_heads=4"}, "unknown key", "model.n_heads", {"not a recipe key"}, "model.heads"},
      {{"loss=3"}, "type", "loss", {"section", "3"}, "[loss]"},
      {{"model.layers={a=1}"}, "type", "model.layers", {"must be a value, not a section"}, ""},
      // Types.
      {{"model.layers='four'"}, "type", "model.layers", {"an integer", "\"four\""}, ""},
      {{"model.layers=4.5"}, "type", "model.layers", {"an integer", "4.5"}, ""},
      {{"model.tied=1"}, "type", "model.tied", {"true or false", "got 1"}, ""},
      {{"optimizer.lr='fast'"}, "type", "optimizer.lr", {"a number", "fast"}, ""},
      {{"optimizer.betas=[0.9]"}, "type", "optimizer.betas", {"two numbers"}, "[0.9, 0.95]"},
      {{"optimizer.betas=0.9"}, "type", "optimizer.betas", {"two numbers", "0.9"}, "[0.9, 0.95]"},
      {{"data.path=3"}, "type", "data.path", {"a string or a list of strings", "3"}, ""},
      {{"data.path=['a', 3]"}, "type", "data.path", {"a list of strings", "3"}, ""},
      {{"name=3"}, "type", "name", {"a string", "3"}, ""},
      {{"parallel.reshard_after_forward='yes'"},
       "type",
       "parallel.reshard_after_forward",
       {"true, false or a number"},
       ""},
      {{"optimizer.name='adamww'"}, "type", "optimizer.name", {"\"lion\"", "\"adamww\""}, "\"adamw\""},
      {{"optimizer.nesterov=true"},
       "optimizer keys match optimizer.name",
       "optimizer.nesterov",
       {"no effect"},
       "false"},
      {{"optimizer.name='muon'", "optimizer.muon.momentum=0"},
       "optimizer keys match optimizer.name",
       "optimizer.muon.nesterov",
       {"no effect"},
       "optimizer.muon.momentum"},
      {{"optimizer.adafactor.clip=2.0"},
       "optimizer keys match optimizer.name",
       "optimizer.adafactor.clip",
       {"2", "no effect"},
       "1"},
      {{"optimizer.muon.scale='original'"},
       "optimizer keys match optimizer.name",
       "optimizer.muon.scale",
       {"no effect"},
       "match_rms_adamw"},
      {{"optimizer.block_size=128"},
       "optimizer.block_size is a power of two and belongs to adamw8bit",
       "optimizer.block_size",
       {"128", "no effect"},
       "256"},
      {{"optimizer.name=adamw8bit", "optimizer.block_size=64"},
       "adamw8bit: optimizer.block_size divides what a rank holds of a row",
       "parallel.tp",
       {"352 / 2 = 176", "feed-forward", "block_size 64"},
       "1, or optimizer.block_size 16"},
      {{"optimizer.name=adamw8bit", "optimizer.block_size=24", "parallel.tp=1"},
       "optimizer.block_size is a power of two and belongs to adamw8bit",
       "optimizer.block_size",
       {"24"},
       "16 or 32"},
      {{"optimizer.ema=1.0"}, "limits", "optimizer.ema", {"below 1"}, ""},
      {{"model.family='lama'"}, "type", "model.family", {"\"llama\", \"gpt2\", \"custom\""}, "\"llama\""},
      {{"optimizer.schedule.kind='cosin'"}, "type", "optimizer.schedule.kind", {"\"cosin\""}, "\"cosine\""},
      {{"precision.compute='fp32'"},
       "type",
       "precision.compute",
       {"\"f64\", \"f32\", \"bf16\", \"f16\"", "\"fp32\""},
       "\"f32\""},
      {{"precision.moments='fp32'"},
       "type",
       "precision.moments",
       {"must be one of \"f64\", \"f32\", \"bf16\", got"},
       "\"f32\""},
      {{"precision.master='fp32'"},
       "type",
       "precision.master",
       {"must be one of \"f64\", \"f32\", \"split\", got"},
       "\"f32\""},
      {{"run.backend='tcp'"}, "type", "run.backend", {"\"auto\", \"local\", \"mpi\"", "\"tcp\""}, ""},
      {{"run.device='tpu'"},
       "type",
       "run.device",
       {"must be one of \"cpu\", \"cuda\"", "\"tpu\""},
       "\"cpu\""},
      {{"run.device='gpu'"}, "type", "run.device", {"\"gpu\""}, "\"cuda\""},
      {{"run.device='GPU'"}, "type", "run.device", {"\"GPU\""}, "\"cuda\""},
      {{"run.device='nvidia'"}, "type", "run.device", {"\"nvidia\""}, "\"cuda\""},
      {{"run.device='CUDA'"}, "type", "run.device", {"\"CUDA\""}, "\"cuda\""},
      {{"run.device='CPU'"}, "type", "run.device", {"\"CPU\""}, "\"cpu\""},
      {{"Run.Device='cuda'"}, "unknown key", "Run.Device", {"not a recipe key"}, "run.device"},
      {{"precision.compute='BFloat16'"}, "type", "precision.compute", {"\"BFloat16\""}, "\"bf16\""},
      {{"precision.compute='float32'"}, "type", "precision.compute", {"\"float32\""}, "\"f32\""},
      // Limits of one value.
      {{"model.layers=0"}, "limits", "model.layers", {"at least 1", "got 0"}, "1"},
      {{"model.layers=-3"}, "limits", "model.layers", {"at least 1", "got -3"}, "1"},
      {{"model.embed=0"}, "limits", "model.embed", {"at least 1", "got 0"}, "1"},
      {{"model.kv_heads=0"}, "limits", "model.kv_heads", {"at least 1", "got 0"}, "1"},
      {{"model.vocab=-1"}, "limits", "model.vocab", {"at least 1", "got -1"}, "1"},
      {{"model.norm_eps=0"}, "limits", "model.norm_eps", {"above 0", "got 0"}, ""},
      {{"model.sliding_window=-1"}, "limits", "model.sliding_window", {"at least 0", "got -1"}, "0"},
      {{"data.seq_len=0"}, "limits", "data.seq_len", {"at least 1", "got 0"}, "1"},
      {{"data.validation_fraction=1.0"}, "limits", "data.validation_fraction", {"below 1", "got 1"}, ""},
      {{"batch.micro=0"}, "limits", "batch.micro", {"at least 1", "got 0"}, "1"},
      {{"batch.global=-16"}, "limits", "batch.global", {"at least 1", "got -16"}, "1"},
      {{"parallel.tp=0"}, "limits", "parallel.tp", {"at least 1", "got 0"}, "1"},
      {{"parallel.dp_shard=-2"}, "limits", "parallel.dp_shard", {"at least 1", "got -2"}, "1"},
      {{"parallel.dp_replicate=9223372036854775807"},
       "limits",
       "parallel.dp_replicate",
       {"at most 65536"},
       "65536"},
      {{"parallel.zero=4"}, "limits", "parallel.zero", {"at most 3", "got 4"}, "3"},
      {{"parallel.prefetch=-1"}, "limits", "parallel.prefetch", {"at least 0", "got -1"}, "0"},
      {{"optimizer.lr=0"}, "limits", "optimizer.lr", {"above 0", "got 0"}, ""},
      {{"optimizer.lr=inf"}, "limits", "optimizer.lr", {"above 0", "got inf"}, ""},
      {{"optimizer.lr=nan"}, "limits", "optimizer.lr", {"above 0", "got nan"}, ""},
      {{"optimizer.betas=[0.9, 1.0]"}, "limits", "optimizer.betas", {"below 1", "got 1"}, ""},
      {{"optimizer.clip_norm=-1"}, "limits", "optimizer.clip_norm", {"at least 0", "got -1"}, "0"},
      {{"optimizer.schedule.min_lr_ratio=1.5", "optimizer.schedule.kind='cosine'"},
       "limits",
       "optimizer.schedule.min_lr_ratio",
       {"at most 1", "got 1.5"},
       "1"},
      {{"run.steps=0"}, "limits", "run.steps", {"at least 1", "got 0"}, "1"},
      {{"run.seed=-1"}, "limits", "run.seed", {"at least 0", "got -1"}, "0"},
      {{"eval.batches=0"}, "limits", "eval.batches", {"at least 1", "got 0"}, "1"},
      {{"run.log_every=0"}, "limits", "run.log_every", {"at least 1", "got 0"}, "1"},
      {{"run.timeout=0"}, "limits", "run.timeout", {"at least 1", "got 0"}, "1"},
      // Not supported yet.
      {{"memory.offload='host'"},
       "supported in this version",
       "memory.offload",
       {"not supported yet"},
       "\"none\""},
      {{"model.hf='some/path'"},
       "supported in this version",
       "model.hf",
       {"not supported yet"},
       "leave it out"},
      {{"checkpoint.every='10 weeks'"}, "type", "checkpoint.every", {"10 weeks", "\"90s\""}, "\"10min\""},
      {{"checkpoint.every=-1"}, "type", "checkpoint.every", {"must be a number of steps"}, "\"10min\""},
      {{"checkpoint.peer_every=1", "parallel.dp_shard=1", "parallel.zero=0", "parallel.tp=1"},
       "copies in another rank's memory need another rank",
       "checkpoint.peer_every",
       {"there is only one"},
       "0"},
      {{"checkpoint.keep=0"}, "limits", "checkpoint.keep", {"at least 1"}, "1"},
      {{"run.backend='gloo'"},
       "supported in this version",
       "run.backend",
       {"\"gloo\" is not supported yet"},
       "\"auto\""},
      {{"run.backend='NCCL'"},
       "type",
       "run.backend",
       {"\"NCCL\" is used between GPUs automatically"},
       "\"auto\""},
      {{"precision.compute='tf32'"}, "type", "precision.compute", {"precision.tf32 = true"}, "\"f32\""},
      {{"precision.compute='fp8'"},
       "supported in this version",
       "precision.compute",
       {"\"fp8\" is not supported yet"},
       "\"bf16\""},
      // Names and paths.
      {{"name='a/b'"}, "name is a valid file name", "name", {"\"a/b\""}, "\"a-b\""},
      {{"name=''"}, "name is a valid file name", "name", {"\"\""}, "\"run\""},
      {{"name='..'"}, "name is a valid file name", "name", {"\"..\""}, "\"-.\""},
      {{"model.preset='llama3-9b'"},
       "model.preset is a known preset",
       "model.preset",
       {"\"llama3-9b\"", "llama3-405b"},
       "\"llama3-8b\""},
      {{"model.preset='bert'"},
       "model.preset is a known preset",
       "model.preset",
       {"\"bert\"", "gpt2-xl"},
       ""},
      {{"data.tokenizer='tokenizer.json'"},
       "data.tokenizer can be loaded",
       "data.tokenizer",
       {"unknown tokenizer", "tokenizer.json'"},
       "\"bytes\""},
      {{"data.path=''"}, "data.path has no empty entries", "data.path", {"empty entry"}, ""},
      {{"optimizer.freeze=['embed*', 'head.weight']"},
       "supported in this version",
       "optimizer.freeze",
       {"no longer a key", "first match applies"},
       "optimizer.groups = [{ match = \"embed*\", update = false }, { match = \"head.weight\", update = "
       "false }]"},
      {{"optimizer.clip=inf", "optimizer.clip_norm=0"},
       "optimizer.clip requires optimizer.clip_norm",
       "optimizer.clip",
       {"no effect", "clip_norm = 0"},
       "\"norm\""},
      {{"optimizer.name=lamb", "optimizer.momentum=0.9"},
       "optimizer keys match optimizer.name",
       "optimizer.momentum",
       {"no effect", "lamb"},
       "0"},
      {{"optimizer.trust=0.1"},
       "optimizer keys match optimizer.name",
       "optimizer.trust",
       {"no effect"},
       "0.001"},
      {{"optimizer.groups=[{lr=1e-3}]"},
       "optimizer.groups have a pattern and settings in range",
       "optimizer.groups",
       {"group without match"},
       "match = \"*\""},
      {{"optimizer.groups=['embed*']"},
       "type",
       "optimizer.groups",
       {"a list of tables", "embed*"},
       "[{ match = \"embed*\", update = false }]"},
      {{"optimizer.groups=[{match='*', rate=1}]"},
       "unknown key",
       "optimizer.groups.rate",
       {"not a key of a parameter group"},
       "match, name, lr, weight_decay, update"},
      {{"optimizer.groups=[{match='*', name='adamv'}]"},
       "type",
       "optimizer.groups.name",
       {"adamv"},
       "\"adamw\""},
      {{"optimizer.groups=[{match='*', lr=0}]"},
       "optimizer.groups have a pattern and settings in range",
       "optimizer.groups",
       {"lr must be above 0, got 0"},
       "update = false"},
      {{"optimizer.groups=[{match='*', weight_decay=-1}]"},
       "optimizer.groups have a pattern and settings in range",
       "optimizer.groups",
       {"weight_decay must be at least 0, got -1"},
       "weight_decay = 0"},
      {{"optimizer.groups=[{match='e*', lr=1e-3, update=false}]"},
       "optimizer.groups have a pattern and settings in range",
       "optimizer.groups",
       {"have no effect with update = false"},
       "{ match = \"e*\", update = false }"},
      // Model geometry.
      {{"model.family='gpt2'"},
       "model.family matches model.preset",
       "model.family",
       {"llama-tiny"},
       "\"llama\""},
      {{"model.vocab=255"}, "model.vocab covers the tokenizer", "model.vocab", {"255", "256 tokens"}, "256"},
      {{"model.heads=6", "model.kv_heads=4", "model.head_dim=32"},
       "model.kv_heads divides model.heads",
       "model.kv_heads",
       {"4 does not divide model.heads 6"},
       "3 or 6"},
      {{"model.head_dim=33"}, "model.head_dim is even", "model.head_dim", {"33 is odd"}, "32 or 34"},
      {{"model.embed=130"},
       "model.head_dim = model.embed / model.heads",
       "model.head_dim",
       {"embed 130", "heads 4"},
       "128 or 132"},
      {{"model.preset='gpt2-tiny'", "model.head_dim=16"},
       "gpt2: model.embed = heads x head_dim",
       "model.embed",
       {"128", "heads 4 x model.head_dim 16 = 64"},
       "64"},
      {{"model.preset='gpt2-tiny'", "model.kv_heads=2"},
       "gpt2: model.kv_heads = model.heads",
       "model.kv_heads",
       {"2 must equal model.heads 4"},
       "4"},
      {{"model.preset='gpt2-tiny'", "model.rope_theta=10000"},
       "llama keys are used only in family llama",
       "model.rope_theta",
       {"10000 has no effect in family gpt2"},
       "0"},
      {{"model.preset='gpt2-tiny'", "model.qkv_bias=true"},
       "llama keys are used only in family llama",
       "model.qkv_bias",
       {"no effect in family gpt2"},
       "false"},
      {{"model.preset='gpt2-tiny'", "model.qk_norm=true"},
       "llama keys are used only in family llama",
       "model.qk_norm",
       {"no effect in family gpt2"},
       "false"},
      {{"model.preset='gpt2-tiny'", "model.sliding_window=8"},
       "llama keys are used only in family llama",
       "model.sliding_window",
       {"8 has no effect in family gpt2"},
       "0"},
      {{"model.preset='gpt2-tiny'", "model.rope_scaling.kind='yarn'",
        "model.rope_scaling.original_positions=9"},
       "llama keys are used only in family llama",
       "model.rope_scaling.kind",
       {"\"yarn\" has no effect in family gpt2"},
       "\"none\""},
      {{"model.dropout=0.1"},
       "gpt2 keys are used only in family gpt2",
       "model.dropout",
       {"0.1 has no effect in family llama"},
       "0"},
      {{"model.max_positions=128"},
       "gpt2 keys are used only in family gpt2",
       "model.max_positions",
       {"128 has no effect in family llama"},
       "0"},
      {{"model.preset='gpt2-tiny'", "data.seq_len=1024"},
       "data.seq_len fits model.max_positions",
       "data.seq_len",
       {"1024 exceeds model.max_positions 512"},
       "512"},
      {{"model.preset='gpt2-tiny'", "model.max_positions=0"},
       "data.seq_len fits model.max_positions",
       "model.max_positions",
       {"is required"},
       "64"},
      {{"model.rope_scaling.factor=8"},
       "model.rope_scaling keys match its kind",
       "model.rope_scaling.factor",
       {"8 has no effect", "\"none\""},
       "1"},
      {{"model.preset='llama3-8b'", "model.rope_scaling.beta_fast=16"},
       "model.rope_scaling keys match its kind",
       "model.rope_scaling.beta_fast",
       {"16 has no effect", "\"llama3\""},
       "32"},
      {{"model.rope_theta=0.5"},
       "model.rope_theta is greater than 1",
       "model.rope_theta",
       {"0.5 must be greater than 1"},
       "10000"},
      {{"model.rope_scaling.kind='llama3'"},
       "model.rope_scaling.original_positions is set",
       "model.rope_scaling.original_positions",
       {"is required", "llama3"},
       "8192"},
      {{"model.preset='llama3-8b'", "model.rope_scaling.low_freq_factor=4"},
       "model.rope_scaling limits are ordered",
       "model.rope_scaling.low_freq_factor",
       {"4 must be less than high_freq_factor 4"},
       "1 with 4"},
      {{"model.rope_scaling.kind='yarn'", "model.rope_scaling.original_positions=64",
        "model.rope_scaling.beta_slow=40"},
       "model.rope_scaling limits are ordered",
       "model.rope_scaling.beta_slow",
       {"40 must be less than beta_fast 32"},
       "1 with 32"},
      // Memory.
      {{"memory.recompute_ops=['norm']"},
       "memory keys match memory.recompute",
       "memory.recompute_ops",
       {"has no effect", "none"},
       "[]"},
      {{"memory.recompute='fit'"},
       "memory keys match memory.recompute",
       "memory.budget",
       {"is required"},
       "\"6GiB\""},
      {{"memory.recompute='selective'", "memory.recompute_every=2"},
       "memory keys match memory.recompute",
       "memory.recompute_every",
       {"2 has no effect", "selective"},
       "1"},
      {{"memory.recompute='selective'", "memory.recompute_ops=['norms']"},
       "memory.recompute_ops are known op classes",
       "memory.recompute_ops",
       {"norms", "norm, activation"},
       "[\"norm\"]"},
      // Optimizer.
      {{"optimizer.momentum=0.9"},
       "optimizer keys match optimizer.name",
       "optimizer.momentum",
       {"0.9 has no effect", "adamw"},
       "0"},
      {{"optimizer.name='sgd'", "optimizer.betas=[0.8, 0.9]"},
       "optimizer keys match optimizer.name",
       "optimizer.betas",
       {"[0.8, 0.9] has no effect"},
       "[0.9, 0.95]"},
      {{"optimizer.name='sgd'", "optimizer.eps=1e-6"},
       "optimizer keys match optimizer.name",
       "optimizer.eps",
       {"1e-06 has no effect"},
       "1e-08"},
      {{"optimizer.schedule.decay=10"},
       "optimizer.schedule keys match its kind",
       "optimizer.schedule.decay",
       {"10 steps has no effect", "constant"},
       "0"},
      {{"optimizer.schedule.kind='cosine'", "optimizer.schedule.shape='1-sqrt'"},
       "optimizer.schedule keys match its kind",
       "optimizer.schedule.shape",
       {"\"1-sqrt\" has no effect", "cosine"},
       "\"linear\""},
      {{"optimizer.schedule.kind='cosine'", "optimizer.schedule.warmup='1K tokens'",
        "optimizer.schedule.decay=50"},
       "linear and cosine: optimizer.schedule.warmup and decay have one unit",
       "optimizer.schedule.decay",
       {"50 steps begins after a warm-up of 1K tokens"},
       "leave it out: decay until the end of the run"},
      {{"optimizer.schedule.warmup='2B'"},
       "type",
       "optimizer.schedule.warmup",
       {"a fraction of the run like 0.02", "\"2B tokens\"", "got \"2B\""},
       "\"2B tokens\""},
      {{"optimizer.schedule.warmup=1.5"}, "type", "optimizer.schedule.warmup", {"got 1.5"}, "\"2B tokens\""},
      {{"optimizer.weight_decay_ramp.final_ratio=0.5"},
       "optimizer.weight_decay_ramp has an effect",
       "optimizer.weight_decay_ramp.final_ratio",
       {"0.5 has no effect", "constant"},
       "1"},
      {{"batch.ramp=[{until=3}]"},
       "type",
       "batch.ramp",
       {"entry 1 has no global"},
       "[{until = \"1B tokens\", global = 256}]"},
      // What changes over a run.
      {{"batch.ramp=[{until=3, global=8}, {until=5, global=8}]"},
       "batch.ramp grows to batch.global",
       "batch.ramp",
       {"stage 1 has 8 sequences, stage 2 has 8"},
       "global = 7 or less in stage 1"},
      {{"batch.global=32", "batch.ramp=[{until=3, global=8}, {until='20 sequences', global=16}]"},
       "batch.ramp grows to batch.global",
       "batch.ramp",
       {"stage 2 ends at 20 sequences", "24 sequences are consumed"},
       "until = \"40 sequences\" or later in stage 2"},
      {{"batch.ramp=[{until=3, global=12}]"},
       "batch.ramp has multiples of micro x dp",
       "batch.ramp",
       {"12 is not a multiple of micro 2 x dp 4 = 8"},
       "8 or 16"},
      {{"batch.ramp=[{until=3, global=8}]", "parallel.pp=2", "parallel.schedule='interleaved'",
        "batch.global=16", "parallel.tp=1"},
       "steps of several sizes can be compiled",
       "batch.ramp",
       {"a step of 1 micro-batches", "groups of parallel.pp = 2"},
       "batches of multiples of 16 sequences"},
      {{"run.skip_spike.factor=3"},
       "run.skip_spike has an effect",
       "run.skip_spike.factor",
       {"3 has no effect"},
       "6"},
      {{"run.skip_spike.window=1"},
       "run.skip_spike has an effect",
       "run.skip_spike.window",
       {"no deviation"},
       "128"},
      {{"run.noise_scale_every=5", "run.noise_scale_batch=12"},
       "run.noise_scale_batch is a smaller batch",
       "run.noise_scale_batch",
       {"12 is not a multiple of micro 2 x dp 4 = 8"},
       "8"},
      {{"run.noise_scale_every=5", "run.noise_scale_batch=16"},
       "run.noise_scale_batch is a smaller batch",
       "run.noise_scale_batch",
       {"16 sequences are not fewer than batch.global 16"},
       "8"},
      {{"optimizer.schedule.min_lr_ratio=0.1"},
       "optimizer.schedule keys match its kind",
       "optimizer.schedule.min_lr_ratio",
       {"0.1 has no effect", "constant"},
       "0"},
      {{"optimizer.schedule.kind='inverse_sqrt'"},
       "inverse_sqrt requires optimizer.schedule.warmup",
       "optimizer.schedule.warmup",
       {"at least 1"},
       "1"},
      {{"optimizer.schedule.kind='wsd'", "optimizer.schedule.warmup=60", "optimizer.schedule.decay=50"},
       "wsd phases fit run.steps",
       "optimizer.schedule.decay",
       {"a warm-up of 60 steps and a decay of 50 steps", "run.steps 100"},
       "40"},
      // Evaluation.
      {{"eval.every=10"},
       "eval.every requires validation data",
       "eval.every",
       {"10", "validation_fraction is 0"},
       "0.05"},
  };
}

const std::vector<Bad>& bad_recipes() {
  static const std::vector<Bad> kBad = [] {
    std::vector<Bad> all = other_bad_recipes();
    for (const std::vector<Bad>& more : {bad_layouts(), bad_precision(), bad_custom_model()})
      all.insert(all.end(), more.begin(), more.end());
    return all;
  }();
  return kBad;
}

>>>>>>> 72dce7b (config: show Q1721 on a recipe of one rank)
TEST(BadRecipes, TheGoodOneIsGood) { EXPECT_TRUE(problems_with({}).empty()); }

TEST(BadRecipes, EachIsRefusedForItsReason) {
  EXPECT_GE(bad_recipes().size(), 60u);
  for (const Bad& bad : bad_recipes()) {
    std::string trace = "--set";
    for (const std::string& o : bad.overrides) trace += " " + o;
    SCOPED_TRACE(trace);
    const std::vector<Problem> problems = problems_with(bad.overrides);
    std::string all;
    for (const Problem& p : problems) all += to_string(p) + "\n";
    // One mistake gives one problem, without follow-up errors.
    ASSERT_EQ(problems.size(), 1u) << all;
    const Problem& p = problems[0];
    EXPECT_EQ(p.name, bad.name) << all;
    EXPECT_EQ(p.key, bad.key) << all;
    for (const std::string& part : bad.parts)
      EXPECT_NE(p.rule.find(part), std::string::npos) << part << "\nin " << all;
    if (bad.nearest.empty())
      EXPECT_EQ(p.nearest, "") << all;
    else
      EXPECT_NE(p.nearest.find(bad.nearest), std::string::npos) << bad.nearest << "\nin " << all;
  }
}

TEST(BadRecipes, EveryRuleIsViolatedOnce) {
  std::set<std::string> met;
  for (const Bad& bad : bad_recipes()) met.insert(bad.name);
  // In a recipe file these are notes.
  Recipe alone = parse(kGood);
  alone.parallel.dp_shard = alone.parallel.tp = 1;
  alone.parallel.sequence_parallel = true;
  for (const Problem& p : problems_of(alone)) met.insert(p.name);
  for (const std::string& name : rule_names())
    EXPECT_TRUE(met.contains(name)) << "no invalid recipe violates: " << name;
}

// Every rule has one code, and every example of a code violates its rule and is repaired by its fix.
TEST(BadRecipes, EveryRuleHasACodeWithAnExample) {
  std::set<std::string_view> codes, rules;
  for (const ProblemCode& c : problem_codes()) {
    EXPECT_TRUE(codes.insert(c.code).second) << c.code << " is given twice";
    EXPECT_TRUE(rules.insert(c.rule).second) << c.rule << " has two codes";
    EXPECT_TRUE(c.code.size() == 5 && c.code[0] == 'Q') << c.code;
    EXPECT_EQ(find_code(c.code), &c);
  }
  std::set<std::string> names;
  for (const std::string& name : rule_names()) names.insert(name);
  for (const Bad& bad : bad_recipes()) names.insert(bad.name);
  for (const std::string& name : names)
    EXPECT_FALSE(code_of(name).empty()) << "add a row to src/config/codes_table.cc for the rule: " << name;

  const auto lines = [](std::string_view text) {
    std::vector<std::string> all;
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      all.emplace_back(text.substr(at, end - at));
      at = end + 1;
    }
    return all;
  };
  for (const ProblemCode& c : problem_codes()) {
    SCOPED_TRACE(c.code);
    EXPECT_NE(explain(c).find(c.cause.substr(0, 20)), std::string::npos);
    if (c.bad.empty()) continue;
    std::vector<std::string> overrides = lines(c.bad);
    const std::vector<Problem> problems = problems_with(overrides, std::string(example_recipe()));
    ASSERT_FALSE(problems.empty());
    for (const Problem& p : problems) EXPECT_EQ(p.name, c.rule) << to_string(p);
    EXPECT_NE(explain(c).find(problems[0].key), std::string::npos);
    if (c.fix.empty()) continue;
    for (const std::string& line : lines(c.fix)) overrides.push_back(line);
    for (const Problem& p : problems_with(overrides, std::string(example_recipe())))
      ADD_FAILURE() << "the fix is refused: " << to_string(p);
  }
  EXPECT_EQ(find_code("q1210"), find_code("Q1210"));
  EXPECT_EQ(find_code("Q9999"), nullptr);
}

TEST(BadRecipes, ProblemsPointAtTheirValue) {
  const auto at = [](const std::string& text) {
    try {
      parse(text);
    } catch (const RecipeError& error) {
      return excerpt(error.problems().front());
    } catch (const base::UserError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const std::string rest = "[data]\nseq_len = 64\n[optimizer]\nlr = 1e-3\n[run]\nsteps = 3\n[model]\n";
  EXPECT_EQ(at(rest + "preset = \"llama-tiny\"\n[parallel]\n  tp    = 3  # three\n"),
            "10 |   tp    = 3  # three\n   |           ^\n");
  // An unknown key is marked itself; characters count, not bytes.
  EXPECT_EQ(at(rest + "preset = \"llama-tiny\" # \xc3\xa4\nlayres = 3\n"), "9 | layres = 3\n  | ^^^^^^\n");
  EXPECT_EQ(at(rest + "preset = \"lama-tiny\"\n"), "8 | preset = \"lama-tiny\"\n  |          ^^^^^^^^^^^\n");
  // Long lines are cut around the value.
  const std::string cut = at(rest + "preset = \"llama-tiny\"\n[optimizer.schedule]\n" + "kind = \"cosinus" +
                             std::string(100, 'x') + "\"\n");
  EXPECT_LE(cut.find('\n'), 66u) << cut;
  // A list's entries are shown at the list.
  EXPECT_NE(at("[optimizer]\nlr = 1e-3\ngroups = [{ match = \"a\", rate = 1 }]\n" + rest.substr(0, 20) +
               "[run]\nsteps = 3\n[model]\npreset = \"llama-tiny\"\n")
                .find("3 | groups = [{"),
            std::string::npos);
  const std::string broken = at("[model\n");
  EXPECT_NE(broken.find("1 | [model\n"), std::string::npos) << broken;
  EXPECT_TRUE(broken.ends_with("[Q1001]")) << broken;
}

TEST(BadRecipes, RequiredKeysAreNamedWhenMissing) {
  std::set<std::string> keys;
  try {
    parse("");
    FAIL() << "an empty recipe was accepted";
  } catch (const RecipeError& error) {
    for (const Problem& p : error.problems()) {
      EXPECT_NE(p.rule.find("is required"), std::string::npos) << to_string(p);
      keys.insert(p.key);
    }
  }
  EXPECT_EQ(keys, (std::set<std::string>{"model.layers", "model.embed", "model.ffn", "model.heads",
                                         "data.seq_len", "optimizer.lr", "run.steps"}));
}

TEST(BadRecipes, AllProblemsComeAtOnceWithTheirLines) {
  const std::string text =
      "[model]\npreset = \"llama-tiny\"\nlayres = 3\n[data]\nseq_len = -5\n[parallel]\ntp = 3\nep = 2\n"
      "[optimizer]\nlr = \"high\"\n[run]\nsteps = 10\n";
  try {
    parse(text, {"parallel.dp_shard=2", "parallel.zero=7"}, "bad.toml");
    FAIL() << "accepted";
  } catch (const RecipeError& error) {
    const std::string message = error.what();
    EXPECT_TRUE(message.starts_with("bad.toml: 8 problems\n")) << message;
    for (const char* part : {"model.layres (line 3): ", "nearest: model.layers", "data.seq_len (line 5): ",
                             "parallel.tp (line 7): 3 does not divide model.heads 4; nearest: 2 or 4",
                             "parallel.tp (line 7): 3 must divide model.kv_heads 2",
                             "parallel.tp (line 7): 3 does not divide model.ffn 352; nearest: 2 or 4",
                             "parallel.ep (line 8): 2 has no effect",
                             "optimizer.lr (line 10): must be a number", "parallel.zero: must be"})
      EXPECT_NE(message.find(part), std::string::npos) << part << "\nin " << message;
  }
}

// What has no effect at this size is a note: the recipe runs with the neutral value.
TEST(BadRecipes, OptionsWithoutEffectAtThisSizeAreNotes) {
  const auto notes_of = [](const std::vector<std::string>& overrides, Recipe* recipe = nullptr) {
    std::vector<std::string> notes;
    const Recipe r = parse(kGood, overrides, "recipe", &notes);
    if (recipe != nullptr) *recipe = r;
    return notes;
  };
  Recipe r;
  EXPECT_EQ(notes_of({"parallel.dp_shard=1", "batch.global=4"}, &r),
            std::vector<std::string>{
                "parallel.zero = 3 has no effect with parallel.dp_shard = 1 and parallel.cp = 1"});
  EXPECT_EQ(r.parallel.zero, 0);
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"parallel.tp=1", "parallel.sequence_parallel=true"}, "parallel.sequence_parallel = true"},
      {{"parallel.dp_shard=1", "parallel.reshard_after_forward=2"}, "parallel.reshard_after_forward = 2"},
      {{"parallel.dp_shard=1", "parallel.prefetch=3"}, "parallel.prefetch = 3"},
      {{"parallel.cp_method='ring'"}, "parallel.cp_method = \"ring\""},
      {{"parallel.ulysses=2"}, "parallel.ulysses = 2"},
      {{"parallel.schedule='1f1b'"}, "parallel.schedule = \"1f1b\""},
      {{"parallel.chunks=2"}, "parallel.chunks = 2"},
      {{"parallel.stages=[4]"}, "parallel.stages = "}};
  for (const auto& [overrides, part] : cases) {
    const auto notes = notes_of(overrides);
    ASSERT_FALSE(notes.empty()) << part;
    EXPECT_NE(notes.back().find(part), std::string::npos) << notes.back();
  }
  EXPECT_TRUE(notes_of({}).empty());
}

TEST(BadRecipes, OnlyFiftyProblemsAreListed) {
  std::string text = kGood + "[nonsense]\n";
  for (int i = 0; i < 20000; ++i) text += fmt::format("key_of_mine_{} = 1\n", i);
  try {
    parse(text);
    FAIL() << "accepted";
  } catch (const RecipeError& error) {
    EXPECT_EQ(error.problems().size(), 50u);
    EXPECT_EQ(error.left_out(), 19950u);
    EXPECT_NE(std::string(error.what()).find("20000 problems"), std::string::npos);
    EXPECT_TRUE(std::string(error.what()).ends_with("\n  and 19950 more"));
  }
}

// A suggestion that is followed must be accepted, whichever of the three sizes are given.
TEST(BadRecipes, SuggestedBatchSizesAreAccepted) {
  for (int64_t global = 1; global <= 40; ++global)
    for (int64_t micro = 0; micro <= 6; ++micro)
      for (int64_t accumulation = 0; accumulation <= 6; ++accumulation) {
        std::vector<std::string> sets = {fmt::format("batch.global={}", global), "parallel.dp_shard=2"};
        if (micro > 0) sets.push_back(fmt::format("batch.micro={}", micro));
        if (accumulation > 0) sets.push_back(fmt::format("batch.accumulation={}", accumulation));
        std::string text = kGood;
        text.replace(text.find("micro = 2\n"), 10, "");
        const auto problems = problems_with(sets, text);
        if (problems.empty()) continue;
        ASSERT_EQ(problems.size(), 1u);
        const std::string& near = problems[0].nearest;
        sets.push_back("batch.global=" + near.substr(0, near.find_first_not_of("0123456789")));
        EXPECT_TRUE(problems_with(sets, text).empty()) << to_string(problems[0]);
      }
}

TEST(BadRecipes, WordsOfOtherSystemsAreKnown) {
  const std::pair<const char*, const char*> words[] = {{"hidden_size", "model.embed"},
                                                       {"model.hidden", "model.embed"},
                                                       {"model.dim", "model.embed"},
                                                       {"parallel.fsdp", "parallel.dp_shard"},
                                                       {"optimizer.learning_rate", "optimizer.lr"},
                                                       {"batch.micro_batch_size", "batch.micro"},
                                                       {"train.Grad-Clip", "optimizer.clip_norm"},
                                                       {"gradient_accumulation_steps", "batch.accumulation"},
                                                       {"tensor_model_parallel_size", "parallel.tp"}};
  for (const auto& [word, key] : words) {
    const auto problems = problems_with({std::string(word) + "=1"});
    ASSERT_EQ(problems.size(), 1u) << word;
    EXPECT_EQ(problems[0].nearest, key) << word;
  }
}

TEST(BadRecipes, TextThatIsNotTomlIsRefusedWithItsLine) {
  try {
    parse("[model\n", {}, "broken.toml");
    FAIL() << "accepted";
  } catch (const base::UserError& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("broken.toml:1:")) << error.what();
  }
}

TEST(BadRecipes, AMissingFileIsRefused) {
  EXPECT_THROW(load("no/such/recipe.toml"), base::UserError);
  EXPECT_THROW(load("/"), base::UserError);  // a directory
}

TEST(BadRecipes, OverridesMustBeKeyEqualsValue) {
  for (const char* text : {"", "parallel.tp", "=3", "parallel..tp=3", ".tp=3", "name.x=3"})
    EXPECT_THROW(parse(kGood, {text}), base::UserError) << text;
}

TEST(BadRecipes, RecipesBuiltInCodeAreCheckedToo) {
  Recipe r = parse(kGood);
  r.batch.micro = 3;
  EXPECT_THROW(resolve(r), RecipeError);
  r = parse(kGood);
  r.precision.compute = base::DType::I16;
  EXPECT_EQ(problems_of(r).size(), 1u);
  r = parse(kGood);
  r.parallel.dp_shard = std::numeric_limits<int64_t>::max();
  EXPECT_FALSE(problems_of(r).empty());
  EXPECT_FALSE(problems_of(Recipe{}).empty());
}

}  // namespace
}  // namespace quintet::config
