#include "graph/builder.h"

#include <algorithm>

#include "base/error.h"
#include "base/glob.h"
#include "base/text.h"
#include "graph/autodiff.h"

namespace quintet::graph {
Builder::Builder(BuildOptions given) : options_(std::move(given)) {
  const BuildOptions& options = options_;
  if (options.seq_len <= 0 || options.tokens <= 0 || options.tokens % options.seq_len != 0)
    base::fail_user("a micro-batch must hold whole sequences: got {} tokens in sequences of {}",
                    options.tokens, options.seq_len);
  ids_ = row_input(InputKind::Ids);
  const bool cached = options.mode == Mode::Prefill || options.mode == Mode::Decode;
  if (!cached) labels_ = row_input(InputKind::Labels);
  positions_ = row_input(InputKind::Positions);
  if (options.mode != Mode::Decode) documents_ = row_input(InputKind::Documents);
}

ValueId Builder::row_input(InputKind kind) {
  return graph_.add_input({.kind = kind}, {DType::I32, {{Dim::Tokens, options_.tokens}}});
}

ValueId Builder::samples() {
  if (!samples_.valid()) samples_ = row_input(InputKind::Samples);
  return samples_;
}

ValueId Builder::dropout_key() {
  if (!dropout_key_.valid())
    dropout_key_ = graph_.add_input({.kind = InputKind::DropoutKey}, {DType::I64, {}});
  return dropout_key_;
}

ValueId Builder::emit(const OpDef& op, std::vector<ValueId> inputs, Attrs attrs) {
  return graph_.add_node(op, std::move(inputs), std::move(attrs), Phase::F, block_).outputs[0];
}

ValueId Builder::weight(std::string name, std::vector<DimSize> dims, double stddev) {
  return graph_.add_param(std::move(name), {options_.compute, std::move(dims)},
                          {.init = Init::Normal, .stddev = stddev, .decay = true, .block = block_});
}

ValueId Builder::norm_weight(std::string name, DimSize dim) { return norm_weight(std::move(name), dim, 0); }

ValueId Builder::norm_weight(std::string name, DimSize dim, double offset) {
  return graph_.add_param(std::move(name), {options_.compute, {dim}},
                          {.init = offset == 0 ? Init::Ones : Init::Zeros, .decay = false, .block = block_});
}

ValueId Builder::bias(std::string name, std::vector<DimSize> dims) {
  return graph_.add_param(std::move(name), {options_.compute, std::move(dims)},
                          {.init = Init::Zeros, .decay = false, .block = block_});
}

ValueId Builder::embedding(ValueId table, ValueId ids) { return emit(kEmbedding, {table, ids}); }
ValueId Builder::linear(ValueId x, ValueId w) { return emit(kLinear, {x, w}); }
ValueId Builder::bias_add(ValueId x, ValueId b) { return emit(kBiasAdd, {x, b}); }
ValueId Builder::rms_norm(ValueId x, ValueId w, double eps, RmsOptions options) {
  Attrs attrs{{"eps", eps}};
  if (options.whole > 1) attrs.set("whole", int64_t{options.whole});
  if (options.offset != 0) attrs.set("offset", options.offset);
  return emit(kRmsNorm, {x, w}, std::move(attrs));
}
ValueId Builder::layer_norm(ValueId x, ValueId w, ValueId b, double eps) {
  return emit(kLayerNorm, {x, w, b}, {{"eps", eps}});
}
ValueId Builder::rope(ValueId x, const std::vector<double>& inv_freq, double scale) {
  return emit(kRope, {x, positions_}, {{"inv_freq", inv_freq}, {"scale", scale}, {"inverse", int64_t{0}}});
}

ValueId Builder::attention(ValueId q, ValueId k, ValueId v, AttentionOptions o) {
  if (options_.mode == Mode::Prefill || options_.mode == Mode::Decode) {
    if (o.sink.valid() || o.chunk > 0)
      base::fail_user("generating text with a cache is not supported yet for models with {}",
                      o.chunk > 0 ? "model.attention_chunk" : "model.attention_sinks");
    const ValueId cached = cached_attention(q, k, v, o);
    if (options_.mode == Mode::Decode) return cached;
  }
  const ValueId documents = o.chunk == 0 ? documents_
                                         : emit(kSplitDocuments, {documents_, positions_},
                                                {{"chunk", o.chunk}, {"seq_len", options_.seq_len}});
  std::vector<ValueId> in = {q, k, v, documents, documents};  // of the queries, of the keys
  const double p = options_.mode == Mode::Train ? o.dropout : 0.0;
  if (p > 0) in.insert(in.end(), {samples(), positions_, positions_, dropout_key()});
  Attrs attrs{{"seq_len", options_.seq_len},
              {"window", o.window},
              {"scale", o.scale},
              {"dropout", p},
              {"salt", salt_++},
              {"cp", int64_t{1}},
              {"ulysses", int64_t{1}},
              {"packed", int64_t{options_.packed || o.chunk > 0}},
              {"deterministic", int64_t{options_.deterministic}}};
  if (o.soft_cap > 0) attrs.set("soft_cap", o.soft_cap);
  const ValueId y = emit(kAttention, std::move(in), std::move(attrs));
  if (!o.sink.valid()) return y;
  const ValueId lse = graph_.nodes()[graph_.value(y).producer.index()].outputs[1];
  return emit(kAttentionSink, {y, lse, o.sink});
}

ValueId Builder::swiglu(ValueId gate, ValueId up, Gate act) {
  Attrs attrs;
  if (act == Gate::Gelu) attrs.set("act", std::string("gelu"));
  return emit(kSwiGlu, {gate, up}, std::move(attrs));
}
ValueId Builder::gelu(ValueId x, GeluForm form) {
  Attrs attrs;
  if (form == GeluForm::Erf) attrs.set("form", std::string("erf"));
  return emit(kGelu, {x}, std::move(attrs));
}
ValueId Builder::center(ValueId x) { return emit(kCenter, {x}); }
ValueId Builder::unit_norm(ValueId x, double eps) { return emit(kUnitNorm, {x}, {{"eps", eps}}); }
ValueId Builder::clip(ValueId x, double limit) {
  return limit == 0 ? x : emit(kClip, {x}, {{"limit", limit}});
}
ValueId Builder::position_scale(ValueId x, double scale, int64_t floor) {
  return scale == 0 ? x : emit(kPositionScale, {x, positions_}, {{"scale", scale}, {"floor", floor}});
}
ValueId Builder::scale(ValueId x, double factor) {
  return factor == 1 ? x : emit(kScale, {x}, {{"factor", factor}});
}
ValueId Builder::add(ValueId a, ValueId b) { return emit(kAdd, {a, b}); }

ValueId Builder::dropout(ValueId x, double p) {
  if (p == 0 || options_.mode != Mode::Train) return x;
  return emit(kDropout, {x, samples(), positions_, dropout_key()}, {{"p", p}, {"salt", salt_++}});
}

void Builder::head(ValueId x, ValueId w, double soft_cap) {
  if (done_) base::fail_user("the model already has a head");
  done_ = true;
  soft_cap_ = soft_cap;
  if (options_.mode == Mode::Infer) {
    graph_.logits = emit(kLinear, {x, w});
    if (soft_cap > 0) graph_.logits = emit(kSoftCap, {graph_.logits}, {{"cap", soft_cap}});
    return;
  }
  if (options_.mode == Mode::Prefill || options_.mode == Mode::Decode) return emit_sample(x, w);
  head_x_ = x;
  head_w_ = w;
}

void Builder::freeze(const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    bool hit = false;
    for (Param& p : graph_.params())
      if (base::glob_match(pattern, graph_.value(p.value).name)) p.trainable = false, hit = true;
    if (!hit) fail_unmatched(pattern);
  }
}

void Builder::assign_groups() {
  for (size_t g = 0; g < options_.groups.size(); ++g) {
    const ParamGroup& group = options_.groups[g];
    const Param* taken = nullptr;
    bool hit = false;
    for (Param& p : graph_.params()) {
      if (!base::glob_match(group.match, graph_.value(p.value).name)) continue;
      if (p.group >= 0) {
        taken = &p;
        continue;
      }
      hit = true;
      p.group = static_cast<int>(g);
      p.trainable = p.trainable && group.update;
    }
    if (hit) continue;
    if (taken == nullptr) fail_unmatched(group.match);
    base::fail_user(
        "optimizer.groups: \"{}\" has no effect: what it matches, such as {}, belongs to \"{}\" before it; "
        "the "
        "first match applies, so put the narrower pattern first",
        group.match, graph_.value(taken->value).name,
        options_.groups[static_cast<size_t>(taken->group)].match);
  }
}

void Builder::fail_unmatched(std::string_view pattern) const {
  std::string letters;
  for (const char c : pattern)
    if (c != '*' && c != '?') letters += c;
  std::vector<std::pair<int, std::string>> names;
  for (const Param& p : graph_.params()) {
    const std::string& name = graph_.value(p.value).name;
    names.emplace_back(base::edit_distance(letters, name), name);
  }
  constexpr size_t kFew = 3;
  std::stable_sort(names.begin(), names.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string nearest;
  for (size_t i = 0; i < names.size() && i < kFew; ++i) nearest += (i ? ", " : "") + names[i].second;
  base::fail_user("optimizer.groups: \"{}\" matches no parameter; the nearest of {} names are {}", pattern,
                  names.size(), nearest);
}

Graph Builder::finish() {
  if (!done_) base::fail_user("the model has no head: call head(x, w) last");
  graph_.num_blocks = block_ + 1;
  assign_groups();
  if (options_.mode == Mode::Score) emit_scores();
  if (!infers(options_.mode)) emit_loss();
  return std::move(graph_);
}

// Logits, loss and also the gradients of the head: all in the forward phase and in one row group, so that
// whole logits never exist. Only the gradients that are needed are computed, which is known only when the
// model is complete.
void Builder::emit_loss() {
  const ValueId seed = graph_.add_input({.kind = InputKind::Seed}, {DType::F64, {}});
  const auto emit_row = [&](const OpDef& op, std::vector<ValueId> inputs, Attrs attrs = {}) {
    Node& node = graph_.add_node(op, std::move(inputs), std::move(attrs), Phase::F, block_);
    node.row_group = 0;
    return node.outputs;
  };
  graph_.row_chunk = options_.loss_chunk;
  const Attrs cap = soft_cap_ > 0 ? Attrs{{"cap", soft_cap_}} : Attrs();
  const ValueId raw = emit_row(kLinear, {head_x_, head_w_})[0];
  const ValueId logits = soft_cap_ > 0 ? emit_row(kSoftCap, {raw}, cap)[0] : raw;
  const ValueId max = emit_row(kRowMax, {logits})[0];
  const ValueId sums = emit_row(kRowSumExp, {logits, max, labels_})[0];
  const auto loss = emit_row(kLossGrad, {logits, max, sums, labels_, seed});
  graph_.loss = loss[0];
  if (options_.mode != Mode::Train) return;

  bool any = false, dx = false;
  for (const Param& p : graph_.params()) any |= p.trainable;
  if (!any) base::fail_user("every parameter is frozen: nothing would be trained");
  const Param* w = graph_.find_param(head_w_);
  const bool dw = w != nullptr && w->trainable;
  for (const Param& p : graph_.params()) dx |= p.trainable && p.value != head_w_;
  for (const Node& n : graph_.nodes())  // a tied table feeds the embedding too, so x depends on it
    dx |= dw && n.op == &kEmbedding && n.inputs[0] == head_w_;
  std::vector<std::pair<ValueId, ValueId>> seeds;
  ValueId dlogits = loss[1];
  if (soft_cap_ > 0) dlogits = emit_row(kSoftCapDx, {dlogits, raw}, cap)[0];
  if (dx) seeds.emplace_back(head_x_, emit_row(kLinearDx, {dlogits, head_w_})[0]);
  if (dw)
    seeds.emplace_back(head_w_, emit_row(kLinearDw, {dlogits, head_x_},
                                         {{"out", std::string(base::to_string(options_.param_grad))}})[0]);
  if (!losses_.empty()) {
    const ValueId one = graph_.add_input({.kind = InputKind::LossScale}, {DType::F64, {}});
    for (const ValueId loss : losses_) seeds.emplace_back(loss, one);
  }
  differentiate(graph_, options_.param_grad, seeds);
}

}  // namespace quintet::graph
