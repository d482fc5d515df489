// The builder's calls for mixtures of experts.
#include "graph/builder.h"
#include "graph/words.h"

namespace quintet::graph {

ValueId Builder::state(std::string name, Type type) {
  return graph_.add_value({.name = std::move(name), .type = std::move(type), .kind = ValueKind::State});
}

ValueId Builder::join_heads(ValueId a, ValueId b) { return emit(kJoinHeads, {a, b}); }
ValueId Builder::jitter(ValueId x, double eps) {
  if (eps == 0 || options_.mode != Mode::Train) return x;
  return emit(kJitter, {x, samples(), positions_, dropout_key()}, {{"eps", eps}, {"salt", salt_++}});
}
ValueId Builder::router(ValueId x, ValueId w, ValueId b) {
  return b.valid() ? emit(kRouter, {x, w, b}) : emit(kRouter, {x, w});
}

Builder::Selection Builder::select(ValueId logits, const SelectOptions& o, ValueId bias) {
  std::vector<ValueId> in = {logits};
  if (bias.valid()) in.push_back(bias);
  if (o.force_balance) in.push_back(positions_);
  Attrs attrs = {{"k", o.k},
                 word(o.score),
                 word(o.top_k_first ? ChoiceOrder::TopKFirst : ChoiceOrder::ScoreFirst),
                 {"normalise", int64_t{o.normalise}},
                 {"scale", o.scale},
                 {"groups", o.groups},
                 {"groups_kept", o.groups_kept},
                 {"biased", int64_t{bias.valid()}},
                 {"force_balance", int64_t{o.force_balance}}};
  // Blocks that only training has come after those that are recorded.
  if (options_.mode == Mode::Train && !o.force_balance && route_column_ + o.k <= options_.routes) {
    in.push_back(routes());
    attrs.set("column", route_column_);
    route_column_ += o.k;
  }
  const Node& node = graph_.add_node(kSelect, std::move(in), std::move(attrs), Phase::F, block_);
  chosen_.push_back(node.outputs[1]);
  return {node.outputs[0], node.outputs[1], node.outputs[2]};
}

Builder::Selection Builder::with_random_weights(const Selection& s) {
  return {s.scores, s.chosen,
          emit(kRandomWeights, {s.chosen, samples(), positions_, dropout_key()}, {{"salt", salt_++}})};
}

ValueId Builder::limit(const Selection& s, int64_t capacity, int64_t group, bool by_position) {
  return emit(kLimit, {s.chosen, s.weights},
              {{"seq_len", options_.seq_len},
               {"capacity", capacity},
               {"group", group},
               word(by_position ? KeepPolicy::Position : KeepPolicy::Probability),
               {"cp", int64_t{1}}});
}

Builder::Dispatch Builder::route(ValueId kept, int64_t experts, int64_t pad, double bound) {
  const int64_t choices = graph_.type(kept).size(1);
  Attrs attrs = {
      {"experts", experts}, {"choices", choices}, {"pad", pad}, {"token_rows", graph_.type(kept).size(0)}};
  if (bound > 0) attrs.set("bound", bound);
  const Node& node = graph_.add_node(kRoute, {kept}, std::move(attrs), Phase::F, block_);
  const ValueId order = node.outputs[0], send = node.outputs[1];
  return {order, send, emit(kExchangeCounts, {send}), choices, pad};
}

ValueId Builder::to_experts(ValueId x, const Dispatch& d) {
  const ValueId slots = emit(kPack, {x, d.order}, {{"choices", d.choices}, {"pad", d.pad}});
  return emit(kToExperts, {slots, d.send, d.received});
}

ValueId Builder::weights_to_experts(ValueId weights, const Dispatch& d) {
  const ValueId slots = emit(kPackWeights, {weights, d.order}, {{"choices", d.choices}, {"pad", d.pad}});
  return emit(kToExperts, {slots, d.send, d.received});
}

ValueId Builder::to_tokens(ValueId y, const Dispatch& d) {
  const ValueId slots = emit(kToTokens, {y, d.send, d.received});
  return emit(kUnpack, {slots, d.order},
              {{"choices", d.choices}, {"pad", d.pad}, {"token_rows", options_.tokens}});
}

ValueId Builder::grouped_linear(ValueId x, ValueId w, const Dispatch& d) {
  return emit(kGroupedLinear, {x, w, d.received});
}

ValueId Builder::expert_act(ValueId gate, ValueId up, ValueId row_weight, const Dispatch& d, Clamp clamp) {
  Attrs attrs;
  if (clamp.limit > 0) attrs = {{"alpha", clamp.alpha}, {"limit", clamp.limit}};
  return emit(kExpertAct, {gate, up, row_weight, d.received}, std::move(attrs));
}

ValueId Builder::expert_bias(ValueId y, ValueId b, const Dispatch& d) {
  return emit(kExpertBias, {y, b, d.received});
}

ValueId Builder::weighted_biases(const Selection& s, ValueId kept, ValueId b) {
  const ValueId spread =
      emit(kSpreadChoices, {s.weights, kept}, {{"experts", graph_.type(s.scores).size(1)}});
  return linear(in_compute_type(spread), b);
}

ValueId Builder::of_chosen(ValueId numbers, const Selection& s) {
  return in_compute_type(emit(kGatherChoices, {numbers, s.chosen}));
}

ValueId Builder::in_compute_type(ValueId x) {
  if (graph_.type(x).dtype == options_.compute) return x;
  return emit(kCast, {x}, {{"out", std::string(base::to_string(options_.compute))}});
}

ValueId Builder::scale_rows(ValueId y, ValueId gate) { return emit(kScaleRows, {y, gate}); }

void Builder::report_load(const Selection& s, ValueId kept, ValueId bias, double rate) {
  if (options_.mode != Mode::Train) return;
  const ValueId load = emit(kExpertLoad, {s.chosen, kept, s.scores});
  graph_.step_sums.push_back({SumKind::Load, load, block_});
  if (bias.valid()) graph_.bias_updates.push_back({bias, load, rate});
}

void Builder::add_loss(SumKind kind, ValueId value) {
  graph_.step_sums.push_back({kind, value, block_});
  losses_.push_back(value);
}

void Builder::balance_loss(const Selection& s, double coefficient, Scope scope, SumKind as) {
  if (coefficient == 0 || options_.mode != Mode::Train) return;
  const bool by_sequence = scope == Scope::Sequence;
  std::vector<ValueId> in = {emit(kBalanceSums, {s.scores, s.chosen},
                                  {word(scope), {"seq_len", options_.seq_len}, {"cp", int64_t{1}}})};
  if (scope == Scope::Global) {  // a step sum, so that it persists to the next micro-batch
    in.push_back(emit(kRunningSum, {in[0]}));
    graph_.step_sums.push_back({SumKind::Running, in[1], block_});
  }
  add_loss(as, emit(kBalanceLoss, std::move(in),
                    {{"coefficient", coefficient / static_cast<double>(options_.accumulation)},
                     {"k", graph_.type(s.chosen).size(1)},
                     {"tokens", by_sequence ? options_.seq_len : options_.tokens},
                     {"groups", by_sequence ? options_.tokens / options_.seq_len : int64_t{1}},
                     {"experts", graph_.type(s.scores).size(1)},
                     word(scope)}));
}

void Builder::z_loss(ValueId logits, double coefficient) {
  if (coefficient == 0 || options_.mode != Mode::Train) return;
  const double rows = static_cast<double>(options_.tokens * options_.accumulation);
  add_loss(SumKind::ZLoss, emit(kZLoss, {logits}, {{"coefficient", coefficient / rows}}));
}

}  // namespace quintet::graph
