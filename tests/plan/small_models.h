// Small models and clusters for tests of the planner.
#pragma once

#include <string>
#include <vector>

#include "config/parse.h"
#include "config/presets.h"
#include "config/validate.h"
#include "plan/plan.h"

namespace quintet::plan::testing {

// A machine in round numbers, so that tests do not depend on the catalogue: two nodes of four.
inline Assumptions small_cluster() {
  Assumptions a;
  hardware::Accelerator& x = a.cluster.accelerator;
  x.name = x.title = "test";
  x.memory_bytes = int64_t{16} << 30;
  x.memory_bytes_per_s = 1e12;
  for (double& flops : x.dense_flops) flops = 1e14;
  x.watts = 500;
  x.runtime_bytes = 1 << 20;
  a.cluster.nodes = 2;
  a.cluster.per_node = 4;
  a.cluster.domain = 4;
  a.cluster.inner = {.name = "inner", .title = "inner", .bytes_per_s = 1e11, .latency_s = 2e-6};
  a.cluster.outer = {.name = "outer", .title = "outer", .bytes_per_s = 1e10, .latency_s = 5e-6};
  a.cluster.host = {.name = "host", .title = "host", .bytes_per_s = 2e10, .latency_s = 5e-6};
  a.threads = 1;
  return a;
}

inline config::Recipe small_llama(const std::vector<std::string>& overrides = {}) {
  return config::parse(
      "name = \"small\"\n[model]\nfamily = \"llama\"\nlayers = 8\nembed = 256\nffn = 512\nheads = 8\n"
      "kv_heads = 4\nvocab = 1024\n[data]\nseq_len = 512\n[batch]\nglobal = 32\nmicro = 1\n"
      "[precision]\ncompute = \"bf16\"\n[loss]\nchunk = 128\n[optimizer]\nlr = 1e-3\n[run]\nsteps = 1\n",
      overrides);
}

inline config::Recipe small_experts(const std::vector<std::string>& overrides = {}) {
  return config::parse(
      "name = \"small\"\n[model]\nfamily = \"llama\"\nlayers = 8\nembed = 256\nffn = 512\nheads = 8\n"
      "kv_heads = 4\nvocab = 1024\n[model.moe]\nexperts = 8\ntop_k = 2\nffn = 256\nfirst_dense = 2\n"
      "balance_loss = 0.01\n[data]\nseq_len = 256\n[batch]\nglobal = 32\nmicro = 1\n"
      "[precision]\ncompute = \"bf16\"\n[loss]\nchunk = 128\n[optimizer]\nlr = 1e-3\n[run]\nsteps = 1\n",
      overrides);
}

}  // namespace quintet::plan::testing
