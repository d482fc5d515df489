// Checksums of weights, optimizer state and losses after five steps, against stored ones: a change of the
// compiler that is meant to keep every bit must keep these. They are computed by the kernels that every
// x86-64 processor runs, so that the numbers do not depend on the machine. f64 is left out: its exponentials
// are the C library's, which differ on processors with FMA. QUINTET_UPDATE_GOLDENS=1 stores new ones.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>

#include "base/checksum.h"
#include "equivalence/checks.h"
#include "kernels/cpu/matmul/gemm.h"
#include "kernels/cpu/support/isa.h"
#include "support/folders.h"
#include "support/small_recipe.h"

namespace quintet::tests {
namespace {

// Only baseline kernels while it lives.
class BaselineKernels {
 public:
  BaselineKernels() : isa_(kernels::cpu::isa()), gemm_(kernels::gemm_isa()) {
    kernels::cpu::limit_isa(kernels::cpu::Isa::Baseline);
    kernels::set_gemm_isa(kernels::GemmIsa::Portable);
  }
  ~BaselineKernels() {
    kernels::cpu::limit_isa(isa_);
    kernels::set_gemm_isa(gemm_);
  }

 private:
  kernels::cpu::Isa isa_;
  kernels::GemmIsa gemm_;
};

const std::map<std::string, std::vector<std::string>>& cases() {
  static const std::map<std::string, std::vector<std::string>> list = {
      {"f32", {}},
      {"f32_zero2_tp",
       {"parallel.dp_shard=2", "parallel.zero=2", "parallel.tp=2", "parallel.sequence_parallel=true",
        "batch.accumulation=2"}},
      {"f32_pp_tied", {"parallel.pp=2", "batch.accumulation=2", "model.tied=true"}},
      {"f32_sgd", {"optimizer.name=sgd", "optimizer.momentum=0.9", "parallel.dp_shard=2", "parallel.zero=3"}},
      {"f32_frozen", {"optimizer.groups=[{match=\"*attn*\", update=false}]", "parallel.dp_replicate=2"}},
      {"f32_groups",
       {"optimizer.groups=[{match=\"embed*\", lr=1e-4}, {match=\"*norm*\", name=\"lion\", weight_decay=0.2}]",
        "parallel.dp_shard=2", "parallel.zero=2"}},
      {"f32_lamb_inf",
       {"optimizer.name=lamb", "optimizer.clip=inf", "parallel.dp_shard=2", "parallel.zero=1",
        "parallel.tp=2"}},
      {"bf16_lars_split",
       {"optimizer.name=lars", "optimizer.momentum=0.9", "precision.compute=bf16", "precision.master=split",
        "parallel.dp_shard=2", "parallel.zero=3"}},
      {"bf16_copy", {"precision.compute=bf16", "parallel.dp_shard=2", "parallel.zero=1"}},
      {"bf16_split",
       {"precision.compute=bf16", "precision.master=split", "precision.moments=bf16",
        "precision.gradients=bf16"}},
      {"f16_loss_scale", {"precision.compute=f16", "precision.loss_scale_window=2"}},
      {"f32_experts_bias",
       {"model.moe.experts=4", "model.moe.top_k=2", "model.moe.first_dense=1", "model.moe.ffn=16",
        "model.moe.score=sigmoid", "model.moe.bias_rate=0.01", "parallel.dp_shard=2", "parallel.zero=1",
        "parallel.ep=2"}},
      {"f32_muon_tp", {"optimizer.name=muon", "parallel.dp_shard=2", "parallel.zero=1", "parallel.tp=2"}},
      {"f32_adafactor", {"optimizer.name=adafactor", "parallel.dp_shard=2", "parallel.zero=3"}},
      {"bf16_adamw8bit",
       {"optimizer.name=adamw8bit", "optimizer.block_size=8", "precision.compute=bf16", "parallel.dp_shard=2",
        "parallel.zero=2"}},
      {"f32_ema", {"optimizer.ema=0.9", "parallel.dp_shard=2", "parallel.zero=1"}},
      {"bf16_stochastic",
       {"precision.compute=bf16", "precision.moments=bf16", "precision.moments_rounding=stochastic",
        "optimizer.groups=[{match=\"*.wq.*\", name=\"lamb\"}, {match=\"*.ffn.*\", name=\"muon\"}]",
        "parallel.dp_shard=2", "parallel.zero=1"}},
      {"bf16_fp8",
       {"precision.compute=bf16", "precision.linear=fp8-delayed", "model.embed=32", "model.ffn=64",
        "model.head_dim=16", "parallel.dp_shard=2", "parallel.zero=2"}},
      {"bf16_fp8_muon",
       {"precision.compute=bf16", "precision.linear=fp8-delayed", "optimizer.name=muon", "model.embed=32",
        "model.ffn=64", "model.head_dim=16"}},
      {"f32_receive_bound",
       {"model.moe.experts=4", "model.moe.top_k=2", "model.moe.first_dense=1", "model.moe.ffn=16",
        "model.moe.receive_bound=1.0", "parallel.dp_shard=2", "parallel.zero=1", "parallel.ep=2"}},
      {"f32_ramp_experts",
       {"model.moe.experts=4", "model.moe.top_k=2", "model.moe.first_dense=1", "model.moe.ffn=16",
        "model.moe.balance_loss=0.01", "model.moe.z_loss=0.001", "batch.accumulation=4",
        "batch.ramp=[{until=2, global=2}]"}},
  };
  return list;
}

std::string checksum_of_run(const config::Recipe& recipe) {
  const tools::LayoutRun r = run(recipe, tools::training_data(recipe, true), {}, 5);
  base::Checksum hash;
  const auto add = [&](const std::vector<double>& values) {
    hash.add({reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(double)});
  };
  for (const tools::StepState& s : r.steps) add({s.result.loss, s.result.grad_norm, s.result.loss_scale});
  for (const auto* list : {&r.steps.back().weights, &r.steps.back().states})
    for (const tools::Tensor& t : *list) add(t.values);
  for (const tools::Moments& m : r.moments)
    for (const tools::Tensor& t : m.tensors) add(t.values);
  return fmt::format("{:016x}", hash.value());
}

TEST(GoldenWeights, AfterFiveSteps) {
  const BaselineKernels baseline;
  const std::string path = test::source_dir() + "/tests/golden/weights.txt";
  std::map<std::string, std::string> stored;
  std::ifstream file(path);
  for (std::string name, hash; file >> name >> hash;) stored[name] = hash;
  std::string now;
  const bool update = std::getenv("QUINTET_UPDATE_GOLDENS") != nullptr;
  for (const auto& [name, overrides] : cases()) {
    const std::string hash = checksum_of_run(test::small_recipe({"run.steps=5"}, overrides));
    if (!update) {
      EXPECT_EQ(hash, stored[name]) << name;
    }
    now += fmt::format("{} {}\n", name, hash);
  }
  if (update) std::ofstream(path) << now;
}

}  // namespace
}  // namespace quintet::tests
