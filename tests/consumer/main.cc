// A user-defined model through the public headers: a residual network over token embeddings, which is none of
// Quintet's families, trained on four ranks. Only the recipe mentions parallelism, not the model.

#include <quintet/builder.h>
#include <quintet/callbacks.h>
#include <quintet/compile.h>
#include <quintet/op.h>
#include <quintet/optimizer.h>
#include <quintet/plan.h>
#include <quintet/recipe.h>
#include <quintet/train.h>

#include <cstdio>
#include <string>

using namespace quintet;

namespace {

constexpr int64_t kVocab = 256;

graph::Graph my_model(const graph::BuildOptions& options) {
  const graph::DimSize vocab = {graph::Dim::Vocab, kVocab}, embed = {graph::Dim::Embed, 16},
                       ffn = {graph::Dim::Ffn, 32};
  graph::Builder b(options);
  graph::ValueId x = b.embedding(b.weight("embed.weight", {vocab, embed}, 0.02), b.ids());
  for (int i = 0; i < 3; ++i) {
    b.next_block();
    const std::string name = "layers." + std::to_string(i) + ".";
    graph::ValueId y = b.rms_norm(x, b.norm_weight(name + "norm.weight", embed), 1e-5);
    y = b.gelu(
        b.linear(y, b.weight(name + "up.weight", {ffn, embed}, 0.02), b.bias(name + "up.bias", {ffn})));
    x = b.add(x, b.linear(y, b.weight(name + "down.weight", {embed, ffn}, 0.02)));
  }
  b.next_block();
  b.head(x, b.weight("head.weight", {vocab, embed}, 0.02));
  return b.finish();
}

// Each token follows from the one before it, so there is something to learn.
data::Corpus my_data() {
  std::vector<int32_t> tokens;
  for (int32_t i = 0, value = 1; i < 4000; ++i) tokens.push_back(value = (value * 7 + 3) % 50);
  return data::Corpus::from_documents("a sequence of numbers", kVocab, {tokens});
}

config::Recipe my_recipe(const std::string& run_folder) {
  config::Recipe r;
  r.name = "consumer";
  r.data.seq_len = 8;
  r.model = compiler::custom_model(my_model, r.data.seq_len);
  r.batch = {.global = 16, .micro = 4};
  r.parallel = {.dp_shard = 2, .zero = 3, .tp = 2, .sequence_parallel = true};
  r.optimizer.lr = 1e-2;
  r.run.steps = 20;
  r.run.dir = run_folder;
  return config::resolve(r);
}

// The program of rank 0 as text: it gathers the parameters of its blocks, for ZeRO 3.
bool program_gathers(const config::Recipe& recipe) {
  const compiler::Compiled compiled = compiler::compile(recipe, {.model = my_model});
  return program::to_text(compiled.program, compiled.step).find("all_gather") != std::string::npos;
}

// Bytes of the fullest of four GPUs, before anything runs.
int64_t planned_bytes(const config::Recipe& recipe) {
  plan::Assumptions assumptions;
  assumptions.cluster = hardware::parse_cluster("1x4 h100");
  assumptions.model = my_model;
  const plan::Memory memory = plan::make_plan(recipe, assumptions).memory;
  return memory.ranks[memory.most_loaded].arena_bytes;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const config::Recipe recipe = my_recipe(argc > 1 ? argv[1] : "run");
    if (planned_bytes(recipe) <= 0 || !program_gathers(recipe)) return 1;
    train::RunOptions options;
    options.model = my_model;
    options.corpus = my_data();
    options.overwrite = true;
    int64_t seen = 0;
    options.on_step = [&](int64_t step, const train::StepResult&) { seen += step == seen + 1; };
    const train::RunResult result = train::run([&] { return recipe; }, options);
    std::printf("loss %.3f -> %.3f on 4 ranks\n", result.summary.first_loss, result.summary.last_loss);
    return seen == 20 && result.summary.last_loss < 0.8 * result.summary.first_loss ? 0 : 1;
  } catch (const base::UserError& e) {
    std::printf("%s\n", e.what());
    return 2;
  }
}
