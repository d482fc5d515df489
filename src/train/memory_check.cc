#include "train/memory_check.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "config/codes.h"
#include "program/allocate.h"
#include "program/matrix_pieces.h"
#include "program/saved_bytes.h"
#include "train/expert_plan.h"
#include "train/rank.h"

namespace quintet::train {

namespace {

// The options with which a run compiles rank 0.
compiler::CompileOptions compile_options(const config::Recipe& recipe, const compiler::ModelFn& model,
                                         int threads, const compiler::DisabledPasses& disabled) {
  return {.rank = base::RankId(0),
          .evaluate = recipe.eval.every > 0,
          .model = model,
          .workspace_bytes = exec::workspace_of(device_of(recipe), threads, kernels_of(model)),
          .disabled = disabled,
          .dump = {}};
}

// Of the pipeline place whose ranks save most.
program::SavedByClass most_saved(const compiler::Compiled& c) {
  program::SavedByClass most;
  for (int place = 0; place < c.layout.mesh.size(c.layout.pipeline); ++place) {
    const auto groups = layout::make_groups(c.logical, c.local, c.layout, c.pipeline.stages, place,
                                            c.step_graph.storage_classes(), c.step_graph.state_blocks());
    const program::SavedByClass saved =
        program::saved_by_class(c.program, groups, c.step_graph.states, c.layout, place);
    if (saved.most.total() > most.most.total()) most = saved;
  }
  return most;
}

// UserError if copies of the state do not fit into what is left of the host's memory.
void require_host_memory(const program::SavingMemory& saving, int64_t arena,
                         const exec::SharedMemory& memory) {
  const int64_t ranks = std::max<int64_t>(1, memory.ranks), share = memory.bytes / ranks;
  if (memory.bytes <= 0 || arena > share || arena + saving.total() <= share) return;
  config::fail_coded(
      config::kFitsInMemory,
      "copies of the state do not fit in the host's memory: {} rank{} need{} {}{} ({} to write checkpoints "
      "from{}), {} in total, but only {} is free. Try {}, or run on more machines with mpirun",
      ranks, ranks == 1 ? "" : "s", ranks == 1 ? "s" : " each", base::human_bytes(saving.total()),
      arena > 0 ? fmt::format(" in addition to {} for training", base::human_bytes(arena)) : "",
      base::human_bytes(saving.staging),
      saving.peers > 0 ? fmt::format(", {} for checkpoint.peer_every", base::human_bytes(saving.peers)) : "",
      base::human_bytes((arena + saving.total()) * ranks), base::human_bytes(memory.bytes),
      saving.peers > 0 ? "checkpoint.peer_every = 0"
                       : "checkpoint.every = 0, which saves only at the end, without a copy");
}

}  // namespace

std::optional<compiler::Fit> find_fit(const config::Recipe& recipe, const compiler::ModelFn& model,
                                      int threads, const compiler::DisabledPasses& disabled) {
  if (recipe.memory.recompute != config::RecomputeKind::Fit ||
      disabled.contains(compiler::OptionalPass::Recompute))
    return std::nullopt;
  return compiler::fit_recompute(recipe, compile_options(recipe, model, threads, disabled));
}

void require_memory(const config::Recipe& recipe, const compiler::ModelFn& model, int threads,
                    const exec::SharedMemory& memory, const std::optional<compiler::Fit>& fit,
                    const compiler::DisabledPasses& disabled, const exec::SharedMemory& host) {
  if (memory.bytes <= 0) return;
  compiler::CompileOptions options = compile_options(recipe, model, threads, disabled);
  options.fit = fit;
  const compiler::Compiled compiled = compiler::compile_unverified(recipe, options);
  const bool on_gpu = device_of(recipe) == exec::Device::Cuda;
  const bool staged = recipe.checkpoint.every.is_on();
  const program::SavingMemory saving =
      program::saving_memory(compiled.program, staged ? most_saved(compiled) : program::SavedByClass{},
                             {.staged = staged, .peers = recipe.checkpoint.peer_every > 0, .on_gpu = on_gpu});
  const int64_t arena = compiled.program.arena_bytes;
  require_host_memory(saving, on_gpu ? 0 : arena, on_gpu ? host : memory);
  const int64_t each = arena;
  const int64_t ranks = std::max<int64_t>(1, memory.ranks);
  if (each <= memory.bytes / ranks) return;
  const program::Peak peak = program::peak_of(compiled.program);
  const auto largest = std::max_element(peak.by_class.begin(), peak.by_class.end());
  const auto memory_class = static_cast<program::MemoryClass>(largest - peak.by_class.begin());
  const bool activations = memory_class == program::MemoryClass::Activations;
  config::fail_coded(
      config::kFitsInMemory,
      "the run does not fit in memory: {} rank{} {} need{} {}, {} in total, but only {} is free. The largest "
      "class is {} ({}). {}, or run on more machines with mpirun",
      ranks, ranks == 1 ? "" : "s", device_of(recipe) == exec::Device::Cuda ? "per GPU" : "on this host",
      ranks == 1 ? "s" : " each", base::human_bytes(each),
      base::human_bytes(each > INT64_MAX / ranks ? INT64_MAX : each * ranks), base::human_bytes(memory.bytes),
      program::to_string(memory_class), base::human_bytes(*largest),
      activations ? "Try memory.recompute = \"full\" or a smaller batch.micro"
                  : "Try a higher parallel.zero or a smaller model");
}

bool plan_is_bound(const compiler::Compiled& compiled) {
  const std::optional<ExpertPlan> experts = expert_plan(compiled);
  return (experts && experts->is_bound()) || program::deals_unevenly(compiled.program);
}

}  // namespace quintet::train
