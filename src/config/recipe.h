// The typed recipe of a run: one plain struct per section of the file. What the keys are called in TOML,
// their limits and their order stand in schema.h; rules that span keys stand in validate.cc.
//
// A recipe is *resolved* when config::load or config::resolve returned it: every number that may be left out
// has been worked out and every rule holds, so readers need no checks and no defaults of their own. "0 =
// worked out" below speaks of the unresolved form only.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/dim.h"
#include "base/dtype.h"
#include "base/ids.h"

namespace quintet::config {

// Llama is the pre-norm RMSNorm, RoPE, SwiGLU family. Mistral, Qwen2 and Qwen3 are it with sliding_window,
// qkv_bias and qk_norm. Gpt2 has LayerNorm, learned positions, GELU (tanh form) and biases everywhere.
// Custom is a model that a program supplies (compiler/custom_model.h); a recipe file alone has none.
enum class Family : uint8_t { Llama, Gpt2, Custom };

enum class RopeScalingKind : uint8_t { None, Llama3, Yarn };

struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::None;
  double factor = 1;               // llama3, yarn: how far the context is stretched
  int64_t original_positions = 0;  // llama3, yarn: context length before stretching
  double low_freq_factor = 1;      // llama3
  double high_freq_factor = 4;     // llama3
  double beta_fast = 32;           // yarn
  double beta_slow = 1;            // yarn
  // yarn: scale of cos and sin; with latent attention its square is a factor on the attention's scale instead
  // (DeepSeek). 0 = worked out as 0.1 ln(factor) + 1.
  double attention_factor = 0;
  bool operator==(const RopeScaling&) const = default;
};

// Mixture of experts in place of the feed-forward part of a block ([model.moe]).
enum class RouterScore : uint8_t { Softmax, Sigmoid };
enum class RouterOrder : uint8_t { ScoreFirst, TopKFirst };  // scores over all experts, or over the chosen
enum class BalanceScope : uint8_t { MicroBatch, Sequence, Global };
enum class DropPolicy : uint8_t { Probability, Position };

struct Moe {
  int64_t experts = 0;       // 0: every block is dense
  int64_t top_k = 0;         // experts per token
  int64_t ffn = 0;           // inner width of one expert; 0 = worked out as model.ffn
  int64_t shared_ffn = 0;    // inner width of the experts that take every token, together; 0: none
  bool shared_gate = false;  // the shared experts' output is scaled by a sigmoid gate
  int64_t first_dense = 0;   // blocks before the first with experts
  int64_t every = 1;         // of the blocks after them, every n-th has experts (the n-th first)
  RouterScore score = RouterScore::Softmax;
  RouterOrder order = RouterOrder::ScoreFirst;
  bool normalise = true;    // the weights of a token's experts sum to 1 (before scale)
  double scale = 1;         // factor on the weights
  int64_t groups = 1;       // group-limited routing: experts in so many groups ...
  int64_t groups_kept = 1;  // ... of which a token may use the best few
  double balance_loss = 0;  // coefficient
  BalanceScope balance_scope = BalanceScope::MicroBatch;
  double z_loss = 0;           // coefficient
  double bias_rate = 0;        // balancing without loss: step of the selection bias; 0: no bias
  double capacity_factor = 0;  // 0: nothing is dropped
  DropPolicy drop = DropPolicy::Probability;
  int64_t capacity_group = 1;  // sequences that share a capacity
  bool pad = false;  // every expert receives its capacity, padded with zeros: sizes known beforehand
  bool force_balance = false;  // ignore the router's choice (benchmarks)

  // Whether block `block`, counted from 0, has experts.
  bool in_block(int64_t block) const {
    return experts > 0 && block >= first_dense && (block - first_dense + 1) % every == 0;
  }
  bool operator==(const Moe&) const = default;
};

// Multi-head latent attention ([model.mla]): K and V from a narrow latent, positions in a part of their own.
struct Mla {
  int64_t kv_rank = 0;   // 0: ordinary attention
  int64_t q_rank = 0;    // 0: Q straight from the residual stream
  int64_t nope_dim = 0;  // of Q and K per head, without positions
  int64_t rope_dim = 0;  // of Q and K per head, rotated; K's is shared by all heads
  int64_t v_dim = 0;     // of V per head
  bool operator==(const Mla&) const = default;
};

struct Model {
  std::string preset;  // empty, or the row of presets.h that the other keys started from
  Family family = Family::Llama;
  int64_t layers = 0;
  int64_t embed = 0;
  // Of dense blocks. 0 = worked out for gpt2 (4 x embed), and as moe.ffn in a model without dense blocks;
  // else it must be given.
  int64_t ffn = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;      // 0 = worked out as heads
  int64_t head_dim = 0;      // 0 = worked out as embed / heads, or mla's nope_dim + rope_dim
  int64_t vocab = 0;         // 0 = worked out as 256 for the byte tokenizer
  bool tied = false;         // embedding and output head are one parameter
  double rope_theta = 0;     // llama; 0 = worked out as 10000. Stays 0 for gpt2
  RopeScaling rope_scaling;  // llama
  double norm_eps = 1e-5;
  int64_t sliding_window = 0;  // llama; a query sees itself and sliding_window - 1 tokens before it; 0 = all
  bool qkv_bias = false;       // llama; gpt2 has every bias anyway
  bool qk_norm = false;        // llama; RMSNorm over head_dim of q and k, before RoPE
  int64_t max_positions = 0;   // gpt2: rows of the learned position table. Stays 0 for llama
  double dropout = 0;          // gpt2: on embeddings, attention weights and both residual branches
  Moe moe;                     // llama
  Mla mla;                     // llama
  // custom: the dims of its graph that ranks may divide. Its other keys stay as they are and mean nothing,
  // but for layers and vocab, which are the graph's.
  base::DimDemands demands;

  // Whether some block has no experts.
  bool has_dense_block() const { return moe.experts == 0 || moe.first_dense > 0 || moe.every > 1; }
  bool operator==(const Model&) const = default;
};

struct Data {
  std::vector<std::string> path;  // files and folders; empty is legal here (plan and program need no data)
  std::string tokenizer = "bytes";
  int64_t seq_len = 0;
  double validation_fraction = 0;  // share of the tokens held out for eval, from 0 up to but not including 1
  bool pack = true;  // documents in a sequence are masked apart; false: they are read as one running text
  bool operator==(const Data&) const = default;
};

// In sequences. global = micro x accumulation x dp; whatever is 0 is worked out.
struct Batch {
  int64_t global = 0;        // per optimizer step, over all ranks
  int64_t micro = 0;         // per data-parallel rank and micro-batch
  int64_t accumulation = 0;  // micro-batches per step
  bool operator==(const Batch&) const = default;
};

// With zero 3: what becomes of a group's gathered parameters between its forward and its backward.
struct ReshardAfterForward {
  enum class Kind : uint8_t {
    No,       // kept gathered
    Yes,      // back to shards over all of dp_shard x cp
    ToRanks,  // to shards over `ranks` neighbours within dp_shard x cp
  };
  Kind kind = Kind::Yes;
  int64_t ranks = 0;  // only with ToRanks: 1 < ranks < dp_shard x cp, divides it
  bool operator==(const ReshardAfterForward&) const = default;
};

// How attention deals with sequences that are cut over cp ranks.
enum class ContextMethod : uint8_t {
  Auto,         // worked out, see context_parallel.h; never in a resolved recipe with cp > 1
  Gather,       // K and V are gathered
  Ring,         // K and V travel from rank to rank
  Ulysses,      // rows are exchanged for heads
  UlyssesRing,  // Ulysses among neighbours, ring between them
};

// The axis that divides a dim of a custom model's own (parallel.dims). Dims that are not listed are not
// divided.
enum class DimAxis : uint8_t { None, Tp };
using DimAxes = std::map<std::string, DimAxis>;

struct Parallel {
  int64_t dp_replicate = 1;
  int64_t dp_shard = 1;
  int64_t zero = 0;  // over dp_shard x cp: 0 nothing, 1 optimizer state, 2 + gradients, 3 + parameters
  int64_t tp = 1;
  bool sequence_parallel = false;
  ReshardAfterForward reshard_after_forward;
  int64_t prefetch = 1;  // parameter groups gathered ahead of their use
  int64_t pp = 1;        // pipeline ranks
  // The name of a pipeline schedule, or "file:PATH" with one of the user's own, from the recipe's folder or
  // the working directory; empty = worked out as 1f1b when pp > 1.
  std::string schedule;
  int64_t chunks = 0;  // virtual stages per pipeline rank; 0 = worked out: 2 for V-shaped schedules and
                       // interleaved, else 1
  std::vector<int64_t> stages;  // blocks per virtual stage; empty = balanced by cost
  int64_t cp = 1;               // ranks that share a sequence
  ContextMethod cp_method = ContextMethod::Auto;
  int64_t ulysses = 0;  // ulysses+ring: ranks that exchange heads; 0 = worked out
  int64_t ep = 1;       // ranks that share the experts, out of dp x cp x tp
  int64_t etp = 1;      // ranks that share one expert's inner width
  DimAxes dims;         // custom models: by the dim's name

  int64_t dp() const { return dp_replicate * dp_shard; }
  int64_t world() const { return pp * dp() * cp * tp; }
  bool operator==(const Parallel&) const = default;
};

// What losses are multiplied by before gradients are formed, so that small gradients do not vanish in a
// narrow type; gradients are divided by it again where they are clipped. Dynamic: from `value` on, halved
// after a step whose gradients are not finite (the step is skipped), doubled after so many good steps in a
// row.
struct LossScale {
  bool dynamic = false;
  double value = 1;
  bool operator==(const LossScale&) const = default;
};
// Of dynamic ones. Losses are sums over tokens: gradients are those of single tokens, and need no more.
inline constexpr double kFirstLossScale = 1024;

// How the weights that the optimizer updates are kept. Split: f32, as the bf16 weight that matmuls read and a
// 16-bit remainder (base/split_float.h), so that nothing is kept twice. Bf16 is there to be refused with a
// reason.
enum class Master : uint8_t { F64, F32, Split, Bf16 };

struct Precision {
  base::DType compute = base::DType::F32;  // activations and the weights that matmuls read
  Master master = Master::F32;             // the weights that the optimizer updates
  base::DType moments = base::DType::F32;
  base::DType gradients = base::DType::F32;  // of parameters, where micro-batches add them up
  base::DType reduce = base::DType::F32;     // gradients on the wire; as `gradients` where it is not given
  bool tf32 = false;                 // cuda: products of f32 round their operands to 10 bits of mantissa
  LossScale loss_scale = {};         // a number or "dynamic"; the latter for f16 where it is not given
  int64_t loss_scale_window = 2000;  // dynamic: good steps before it is doubled

  // compute as given, the rest in the accumulator type of it (f64 for f64, else f32), and a dynamic loss
  // scale for f16, whose gradients end at 65504: what a recipe gets that names compute only.
  static Precision of(base::DType compute) {
    const base::DType wide = base::accumulator_of(compute);
    return {.compute = compute,
            .master = wide == base::DType::F64 ? Master::F64 : Master::F32,
            .moments = wide,
            .gradients = wide,
            .reduce = wide,
            .loss_scale = compute == base::DType::F16 ? LossScale{true, kFirstLossScale} : LossScale{}};
  }
  bool split_master() const { return master == Master::Split; }
  // In which the optimizer computes, and in which weights are saved.
  base::DType master_type() const {
    return master == Master::F64    ? base::DType::F64
           : master == Master::Bf16 ? base::DType::BF16
                                    : base::DType::F32;
  }
  bool operator==(const Precision&) const = default;
};

// What of the forward pass is computed again in the backward pass instead of being kept.
enum class RecomputeKind : uint8_t {
  None,
  Selective,  // results of some classes of ops
  Full,       // all but the input of every recompute_every-th block
  Fit,        // as little as lets every rank's memory fit `budget` (compiler/fit_recompute.h)
};

struct Memory {
  RecomputeKind recompute = RecomputeKind::None;
  // selective: classes of ops (see recompute_classes() in validate.h); empty = norm, activation, rope, bias,
  // dropout and residual, which are cheap to compute and large to keep.
  std::vector<std::string> recompute_ops;
  int64_t recompute_every = 1;  // full
  base::Bytes budget;           // fit: of one rank; a number of bytes or "6GiB" in a recipe. 0 = not given
  bool operator==(const Memory&) const = default;
};

enum class OptimizerKind : uint8_t { AdamW, Sgd };
enum class ScheduleKind : uint8_t { Constant, Linear, Cosine, InverseSqrt, Wsd };

// Learning rate over steps: a linear warm-up from 0 over `warmup` steps, then `kind`.
struct Schedule {
  ScheduleKind kind = ScheduleKind::Constant;
  int64_t warmup = 0;
  double min_lr_ratio = 0;  // floor, as a share of optimizer.lr
  // linear, cosine: steps from the end of warm-up to the floor; 0 = worked out as run.steps - warmup (at
  // least 1). wsd: length of the last phase, ending at run.steps; 0 = worked out as a tenth of run.steps (at
  // least 1).
  int64_t decay = 0;
  bool operator==(const Schedule&) const = default;
};

struct Optimizer {
  OptimizerKind kind = OptimizerKind::AdamW;  // key: name
  double lr = 0;
  std::array<double, 2> betas = {0.9, 0.95};  // adamw
  double eps = 1e-8;                          // adamw
  double weight_decay = 0.1;                  // decoupled; never on norms and biases
  double momentum = 0;                        // sgd
  double clip_norm = 1.0;                     // of the global gradient; 0 = off
  Schedule schedule;
  std::vector<std::string> freeze;  // glob patterns (* and ?) over parameter names
  bool operator==(const Optimizer&) const = default;
};

struct Loss {
  int64_t chunk = 1024;  // token rows whose logits exist at once; 0 = all
  bool operator==(const Loss&) const = default;
};

struct Eval {
  int64_t every = 0;  // steps between evaluations; 0 = off
  int64_t batches = 8;
  bool operator==(const Eval&) const = default;
};

enum class DeviceKind : uint8_t { Cpu, Cuda };
enum class BackendKind : uint8_t { Auto, Local, Mpi };

struct Run {
  int64_t steps = 0;
  int64_t seed = 0;
  DeviceKind device = DeviceKind::Cpu;
  BackendKind backend = BackendKind::Auto;  // auto: mpi under an MPI launcher, else local
  bool deterministic = false;  // cuda: the same bits in every run, at slower attention; a CPU's always are
  int64_t threads = 0;         // per rank; 0 = chosen at start from the machine's cores
  int64_t max_skipped_steps = 10;      // non-finite steps in a row before the run stops
  int64_t check_replicas_every = 100;  // steps; 0 = off
  int64_t timeout = 300;               // seconds that a rank waits for others, or for its GPU, in one call
  std::string dir;                     // empty = worked out as runs/<name>
  int64_t log_every = 1;
  bool operator==(const Run&) const = default;
};

struct Recipe {
  std::string name = "run";
  Model model;
  Data data;
  Batch batch;
  Parallel parallel;
  Precision precision;
  Memory memory;
  Optimizer optimizer;
  Loss loss;
  Eval eval;
  Run run;
  bool operator==(const Recipe&) const = default;
};

}  // namespace quintet::config
