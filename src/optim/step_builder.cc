#include "optim/step_builder.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "graph/fp8_ops.h"

namespace quintet::optim {

using graph::DType;
using graph::Keep;
using graph::Phase;
using graph::Role;
using graph::Type;
using graph::ValueKind;

ParamSettings settings_of(const config::Optimizer& o, const graph::Param& p) {
  ParamSettings s{.kind = o.kind, .weight_decay = p.decay ? o.weight_decay : 0, .row = p.decay};
  if (p.group < 0) return s;
  const config::ParamGroup& group = o.groups.at(static_cast<size_t>(p.group));
  s.kind = group.kind.value_or(o.kind);
  if (!group.lr && !group.weight_decay) return s;
  s.lr_factor = group.lr.value_or(o.lr) / o.lr;
  s.weight_decay = group.weight_decay.value_or(s.weight_decay);
  s.row = 2 * (p.group + 1) + (p.decay || group.weight_decay.has_value());
  return s;
}

StepBuilder::StepBuilder(const graph::Graph& model, const config::Optimizer& optimizer,
                         const config::Precision& precision, const Guards& guards, int64_t seed,
                         Optimizer custom)
    : model_(model),
      optimizer_(optimizer),
      precision_(precision),
      guards_(guards),
      seed_(seed),
      custom_(custom) {
  out_.graph.num_blocks = model.num_blocks;
  const bool any = std::any_of(optimizer.groups.begin(), optimizer.groups.end(),
                               [](const config::ParamGroup& g) { return g.lr || g.weight_decay; });
  if (!any) return;
  for (const config::ParamGroup& g : optimizer.groups)
    rates_.insert(rates_.end(), {g.lr.value_or(optimizer.lr) / optimizer.lr,
                                 g.weight_decay.value_or(optimizer.weight_decay)});
}

ValueId StepBuilder::scalar(std::string name) {
  return out_.graph.add_value({.name = std::move(name), .type = {DType::F64, {}}, .kind = ValueKind::State});
}

ValueId StepBuilder::scalar_state(std::string name, double initial) {
  const ValueId value = scalar(name);
  out_.states.push_back({.name = name,
                         .role = Role::Scalar,
                         .type = {DType::F64, {}},
                         .initial = initial,
                         .slot = std::move(name),
                         .value = value});
  return value;
}

ValueId StepBuilder::declare(const Trained& t, std::string name, std::string slot, Role role, Keep keep,
                             DType dtype) {
  const Type type{dtype, t.type.dims};
  const ValueId value = out_.graph.add_value({.name = name, .type = type, .kind = ValueKind::State});
  out_.state_of.resize(out_.graph.values().size(), -1);
  out_.state_of.back() = static_cast<int>(out_.states.size());
  out_.states.push_back({.name = std::move(name),
                         .role = role,
                         .type = type,
                         .keep = keep,
                         .param = t.name,
                         .slot = std::move(slot),
                         .value = value});
  return value;
}

Trained StepBuilder::add_param(const graph::Param& p) {
  const graph::Value& v = model_.value(p.value);
  const DType master = precision_.master_type();
  Trained t{.name = v.name,
            .param = &p,
            .type = {master, v.type.dims},
            .settings = settings_of(optimizer_, p),
            .gradient = {},
            .weight = {},
            .copy = {}};
  t.gradient =
      declare(t, t.name + "/gradient", "grad", Role::Gradient, Keep::Transient, precision_.gradients);
  const bool rounded = master != precision_.compute;
  t.weight = declare(t, t.name, rounded ? "master" : "param", rounded ? Role::Master : Role::Weight,
                     Keep::Saved, master);
  if (!rounded) return t;
  if (precision_.split_master()) {
    // The upper half of a split master is the weight that matmuls read, so the step writes no copy.
    out_.states.back().encoding = graph::Encoding::Split;
    out_.states.push_back({.name = t.name + "/weight",
                           .role = Role::Weight,
                           .type = {precision_.compute, v.type.dims},
                           .keep = Keep::Derived,
                           .param = t.name,
                           .slot = "param"});
  } else {
    t.copy = declare(t, t.name + "/weight", "param", Role::Weight, Keep::Derived, precision_.compute);
  }
  return t;
}

ValueId StepBuilder::moment(const Trained& t, const std::string& name) {
  return declare(t, t.name + "/" + name, name, Role::Moment, Keep::Saved, precision_.moments);
}

ValueId StepBuilder::second_moment(const Trained& t, const std::string& name) {
  const ValueId value = moment(t, name);
  out_.states.back().of_squares = true;
  return value;
}

ValueId StepBuilder::codes(const Trained& t, const std::string& name, bool of_squares) {
  const ValueId value = declare(t, t.name + "/" + name, name, Role::Moment, Keep::Saved, DType::U8);
  out_.states.back().of_squares = of_squares;
  return value;
}

ValueId StepBuilder::scales(const Trained& t, const std::string& name) {
  const ValueId value = declare(t, t.name + "/" + name, name, Role::Moment, Keep::Saved, t.type.dtype);
  out_.states.back().block = optimizer_.block_size;
  return value;
}

void StepBuilder::update(const graph::OpDef& op, graph::Attrs attrs, Trained& t,
                         const std::vector<ValueId>& states) {
  attrs.set("weight_decay", optimizer_.weight_decay);
  if (!rates_.empty()) attrs.set("groups", rates_);
  attrs.set("ranges", std::vector<int64_t>{0, 0, t.type.count(), t.settings.row});  // the whole parameter
  add_update(op, std::move(attrs), t, states, {});
}

void StepBuilder::add_update(const graph::OpDef& op, graph::Attrs attrs, Trained& t,
                             const std::vector<ValueId>& states, ValueId norms) {
  std::vector<ValueId> in = {t.gradient, t.weight};
  in.insert(in.end(), states.begin(), states.end());
  if (t.copy.valid()) in.push_back(t.copy);
  add_scalars(in, attrs);
  if (norms.valid()) in.push_back(norms);
  if (precision_.moments_rounding == config::MomentsRounding::Stochastic && op.has_attribute("seed") &&
      !states.empty())
    attrs.set("seed", seed_);
  const graph::Node& node =
      out_.graph.add_node(op, std::move(in), std::move(attrs), Phase::F, t.param->block);
  const std::vector<ValueId> results = node.outputs;
  t.weight = results.front();
  if (t.copy.valid()) t.copy = results.back();
}

void StepBuilder::add_scalars(std::vector<ValueId>& in, graph::Attrs& attrs) const {
  in.insert(in.end(), {lr_, clip_scale_, ok_, update_count_});
  if (!decay_ratio_.valid()) return;
  in.push_back(decay_ratio_);
  attrs.set("decay_ramp", int64_t{1});
}

void StepBuilder::add_average(const Trained& t) {
  const ValueId average = declare(t, t.name + "/ema", "ema", Role::Ema, Keep::Saved, t.type.dtype);
  out_.graph.add_node(graph::kEma, {t.weight, average, lr_, clip_scale_, ok_, update_count_},
                      {{"decay", optimizer_.ema}, {"ranges", std::vector<int64_t>{0, 0, t.type.count(), 0}}},
                      Phase::F, t.param->block);
}

void StepBuilder::update_by_ratio(const graph::OpDef& norms, const graph::OpDef& op, graph::Attrs attrs,
                                  Trained& t, std::vector<ValueId> states, std::vector<ValueId> read) {
  auto at =
      std::find_if(by_ratio_.begin(), by_ratio_.end(), [&](const RatioUpdates& u) { return u.op == &op; });
  if (at == by_ratio_.end()) {
    const std::array<double, 2>& limits = optimizer().ratio_limits;
    if (limits != std::array<double, 2>{})
      attrs.set("ratio_limits", std::vector(limits.begin(), limits.end()));
    at = by_ratio_.insert(at, {&norms, &op, std::move(attrs), {}});
  }
  at->of.push_back({&t, std::move(states), std::move(read)});
}

// One node computes the norms of all parameters, so that one all-reduce sums them; the updates follow.
void StepBuilder::add_ratio_updates(RatioUpdates& updates) {
  std::vector<ValueId> in;
  std::vector<Trained*> params;
  for (const RatioUpdate& u : updates.of) {
    params.push_back(u.param);
    in.insert(in.end(), {u.param->gradient, u.param->weight});
    in.insert(in.end(), u.read.begin(), u.read.end());
  }
  graph::Attrs attrs = std::move(updates.attrs);
  add_scalars(in, attrs);
  attrs = with_rates(std::move(attrs), params);
  const std::vector<int64_t> ranges = attrs.integers("ranges");
  const ValueId norms = out_.graph.add_node(*updates.norms, std::move(in), attrs, Phase::F, 0).outputs[0];
  out_.graph.value(norms).name = std::string(updates.norms->name);
  for (size_t i = 0; i < updates.of.size(); ++i) {
    Trained& t = *updates.of[i].param;
    attrs.set("ranges", std::vector<int64_t>{0, 0, t.type.count(), ranges[4 * i + 3]});
    add_update(*updates.op, attrs, t, updates.of[i].states, norms);
  }
}

void StepBuilder::update_together(AddTogether add, Trained& t) {
  auto at = std::find_if(together_.begin(), together_.end(), [&](const auto& u) { return u.first == add; });
  if (at == together_.end()) at = together_.insert(at, {add, {}});
  at->second.push_back(&t);
}

ValueId StepBuilder::replicated_state(const std::string& name, int64_t count, bool of_squares) {
  const Type type{precision_.master_type(), {{graph::Dim::Flat, count}}};
  const ValueId value = out_.graph.add_value({.name = name, .type = type, .kind = ValueKind::State});
  out_.states.push_back({.name = name,
                         .role = Role::Moment,
                         .type = type,
                         .of_squares = of_squares,
                         .slot = name,
                         .value = value});
  return value;
}

graph::Attrs StepBuilder::with_rates(graph::Attrs attrs, std::span<Trained* const> params) const {
  std::vector<double> rates;
  std::vector<int64_t> ranges;
  for (const Trained* t : params) {
    const auto index = static_cast<int64_t>(rates.size() / 2);
    rates.insert(rates.end(), {t->settings.lr_factor, t->settings.weight_decay});
    ranges.insert(ranges.end(), {index, 0, t->type.count(), 2 * (index + 1) + t->settings.row % 2});
  }
  attrs.set("weight_decay", optimizer_.weight_decay);
  attrs.set("groups", std::move(rates));
  attrs.set("ranges", std::move(ranges));
  return attrs;
}

Optimizer StepBuilder::find(config::OptimizerKind kind) const {
  if (kind != config::OptimizerKind::Custom) return find_optimizer(kind);
  if (custom_ == nullptr)
    base::fail_user(
        "optimizer.name = \"custom\" needs a program that supplies the optimizer (docs/api.md); expected a "
        "built-in one, for example \"adamw\"");
  return custom_;
}

// Step sums are reduced over all ranks even if no update reads them: the run reports them.
void StepBuilder::add_sums() {
  if (model_.step_sums.empty()) return;
  for (size_t i = 0; i < model_.step_sums.size(); ++i)
    out_.sums.push_back(
        out_.graph.add_value({.name = fmt::format("{}.{}", to_string(model_.step_sums[i].kind), i),
                              .type = model_.type(model_.step_sums[i].value),
                              .kind = ValueKind::State}));
  std::vector<ValueId> sums, maxima;
  for (size_t i = 0; i < out_.sums.size(); ++i)
    (model_.step_sums[i].kind == graph::SumKind::Amax ? maxima : sums).push_back(out_.sums[i]);
  QUINTET_CHECK(sums.empty() || std::equal(sums.begin(), sums.end(), out_.sums.begin()),
                "maxima of a step are declared before its sums");
  if (!sums.empty()) sums_ = out_.graph.add_node(graph::kStepSums, std::move(sums), {}, Phase::F, 0).outputs;
  if (maxima.empty()) return;
  amax_ = out_.graph.add_node(graph::kStepMaxima, std::move(maxima), {}, Phase::F, 0).outputs[0];
  out_.graph.value(amax_).name = "amax";
}

// The magnitudes that the scales of quantised values follow from.
void StepBuilder::add_amax_history() {
  if (!amax_.valid()) return;
  std::vector<int64_t> scales;
  for (const graph::StepSum& sum : model_.step_sums)
    if (sum.kind == graph::SumKind::Amax) scales.push_back(sum.scale);
  const auto entries = static_cast<int64_t>(model_.scales.size()) * graph::kAmaxHistory;
  const std::string name(graph::kAmaxState);
  const Type type{DType::F64, {{graph::Dim::Flat, entries}}};
  const ValueId history = out_.graph.add_value({.name = name, .type = type, .kind = ValueKind::State});
  out_.states.push_back({.name = name, .role = Role::Amax, .type = type, .slot = name, .value = history});
  const ValueId next = out_.graph
                           .add_node(graph::kRecordAmax, {amax_, ok_, update_count_, history},
                                     {{"scales", std::move(scales)}}, Phase::F, 0)
                           .outputs[0];
  out_.graph.value(next).name = name;
}

// The norm of all gradients, and from it the clip scale and whether the step is applied.
void StepBuilder::add_norm() {
  graph::Graph& g = out_.graph;
  const bool inf = optimizer_.clip == config::ClipKind::Inf;
  ValueId squares;
  if (!trained_.empty()) {
    std::vector<ValueId> gradients;
    std::vector<int64_t> ranges;
    for (const Trained& t : trained_) {
      ranges.insert(ranges.end(), {static_cast<int64_t>(gradients.size()), 0, t.type.count(), 0});
      gradients.push_back(t.gradient);
    }
    const graph::OpDef& op = inf ? graph::kMaxAbs : graph::kSumSquares;
    squares = g.add_node(op, gradients, {{"ranges", ranges}}, Phase::F, 0).outputs[0];
    g.value(squares).name = "sum_squares";
  } else {
    squares = scalar("sum_squares");  // stays 0
  }
  out_.loss = scalar("loss");
  lr_ = scalar("lr");
  if (optimizer_.weight_decay_ramp.kind != config::RampKind::Constant)
    decay_ratio_ = scalar("weight_decay_ratio");
  update_count_ = scalar_state("update_count");
  const ValueId skipped_in_row = scalar_state("skipped_in_row"),
                skipped_total = scalar_state("skipped_total"), loss_scale = scalar_state("loss_scale", 1),
                good_steps = scalar_state("good_steps");
  const int64_t window = precision_.loss_scale.dynamic ? precision_.loss_scale_window : 0;
  graph::Attrs attrs = {{"max_norm", optimizer_.clip_norm}, {"window", window}};
  if (inf) attrs.set("largest", int64_t{1});
  if (window > 0 && precision_.loss_scale_min != 1) attrs.set("least", precision_.loss_scale_min);
  std::vector<ValueId> in = {squares,        out_.loss,     loss_scale, update_count_,
                             skipped_in_row, skipped_total, good_steps};
  if (guards_.spikes) in.insert(in.end(), {scalar("count"), scalar("loss_limit"), scalar("norm_limit")});
  if (window > 0 && precision_.loss_scale_hysteresis > 1) {
    attrs.set("hysteresis", precision_.loss_scale_hysteresis);
    in.push_back(scalar_state("overflows"));
  }
  const std::vector<ValueId> out =
      g.add_node(graph::kClipScale, std::move(in), std::move(attrs), Phase::F, 0).outputs;
  const char* const names[] = {"norm",           "clip_scale",    "ok",         "loss_scale", "update_count",
                               "skipped_in_row", "skipped_total", "good_steps", "overflows"};
  for (size_t i = 0; i < out.size(); ++i) g.value(out[i]).name = names[i];
  clip_scale_ = out[1];
  ok_ = out[2];
  update_count_ = out[4];
}

void StepBuilder::add_bias_updates() {
  for (const graph::BiasUpdate& update : model_.bias_updates) {
    size_t load = 0;
    while (model_.step_sums[load].value != update.load) ++load;
    const graph::Value& bias = model_.value(update.bias);
    const ValueId state =
        out_.graph.add_value({.name = bias.name, .type = bias.type, .kind = ValueKind::State});
    out_.states.push_back(
        {.name = bias.name, .role = Role::RouterBias, .type = bias.type, .slot = "bias", .value = state});
    const ValueId next = out_.graph
                             .add_node(graph::kUpdateBias, {sums_[load], ok_, state}, {{"rate", update.rate}},
                                       Phase::F, model_.step_sums[load].block)
                             .outputs[0];
    out_.graph.value(next).name = bias.name;
  }
}

graph::StepGraph StepBuilder::build() {
  const std::vector<graph::StateDecl> frozen = graph::weight_states(model_, precision_.compute);
  for (size_t i = 0; i < model_.params().size(); ++i)
    if (const graph::Param& p = model_.params()[i]; p.trainable)
      trained_.push_back(add_param(p));
    else
      out_.states.push_back(frozen[i]);
  add_sums();
  add_norm();
  for (Trained& t : trained_) find(t.settings.kind)(*this, t);
  for (RatioUpdates& updates : by_ratio_) add_ratio_updates(updates);
  for (const auto& [add, params] : together_) add(*this, params);
  if (optimizer_.ema > 0)
    for (const Trained& t : trained_) add_average(t);
  add_bias_updates();
  add_amax_history();
  return std::move(out_);
}

graph::StepGraph build_step(const graph::Graph& model, const config::Optimizer& optimizer,
                            const config::Precision& precision, const Guards& guards, int64_t seed,
                            Optimizer custom) {
  return StepBuilder(model, optimizer, precision, guards, seed, custom).build();
}

}  // namespace quintet::optim
