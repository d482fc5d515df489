// Bad recipes, each refused for the one reason it is bad, with a message that names key, rule, numbers and
// what to write instead. Every rule of rules.cc must be met here at least once.
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "config/support.h"
#include "config/validate.h"

namespace quintet::config {
namespace {

struct Bad {
  std::vector<std::string> overrides;  // of support.h's kGood
  std::string name;                    // of the broken rule
  std::string key;                     // that is blamed
  std::vector<std::string> parts;      // of the rule's text: the numbers
  std::string nearest;                 // part of what is offered instead; empty: nothing is offered
};

const std::vector<Bad>& bad_recipes() {
  static const std::vector<Bad> kBad = {
      // Keys.
      {{"modle.layers=2"}, "unknown key", "modle.layers", {"not a key"}, "model.layers"},
      {{"parallel.dp_shrd=2"}, "unknown key", "parallel.dp_shrd", {"not a key"}, "parallel.dp_shard"},
      {{"tp=2"}, "unknown key", "tp", {"not a key"}, "parallel.tp"},
      {{"run.learning_rate=1"}, "unknown key", "run.learning_rate", {"not a key"}, ""},
      {{"optimizer.shedule.kind='linear'"},
       "unknown key",
       "optimizer.shedule.kind",
       {"not a key"},
       "optimizer.schedule.kind"},
      {{"extra={}"}, "unknown key", "extra", {"not a key"}, ""},
      {{"batch.size=4"}, "unknown key", "batch.size", {"not a key"}, ""},
      {{"model.n_heads=4"}, "unknown key", "model.n_heads", {"not a key"}, "model.heads"},
      {{"loss=3"}, "type", "loss", {"section", "3"}, "[loss]"},
      {{"model.layers={a=1}"}, "type", "model.layers", {"a value, not a section"}, ""},
      // Types.
      {{"model.layers='four'"}, "type", "model.layers", {"an integer", "\"four\""}, ""},
      {{"model.layers=4.5"}, "type", "model.layers", {"an integer", "4.5"}, ""},
      {{"model.tied=1"}, "type", "model.tied", {"true or false", "is 1"}, ""},
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
      {{"optimizer.name='adam'"}, "type", "optimizer.name", {"\"adamw\", \"sgd\"", "\"adam\""}, "\"adamw\""},
      {{"model.family='lama'"}, "type", "model.family", {"\"llama\", \"gpt2\""}, "\"llama\""},
      {{"optimizer.schedule.kind='cosin'"}, "type", "optimizer.schedule.kind", {"\"cosin\""}, "\"cosine\""},
      {{"precision.compute='fp32'"},
       "type",
       "precision.compute",
       {"\"f64\", \"f32\", \"bf16\"", "\"fp32\""},
       "\"f32\""},
      {{"run.backend='tcp'"}, "type", "run.backend", {"\"auto\", \"local\", \"mpi\"", "\"tcp\""}, ""},
      {{"run.device='tpu'"}, "type", "run.device", {"must be \"cpu\"", "\"tpu\""}, "\"cpu\""},
      // Limits of one value.
      {{"model.layers=0"}, "limits", "model.layers", {"at least 1", "is 0"}, "1"},
      {{"model.layers=-3"}, "limits", "model.layers", {"at least 1", "is -3"}, "1"},
      {{"model.embed=0"}, "limits", "model.embed", {"at least 1", "is 0"}, "1"},
      {{"model.kv_heads=0"}, "limits", "model.kv_heads", {"at least 1", "is 0"}, "1"},
      {{"model.vocab=-1"}, "limits", "model.vocab", {"at least 1", "is -1"}, "1"},
      {{"model.norm_eps=0"}, "limits", "model.norm_eps", {"above 0", "is 0"}, ""},
      {{"model.sliding_window=-1"}, "limits", "model.sliding_window", {"at least 0", "is -1"}, "0"},
      {{"data.seq_len=0"}, "limits", "data.seq_len", {"at least 1", "is 0"}, "1"},
      {{"data.validation_fraction=1.0"}, "limits", "data.validation_fraction", {"below 1", "is 1"}, ""},
      {{"batch.micro=0"}, "limits", "batch.micro", {"at least 1", "is 0"}, "1"},
      {{"batch.global=-16"}, "limits", "batch.global", {"at least 1", "is -16"}, "1"},
      {{"parallel.tp=0"}, "limits", "parallel.tp", {"at least 1", "is 0"}, "1"},
      {{"parallel.dp_shard=-2"}, "limits", "parallel.dp_shard", {"at least 1", "is -2"}, "1"},
      {{"parallel.dp_replicate=9223372036854775807"},
       "limits",
       "parallel.dp_replicate",
       {"at most 65536"},
       "65536"},
      {{"parallel.zero=4"}, "limits", "parallel.zero", {"at most 3", "is 4"}, "3"},
      {{"parallel.prefetch=-1"}, "limits", "parallel.prefetch", {"at least 0", "is -1"}, "0"},
      {{"optimizer.lr=0"}, "limits", "optimizer.lr", {"above 0", "is 0"}, ""},
      {{"optimizer.lr=inf"}, "limits", "optimizer.lr", {"above 0", "is inf"}, ""},
      {{"optimizer.lr=nan"}, "limits", "optimizer.lr", {"above 0", "is nan"}, ""},
      {{"optimizer.betas=[0.9, 1.0]"}, "limits", "optimizer.betas", {"below 1", "is 1"}, ""},
      {{"optimizer.clip_norm=-1"}, "limits", "optimizer.clip_norm", {"at least 0", "is -1"}, "0"},
      {{"optimizer.schedule.min_lr_ratio=1.5", "optimizer.schedule.kind='cosine'"},
       "limits",
       "optimizer.schedule.min_lr_ratio",
       {"at most 1", "is 1.5"},
       "1"},
      {{"run.steps=0"}, "limits", "run.steps", {"at least 1", "is 0"}, "1"},
      {{"run.seed=-1"}, "limits", "run.seed", {"at least 0", "is -1"}, "0"},
      {{"eval.batches=0"}, "limits", "eval.batches", {"at least 1", "is 0"}, "1"},
      {{"run.log_every=0"}, "limits", "run.log_every", {"at least 1", "is 0"}, "1"},
      // Later versions.
      {{"parallel.cp=2"}, "later version", "parallel.cp", {"2 is not yet supported"}, "1"},
      {{"parallel.ep=2"}, "later version", "parallel.ep", {"not yet supported"}, "1"},
      {{"parallel.etp=2"}, "later version", "parallel.etp", {"not yet supported"}, "1"},
      {{"parallel.cp_method='ring'"},
       "later version",
       "parallel.cp_method",
       {"not yet supported"},
       "\"auto\""},
      {{"memory.offload='host'"}, "later version", "memory.offload", {"not yet supported"}, "\"none\""},
      {{"model.hf='some/path'"}, "later version", "model.hf", {"not yet supported"}, "leave it out"},
      {{"checkpoint.dir='x'"}, "later version", "checkpoint.dir", {"not yet supported"}, "leave it out"},
      {{"checkpoint.every=100"},
       "later version",
       "checkpoint.every",
       {"100 is not yet supported"},
       "leave it out"},
      {{"run.device='cuda'"}, "later version", "run.device", {"\"cuda\" is not yet supported"}, "\"cpu\""},
      {{"run.backend='nccl'"}, "later version", "run.backend", {"\"nccl\" is not yet supported"}, "\"auto\""},
      {{"precision.compute='fp8'"},
       "later version",
       "precision.compute",
       {"\"fp8\" is not yet supported"},
       "\"f32\""},
      {{"precision.reduce='f16'"},
       "later version",
       "precision.reduce",
       {"\"f16\" is not yet supported"},
       "\"f32\""},
      // Names and paths.
      {{"name='a/b'"}, "name is a file name", "name", {"\"a/b\""}, "\"a-b\""},
      {{"name=''"}, "name is a file name", "name", {"\"\""}, "\"run\""},
      {{"name='..'"}, "name is a file name", "name", {"\"..\""}, "\"-.\""},
      {{"model.preset='llama3-9b'"},
       "preset exists",
       "model.preset",
       {"\"llama3-9b\"", "llama3-405b"},
       "\"llama3-8b\""},
      {{"model.preset='bert'"}, "preset exists", "model.preset", {"\"bert\"", "gpt2-xl"}, ""},
      {{"data.tokenizer='tokenizer.json'"},
       "tokenizer is bytes",
       "data.tokenizer",
       {"not yet supported"},
       "\"bytes\""},
      {{"data.path=''"}, "paths are named", "data.path", {"empty name"}, ""},
      {{"optimizer.freeze=['embed*', '']"},
       "freeze patterns are named",
       "optimizer.freeze",
       {"empty pattern"},
       "\"*\""},
      // Model geometry.
      {{"model.family='gpt2'"}, "preset family", "model.family", {"llama-tiny"}, "\"llama\""},
      {{"model.vocab=255"}, "vocab holds the tokens", "model.vocab", {"255", "256 tokens"}, "256"},
      {{"model.heads=6", "model.kv_heads=4", "model.head_dim=32"},
       "kv_heads divide heads",
       "model.kv_heads",
       {"4 does not divide model.heads 6"},
       "3 or 6"},
      {{"model.head_dim=33"}, "head_dim is even", "model.head_dim", {"33 is odd"}, "32 or 34"},
      {{"model.embed=130"}, "head_dim follows", "model.head_dim", {"embed 130", "heads 4"}, "128 or 132"},
      {{"model.preset='gpt2-tiny'", "model.head_dim=16"},
       "gpt2 heads make embed",
       "model.embed",
       {"128", "heads 4 x model.head_dim 16 = 64"},
       "128"},
      {{"model.preset='gpt2-tiny'", "model.kv_heads=2"},
       "gpt2 has no grouped heads",
       "model.kv_heads",
       {"2 must equal model.heads 4"},
       "4"},
      {{"model.preset='gpt2-tiny'", "model.rope_theta=10000"},
       "llama keys only for llama",
       "model.rope_theta",
       {"10000 has no effect in family gpt2"},
       "0"},
      {{"model.preset='gpt2-tiny'", "model.qkv_bias=true"},
       "llama keys only for llama",
       "model.qkv_bias",
       {"no effect in family gpt2"},
       "false"},
      {{"model.preset='gpt2-tiny'", "model.qk_norm=true"},
       "llama keys only for llama",
       "model.qk_norm",
       {"no effect in family gpt2"},
       "false"},
      {{"model.preset='gpt2-tiny'", "model.sliding_window=8"},
       "llama keys only for llama",
       "model.sliding_window",
       {"8 has no effect in family gpt2"},
       "0"},
      {{"model.preset='gpt2-tiny'", "model.rope_scaling.kind='yarn'",
        "model.rope_scaling.original_positions=9"},
       "llama keys only for llama",
       "model.rope_scaling.kind",
       {"\"yarn\" has no effect in family gpt2"},
       "\"none\""},
      {{"model.dropout=0.1"},
       "gpt2 keys only for gpt2",
       "model.dropout",
       {"0.1 has no effect in family llama"},
       "0"},
      {{"model.max_positions=128"},
       "gpt2 keys only for gpt2",
       "model.max_positions",
       {"128 has no effect in family llama"},
       "0"},
      {{"model.preset='gpt2-tiny'", "data.seq_len=1024"},
       "sequence fits positions",
       "data.seq_len",
       {"1024 is longer than model.max_positions 512"},
       "512"},
      {{"model.preset='gpt2-tiny'", "model.max_positions=0"},
       "sequence fits positions",
       "model.max_positions",
       {"is missing"},
       "64"},
      {{"model.rope_scaling.factor=8"},
       "rope scaling keys fit kind",
       "model.rope_scaling.factor",
       {"8 has no effect", "\"none\""},
       "1"},
      {{"model.preset='llama3-8b'", "model.rope_scaling.beta_fast=16"},
       "rope scaling keys fit kind",
       "model.rope_scaling.beta_fast",
       {"16 has no effect", "\"llama3\""},
       "32"},
      {{"model.rope_scaling.kind='llama3'"},
       "rope scaling knows its origin",
       "model.rope_scaling.original_positions",
       {"is missing", "llama3"},
       "8192"},
      {{"model.preset='llama3-8b'", "model.rope_scaling.low_freq_factor=4"},
       "rope scaling band is ordered",
       "model.rope_scaling.low_freq_factor",
       {"4 must be below high_freq_factor 4"},
       "1 with 4"},
      {{"model.rope_scaling.kind='yarn'", "model.rope_scaling.original_positions=64",
        "model.rope_scaling.beta_slow=40"},
       "rope scaling band is ordered",
       "model.rope_scaling.beta_slow",
       {"40 must be below beta_fast 32"},
       "1 with 32"},
      // Layout.
      {{"parallel.dp_replicate=65536", "parallel.dp_shard=64", "batch.global=8388608"},
       "world is in reach",
       "parallel.dp_replicate",
       {"65536 x dp_shard 64 x tp 2 = 8388608", "1048576"},
       "8192"},
      {{"batch.global=10", "batch.micro=1"},
       "batch arithmetic",
       "batch.global",
       {"10 is not a multiple of dp 4 (dp_replicate 1 x dp_shard 4) = 4"},
       "8 or 12"},
      {{"batch.global=12"},
       "batch arithmetic",
       "batch.global",
       {"12 is not a multiple of micro 2 x dp 4", "= 8"},
       "8 or 16"},
      {{"batch.accumulation=4"},
       "batch arithmetic",
       "batch.global",
       {"16 must be micro 2 x accumulation 4 x dp 4", "which is 32"},
       "global 32, or accumulation 2, or micro 1"},
      {{"batch.accumulation=3"},
       "batch arithmetic",
       "batch.global",
       {"16 is not a multiple of accumulation 3 x dp 4", "= 12"},
       "12 or 24"},
      {{"batch.global=4"},
       "batch arithmetic",
       "batch.global",
       {"4 is not a multiple of micro 2 x dp 4"},
       "8"},
      {{"model.heads=9", "model.kv_heads=1", "model.head_dim=32"},
       "tp divides heads",
       "parallel.tp",
       {"2 does not divide model.heads 9"},
       "1 or 3"},
      {{"parallel.tp=4", "model.heads=24", "model.kv_heads=6", "model.head_dim=32"},
       "tp fits kv_heads",
       "parallel.tp",
       {"4 must divide model.kv_heads 6 or be a multiple"},
       "3 or 6"},
      {{"parallel.tp=6", "model.heads=12", "model.kv_heads=4", "model.head_dim=32", "model.ffn=360"},
       "tp fits kv_heads",
       "parallel.tp",
       {"6 must divide model.kv_heads 4"},
       "4 or 8"},
      {{"model.ffn=351"}, "tp divides ffn", "parallel.tp", {"2 does not divide model.ffn 351"}, "1 or 3"},
      {{"parallel.tp=1", "parallel.sequence_parallel=true"},
       "sequence parallel needs tp",
       "parallel.sequence_parallel",
       {"no effect", "tp = 1"},
       "false"},
      {{"parallel.sequence_parallel=true", "data.seq_len=63", "batch.micro=1"},
       "sequence parallel rows divide",
       "parallel.sequence_parallel",
       {"micro 1 x data.seq_len 63 = 63", "tp 2"},
       "62 or 64"},
      {{"parallel.dp_shard=1", "parallel.zero=1"},
       "zero needs dp_shard",
       "parallel.zero",
       {"1 has no effect", "dp_shard = 1"},
       "0"},
      {{"parallel.dp_shard=1", "parallel.dp_replicate=4"},
       "zero needs dp_shard",
       "parallel.zero",
       {"3 has no effect"},
       "dp_shard 4"},
      {{"parallel.zero=2", "parallel.reshard_after_forward=false"},
       "reshard needs zero 3",
       "parallel.reshard_after_forward",
       {"false has no effect", "zero = 2"},
       "true"},
      {{"parallel.zero=1", "parallel.reshard_after_forward=2"},
       "reshard needs zero 3",
       "parallel.reshard_after_forward",
       {"2 has no effect", "zero = 1"},
       "true"},
      {{"parallel.reshard_after_forward=3"},
       "reshard ranks divide dp_shard",
       "parallel.reshard_after_forward",
       {"3 must divide parallel.dp_shard 4"},
       "2 or true"},
      {{"parallel.reshard_after_forward=1"},
       "reshard ranks divide dp_shard",
       "parallel.reshard_after_forward",
       {"1 must divide parallel.dp_shard 4"},
       "2 or true"},
      {{"parallel.reshard_after_forward=4"},
       "reshard ranks divide dp_shard",
       "parallel.reshard_after_forward",
       {"4 must divide"},
       "2 or true"},
      {{"parallel.reshard_after_forward=-2"},
       "reshard ranks divide dp_shard",
       "parallel.reshard_after_forward",
       {"-2 must divide"},
       "2 or true"},
      {{"parallel.zero=0", "parallel.prefetch=2"},
       "prefetch needs zero",
       "parallel.prefetch",
       {"2 has no effect", "zero = 0"},
       "1"},
      // Precision.
      {{"precision.compute='f64'", "precision.master='f32'"},
       "f64 is all or nothing",
       "precision.master",
       {"f32", "compute = \"f64\""},
       "\"f64\""},
      {{"precision.reduce='f64'"},
       "f64 is all or nothing",
       "precision.reduce",
       {"f64", "compute = \"f32\""},
       "\"f32\""},
      {{"precision.moments='f64'"}, "f64 is all or nothing", "precision.moments", {"f64"}, "\"f32\""},
      {{"precision.master='bf16'"}, "master is not narrower", "precision.master", {"bf16", "f32"}, "\"f32\""},
      // Pipelines. Two micro-batches, four blocks.
      {{"parallel.stages=2", "parallel.pp=2"}, "type", "parallel.stages", {"a list of integers"}, ""},
      {{"parallel.pp=2", "parallel.stages=[-1, 5]"},
       "limits",
       "parallel.stages",
       {"at least 0", "is -1"},
       "0"},
      {{"parallel.schedule='1f1b'"},
       "schedule is known",
       "parallel.schedule",
       {"has no effect"},
       "leave it out"},
      {{"parallel.pp=2", "parallel.schedule='1f1c'"},
       "schedule is known",
       "parallel.schedule",
       {"\"1f1c\" is no schedule", "gpipe, 1f1b, interleaved"},
       "\"1f1b\""},
      {{"parallel.chunks=2"}, "chunks fit schedule", "parallel.chunks", {"2 has no effect"}, "1"},
      {{"parallel.pp=2", "parallel.chunks=2"},
       "chunks fit schedule",
       "parallel.chunks",
       {"\"1f1b\" has 1 chunk, not 2"},
       "interleaved"},
      {{"parallel.pp=2", "parallel.schedule='zb-v'", "parallel.chunks=1"},
       "chunks fit schedule",
       "parallel.chunks",
       {"\"zb-v\" has 2 chunks, not 1"},
       "2"},
      {{"parallel.pp=2", "parallel.schedule='interleaved'", "parallel.chunks=1"},
       "chunks fit schedule",
       "parallel.chunks",
       {"1 chunk is 1f1b"},
       "1f1b"},
      {{"parallel.pp=2", "parallel.schedule='interleaved'", "batch.global=40"},
       "chunks fit schedule",
       "batch.accumulation",
       {"parallel.pp = 2", "5 is no multiple"},
       "4 or 6"},
      {{"parallel.pp=8"}, "stages fit layers", "parallel.pp", {"8 virtual stages", "4 blocks"}, "4"},
      {{"parallel.pp=4", "parallel.schedule='zb-v'"},
       "stages fit layers",
       "parallel.pp",
       {"4 stages x 2 chunks = 8", "4 blocks"},
       "2"},
      {{"parallel.stages=[4]"}, "stages fit layers", "parallel.stages", {"has no effect"}, "[]"},
      {{"parallel.pp=2", "parallel.stages=[1, 2]"},
       "stages fit layers",
       "parallel.stages",
       {"2 numbers that add up to 3", "need 2 that add up to the model's 4"},
       "leave it out"},
      {{"parallel.pp=2", "parallel.stages=[1, 2, 1]"},
       "stages fit layers",
       "parallel.stages",
       {"3 numbers that add up to 4", "need 2"},
       "leave it out"},
      // Memory.
      {{"memory.recompute_ops=['norm']"},
       "recompute keys fit kind",
       "memory.recompute_ops",
       {"has no effect", "none"},
       "[]"},
      {{"memory.recompute='selective'", "memory.recompute_every=2"},
       "recompute keys fit kind",
       "memory.recompute_every",
       {"2 has no effect", "selective"},
       "1"},
      {{"memory.recompute='selective'", "memory.recompute_ops=['norms']"},
       "recompute ops are known",
       "memory.recompute_ops",
       {"norms", "norm, activation"},
       "[\"norm\"]"},
      // Optimizer.
      {{"optimizer.momentum=0.9"},
       "optimizer keys fit name",
       "optimizer.momentum",
       {"0.9 has no effect", "adamw"},
       "0"},
      {{"optimizer.name='sgd'", "optimizer.betas=[0.8, 0.9]"},
       "optimizer keys fit name",
       "optimizer.betas",
       {"[0.8, 0.9] has no effect"},
       "[0.9, 0.95]"},
      {{"optimizer.name='sgd'", "optimizer.eps=1e-6"},
       "optimizer keys fit name",
       "optimizer.eps",
       {"1e-06 has no effect"},
       "1e-08"},
      {{"optimizer.schedule.decay=10"},
       "schedule keys fit kind",
       "optimizer.schedule.decay",
       {"10 has no effect", "constant"},
       "0"},
      {{"optimizer.schedule.min_lr_ratio=0.1"},
       "schedule keys fit kind",
       "optimizer.schedule.min_lr_ratio",
       {"0.1 has no effect", "constant"},
       "0"},
      {{"optimizer.schedule.kind='inverse_sqrt'"},
       "inverse_sqrt needs warmup",
       "optimizer.schedule.warmup",
       {"at least 1"},
       "1"},
      {{"optimizer.schedule.kind='wsd'", "optimizer.schedule.warmup=60", "optimizer.schedule.decay=50"},
       "wsd phases fit",
       "optimizer.schedule.decay",
       {"warmup 60 + decay 50 = 110", "run.steps 100"},
       "40"},
      // Evaluation.
      {{"eval.every=10"},
       "eval needs validation data",
       "eval.every",
       {"10", "validation_fraction is 0"},
       "0.05"},
  };
  return kBad;
}

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
    // One mistake, one problem: nothing follows from it.
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

TEST(BadRecipes, EveryRuleIsMet) {
  std::set<std::string> met;
  for (const Bad& bad : bad_recipes()) met.insert(bad.name);
  for (const std::string& name : rule_names())
    EXPECT_TRUE(met.contains(name)) << "no bad recipe breaks: " << name;
}

TEST(BadRecipes, RequiredKeysAreNamedWhenMissing) {
  std::set<std::string> keys;
  try {
    parse("");
    FAIL() << "an empty recipe was accepted";
  } catch (const RecipeError& error) {
    for (const Problem& p : error.problems()) {
      EXPECT_NE(p.rule.find("is missing"), std::string::npos) << to_string(p);
      keys.insert(p.key);
    }
  }
  EXPECT_EQ(keys, (std::set<std::string>{"model.layers", "model.embed", "model.ffn", "model.heads",
                                         "data.seq_len", "optimizer.lr", "run.steps"}));
}

TEST(BadRecipes, AllProblemsComeAtOnceWithTheirLines) {
  const std::string text =
      "[model]\npreset = \"llama-tiny\"\nlayres = 3\n[data]\nseq_len = -5\n[parallel]\ntp = 3\ncp = 2\n"
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
                             "parallel.cp (line 8): 2 is not yet supported",
                             "optimizer.lr (line 10): must be a number", "parallel.zero: must be"})
      EXPECT_NE(message.find(part), std::string::npos) << part << "\nin " << message;
  }
}

TEST(BadRecipes, TextThatIsNotTomlIsRefusedWithItsPlace) {
  try {
    parse("[model\n", {}, "broken.toml");
    FAIL() << "accepted";
  } catch (const base::UserError& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("broken.toml:1:")) << error.what();
  }
}

TEST(BadRecipes, AFileThatIsNotThereIsRefused) {
  EXPECT_THROW(load("no/such/recipe.toml"), base::UserError);
  EXPECT_THROW(load("/"), base::UserError);  // a folder
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
  r.precision.compute = base::DType::F16;
  EXPECT_EQ(problems_of(r).size(), 1u);
  r = parse(kGood);
  r.parallel.dp_shard = std::numeric_limits<int64_t>::max();
  EXPECT_FALSE(problems_of(r).empty());
  EXPECT_FALSE(problems_of(Recipe{}).empty());
}

}  // namespace
}  // namespace quintet::config
