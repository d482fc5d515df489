// Looks up what other systems call the keys and values of a recipe.
#include <algorithm>
#include <array>
#include <utility>

#include "base/text.h"
#include "config/elsewhere_table.h"
#include "config/key_docs.h"
#include "config/unsupported.h"

namespace quintet::config {
namespace {

constexpr WordElsewhere kWords[] = {
    {"memory.recompute", "block", "full"},
    {"memory.recompute", "false", "none"},
    {"memory.recompute", "true", "full"},
    {"memory.recompute", "uniform", "full"},
    {"model.family", "gpt", "gpt2"},
    {"model.family", "gpt_neox", "neox"},
    {"model.family", "mistral", "llama"},
    {"model.family", "mixtral", "llama"},
    {"model.family", "pythia", "neox"},
    {"model.family", "qwen2", "llama"},
    {"model.family", "qwen3", "llama"},
    {"model.moe.drop", "probs", "probability"},
    {"optimizer.name", "adamw_bnb_8bit", "adamw8bit"},
    {"optimizer.name", "adamw_torch", "adamw"},
    {"optimizer.name", "adamw_torch_fused", "adamw"},
    {"optimizer.name", "flash_lion", "lion"},
    {"optimizer.name", "fused_adam", "adamw"},
    {"optimizer.name", "fusedadam", "adamw"},
    {"optimizer.name", "paged_adamw_8bit", "adamw8bit"},
    {"optimizer.schedule.kind", "constant_with_warmup", "constant"},
    {"optimizer.schedule.kind", "cosine_with_min_lr", "cosine"},
    {"optimizer.schedule.kind", "inverse-square-root", "inverse_sqrt"},
    {"optimizer.schedule.kind", "warmup_stable_decay", "wsd"},
    {"optimizer.schedule.kind", "warmupcosinelr", "cosine"},
    {"optimizer.schedule.kind", "warmupdecaylr", "linear"},
    {"optimizer.schedule.kind", "warmuplr", "constant"},
    {"optimizer.schedule.shape", "minus_sqrt", "1-sqrt"},
    {"optimizer.schedule.shape", "sqrt", "1-sqrt"},
    {"parallel.cp_method", "a2a", "ulysses"},
    {"parallel.cp_method", "a2a+p2p", "ulysses+ring"},
    {"parallel.cp_method", "all_gather", "gather"},
    {"parallel.cp_method", "allgather", "gather"},
    {"parallel.cp_method", "alltoall", "ulysses"},
    {"parallel.cp_method", "p2p", "ring"},
    {"parallel.schedule", "dualpipe", "dualpipev"},
    {"parallel.schedule", "zbvzerobubble", "zb-v"},
    {"parallel.zero", "full_shard", "3"},
    {"parallel.zero", "hybrid_shard", "3"},
    {"parallel.zero", "no_shard", "0"},
    {"parallel.zero", "optim", "1"},
    {"parallel.zero", "optim_grads", "2"},
    {"parallel.zero", "optim_grads_params", "3"},
    {"parallel.zero", "shard_grad_op", "2"},
    {"parallel.zero", "zero1", "1"},
    {"parallel.zero", "zero2", "2"},
    {"parallel.zero", "zero3", "3"},
    {"precision.", "bfloat16", "bf16"},
    {"precision.", "double", "f64"},
    {"precision.", "float", "f32"},
    {"precision.", "float16", "f16"},
    {"precision.", "float32", "f32"},
    {"precision.", "float64", "f64"},
    {"precision.", "half", "f16"},
    {"run.device", "gpu", "cuda"},
    {"run.device", "nvidia", "cuda"},
};

constexpr std::string_view kFusedAttention = "leave it out: attention never stores its scores";
constexpr std::string_view kCompiled = "leave it out: every recipe is compiled";
constexpr std::string_view kContinues = "leave it out: the same command continues a run; see --from";
constexpr std::string_view kLaunched =
    "leave it out: mpirun or srun starts the ranks, as many as the axes of [parallel] multiply to";
constexpr std::string_view kNoAdapters = "leave it out: adapters are not supported yet";
constexpr std::string_view kNoOffload = "leave it out: offload is not supported yet";
constexpr std::string_view kOverlaps = "leave it out: communication is always overlapped with compute";
constexpr std::string_view kMetricsFile = "leave it out: metrics.jsonl in the run folder has every step";

// What there is no key for. Sorted.
constexpr auto kAnswers = std::to_array<KeyElsewhere>({
    {"activation_offloading", kNoOffload},
    {"adapter", kNoAdapters},
    {"attn_implementation", kFusedAttention},
    {"compile", kCompiled},
    {"contiguous_gradients", kOverlaps},
    {"cpu_offload", kNoOffload},
    {"cpu_offloading", kNoOffload},
    {"deepspeed", "leave it out: parallel.zero and [precision] say what its file does; see docs/coming-from"},
    {"enable_cpu_offload", kNoOffload},
    {"flash_attention", kFusedAttention},
    {"layer_offloading", kNoOffload},
    {"load_checkpoint", kContinues},
    {"load_in_4bit", kNoAdapters},
    {"load_in_8bit", kNoAdapters},
    {"lora_alpha", kNoAdapters},
    {"lora_dropout", kNoAdapters},
    {"lora_r", kNoAdapters},
    {"nnodes", kLaunched},
    {"num_nodes", kLaunched},
    {"offload", kNoOffload},
    {"offload_optimizer", kNoOffload},
    {"offload_param", kNoOffload},
    {"offload_params", kNoOffload},
    {"offload_policy", kNoOffload},
    {"optimizer_cpu_offload", kNoOffload},
    {"overlap_comm", kOverlaps},
    {"overlap_grad_reduce", kOverlaps},
    {"overlap_param_gather", kOverlaps},
    {"report_to", kMetricsFile},
    {"resume", kContinues},
    {"resume_from", kContinues},
    {"resume_from_checkpoint", kContinues},
    {"tensorboard", kMetricsFile},
    {"torch_compile", kCompiled},
    {"use_flash_attention", kFusedAttention},
    {"use_flash_attn", kFusedAttention},
    {"wandb", kMetricsFile},
    {"wandb_entity", kMetricsFile},
    {"wandb_project", kMetricsFile},
});
static_assert(std::ranges::is_sorted(kAnswers, {}, &KeyElsewhere::theirs));

std::string_view row_of(std::span<const KeyElsewhere> table, std::string_view theirs) {
  const auto row = std::ranges::lower_bound(table, theirs, {}, &KeyElsewhere::theirs);
  return row != table.end() && row->theirs == theirs ? row->ours : std::string_view();
}

// As it is in the tables.
std::string plain(std::string_view key) {
  std::string word = base::lower_case(key.substr(std::min(key.find_first_not_of('-'), key.size())));
  std::replace(word.begin(), word.end(), '-', '_');
  return word;
}

// One of the two, or neither.
struct Meant {
  std::string_view key, answer;
};

// By the whole key, then by its parts from the last one: "zero_optimization.offload_param.device" is about
// offload. Sections of ours say nothing about what is below them, and a name that we have too is looked for
// here.
Meant meant_by(std::string_view theirs) {
  const std::string word = plain(theirs);
  std::string_view rest = word;
  if (const std::string_view key = row_of(keys_elsewhere(), rest); !key.empty()) return {.key = key};
  const std::string_view name = rest.substr(rest.rfind('.') + 1);
  const bool is_ours =
      std::ranges::any_of(recipe_keys(), [&](const KeyFacts& k) { return k.name() == name; });
  while (!rest.empty()) {
    const size_t dot = rest.rfind('.');
    const std::string_view part = dot == std::string_view::npos ? rest : rest.substr(dot + 1);
    const bool is_last = rest.size() == word.size();
    const std::string_view key = row_of(keys_elsewhere(), part), answer = row_of(kAnswers, part);
    if (!answer.empty()) return {.answer = answer};
    if (!key.empty() && (is_last || (!is_ours && key.substr(0, key.find('.')) != part))) return {.key = key};
    rest = rest.substr(0, dot == std::string_view::npos ? 0 : dot);
  }
  return {};
}

}  // namespace

std::span<const WordElsewhere> words_elsewhere() { return kWords; }

std::string_view key_elsewhere(std::string_view key) { return meant_by(key).key; }
std::string_view answer_elsewhere(std::string_view key) { return meant_by(key).answer; }

std::string_view word_elsewhere(std::string_view key, std::string_view word) {
  const std::string theirs = base::lower_case(word);
  for (const WordElsewhere& row : kWords)
    if (key.starts_with(row.key) && theirs == row.theirs) return row.ours;
  return {};
}

}  // namespace quintet::config
