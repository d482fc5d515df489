// Shared by the tests of rooms program and compiler: small recipes and all ranks of their worlds.
#pragma once

#include <string>
#include <vector>

#include "compiler/compile.h"
#include "config/parse.h"
#include "program/expand.h"

namespace quintet::program::testing {

// A small Llama in which sizes differ from dim to dim and the vocabulary is not divisible.
inline const std::string kSmall = R"(
name = "small"
[model]
family = "llama"
layers = 2
embed = 16
ffn = 24
heads = 4
kv_heads = 4
head_dim = 6
vocab = 259
[data]
seq_len = 8
[batch]
micro = 1
accumulation = 1
[loss]
chunk = 0
[optimizer]
lr = 1e-3
[run]
steps = 1
)";

using Overrides = std::vector<std::string>;

inline config::Recipe small_recipe(const Overrides& overrides) { return config::parse(kSmall, overrides); }

inline compiler::Compiled compile_small(const Overrides& overrides, int rank = 0) {
  return compiler::compile(small_recipe(overrides), {.rank = base::RankId(rank)});
}

// The programs of all ranks, with their expansions.
struct World {
  std::vector<Program> programs;
  std::vector<Expanded> expanded;

  std::vector<const Program*> program_list() const {
    std::vector<const Program*> list;
    for (const Program& p : programs) list.push_back(&p);
    return list;
  }
  std::vector<const Expanded*> expanded_list() const {
    std::vector<const Expanded*> list;
    for (const Expanded& e : expanded) list.push_back(&e);
    return list;
  }
};

inline World compile_world(const Overrides& overrides) {
  const config::Recipe recipe = small_recipe(overrides);
  World world;
  for (int r = 0; r < recipe.parallel.world(); ++r) {
    compiler::Compiled c = compiler::compile(recipe, {.rank = base::RankId(r)});
    world.programs.push_back(std::move(c.program));
    world.expanded.push_back(std::move(c.step));
  }
  return world;
}

struct Layout {
  std::string name;
  Overrides overrides;
};

// One of each kind of layout.
inline const std::vector<Layout>& layouts() {
  static const std::vector<Layout> list = {
      {"single", {}},
      {"ddp", {"parallel.dp_replicate=2", "batch.accumulation=2"}},
      {"zero1", {"parallel.dp_shard=2", "parallel.zero=1", "batch.accumulation=2"}},
      {"zero2", {"parallel.dp_shard=2", "parallel.zero=2", "batch.accumulation=2"}},
      {"zero3", {"parallel.dp_shard=2", "parallel.zero=3", "batch.accumulation=3"}},
      {"zero3_bf16",
       {"parallel.dp_shard=2", "parallel.zero=3", "precision.compute=bf16", "precision.reduce=bf16"}},
      {"zero3_split",
       {"parallel.dp_shard=2", "parallel.zero=3", "precision.compute=bf16", "precision.master=split",
        "precision.gradients=bf16", "batch.accumulation=2"}},
      {"zero1_split",
       {"parallel.dp_shard=2", "parallel.zero=1", "precision.compute=bf16", "precision.master=split"}},
      {"zero3_kept", {"parallel.dp_shard=2", "parallel.zero=3", "parallel.reshard_after_forward=false"}},
      {"tp", {"parallel.tp=2"}},
      {"tp_sp", {"parallel.tp=2", "parallel.sequence_parallel=true"}},
      {"tp_sp_chunked", {"parallel.tp=2", "parallel.sequence_parallel=true", "loss.chunk=3"}},
      {"hsdp", {"parallel.dp_replicate=2", "parallel.dp_shard=2", "parallel.zero=3", "batch.accumulation=2"}},
      {"hsdp_zero1", {"parallel.dp_replicate=2", "parallel.dp_shard=2", "parallel.zero=1"}},
      {"hsdp_shared_state",
       {"parallel.dp_replicate=2", "parallel.dp_shard=2", "parallel.zero=3", "parallel.zero_replicas=1",
        "batch.accumulation=2"}},
      {"hsdp_zero1_shared_state",
       {"parallel.dp_replicate=2", "parallel.dp_shard=2", "parallel.zero=1", "parallel.zero_replicas=1",
        "precision.compute=bf16", "precision.reduce=bf16", "batch.accumulation=2"}},
      {"zero3_groups",
       {"parallel.dp_shard=2", "parallel.zero=3", "model.layers=4", "parallel.group=3",
        "parallel.persist_below='12KiB'"}},
      {"accumulation", {"parallel.dp_shard=2", "parallel.zero=3", "parallel.tp=2", "batch.accumulation=4"}},
      {"reshard", {"parallel.dp_shard=4", "parallel.zero=3", "parallel.reshard_after_forward=2"}},
      {"gqa", {"model.kv_heads=2", "parallel.tp=4", "parallel.sequence_parallel=true"}},
      {"tied", {"model.tied=true", "parallel.dp_shard=2", "parallel.zero=3", "parallel.tp=2"}},
  };
  return list;
}

// Pipelines: all combinations of bodies, slots, chunks and shared parameters.
inline const std::vector<Layout>& pipeline_layouts() {
  static const std::vector<Layout> list = {
      {"pp_1f1b", {"parallel.pp=2", "batch.accumulation=4"}},
      {"pp_gpipe", {"parallel.pp=2", "parallel.schedule=gpipe", "batch.accumulation=3"}},
      {"pp_interleaved",
       {"parallel.pp=2", "parallel.schedule=interleaved", "batch.accumulation=4", "model.layers=4"}},
      {"pp_zb_h1_zero3",
       {"parallel.pp=2", "parallel.schedule=zb-h1", "batch.accumulation=3", "parallel.dp_shard=2",
        "parallel.zero=3"}},
      {"pp_zb_v_tied",
       {"parallel.pp=2", "parallel.schedule=zb-v", "batch.accumulation=4", "model.layers=5",
        "model.tied=true"}},
      {"pp_1f1b_tied_tp_zero2",
       {"parallel.pp=2", "batch.accumulation=2", "model.tied=true", "parallel.tp=2",
        "parallel.sequence_parallel=true", "parallel.dp_shard=2", "parallel.zero=2"}},
      {"pp_dualpipev_recompute",
       {"parallel.pp=2", "parallel.schedule=dualpipev", "batch.accumulation=4", "model.layers=4",
        "memory.recompute=full"}},
      {"pp_uneven", {"parallel.pp=3", "parallel.stages=[2, 1, 2]", "model.layers=5", "batch.accumulation=4"}},
  };
  return list;
}

// Sequences sharded over ranks: every method, and mixes with the other axes.
inline const std::vector<Layout>& context_layouts() {
  static const std::vector<Layout> list = {
      {"cp_gather", {"parallel.cp=2", "parallel.cp_method=gather"}},
      {"cp_ring", {"parallel.cp=4", "parallel.cp_method=ring", "batch.accumulation=2"}},
      {"cp_ring_bf16", {"parallel.cp=2", "parallel.cp_method=ring", "precision.compute=bf16"}},
      {"cp_ulysses", {"parallel.cp=2", "parallel.cp_method=ulysses", "batch.accumulation=2"}},
      {"cp_ulysses_ring", {"parallel.cp=4", "parallel.cp_method=ulysses+ring", "parallel.ulysses=2"}},
      {"cp_ring_tp_zero3",
       {"parallel.cp=2", "parallel.cp_method=ring", "parallel.tp=2", "parallel.sequence_parallel=true",
        "parallel.zero=3", "batch.accumulation=2"}},
      {"cp_ring_pp",
       {"parallel.cp=2", "parallel.cp_method=ring", "parallel.pp=2", "parallel.schedule=zb-h1",
        "batch.accumulation=3"}},
  };
  return list;
}

// Expert parallelism: with and without copies of rows, padding, dropping, biases and all sums.
inline const std::vector<Layout>& expert_layouts() {
  static const std::vector<Layout> list = [] {
    std::vector<Layout> moe = {
        {"ep", {"parallel.dp_shard=2", "parallel.zero=1", "parallel.ep=2", "batch.accumulation=2"}},
        {"ep_etp",
         {"parallel.dp_shard=2", "parallel.zero=3", "parallel.tp=2", "parallel.sequence_parallel=true",
          "parallel.ep=2", "parallel.etp=2", "model.moe.balance_scope=global"}},
        {"ep_padded",
         {"parallel.dp_replicate=2", "parallel.ep=2", "model.moe.capacity_factor=1.0", "model.moe.pad=true"}},
        {"ep_cp_ring",
         {"parallel.dp_shard=2", "parallel.zero=2", "parallel.cp=2", "parallel.cp_method=ring",
          "parallel.ep=4", "model.moe.score=sigmoid", "model.moe.bias_rate=0.01", "model.moe.shared_ffn=8"}},
        {"ep_pp_ulysses",
         {"parallel.pp=2", "parallel.cp=2", "parallel.cp_method=ulysses", "parallel.ep=2",
          "batch.accumulation=3", "memory.recompute=full", "model.moe.balance_scope=sequence"}},
    };
    for (Layout& layout : moe)
      layout.overrides.insert(
          layout.overrides.end(),
          {"model.layers=3", "model.moe.first_dense=1", "model.moe.experts=4", "model.moe.top_k=2",
           "model.moe.ffn=12", "model.moe.balance_loss=0.01", "model.moe.z_loss=0.001"});
    return moe;
  }();
  return list;
}

inline std::vector<Layout> all_layouts() {
  std::vector<Layout> all;
  for (const auto* list : {&layouts(), &pipeline_layouts(), &context_layouts(), &expert_layouts()})
    all.insert(all.end(), list->begin(), list->end());
  return all;
}

}  // namespace quintet::program::testing
