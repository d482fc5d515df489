// How a model is written: a sequence of calls, independent of parallelism. Dim names carry all that the
// layout needs. The builder opens every graph with the inputs of a micro-batch and closes it with a loss or
// with logits.
#pragma once

#include <string>

#include "graph/op.h"

namespace quintet::graph {

// Loss with gradients; loss alone; logits of all rows; the first pass over a prompt, which fills a cache and
// samples a token; a token of every sequence, from a cache; log-probabilities of the labels; the experts that
// routers choose. What inference graphs return is Graph::logits: the logits, the sampled tokens, the
// log-probabilities, or i32[tokens, choices], the choices of all blocks.
enum class Mode : uint8_t { Train, Evaluate, Infer, Prefill, Decode, Score, Routes };
inline bool infers(Mode mode) { return mode >= Mode::Infer; }

// The cache of keys and values (ops/cache.cc).
struct CacheShape {
  int64_t pages = 0, page_rows = 0;
  int64_t sequences = 0;           // rows of the page table
  int64_t pages_per_sequence = 0;  // entries of such a row
  friend bool operator==(const CacheShape&, const CacheShape&) = default;
};

// How a token is chosen from its logits (ops/cache.cc).
struct Sampling {
  double temperature = 0;  // 0: the most likely token
  int64_t top_k = 0;       // 0: all
  double top_p = 1, min_p = 0, repetition_penalty = 1;
  int64_t key = 0;    // of the random numbers: base::stream_key
  int64_t vocab = 0;  // tokens from here on are never chosen; 0: all may be
};

// Parameters that a recipe treats alike: those whose names match, and no earlier group's pattern.
struct ParamGroup {
  std::string match;   // '*' and '?'
  bool update = true;  // false: frozen
};

struct BuildOptions {
  Mode mode = Mode::Train;
  DType compute = DType::F32;     // activations and the parameters as matmuls see them
  DType param_grad = DType::F32;  // gradients of parameters
  int64_t tokens = 0;             // rows of a micro-batch over the whole mesh: micro x data ranks x seq_len
  int64_t seq_len = 0;
  int64_t loss_chunk = 0;     // token rows whose logits exist at once on a rank; 0: all
  int64_t accumulation = 1;   // micro-batches per step: auxiliary losses are means over them
  bool packed = true;         // sequences may hold several documents
  bool deterministic = true;  // the same bits in every run, even where that costs time
  // Param::group of every parameter is the first that matches. In mode Train a pattern that matches no
  // parameter, or only those of groups before it, is an error.
  std::vector<ParamGroup> groups = {};
  CacheShape cache = {};  // Prefill and Decode
  Sampling sampling = {};
  // Train: columns of InputKind::Routes, as many as the first blocks with experts choose; 0: routers choose.
  int64_t routes = 0;
};

enum class Scope : uint8_t { Micro, Sequence, Global };  // of a balance loss, see ops/balance.cc

enum class Score : uint8_t { Softmax, Sigmoid, SqrtSoftplus };  // of a router's logits, see ops/router.cc

// How a router chooses experts, see ops/router.cc.
struct SelectOptions {
  int64_t k = 1;
  Score score = Score::Softmax;
  bool top_k_first = false;  // softmax over the chosen only
  bool normalise = true;
  double scale = 1;
  int64_t groups = 1, groups_kept = 1;
  bool force_balance = false;
};

class Builder {
 public:
  explicit Builder(BuildOptions options);

  // Inputs of a micro-batch, i32[tokens]: token ids, labels (-1: not counted), positions, documents, sample
  // numbers.
  ValueId ids() const { return ids_; }
  ValueId labels() const { return labels_; }
  ValueId positions() const { return positions_; }
  ValueId documents() const { return documents_; }
  ValueId next_ids();     // InputKind::NextIds
  ValueId token_types();  // InputKind::TokenTypes
  ValueId routes();       // InputKind::Routes
  const BuildOptions& options() const { return options_; }

  // Blocks are the units in which parameters are gathered and gradients reduced. Label 0 is open at the
  // start.
  void next_block() { ++block_; }

  // Parameters of the compute dtype. Norm weights and biases take no weight decay.
  ValueId weight(std::string name, std::vector<DimSize> dims, double stddev);
  ValueId norm_weight(std::string name, DimSize dim);
  // Initially 0 where the norm adds an offset of 1, else 1.
  ValueId norm_weight(std::string name, DimSize dim, double offset);
  ValueId bias(std::string name, std::vector<DimSize> dims);

  ValueId embedding(ValueId table, ValueId ids);
  ValueId linear(ValueId x, ValueId w);
  ValueId linear(ValueId x, ValueId w, ValueId b) { return bias_add(linear(x, w), b); }
  ValueId bias_add(ValueId x, ValueId b);
  struct RmsOptions {
    double offset = 0;  // the factor of an element is offset + w
    int whole =
        1;  // dims of x, the last ones, that are normed together; above 1 w is [embed = their product]
  };
  ValueId rms_norm(ValueId x, ValueId w, double eps, RmsOptions options);
  ValueId rms_norm(ValueId x, ValueId w, double eps) { return rms_norm(x, w, eps, {}); }
  ValueId layer_norm(ValueId x, ValueId w, ValueId b, double eps);
  // Rotates the first 2 * inv_freq.size() elements of each head.
  ValueId rope(ValueId x, const std::vector<double>& inv_freq, double scale = 1.0);
  struct AttentionOptions {
    int64_t window = 0;  // 0: unlimited
    double scale = 1.0;
    double dropout = 0.0;
    double soft_cap = 0.0;    // scores become cap * tanh(score / cap); 0: none
    int64_t chunk = 0;        // queries see keys of their own chunk of a document only; 0: of all
    ValueId sink = {};        // [heads]: the score of one more key, of value 0
    bool both_sides = false;  // queries see later keys too; not with a window, nor with a cache
  };
  ValueId attention(ValueId q, ValueId k, ValueId v, AttentionOptions options);
  enum class Gate : uint8_t { Silu, Gelu };
  ValueId swiglu(ValueId gate, ValueId up, Gate act = Gate::Silu);  // act(gate) * up
  enum class GeluForm : uint8_t { Tanh, Erf };
  ValueId gelu(ValueId x, GeluForm form = GeluForm::Tanh);
  ValueId scale(ValueId x, double factor);                         // factor 1: x itself
  ValueId center(ValueId x);                                       // minus its mean over the last dim
  ValueId unit_norm(ValueId x, double eps);                        // RMSNorm without weights
  ValueId clip(ValueId x, double limit);                           // to +-limit; 0: x itself
  ValueId position_scale(ValueId x, double scale, int64_t floor);  // ops/rows.cc; scale 0: x itself
  ValueId add(ValueId a, ValueId b);
  ValueId dropout(ValueId x, double p);  // p = 0, or outside training: x itself

  // Any op, such as one of the caller's own; its first result.
  ValueId emit(const OpDef& op, std::vector<ValueId> inputs, Attrs attrs = {});

  // Concatenates along each head; b may be one part that all heads share ([tokens, choices=1, d]).
  ValueId join_heads(ValueId a, ValueId b);

  // ---- experts (builder_experts.cc); ops/*.cc define what each op computes.

  // Equal on all ranks, initially zero, changed only at the end of a step.
  ValueId state(std::string name, Type type);

  // In training only: x with every element multiplied by a random number in 1 +- eps; eps 0: x itself.
  ValueId jitter(ValueId x, double eps);
  ValueId router(ValueId x, ValueId w, ValueId b = {});  // b: [routes]
  struct Selection {
    ValueId scores, chosen, weights;
  };
  Selection select(ValueId logits, const SelectOptions& options, ValueId bias = {});
  // The selection with random numbers as weights, for limit(): the same in every layout.
  Selection with_random_weights(const Selection& selection);
  // `capacity` rows per expert in every group of `group` sequences, kept by position or else by largest
  // weight.
  ValueId limit(const Selection& selection, int64_t capacity, int64_t group, bool by_position);

  // The exchange of rows with experts. pad: rows that every expert gets; 0: as many as choose it. bound: a
  // rank's buffers hold this many times the mean rows, 0: all that can arrive.
  struct Dispatch {
    ValueId order, send, received;
    int64_t choices, pad;
  };
  Dispatch route(ValueId kept, int64_t experts, int64_t pad, double bound = 0);
  ValueId to_experts(ValueId x, const Dispatch& dispatch);  // x[tokens, d...]
  ValueId weights_to_experts(ValueId weights, const Dispatch& dispatch);
  ValueId to_tokens(ValueId y, const Dispatch& dispatch);  // the sum over each token's experts
  ValueId grouped_linear(ValueId x, ValueId w, const Dispatch& dispatch);
  struct Clamp {
    double alpha = 0, limit = 0;  // ops/experts.cc; limit 0: none
  };
  ValueId expert_act(ValueId gate, ValueId up, ValueId row_weight, const Dispatch& dispatch, Clamp clamp);
  ValueId expert_act(ValueId gate, ValueId up, ValueId row_weight, const Dispatch& dispatch) {
    return expert_act(gate, up, row_weight, dispatch, {});
  }
  ValueId expert_bias(ValueId y, ValueId b, const Dispatch& dispatch);  // b: [experts, f]
  // The sum over each token's experts of their columns of b[embed, routes], weighted.
  ValueId weighted_biases(const Selection& selection, ValueId kept, ValueId b);
  // The numbers of the chosen experts: [tokens, routes] -> [tokens, choices], in the compute dtype.
  ValueId of_chosen(ValueId numbers, const Selection& selection);
  ValueId scale_rows(ValueId y, ValueId gate);  // sigmoid(gate) * y

  // In training only: the load as a step sum; a bias is moved by `rate` at the end of the step.
  void report_load(const Selection& selection, ValueId kept, ValueId bias = {}, double rate = 0);
  // In training only: auxiliary losses. Their values are step sums, of kind `as` for balance losses; their
  // gradients are added to the others.
  void balance_loss(const Selection& selection, double coefficient, Scope scope,
                    SumKind as = SumKind::BalanceLoss);
  void z_loss(ValueId logits, double coefficient);

  // Ends the model: x[tokens, embed] against w[vocab, embed], plus a bias[vocab] if there is one, the logits
  // capped softly (0: not). In mode Infer the graph's result is the logits.
  void head(ValueId x, ValueId w, double soft_cap = 0, ValueId bias = {});
  // In training only, before head(): the loss of a second head of the same form against the labels of the
  // next rows is added, times `weight` (multi-token prediction). Its value is a step sum.
  void next_token_loss(ValueId x, ValueId w, double weight);

  // Freezes parameters whose name matches one of the patterns ('*' and '?'), whatever the recipe's groups
  // say; a pattern that matches none is an error.
  void freeze(const std::vector<std::string>& patterns);

  // Finishes the graph: in mode Train appends the backward pass. The builder must not be used afterwards.
  Graph finish();

  Graph& graph() { return graph_; }

 private:
  ValueId cached_attention(ValueId q, ValueId k, ValueId v, const AttentionOptions& options);
  ValueId sequences();
  ValueId page_table();
  void emit_sample(ValueId x);
  void emit_scores();
  void assign_groups();
  [[noreturn]] void fail_unmatched(std::string_view pattern) const;
  void emit_loss();
  // A head with its loss, and the gradients of both operands, which are appended to `seeds`.
  struct Head {
    ValueId x, w, labels;
    double weight = 1;
    ValueId bias = {};
  };
  struct Logits {
    ValueId raw, capped;  // before and after the soft cap; the same without one
  };
  Logits emit_logits(ValueId x, ValueId w, ValueId bias, int row_group);
  ValueId head_logits(int row_group);                      // of head()
  using Seeds = std::vector<std::pair<ValueId, ValueId>>;  // a value and its gradient
  ValueId emit_head_loss(const Head& head, ValueId seed, int row_group, Seeds& seeds);
  bool depends_on_trainable(ValueId x) const;
  void add_loss(SumKind kind, ValueId value);
  ValueId in_compute_type(ValueId x);
  ValueId row_input(InputKind kind);
  ValueId samples();
  ValueId dropout_key();

  BuildOptions options_;
  Graph graph_;
  ValueId ids_, labels_, positions_, documents_, samples_, dropout_key_, head_x_, head_w_, head_bias_,
      sequences_, page_table_, next_ids_, token_types_, routes_;
  std::vector<Head> next_heads_;
  std::vector<ValueId> losses_;  // auxiliary
  std::vector<ValueId> chosen_;  // of every select
  int block_ = 0;
  int64_t salt_ = 0, route_column_ = 0;
  double soft_cap_ = 0;  // of the logits
  bool done_ = false;
};

}  // namespace quintet::graph
