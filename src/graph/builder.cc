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
  if (o.both_sides) attrs.set("both_sides", int64_t{1});
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

void Builder::head(ValueId x, ValueId w, double soft_cap, ValueId bias) {
  if (done_) base::fail_user("the model already has a head");
  done_ = true;
  soft_cap_ = soft_cap;
  head_x_ = x;
  head_w_ = w;
  head_bias_ = bias;
  if (options_.mode == Mode::Infer) graph_.logits = head_logits(-1);
  if (options_.mode == Mode::Prefill || options_.mode == Mode::Decode) emit_sample(x);
}

ValueId Builder::head_logits(int row_group) {
  return emit_logits(head_x_, head_w_, head_bias_, row_group).capped;
}

Builder::Logits Builder::emit_logits(ValueId x, ValueId w, ValueId bias, int row_group) {
  const auto emit_row = [&](const OpDef& op, std::vector<ValueId> inputs, Attrs attrs = {}) {
    Node& node = graph_.add_node(op, std::move(inputs), std::move(attrs), Phase::F, block_);
    node.row_group = row_group;
    return node.outputs[0];
  };
  ValueId raw = emit_row(kLinear, {x, w});
  if (bias.valid()) raw = emit_row(kBiasAdd, {raw, bias});
  return {raw, soft_cap_ > 0 ? emit_row(kSoftCap, {raw}, {{"cap", soft_cap_}}) : raw};
}

ValueId Builder::next_ids() {
  if (!next_ids_.valid()) next_ids_ = row_input(InputKind::NextIds);
  return next_ids_;
}

ValueId Builder::token_types() {
  if (!token_types_.valid()) token_types_ = row_input(InputKind::TokenTypes);
  return token_types_;
}

ValueId Builder::routes() {
  if (!routes_.valid())
    routes_ =
        graph_.add_input({.kind = InputKind::Routes},
                         {DType::I32, {{Dim::Tokens, options_.tokens}, {Dim::Choices, options_.routes}}});
  return routes_;
}

void Builder::next_token_loss(ValueId x, ValueId w, double weight) {
  if (done_) base::fail_user("the loss of further tokens belongs before the head");
  if (options_.mode != Mode::Train) return;
  next_heads_.push_back({x, w, row_input(InputKind::NextLabels), weight});
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
    if (hit || options_.mode != Mode::Train) continue;  // only training has all parameters
    if (taken == nullptr) fail_unmatched(group.match);
    base::fail_user(
        "optimizer.groups: \"{}\" has no effect: what it matches, such as {}, belongs to \"{}\" before it; "
        "the first match applies, so put the narrower pattern first",
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
  if (options_.mode == Mode::Routes) {
    if (chosen_.empty()) base::fail_user("the model has no routers: no block has experts");
    graph_.logits = emit(kJoinChoices, chosen_);
  }
  if (!infers(options_.mode)) emit_loss();
  return std::move(graph_);
}

bool Builder::depends_on_trainable(ValueId x) const {
  std::vector<char> depends(graph_.values().size(), 0);
  for (const Param& p : graph_.params()) depends[p.value.index()] = p.trainable;
  for (const Node& node : graph_.nodes())
    for (const ValueId in : node.inputs)
      if (depends[in.index()])
        for (const ValueId out : node.outputs) depends[out.index()] = 1;
  return depends[x.index()] != 0;
}

// Logits, loss and also the gradients of the head: all in the forward phase and in one row group, so that
// whole logits never exist. Only the gradients that are needed are computed, which is known only when the
// model is complete.
ValueId Builder::emit_head_loss(const Head& head, ValueId seed, int row_group, Seeds& seeds) {
  const auto emit_row = [&](const OpDef& op, std::vector<ValueId> inputs, Attrs attrs = {}) {
    Node& node = graph_.add_node(op, std::move(inputs), std::move(attrs), Phase::F, block_);
    node.row_group = row_group;
    return node.outputs;
  };
  const auto [raw, logits] = emit_logits(head.x, head.w, head.bias, row_group);
  const ValueId max = emit_row(kRowMax, {logits})[0];
  const ValueId sums = emit_row(kRowSumExp, {logits, max, head.labels})[0];
  const auto loss = emit_row(kLossGrad, {logits, max, sums, head.labels, seed});
  if (options_.mode != Mode::Train) return loss[0];
  const auto trains = [&](ValueId v) {
    const Param* p = v.valid() ? graph_.find_param(v) : nullptr;
    return p != nullptr && p->trainable;
  };
  const bool dw = trains(head.w), db = trains(head.bias), dx = depends_on_trainable(head.x);
  ValueId dlogits = loss[1];
  if (soft_cap_ > 0) dlogits = emit_row(kSoftCapDx, {dlogits, raw}, {{"cap", soft_cap_}})[0];
  const Attrs out{{"out", std::string(base::to_string(options_.param_grad))}};
  if (dx) seeds.emplace_back(head.x, emit_row(kLinearDx, {dlogits, head.w})[0]);
  if (dw) seeds.emplace_back(head.w, emit_row(kLinearDw, {dlogits, head.x}, out)[0]);
  if (db) seeds.emplace_back(head.bias, emit_row(kSumRows, {dlogits}, out)[0]);
  return loss[0];
}

void Builder::emit_loss() {
  if (options_.mode == Mode::Train) {
    bool any = false;
    for (const Param& p : graph_.params()) any |= p.trainable;
    if (!any) base::fail_user("every parameter is frozen: nothing would be trained");
  }
  const ValueId seed = graph_.add_input({.kind = InputKind::Seed}, {DType::F64, {}});
  graph_.row_chunk = options_.loss_chunk;
  Seeds seeds;
  graph_.loss = emit_head_loss({head_x_, head_w_, labels_, 1, head_bias_}, seed, 0, seeds);
  if (options_.mode != Mode::Train) return;
  for (size_t i = 0; i < next_heads_.size(); ++i) {
    const ValueId weighted = emit(kScale, {seed}, {{"factor", next_heads_[i].weight}});
    const ValueId loss = emit_head_loss(next_heads_[i], weighted, static_cast<int>(i) + 1, seeds);
    graph_.step_sums.push_back({SumKind::NextTokenLoss, loss, block_});
  }
  if (!losses_.empty()) {
    const ValueId one = graph_.add_input({.kind = InputKind::LossScale}, {DType::F64, {}});
    for (const ValueId loss : losses_) seeds.emplace_back(loss, one);
  }
  differentiate(graph_, options_.param_grad, seeds);
}

}  // namespace quintet::graph
