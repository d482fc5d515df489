// Tiny models with quantised linear layers, on the GPU against the CPU's emulation.
#include <cmath>
#include <cstdio>

#include "gpu/models/support.h"

namespace quintet {
namespace {

const std::vector<std::string> kFp8 = {"precision.linear=\"fp8-delayed\""};

config::Recipe fp8_recipe(const std::string& model, std::vector<std::string> settings = {}) {
  settings.insert(settings.end(), kFp8.begin(), kFp8.end());
  return test::gpu_recipe(model, "bf16", std::move(settings));
}

// Decibels of `want` over the difference, of the worst tensor; its name. Biases of k are left out: their
// exact gradient is 0.
std::pair<double, std::string> worst(const std::vector<tools::Tensor>& got,
                                     const std::vector<tools::Tensor>& want) {
  std::pair<double, std::string> least{1e9, ""};
  for (size_t t = 0; t < want.size(); ++t) {
    if (want[t].name.ends_with("wk.bias")) continue;
    double signal = 0, noise = 1e-300;
    for (size_t i = 0; i < want[t].values.size(); ++i) {
      signal += std::pow(want[t].values[i], 2);
      noise += std::pow(got[t].values[i] - want[t].values[i], 2);
    }
    least = std::min(least, {10 * std::log10(signal / noise), want[t].name});
  }
  return least;
}

// Both devices quantise values that differ in bf16's last bits, so some codes differ, and gradients by less
// than quantisation itself changes them. The worst tensors are those of q and k, behind the softmax.
TEST(Fp8, GradientsAreThoseOfTheCpu) {
  struct Case {
    std::string model;
    std::vector<std::string> settings;
    double to_bf16;
  };
  for (const auto& [model, settings, to_bf16] : {Case{"llama", {"model.layers=1"}, 19},
                                                 {"llama", {}, 18},
                                                 {"llama-unpacked", {}, 18},
                                                 {"llama-bench", {}, 18},
                                                 {"llama-recompute", {}, 18},
                                                 {"gpt2", {}, 18}}) {
    SCOPED_TRACE(model + (settings.empty() ? "" : " " + settings[0]));
    const config::Recipe r = fp8_recipe(model, settings);
    const auto gpu = test::run(r, {.steps = 3}), cpu = test::run(test::on_cpu(r), {.steps = 3});
    const auto [emulated, tensor] = worst(gpu.steps[0].gradients, cpu.steps[0].gradients);
    EXPECT_GE(emulated, 19) << tensor;
    const auto plain = test::run(test::gpu_recipe(model, "bf16", settings), {.steps = 1});
    const auto [exact, name] = worst(gpu.steps[0].gradients, plain.steps[0].gradients);
    EXPECT_GE(exact, to_bf16) << name;
    for (size_t s = 0; s < 3; ++s)
      EXPECT_NEAR(gpu.steps[s].result.loss, cpu.steps[s].result.loss, 0.01 * cpu.steps[s].result.loss) << s;
    std::printf("%s: %.1f dB to the CPU (%s), %.1f dB to bf16 (%s)\n", model.c_str(), emulated,
                tensor.c_str(), exact, name.c_str());
  }
}

// The bound that torchao has for the feed-forward part of a block, with the scales that the first step found.
// What quantising the other layers adds to it is additive (docs/benchmarks/training-gpu.md).
TEST(Fp8, GradientsOfAFeedForward) {
  for (const std::vector<std::string>& size :
       {std::vector<std::string>{},
        {"model.embed=512", "model.ffn=1408", "model.heads=8", "data.seq_len=256"}}) {
    std::vector<std::string> settings = {"model.layers=1", "optimizer.lr=1e-12"};
    settings.insert(settings.end(), size.begin(), size.end());
    const auto plain = test::run(test::gpu_recipe("llama", "bf16", settings), {.steps = 2});
    settings.push_back("precision.fp8_match=[\"blocks.*.ffn.*\"]");
    const auto fp8 = test::run(fp8_recipe("llama", settings), {.steps = 2});
    const auto [decibels, name] = worst(fp8.steps[1].gradients, plain.steps[1].gradients);
    EXPECT_GE(decibels, 20) << name;
    std::printf("feed-forward, %s: %.1f dB to bf16 (%s)\n", size.empty() ? "embed 64" : "embed 512", decibels,
                name.c_str());
  }
}

// Scales of blocks. With an ffn of 1408, eleven blocks, factors are copied for every GEMM.
const std::vector<std::string> kBlocks = {"precision.linear=\"fp8-block\"", "model.embed=256",
                                          "model.ffn=512", "data.seq_len=128"};
config::Recipe block_recipe(const std::string& model, std::vector<std::string> settings = {}) {
  settings.insert(settings.begin(), kBlocks.begin(), kBlocks.end());
  return test::gpu_recipe(model, "bf16", std::move(settings));
}

TEST(Fp8Block, GradientsAreThoseOfTheCpu) {
  for (const auto& [model, settings] :
       {std::pair<std::string, std::vector<std::string>>{"llama", {"model.layers=1"}},
        {"llama", {}},
        {"llama-unpacked", {"model.embed=256", "model.heads=4", "model.kv_heads=2"}},
        {"llama", {"model.ffn=1408", "precision.fp8_head=true", "loss.chunk=128"}}}) {
    SCOPED_TRACE(model + (settings.empty() ? "" : " " + settings[0]));
    const config::Recipe r = block_recipe(model, settings);
    const auto gpu = test::run(r, {.steps = 3}), cpu = test::run(test::on_cpu(r), {.steps = 3});
    const auto [emulated, tensor] = worst(gpu.steps[0].gradients, cpu.steps[0].gradients);
    EXPECT_GE(emulated, 20) << tensor;
    config::Recipe plain = r;
    plain.precision.linear = config::LinearKind::Compute;
    plain.precision.fp8_head = false;
    const auto [exact, name] =
        worst(gpu.steps[0].gradients, test::run(plain, {.steps = 1}).steps[0].gradients);
    EXPECT_GE(exact, 18) << name;
    for (size_t s = 0; s < 3; ++s)
      EXPECT_NEAR(gpu.steps[s].result.loss, cpu.steps[s].result.loss, 0.01 * cpu.steps[s].result.loss) << s;
    std::printf("%s: %.1f dB to the CPU (%s), %.1f dB to bf16 (%s)\n", model.c_str(), emulated,
                tensor.c_str(), exact, name.c_str());
  }
}

TEST(Fp8Block, GradientsOfAFeedForward) {
  const std::vector<std::string> settings = {"model.layers=1", "optimizer.lr=1e-12",
                                             "precision.fp8_match=[\"blocks.*.ffn.*\"]"};
  const config::Recipe r = block_recipe("llama", settings);
  config::Recipe plain = r;
  plain.precision.linear = config::LinearKind::Compute;
  plain.precision.fp8_match.clear();
  const auto [decibels, name] =
      worst(test::run(r, {.steps = 1}).steps[0].gradients, test::run(plain, {.steps = 1}).steps[0].gradients);
  EXPECT_GE(decibels, 20) << name;
  std::printf("feed-forward in blocks: %.1f dB to bf16 (%s)\n", decibels, name.c_str());
}

TEST(Fp8Block, ReplayedGraphsAndPoisonChangeNothing) {
  const config::Recipe r = block_recipe("llama", {"batch.accumulation=2", "model.ffn=1408"});
  const auto first = test::run(r, {.steps = 4});
  test::expect_same_bits(test::run(r, {.steps = 4}), first);
  test::expect_same_bits(test::run(r, {.steps = 4, .poison = true}), first);
}

TEST(Fp8Block, CurveTracksTheCpu) {
  const config::Recipe r = block_recipe("llama", {"model.layers=1", "optimizer.lr=1e-3", "run.steps=60"});
  const std::vector<double> gpu = test::loss_curve(r, 60, 4), cpu = test::loss_curve(test::on_cpu(r), 60, 4);
  EXPECT_LT(gpu.back(), 0.9 * gpu.front()) << "nothing was learnt";
  for (size_t s = 0; s < 60; ++s) EXPECT_NEAR(gpu[s], cpu[s], 0.03 * cpu[s]) << "step " << s + 1;
}

TEST(Fp8, ReplayedGraphsAndPoisonChangeNothing) {
  const config::Recipe r = fp8_recipe("llama-unpacked", {"batch.accumulation=2", "batch.micro=4"});
  const auto first = test::run(r, {.steps = 4});
  test::expect_same_bits(test::run(r, {.steps = 4}), first);
  test::expect_same_bits(test::run(r, {.steps = 4, .poison = true}), first);
}

TEST(Fp8, CurveTracksTheCpu) {
  const config::Recipe r = fp8_recipe("llama-bench", {"optimizer.lr=1e-3", "run.steps=150"});
  const std::vector<double> gpu = test::loss_curve(r, 150, 4),
                            cpu = test::loss_curve(test::on_cpu(r), 150, 4);
  EXPECT_LT(gpu.back(), 0.8 * gpu.front()) << "nothing was learnt";
  for (size_t w = 0; w < 150; w += 50) {
    double a = 0, b = 0;
    for (size_t s = w; s < w + 50; ++s) a += gpu[s] / 50, b += cpu[s] / 50;
    EXPECT_NEAR(a, b, 0.03 * (b + 0.1 * cpu.front())) << "steps " << w + 1 << " to " << w + 50;
  }
}

}  // namespace
}  // namespace quintet
