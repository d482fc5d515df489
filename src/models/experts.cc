// Mixture of experts instead of a block's feed-forward network: the router scores all experts, and each token
// is sent to its top_k experts and receives the weighted sum of their outputs. Shared experts, which process
// every token, form one dense network of their joint width.
#include <algorithm>
#include <cmath>

#include "models/families.h"

namespace quintet::models {
namespace {

using graph::Builder;
using graph::Dim;
using graph::DimSize;
using graph::ValueId;

graph::Score score_of(config::RouterScore score) {
  switch (score) {
    case config::RouterScore::Softmax:
      return graph::Score::Softmax;
    case config::RouterScore::Sigmoid:
      return graph::Score::Sigmoid;
    case config::RouterScore::SqrtSoftplus:
      return graph::Score::SqrtSoftplus;
  }
  return graph::Score::Softmax;
}

struct BalanceKind {
  config::BalanceScope key;
  graph::Scope scope;
  graph::SumKind further;
};
constexpr BalanceKind kBalanceKinds[] = {
    {config::BalanceScope::MicroBatch, graph::Scope::Micro, graph::SumKind::MicroBatchBalance},
    {config::BalanceScope::Sequence, graph::Scope::Sequence, graph::SumKind::SequenceBalance},
    {config::BalanceScope::Global, graph::Scope::Global, graph::SumKind::GlobalBalance}};

void balance_losses(Builder& b, const config::Moe& moe, const Builder::Selection& selection) {
  for (const BalanceKind& kind : kBalanceKinds)
    b.balance_loss(selection, moe.balance_over(kind.key), kind.scope,
                   kind.key == moe.balance_scope ? graph::SumKind::BalanceLoss : kind.further);
}

// (token, choice) pairs that an expert accepts per capacity group. A token selects an expert at most once, so
// the capacity never needs to exceed the tokens of the group.
int64_t capacity_of(const config::Moe& moe, int64_t seq_len, graph::Mode mode) {
  const bool evaluates = mode == graph::Mode::Evaluate && moe.eval_capacity_factor > 0;
  const double factor = evaluates ? moe.eval_capacity_factor : moe.capacity_factor;
  const int64_t tokens = moe.capacity_group * seq_len;
  const double mean = static_cast<double>(moe.top_k * tokens) / static_cast<double>(moe.experts);
  return std::clamp(static_cast<int64_t>(std::ceil(factor * mean)), std::min(moe.min_capacity, tokens),
                    tokens);
}

ValueId shared_experts(Builder& b, const config::Model& m, ValueId x, const std::string& name) {
  const ValueId y = dense_feed_forward(b, m, x, m.moe.shared_ffn, name + "shared.");
  if (!m.moe.shared_gate) return y;
  const ValueId gate =
      b.weight(name + "shared_gate.weight", {{Dim::Choices, 1}, {Dim::Embed, m.embed}}, init_stddev(m));
  return b.scale_rows(y, b.linear(x, gate));
}

}  // namespace

ValueId expert_feed_forward(Builder& b, const config::Model& m, ValueId x, const std::string& name) {
  const config::Moe& moe = m.moe;
  const graph::BuildOptions& options = b.options();
  const DimSize routes{Dim::Routes, moe.experts}, experts{Dim::Experts, moe.experts};
  const DimSize inner{Dim::ExpertFfn, moe.ffn}, embed{Dim::Embed, m.embed};
  // Of the rows that are sent: the residual stream's own width, or a latent between two projections.
  const DimSize width = moe.latent > 0 ? DimSize{Dim::Latent, moe.latent} : embed;

  const ValueId router = b.weight(name + "router.weight", {routes, embed}, init_stddev(m));
  const ValueId logits = b.router(b.jitter(x, moe.jitter), router,
                                  moe.bias ? b.bias(name + "router.offset", {routes}) : ValueId());
  ValueId bias;
  if (moe.bias_rate > 0)
    bias = b.state(name + "router.bias", {base::accumulator_of(options.compute), {routes}});
  const Builder::Selection selection = b.select(logits,
                                                {.k = moe.top_k,
                                                 .score = score_of(moe.score),
                                                 .top_k_first = moe.order == config::RouterOrder::TopKFirst,
                                                 .normalise = moe.normalise,
                                                 .scale = moe.scale,
                                                 .groups = moe.groups,
                                                 .groups_kept = moe.groups_kept,
                                                 .force_balance = moe.force_balance},
                                                bias);
  balance_losses(b, moe, selection);
  b.z_loss(logits, moe.z_loss);

  // Inference drops nothing: its tokens arrive without the rest of their group.
  ValueId kept = selection.chosen;
  int64_t pad = 0;
  if (moe.capacity_factor > 0 && !graph::infers(options.mode)) {
    const int64_t capacity = capacity_of(moe, options.seq_len, options.mode);
    const bool random = moe.drop == config::DropPolicy::Random;
    kept = b.limit(random ? b.with_random_weights(selection) : selection, capacity, moe.capacity_group,
                   moe.drop == config::DropPolicy::Position);
    if (moe.pad) pad = capacity * (options.tokens / (moe.capacity_group * options.seq_len));
  }
  b.report_load(selection, kept, bias, moe.bias_rate);

  const Builder::Dispatch dispatch = b.route(kept, moe.experts, pad, moe.receive_bound);
  const ValueId sent =
      moe.latent > 0 ? b.linear(x, b.weight(name + "latent_down.weight", {width, embed}, init_stddev(m))) : x;
  const ValueId inputs = moe.scale_input ? b.scale_rows(sent, b.of_chosen(logits, selection)) : sent;
  const ValueId rows = b.to_experts(inputs, dispatch);
  const ValueId row_weights = b.weights_to_experts(selection.weights, dispatch);
  // The shared experts compute while the rows are in flight.
  const ValueId shared = moe.shared_ffn > 0 ? shared_experts(b, m, x, name) : ValueId();
  const ValueId wg = b.weight(name + "experts.gate.weight", {experts, inner, width}, init_stddev(m));
  const ValueId wu = b.weight(name + "experts.up.weight", {experts, inner, width}, init_stddev(m));
  const ValueId wd = b.weight(name + "experts.down.weight", {experts, width, inner}, residual_stddev(m));
  ValueId gate = b.grouped_linear(rows, wg, dispatch), up = b.grouped_linear(rows, wu, dispatch);
  if (moe.bias) {
    gate = b.expert_bias(gate, b.bias(name + "experts.gate.bias", {experts, inner}), dispatch);
    up = b.expert_bias(up, b.bias(name + "experts.up.bias", {experts, inner}), dispatch);
  }
  const bool clamped = m.activation == config::Activation::Clamped;
  const ValueId hidden =
      b.expert_act(gate, up, row_weights, dispatch, {m.activation_alpha, clamped ? m.activation_limit : 0});
  ValueId y = b.to_tokens(b.grouped_linear(hidden, wd, dispatch), dispatch);
  if (moe.bias)
    y = b.add(y, b.weighted_biases(selection, kept, b.bias(name + "experts.down.bias", {width, routes})));
  if (moe.latent > 0)
    y = b.linear(y, b.weight(name + "latent_up.weight", {embed, width}, residual_stddev(m)));
  return moe.shared_ffn > 0 ? b.add(y, shared) : y;
}

}  // namespace quintet::models
