// The typed recipe of a run: one plain struct per section of the file. schema.h defines TOML keys, their
// limits and order; rules that span keys are in rules*.cc.
//
// A recipe returned by config::load or config::resolve is *resolved*: every optional value has been derived
// and every rule holds, so readers need no checks or defaults of their own. "0 = derived" below refers to the
// unresolved form.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/dim.h"
#include "base/dtype.h"
#include "base/ids.h"

namespace quintet::config {

// Llama: RMSNorm, RoPE, a gated feed-forward network. What distinguishes Mistral, Qwen, Gemma, OLMo and
// others are keys of their own. Gpt2: LayerNorm, learned positions, tanh GELU, biases everywhere. Neox: as
// Gpt2 with RoPE instead of learned positions and exact GELU. Bert: an encoder, which predicts masked tokens
// from both sides. Custom: a model supplied by a program (compiler/custom_model.h); a recipe file alone
// cannot describe it.
enum class Family : uint8_t { Llama, Gpt2, Neox, Bert, Custom };
inline bool has_learned_positions(Family f) { return f == Family::Gpt2 || f == Family::Bert; }

// The norms of a block: before attention and the feed-forward network, after them (OLMo 2), or both (Gemma).
enum class NormPlaces : uint8_t { Pre, Post, Both };
// Of the gate of a feed-forward network. Clamped (GPT-OSS, experts only): limited gate and up, see
// graph/ops/experts.cc.
enum class Activation : uint8_t { Silu, Gelu, Clamped };
enum class QkNormOver : uint8_t { Head, AllHeads };  // the features that a norm of Q or K covers

// Standard deviations of initial weights.
//   Gpt2    init_stddev; divided by sqrt(2 layers) for projections into the residual stream
//   Normal  init_stddev for all (Llama, Qwen, OLMo 2 and others, as in transformers)
//   Neox    sqrt(2 / (5 embed)), and 2 / (layers sqrt(embed)) for projections into the residual stream
enum class InitScheme : uint8_t { Gpt2, Normal, Neox };

enum class RopeScalingKind : uint8_t { None, Linear, Llama3, Yarn, Longrope };

struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::None;
  double factor = 1;               // by which the context is extended
  int64_t original_positions = 0;  // llama3, yarn, longrope: context length before the extension
  double low_freq_factor = 1;      // llama3
  double high_freq_factor = 4;     // llama3
  double beta_fast = 32;           // yarn
  double beta_slow = 1;            // yarn
  // yarn, longrope: scale of cos and sin; with latent attention, its square multiplies the attention scale
  // instead (DeepSeek). 0 = derived: 0.1 ln(factor) + 1; of longrope the square root of
  // 1 + ln(factor) / ln(original_positions).
  double attention_factor = 0;
  bool truncate = true;  // yarn: the ends of the interpolated band are whole pairs
  // longrope: divisors of the frequencies, one per pair, of sequences up to original_positions and of longer
  // ones; and the longest sequence, which decides between them. 0 = derived: data.seq_len.
  std::vector<double> short_factors, long_factors;
  int64_t positions = 0;
  bool operator==(const RopeScaling&) const = default;
};

// Mixture of experts instead of the feed-forward network of a block ([model.moe]).
enum class RouterScore : uint8_t { Softmax, Sigmoid, SqrtSoftplus };
enum class RouterOrder : uint8_t { ScoreFirst, TopKFirst };  // scores over all experts, or over the selected
enum class BalanceScope : uint8_t { MicroBatch, Sequence, Global };
enum class DropPolicy : uint8_t { Probability, Position, Random };

// Coefficients of balance losses, by the tokens over which they count loads.
struct BalanceLosses {
  double micro_batch = 0, sequence = 0, global = 0;

  double over(BalanceScope scope) const {
    return scope == BalanceScope::MicroBatch ? micro_batch
           : scope == BalanceScope::Sequence ? sequence
                                             : global;
  }
  bool operator==(const BalanceLosses&) const = default;
};

struct Moe {
  int64_t experts = 0;       // 0: every block is dense
  int64_t top_k = 0;         // experts per token
  int64_t ffn = 0;           // inner width of one expert; 0 = derived: model.ffn
  int64_t latent = 0;        // width of the rows that are sent to experts; 0: model.embed
  int64_t shared_ffn = 0;    // joint inner width of the experts that process every token; 0: none
  bool shared_gate = false;  // the shared experts' output is scaled by a sigmoid gate
  bool bias = false;         // biases on the router and on the experts' matmuls (GPT-OSS)
  bool scale_input = false;  // the sigmoid of the router's logit scales an expert's input (Llama 4)
  bool upcycle = false;  // with a dense model.hf: every expert starts as the folder's feed-forward network
  int64_t upcycle_slices = 1;  // with upcycle: every expert starts as one of so many slices of that network
  int64_t first_dense = 0;     // dense blocks before the first with experts
  int64_t every = 1;           // of the blocks after them, every n-th has experts, starting with the n-th
  RouterScore score = RouterScore::Softmax;
  RouterOrder order = RouterOrder::ScoreFirst;
  bool normalise = true;    // the weights of a token's experts sum to 1 (before scale)
  double scale = 1;         // factor on the weights
  int64_t groups = 1;       // group-limited routing: number of expert groups
  int64_t groups_kept = 1;  // best groups that a token may use
  double jitter = 0;        // training: the router's inputs are multiplied by random numbers in 1 +- jitter
  double balance_loss = 0;  // coefficient
  BalanceScope balance_scope = BalanceScope::MicroBatch;
  BalanceLosses balance;            // further balance losses, over other scopes
  double z_loss = 0;                // coefficient
  double bias_rate = 0;             // loss-free balancing: update size of the selection bias; 0: no bias
  double capacity_factor = 0;       // 0: nothing is dropped
  double eval_capacity_factor = 0;  // in evaluation; 0: capacity_factor
  int64_t min_capacity = 1;         // rows that an expert accepts per capacity group at least
  DropPolicy drop = DropPolicy::Probability;
  int64_t capacity_group = 1;  // sequences that share a capacity
  bool pad = false;            // pad every expert to its capacity with zeros, for static sizes
  // Rows that a rank's buffers hold, relative to the mean; more are processed in further passes. 0: all rows
  // that can arrive.
  double receive_bound = 0;
  bool force_balance = false;  // ignore the router's choice (benchmarks)

  // Whether 0-based block `block` has experts.
  bool in_block(int64_t block) const {
    return experts > 0 && block >= first_dense && (block - first_dense + 1) % every == 0;
  }
  // Experts that a row chooses in all of `layers` blocks.
  int64_t choices_in(int64_t layers) const {
    int64_t choices = 0;
    for (int64_t block = 0; block < layers; ++block) choices += in_block(block) ? top_k : 0;
    return choices;
  }
  // The coefficient of the balance loss over `scope`; 0: none.
  double balance_over(BalanceScope scope) const {
    return scope == balance_scope ? balance_loss : balance.over(scope);
  }
  bool operator==(const Moe&) const = default;
};

// Multi-head latent attention ([model.mla]): K and V from a narrow latent, positions in a separate part.
struct Mla {
  int64_t kv_rank = 0;   // 0: ordinary attention
  int64_t q_rank = 0;    // 0: Q directly from the residual stream
  int64_t nope_dim = 0;  // per head of Q and K, without positions
  int64_t rope_dim = 0;  // per head of Q and K, rotated; K's is shared by all heads
  int64_t v_dim = 0;     // per head of V
  bool operator==(const Mla&) const = default;
};

// Multi-token prediction ([model.mtp]): in training a further block predicts the token after the next one.
struct Mtp {
  int64_t layers = 0;  // 0 or 1
  double loss = 0.3;   // weight of its loss
  bool operator==(const Mtp&) const = default;
};

struct Model {
  std::string preset;  // empty, or the preset (presets.h) that the other keys started from
  std::string hf;      // empty, or the folder of a Hugging Face model: sizes and first weights are its own
  Family family = Family::Llama;
  int64_t layers = 0;
  int64_t embed = 0;
  // Of dense blocks. 0 = derived for gpt2, neox and bert (4 x embed) and for models without dense blocks
  // (moe.ffn); otherwise required.
  int64_t ffn = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;         // 0 = derived: heads
  int64_t head_dim = 0;         // 0 = derived: embed / heads, or mla's nope_dim + rope_dim
  int64_t vocab = 0;            // 0 = derived: 256 for the byte tokenizer
  bool tied = false;            // embedding and output head are one parameter
  double rope_theta = 0;        // llama, neox; 0 = derived: 10000. Stays 0 for gpt2
  RopeScaling rope_scaling;     // llama, neox
  int64_t rotary_dim = 0;       // llama, neox: features of each head that are rotated; 0 = derived: head_dim
  double local_rope_theta = 0;  // llama: rope_theta, unscaled, of blocks with a window; 0: rope_theta in all
  int64_t no_rope_every = 0;    // llama: every n-th block has no RoPE; 0: all have it
  double norm_eps = 1e-5;
  NormPlaces norms = NormPlaces::Pre;  // llama
  double norm_offset = 0;              // llama: the factor of an RMSNorm is offset + weight (Gemma: 1)
  int64_t sliding_window = 0;          // llama; tokens a query attends to, itself included; 0 = all
  int64_t full_attention_every = 0;    // llama: every n-th block ignores the window; 0: none does
  // llama: 0-based blocks that ignore it, where no interval says so
  std::vector<int64_t> full_attention_layers;
  bool qkv_bias = false;  // llama; gpt2 always has biases
  bool out_bias = false;  // llama: bias on the output projection of attention
  bool qk_norm = false;   // llama; RMSNorm of q and k, before RoPE
  QkNormOver qk_norm_over = QkNormOver::Head;
  bool qk_unit_norm = false;    // llama: RMSNorm without weights after RoPE, in blocks that have it (Llama 4)
  double clip_qkv = 0;          // llama: q, k and v are limited to +-clip_qkv (DBRX); 0: off
  bool centered_norms = false;  // llama: norms subtract the mean first: LayerNorm without bias (DBRX)
  bool attention_sinks = false;  // llama: a learned score per head that takes part in the softmax (GPT-OSS)
  // llama: blocks with RoPE attend within chunks of a document (Llama 4); 0: off
  int64_t attention_chunk = 0;
  // llama: in blocks without RoPE, q grows by the logarithm of the position (Llama 4, graph/ops/rows.cc);
  // 0: off
  double position_scale = 0;
  int64_t position_floor = 8192;
  Activation activation = Activation::Silu;  // llama
  double activation_alpha = 1.702;           // llama, of clamped
  double activation_limit = 7;               // llama, of clamped
  double embed_scale = 1;                    // llama: factor on the embeddings
  double attention_scale = 0;                // llama: of q.k; 0 = derived: 1 / sqrt(head_dim)
  double attention_soft_cap = 0;             // llama: scores become cap * tanh(score / cap); 0: off
  double logit_soft_cap = 0;                 // llama: the same for logits
  bool parallel_blocks = false;              // neox: attention and feed-forward network read the same input
  bool gelu_tanh = false;     // neox, bert: the tanh form of GELU (GPT-NeoX-20B) instead of the exact one
  int64_t max_positions = 0;  // gpt2, bert: rows of the learned position table. Stays 0 for llama
  int64_t token_types = 0;    // bert: rows of the table of token types; 0 = derived: 2
  double dropout = 0;         // gpt2, bert: on embeddings, attention weights and both residual branches
  InitScheme init = InitScheme::Gpt2;
  double init_stddev = 0.02;  // of gpt2 and normal
  Moe moe;                    // llama
  Mla mla;                    // llama
  Mtp mtp;                    // llama
  // custom: the dims of its graph that ranks may divide. Its other keys stay as they are and mean nothing,
  // but for layers and vocab, which are the graph's.
  base::DimDemands demands;

  // Whether 0-based block `block` has the sliding window, and whether it has RoPE.
  bool windowed(int64_t block) const {
    for (const int64_t full : full_attention_layers)
      if (full == block) return false;
    return sliding_window > 0 && !(full_attention_every > 0 && (block + 1) % full_attention_every == 0);
  }
  bool rotated(int64_t block) const { return no_rope_every == 0 || (block + 1) % no_rope_every != 0; }
  // Whether any block is dense.
  // Width of the rows that experts take and return.
  int64_t expert_width() const { return moe.latent > 0 ? moe.latent : embed; }
  bool has_dense_block() const { return moe.experts == 0 || moe.first_dense > 0 || moe.every > 1; }
  bool operator==(const Model&) const = default;
};

// A set of data.blend. All sets of a blend have a weight, or all have a budget of tokens.
struct BlendSet {
  std::string name;               // empty = derived: the last part of the first path
  std::vector<std::string> path;  // as data.path
  double weight = 0;              // share of the sequences, relative to the other sets
  int64_t tokens = 0;             // budget: the share, and the most that the run may take from the set
  bool repeat = true;             // false: the run must end before the set begins its second epoch
  bool operator==(const BlendSet&) const = default;
};

// The evaluation set that data.validation_fraction holds out of data.path.
inline constexpr const char* kValidationName = "validation";

// Data for evaluation only.
struct EvalSet {
  std::string name;               // empty = derived, as in BlendSet
  std::vector<std::string> path;  // as data.path
  bool operator==(const EvalSet&) const = default;
};

// How documents become sequences.
enum class Packing : uint8_t {
  Streaming,  // laid end to end and cut at sequence length
  BestFit,    // whole documents, with the rest of a sequence left empty
};
// best-fit: what happens to a document that is longer than a sequence.
enum class LongDocuments : uint8_t { Split, Truncate, Drop };

// What a line of a .jsonl file is.
enum class DataFormat : uint8_t {
  Text,  // a document: data.template
  Chat,  // a conversation, in one of the formats of docs/chat.md
};
// What happens to a line or row that cannot be used.
enum class Damaged : uint8_t { Fail, Skip };
// Which tokens of a conversation are trained.
enum class ChatLoss : uint8_t { Assistant, Last, All };
struct Chat {
  std::string chat_template;  // a Jinja file, or the name of one of the tokenizer's; empty: its own
  ChatLoss loss = ChatLoss::Assistant;
  std::string end_of_turn;  // text that ends a turn, where no special token does
  std::string date;         // YYYY-MM-DD for templates that ask for today's
  bool operator==(const Chat&) const = default;
};

// Fill-in-the-middle: documents rearranged as prefix, suffix, middle, so that a model learns to insert.
struct Fim {
  double rate = 0;          // share of the documents
  double suffix_first = 0;  // share of those that are written suffix, prefix, middle
  std::string prefix = "<|fim_prefix|>", middle = "<|fim_middle|>", suffix = "<|fim_suffix|>";
  bool operator==(const Fim&) const = default;
};

// Masked language modelling (family bert): some tokens are chosen, hidden and predicted from both sides.
struct Mlm {
  double rate = 0;              // share of the tokens that are chosen; 0 = derived: 0.15 in family bert
  double random = 0.1;          // share of those replaced by a random token
  double keep = 0.1;            // share of those left as they are; the others become the mask token
  std::string mask = "[MASK]";  // of the byte tokenizer, which has no such token, one more id
  bool operator==(const Mlm&) const = default;
};

// Samples in ascending order of a number, before they are shuffled.
struct Curriculum {
  std::string by;  // empty: off; "length": labels of a sample; else a .npy file with a number per document
  int64_t epochs = 1;  // in that order; later epochs are shuffled
  bool operator==(const Curriculum&) const = default;
};

struct Data {
  std::vector<std::string> path;  // files and folders; may be empty (plan and program need no data)
  std::vector<BlendSet> blend;    // instead of path: several sets
  // Names that are not read below a folder: see data/text_source.h.
  std::vector<std::string> skip = {".*", "build*/", "runs/"};
  std::string tokenizer = "bytes";
  DataFormat format = DataFormat::Text;
  std::string text_template;  // "{title}\n{body}"; empty: the field "text"
  std::string end;            // token after each document of text; empty: none
  Damaged damaged = Damaged::Fail;
  bool stream = false;           // text is tokenised while the run goes on
  int64_t stream_window = 1024;  // sequences that are shuffled together
  int64_t stream_parts = 1;      // of the documents, each tokenised only by ranks that train on it
  int64_t seq_len = 0;
  double validation_fraction = 0;  // fraction of the tokens held out for evaluation, in [0, 1)
  bool pack = true;                // attention does not cross document boundaries; false: one continuous text
  Packing packing = Packing::Streaming;
  LongDocuments long_documents = LongDocuments::Split;
  bool balance = false;  // sequences of a step go to data ranks by the cost of their attention
  Chat chat;
  Fim fim;
  Mlm mlm;
  Curriculum curriculum;
  std::string routes;  // file of recorded expert choices that training repeats; empty: routers choose

  bool is_given() const { return !path.empty() || !blend.empty(); }
  bool operator==(const Data&) const = default;
};

// A length of a run, counted from its start (length.h): 200 (steps), "2B tokens", "4096 sequences" or 0.02 (a
// fraction of run.steps; a resolved recipe has steps instead). A sequence has data.seq_len tokens.
struct Length {
  enum class Unit : uint8_t { Steps, Sequences, Tokens, Fraction };
  Unit unit = Unit::Steps;
  double value = 0;  // a whole number, unless a fraction
  bool operator==(const Length&) const = default;
};

// A stage of a growing batch: steps of `global` sequences until the run has consumed `until`.
struct BatchStage {
  Length until;
  int64_t global = 0;
  bool operator==(const BatchStage&) const = default;
};

// In sequences. global = micro x accumulation x dp; values of 0 are derived.
struct Batch {
  int64_t global = 0;            // per optimizer step, over all ranks
  int64_t micro = 0;             // per data-parallel rank and micro-batch
  int64_t accumulation = 0;      // micro-batches per step
  std::vector<BatchStage> ramp;  // smaller batches before that, in order (batch_ramp.h)
  bool operator==(const Batch&) const = default;
};

// With zero 3: the storage of a group's gathered parameters between its forward and its backward pass.
struct ReshardAfterForward {
  enum class Kind : uint8_t {
    No,       // kept gathered
    Yes,      // sharded again over all of dp_shard x cp
    ToRanks,  // sharded over the `ranks` innermost ranks of dp_shard x cp
  };
  Kind kind = Kind::Yes;
  int64_t ranks = 0;  // only with ToRanks: 1 < ranks < dp_shard x cp, divides it
  bool operator==(const ReshardAfterForward&) const = default;
};

// The same for expert weights alone.
enum class ReshardExperts : uint8_t {
  Same,    // as reshard_after_forward says
  Always,  // Kind::Yes
  Never,   // Kind::No
};

// How many blocks share a parameter group, whose parameters one collective gathers and whose gradients one
// collective reduces. The embedding and the head are never joined with blocks, nor are virtual stages.
struct Grouping {
  enum class Kind : uint8_t {
    Auto,    // one block
    Blocks,  // up to `size` blocks
    // Blocks as long as their parameters take at most `size` bytes where they are used, dense and expert
    // weights apart; a block that takes more is split between its parameters.
    Bytes,
  };
  Kind kind = Kind::Auto;
  int64_t size = 0;
  bool operator==(const Grouping&) const = default;
};

// How attention handles sequences that are sharded over cp ranks.
enum class ContextMethod : uint8_t {
  Auto,         // derived, see context_parallel.h; never in a resolved recipe with cp > 1
  Gather,       // all-gather K and V
  Ring,         // pass K and V from rank to rank
  Ulysses,      // exchange sequence for heads
  UlyssesRing,  // Ulysses within groups of the innermost ranks of cp, ring between the groups
};

// The axis that divides a dim of a custom model's own (parallel.dims). Dims that are not listed are not
// divided.
enum class DimAxis : uint8_t { None, Tp };
using DimAxes = std::map<std::string, DimAxis>;

// What parallel.order puts in order (axis_order.h). Ep places the experts' ranks; it is no axis of its own.
enum class MeshAxis : uint8_t { Tp, Cp, DpShard, DpReplicate, Pp, Ep };
using AxisOrder = std::vector<MeshAxis>;
AxisOrder default_axis_order();  // tp, cp, dp_shard, dp_replicate, pp

struct Parallel {
  int64_t dp_replicate = 1;
  int64_t dp_shard = 1;
  int64_t zero = 0;  // sharded over dp_shard x cp: 0 nothing, 1 optimizer state, 2 + gradients, 3 + weights
  int64_t zero_replicas = 0;  // sharded over dp_replicate as well: 0 nothing, 1 optimizer state
  int64_t tp = 1;
  bool sequence_parallel = false;
  // Weights that tp divides otherwise than their dims say: by outputs, by inputs, or not at all.
  std::vector<std::string> tp_column, tp_row, tp_replicate;
  ReshardAfterForward reshard_after_forward;
  ReshardExperts reshard_experts = ReshardExperts::Same;
  Grouping group;
  int64_t prefetch = 1;        // parameter groups gathered ahead of their use
  base::Bytes gathered_limit;  // zero 3: gathered parameters that exist at once on a rank; 0 = no limit
  base::Bytes persist_below;   // zero 3: smaller groups stay whole on every rank
  // Patterns ('*' and '?') over names of parameters. Those of a block that match the same one of group_match
  // form a group of their own; with zero 3, those of keep_match stay gathered from forward to backward, and
  // those of persist_match are never sharded.
  std::vector<std::string> group_match, keep_match, persist_match;
  // zero 2 and 3: blocks whose whole gradients exist at once. With 2 the next block is computed while the
  // last one is reduced; with 1 it waits for the bytes.
  int64_t gradient_blocks = 2;
  int64_t pp = 1;  // pipeline ranks
  // The name of a pipeline schedule, or "file:PATH" for a schedule file, placed as every path is; empty =
  // derived: 1f1b when pp > 1.
  std::string schedule;
  int64_t chunks = 0;  // virtual stages per pipeline rank; 0 = derived: 2 for interleaved and V-shaped
                       // schedules, otherwise 1
  std::vector<int64_t> stages;  // blocks per virtual stage; empty = balanced by cost
  int64_t micro_group = 0;      // interleaved: micro-batches that pass a chunk in a row; 0 = derived: pp
  int64_t cp = 1;               // ranks that share a sequence
  ContextMethod cp_method = ContextMethod::Auto;
  // Of blocks with a sliding window; Auto = derived: cp_method.
  ContextMethod cp_method_windowed = ContextMethod::Auto;
  int64_t ulysses = 0;  // ulysses+ring: ranks that exchange heads; 0 = derived
  int64_t ep = 1;       // ranks that share the experts, out of dp x cp x tp
  int64_t etp = 1;      // ranks that share one expert's inner width
  DimAxes dims;         // custom models: by the dim's name
  // Innermost first: the ranks of the first axis are neighbours.
  AxisOrder order = default_axis_order();
  int64_t ranks = 0;  // key: world. What the axes must multiply to; 0: anything

  int64_t dp() const { return dp_replicate * dp_shard; }
  int64_t world() const { return pp * dp() * cp * tp; }
  bool operator==(const Parallel&) const = default;
};

// Factor on the loss before the backward pass, so that small gradients do not underflow in a narrow
// type; gradients are divided by it where they are clipped. Dynamic: starts at loss_scale_start, is halved
// after a step with non-finite gradients (which is skipped) and doubled after loss_scale_window good steps
// in a row.
struct LossScale {
  bool dynamic = false;
  double value = 1;  // not dynamic
  bool operator==(const LossScale&) const = default;
};
// The initial dynamic scale. Losses are sums over tokens, so gradients are as large as for single tokens.
inline constexpr double kFirstLossScale = 1024;

// Storage of the weights that the optimizer updates. Split: f32 as the bf16 weight that matmuls read plus
// a 16-bit remainder (base/split_float.h), without redundancy. Bf16 exists only to be rejected with a
// reason.
enum class Master : uint8_t { F64, F32, Split, Bf16 };

// How moments become narrower than the arithmetic. Stochastic: up with the probability of the part that is
// cut off, by a random number of (run.seed, update, parameter, element, moment), so that every layout rounds
// alike.
enum class MomentsRounding : uint8_t { Nearest, Stochastic };

// The operands of linear layers' GEMMs.
enum class LinearKind : uint8_t {
  Compute,     // as precision.compute
  Fp8Delayed,  // one scale per tensor, from the magnitudes of earlier steps; E4M3, gradients E5M2
  Fp8Block,    // scales of 1 x 128 and 128 x 128 blocks; E4M3
  Mxfp8,       // scales of 1 x 32 blocks
  Nvfp4,       // 4 bits, scales of 1 x 16 blocks and of tensors
};

struct Precision {
  base::DType compute = base::DType::F32;  // activations and the weights that matmuls read
  Master master = Master::F32;             // the weights that the optimizer updates
  base::DType moments = base::DType::F32;
  MomentsRounding moments_rounding = MomentsRounding::Nearest;  // bf16 moments
  base::DType gradients = base::DType::F32;                     // accumulated over micro-batches
  base::DType reduce = base::DType::F32;      // gradients on the wire; defaults to `gradients`
  bool tf32 = false;                          // cuda: f32 matmuls round their operands to a 10-bit mantissa
  LossScale loss_scale = {};                  // a number or "dynamic", which is the default for f16
  int64_t loss_scale_window = 2000;           // dynamic: good steps before the scale is doubled
  double loss_scale_start = kFirstLossScale;  // dynamic
  int64_t loss_scale_hysteresis = 1;          // dynamic: non-finite steps before the scale is halved
  double loss_scale_min = 1;                  // dynamic: the scale is never halved below this
  LinearKind linear = LinearKind::Compute;
  // Weights whose linears are quantised ('*' and '?'); empty: of all blocks.
  std::vector<std::string> fp8_match;
  bool fp8_head = false;  // the head too

  // The defaults for a recipe that sets only compute: everything else in its accumulator type (f64 for f64,
  // otherwise f32), and a dynamic loss scale for f16, whose range ends at 65504.
  static Precision of(base::DType compute) {
    const base::DType wide = base::accumulator_of(compute);
    return {.compute = compute,
            .master = wide == base::DType::F64 ? Master::F64 : Master::F32,
            .moments = wide,
            .gradients = wide,
            .reduce = wide,
            .loss_scale = compute == base::DType::F16 ? LossScale{.dynamic = true} : LossScale{}};
  }
  double first_loss_scale() const { return loss_scale.dynamic ? loss_scale_start : loss_scale.value; }
  bool split_master() const { return master == Master::Split; }
  bool quantises() const { return linear != LinearKind::Compute; }
  // The type in which the optimizer computes and weights are saved.
  base::DType master_type() const {
    return master == Master::F64    ? base::DType::F64
           : master == Master::Bf16 ? base::DType::BF16
                                    : base::DType::F32;
  }
  bool operator==(const Precision&) const = default;
};

// Which forward results are recomputed in the backward pass instead of kept.
enum class RecomputeKind : uint8_t {
  None,
  Selective,  // results of selected op classes
  Full,       // everything but the input of every block (or of some, or of chunks of them)
  Fit,        // as little as makes every rank's memory fit `budget` (compiler/fit_recompute.h)
};

// Which op classes of some blocks are recomputed (memory.recompute_layers).
struct RecomputeLayers {
  std::vector<int64_t> layers;   // 0-based blocks, ascending
  std::vector<std::string> ops;  // as in recompute_ops; "all": everything; patterns over names of weights
  bool operator==(const RecomputeLayers&) const = default;
};

struct Memory {
  RecomputeKind recompute = RecomputeKind::None;
  // selective: op classes (see recompute_classes() in validate.h); empty = norm, activation, rope, bias,
  // dropout and residual, which are cheap to compute and large to keep.
  std::vector<std::string> recompute_ops;
  std::vector<RecomputeLayers> recompute_layers;  // selective: instead of recompute_ops, block by block
  int64_t recompute_every = 1;                    // full
  int64_t recompute_chunk = 1;  // full: blocks in a row of which only the first one's input is kept
  int64_t recompute_first = 0;  // full: only blocks among the first n of their stage; 0 = all
  bool split_saved = false;     // saved activations that tensor ranks have whole are divided among them
  base::Bytes budget;           // fit: per rank; a number of bytes or "6GiB" in a recipe. 0 = not set
  bool operator==(const Memory&) const = default;
};

enum class OptimizerKind : uint8_t {
#define QUINTET_OPTIMIZER(kind, ...) kind,
#include "config/optimizers.inc"
  Custom,  // supplied by the program (compiler/custom_model.h)
};

// What an orthogonal matrix of r rows and c columns is multiplied by before lr (torch.optim.Muon's
// adjust_lr_fn).
enum class MuonScale : uint8_t {
  Original,       // sqrt(max(1, r / c))
  MatchRmsAdamW,  // 0.2 sqrt(max(r, c)): the RMS of AdamW's updates, so that both share lr and weight_decay
};

// Muon updates the weights of linear layers, and AdamW (betas, eps) all other parameters.
struct Muon {
  double momentum = 0.95;
  bool nesterov = true;
  MuonScale scale = MuonScale::MatchRmsAdamW;
  bool operator==(const Muon&) const = default;
};

// Adafactor (optim/adafactor.cc), with t the number of the update.
struct Adafactor {
  double decay = 0.8;     // averages of squares keep 1 - t^-decay
  double eps1 = 1e-15;    // least size of a gradient that an update is divided by
  double clip = 1.0;      // largest root mean square of an update, before the rate
  bool relative = false;  // the rate is min(lr, 1 / sqrt(t)) x the root mean square of the parameter,
  double eps2 = 1e-3;     // ... which is at least this
  bool operator==(const Adafactor&) const = default;
};

// Which norm of the global gradient is clipped: the Euclidean one, or the largest absolute element.
enum class ClipKind : uint8_t { Norm, Inf };
enum class ScheduleKind : uint8_t { Constant, Linear, Cosine, InverseSqrt, Wsd };

enum class DecayShape : uint8_t { Linear, Cosine, Exponential, OneMinusSqrt };
enum class RampKind : uint8_t { Constant, Linear, Cosine };

// Learning rate over the run: a linear warm-up from 0, then `kind` (optim/schedule.h).
struct Schedule {
  ScheduleKind kind = ScheduleKind::Constant;
  Length warmup;
  double min_lr_ratio = 0;  // floor, as a fraction of optimizer.lr
  // linear, cosine: from the end of warm-up to the floor; 0 = derived: the rest of the run, in warmup's unit.
  // wsd: length of the final phase, which ends with the run; 0 = derived: a tenth of run.steps (at least 1).
  Length decay;
  DecayShape shape = DecayShape::Linear;  // wsd: of the final phase
  bool operator==(const Schedule&) const = default;
};

// A factor on weight_decay that goes from start_ratio to final_ratio, which the last step has.
struct WeightDecayRamp {
  RampKind kind = RampKind::Constant;
  double start_ratio = 1;
  double final_ratio = 1;
  bool operator==(const WeightDecayRamp&) const = default;
};

// How learning rates follow the number of sequences per step: with b = global / lr_scaling.batch they are
// multiplied by b or by its root.
enum class LrScalingRule : uint8_t { None, Linear, Sqrt };
struct LrScaling {
  LrScalingRule rule = LrScalingRule::None;
  int64_t batch = 0;  // sequences per step that optimizer.lr is for; 0 = derived: batch.global
  bool operator==(const LrScaling&) const = default;
};

// Settings of the parameters whose names match a pattern (optimizer.groups). What is not set is as for all.
struct ParamGroup {
  std::string match;                   // glob over parameter names: * and ?
  std::optional<OptimizerKind> kind;   // key: name
  std::optional<double> lr;            // scaled by the schedule, as optimizer.lr is
  std::optional<double> weight_decay;  // applied to all that match, norms and biases included
  bool update = true;                  // false: frozen; no gradient, no optimizer state
  bool operator==(const ParamGroup&) const = default;
};

struct Optimizer {
  OptimizerKind kind = OptimizerKind::AdamW;  // key: name
  double lr = 0;
  LrScaling lr_scaling;
  // What only some optimizers read: optimizers.inc.
  std::array<double, 2> betas = {0.9, 0.95};
  double eps = 1e-8;
  // Not applied to norms and biases. Decoupled, except for adam, which adds weight_decay x weight to the
  // gradient.
  double weight_decay = 0.1;
  WeightDecayRamp weight_decay_ramp;
  double momentum = 0;                      // sgd, lars
  bool nesterov = false;                    // sgd with momentum
  double trust = 0.001;                     // lars: factor on the ratio of norms
  std::array<double, 2> ratio_limits = {};  // lamb, lars: least and largest ratio; a largest of 0 = no limit
  Muon muon;
  Adafactor adafactor;
  double clip_norm = 1.0;  // largest norm of the global gradient; 0 = off
  ClipKind clip = ClipKind::Norm;
  double ema = 0;  // decay of an average of the weights, ema x average + (1 - ema) x weight; 0 = off
  int64_t block_size = 256;  // adamw8bit: elements that share a scale; a power of two
  Schedule schedule;
  std::vector<ParamGroup> groups;  // a parameter belongs to the first that matches; most belong to none

  // Whether some parameters may be updated by this optimizer.
  bool uses(OptimizerKind k) const {
    return kind == k || std::any_of(groups.begin(), groups.end(),
                                    [&](const ParamGroup& g) { return g.update && g.kind == k; });
  }
  bool operator==(const Optimizer&) const = default;
};

struct Loss {
  int64_t chunk = 1024;  // token rows whose logits exist at the same time; 0 = all
  bool operator==(const Loss&) const = default;
};

struct Eval {
  int64_t every = 0;  // steps between evaluations; 0 = off
  int64_t batches = 8;
  std::vector<EvalSet> sets;  // evaluated in addition to what data.validation_fraction holds out
  bool operator==(const Eval&) const = default;
};

enum class DeviceKind : uint8_t { Cpu, Cuda };
enum class BackendKind : uint8_t { Auto, Local, Mpi };

// A step whose loss or gradient norm exceeds mean + factor x deviation of the last `window` accepted steps is
// skipped.
struct SkipSpike {
  int64_t window = 0;  // 0: off
  double factor = 6;
  bool operator==(const SkipSpike&) const = default;
};

// When checkpoints are saved. Auto: from the measured cost of a save and the failure rate.
struct SaveInterval {
  enum class Unit : uint8_t { Steps, Seconds, Auto };
  Unit unit = Unit::Steps;
  int64_t value = 0;  // 0: only when a signal stops the run
  bool is_on() const { return value > 0 || unit == Unit::Auto; }
  bool operator==(const SaveInterval&) const = default;
};

struct Checkpoint {
  std::string dir;         // empty: "checkpoints" in the run folder
  SaveInterval every;      // a number of steps, "10min" or "auto" in a recipe
  int64_t keep = 2;        // newest checkpoints that stay on disk
  int64_t keep_every = 0;  // steps: the first checkpoint of every interval of this length stays too; 0 = off
  base::Bytes bandwidth;   // per second, of all ranks together, for writing; 0 = no limit
  int64_t peer_every = 0;  // steps between copies in another rank's memory; 0 = off
  double failures = 0.4736;  // every = "auto": per 1,000 devices and day; base::kFailuresPerDeviceHour
  bool operator==(const Checkpoint&) const = default;
};

struct Run {
  int64_t steps = 0;
  int64_t seed = 0;
  DeviceKind device = DeviceKind::Cpu;
  BackendKind backend = BackendKind::Auto;  // auto: mpi under an MPI launcher, otherwise local
  bool deterministic = false;               // cuda: bit-equal runs at slower attention; CPU runs always are
  int64_t threads = 0;                      // per rank; 0 = chosen at start-up from the machine's cores
  int64_t max_skipped_steps = 10;           // consecutive skipped steps before the run stops
  int64_t check_replicas_every = 100;       // steps; 0 = off
  int64_t timeout = 300;      // seconds that a rank waits in one call, for other ranks or its GPU
  int64_t setup_timeout = 0;  // the same until the first step has ended; 0 = timeout
  std::string dir;            // empty = derived: runs/<name>
  int64_t log_every = 1;
  int64_t noise_scale_every = 0;  // steps between estimates of the gradient noise scale; 0 = off
  int64_t noise_scale_batch = 0;  // sequences of its small batch; 0 = derived: one micro-batch per dp rank
  SkipSpike skip_spike;
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
  Checkpoint checkpoint;
  Run run;
  bool operator==(const Recipe&) const = default;
};

}  // namespace quintet::config
