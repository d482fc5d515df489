// How a model is written: a sequence of calls, with no word about parallelism. Dim names carry all that the
// layout needs. The builder opens every graph with the inputs of a micro-batch and closes it with a loss or
// with logits.
#pragma once

#include <string>

#include "graph/op.h"

namespace quintet::graph {

enum class Mode : uint8_t { Train, Evaluate, Infer };  // loss with gradients, loss alone, logits

struct BuildOptions {
  Mode mode = Mode::Train;
  DType compute = DType::F32;     // activations and the parameters as matmuls see them
  DType param_grad = DType::F32;  // gradients of parameters
  int64_t tokens = 0;             // rows of a micro-batch over the whole mesh: micro x data ranks x seq_len
  int64_t seq_len = 0;
  int64_t loss_chunk = 0;  // token rows whose logits exist at once on a rank; 0: all
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
  const BuildOptions& options() const { return options_; }

  // Blocks are the units in which parameters are gathered and gradients reduced. Label 0 is open at the
  // start.
  void next_block() { ++block_; }

  // Parameters of the compute dtype. Norm weights and biases take no weight decay.
  ValueId weight(std::string name, std::vector<DimSize> dims, double stddev);
  ValueId norm_weight(std::string name, DimSize dim);
  ValueId bias(std::string name, std::vector<DimSize> dims);

  ValueId embedding(ValueId table, ValueId ids);
  ValueId linear(ValueId x, ValueId w);
  ValueId linear(ValueId x, ValueId w, ValueId b) { return bias_add(linear(x, w), b); }
  ValueId bias_add(ValueId x, ValueId b);
  ValueId rms_norm(ValueId x, ValueId w, double eps);
  ValueId layer_norm(ValueId x, ValueId w, ValueId b, double eps);
  ValueId rope(ValueId x, const std::vector<double>& inv_freq, double scale = 1.0);
  struct AttentionOptions {
    int64_t window = 0;  // 0: the whole past
    double scale = 1.0;
    double dropout = 0.0;
  };
  ValueId attention(ValueId q, ValueId k, ValueId v, AttentionOptions options);
  ValueId swiglu(ValueId gate, ValueId up);
  ValueId gelu(ValueId x);
  ValueId add(ValueId a, ValueId b);
  ValueId dropout(ValueId x, double p);  // p = 0, or outside training: x itself

  // Ends the model: x[tokens, embed] against w[vocab, embed]. In mode Infer the graph's result is the logits.
  void head(ValueId x, ValueId w);

  // Freezes parameters whose name matches one of the patterns ('*' and '?'); a pattern that matches none is
  // an error.
  void freeze(const std::vector<std::string>& patterns);

  // Finishes the graph: in mode Train appends the backward pass. The builder is spent afterwards.
  Graph finish();

  Graph& graph() { return graph_; }

 private:
  ValueId emit(const OpDef& op, std::vector<ValueId> inputs, Attrs attrs = {});
  void emit_loss();
  ValueId samples();
  ValueId dropout_key();

  BuildOptions options_;
  Graph graph_;
  ValueId ids_, labels_, positions_, documents_, samples_, dropout_key_, head_x_, head_w_;
  int block_ = 0;
  int64_t salt_ = 0;
  bool done_ = false;
};

}  // namespace quintet::graph
