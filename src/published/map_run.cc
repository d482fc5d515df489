#include "published/map_run.h"

#include <fmt/format.h>

#include "base/error.h"
#include "config/validate.h"
#include "hardware/economy.h"

namespace quintet::published {
namespace {

using hardware::Arithmetic;

std::optional<Arithmetic> arithmetic(const PublishedRun& row) {
  if (contains(row.precision, "fp4")) return Arithmetic::FP4;
  if (contains(row.precision, "fp8")) return Arithmetic::FP8;
  if (contains(row.precision, "fp16")) return Arithmetic::F16;
  return std::nullopt;
}

// Derives tokens/s from whatever the row publishes, and records how.
void published_speed(const PublishedRun& row, const Source& source, ModelledRun& run) {
  const config::Model& m = run.recipe.model;
  if (row.tokens_per_s) {
    run.tokens_per_s = *row.tokens_per_s;
    run.convention = "tokens/s";
    return;
  }
  if (!row.tflops && !row.mfu) return;
  FlopCount count = source.flops;
  if (contains(row.verified, "hardware incl. recompute")) count = FlopCount::Hardware;
  if (count == FlopCount::Hardware && run.recipe.memory.recompute != config::RecomputeKind::Full)
    count = FlopCount::Full;
  const double flops = flops_per_token(m, run.recipe.data.seq_len, count);
  const char* how = count == FlopCount::Causal ? "attention at half"
                    : count == FlopCount::Full ? "attention in full"
                                               : "with the recomputed forward";
  if (row.tflops) {
    run.tokens_per_s = *row.tflops * 1e12 / flops;
    run.convention = fmt::format("from TFLOP/s, {}", how);
  } else {
    run.tokens_per_s = *row.mfu * run.assumptions.cluster.accelerator.dense(Arithmetic::BF16) / flops;
    run.convention = fmt::format("from MFU, {}", how);
  }
}

// Refuses a speed above the chip's peak: it cannot be a measurement. FLOPs are counted by the lowest
// convention.
void refuse_above_peak(const ModelledRun& run) {
  if (run.tokens_per_s <= 0) return;
  const double flops = flops_per_token(run.recipe.model, run.recipe.data.seq_len, FlopCount::Causal);
  hardware::share_of_peak(run.tokens_per_s * flops, run.assumptions.cluster.accelerator,
                          run.assumptions.matmul.value_or(Arithmetic::BF16), "the published speed");
}

void memory_outside_the_plan(const PublishedRun& row, const Source& source, ModelledRun& run, Notes& notes) {
  // Before torchtitan compiled its loss (2025), logits were copied to f32: their softmax, its gradient and
  // the logits' own gradient exist at once, where a fused loss has only the logits and their gradient in
  // bf16.
  if (contains(row.source, "202412")) {
    run.logit_bytes = 3 * 4 - 2 * 2;
    notes.note("uncompiled loss: logits in f32");
  }
  // DeepSpeed's bf16 optimizer keeps bf16 gradients in addition to the f32 sums.
  if (source.stack == "megatron-deepspeed" && contains(row.precision, "fp32 grad")) run.parameter_bytes = 2;
  if (source.driver_memory)
    run.driver_bytes = static_cast<double>(run.assumptions.cluster.accelerator.runtime_bytes);
}

ModelledRun map_or_throw(const PublishedRun& row) {
  if (!row.problem.empty()) throw Unmodelled(row.problem);
  const Source* source = find_source(row.collection());
  Notes notes;
  const bool known = source != nullptr;
  if (!known) {
    source = &unknown_source();
    notes.missing(
        fmt::format("collection '{}' is not in the table: neutral terms for its software", row.collection()));
  }
  ModelledRun run;
  config::Recipe& r = run.recipe;
  r.name = "reference";
  r.model = map_model(row, *source, notes);
  r.data.seq_len = row.seq.value_or(source->seq);
  map_layout(row, *source, r, notes);
  map_recompute(row, *source, r, notes);
  r.precision = config::Precision::of(base::DType::BF16);
  if (!source->reduce_f32 && !contains(row.precision, "fp32 grad")) r.precision.reduce = base::DType::BF16;
  if (contains(row.precision, "PURE")) r.precision.reduce = base::DType::BF16;
  r.optimizer.lr = 1e-4;
  if (!source->chunked_loss) r.loss.chunk = 0;
  r.run.steps = 1;
  run.assumptions.cluster = map_cluster(row, *source, notes);
  run.assumptions.stack = known ? hardware::find_stack(map_stack(row, *source))
                                : hardware::Stack{.name = "neutral", .title = "unknown software"};
  // Terms of other software are fitted to programs in the order in which it computes a block.
  run.assumptions.disabled_passes = {compiler::OptionalPass::Overlap};
  run.assumptions.matmul = arithmetic(row);
  memory_outside_the_plan(row, *source, run, notes);
  r = config::resolve(std::move(r));
  published_speed(row, *source, run);
  refuse_above_peak(run);
  run.assumed = std::move(notes.assumed);
  run.stated = notes.stated;
  return run;
}

// The first line of a multi-line message.
std::string first_line(std::string text) {
  if (const size_t at = text.find('\n'); at != std::string::npos) {
    std::string rest = text.substr(at + 1);
    text.resize(at);
    if (!rest.empty()) text += fmt::format(" {}", rest.substr(rest.find_first_not_of(" -"), rest.find('\n')));
  }
  return text;
}

}  // namespace

Mapping map_run(const PublishedRun& row) {
  try {
    return {.run = map_or_throw(row), .reason = {}};
  } catch (const Unmodelled& e) {
    return {.run = std::nullopt, .reason = e.what()};
  } catch (const base::UserError& e) {
    return {.run = std::nullopt, .reason = first_line(e.what())};
  }
}

}  // namespace quintet::published
