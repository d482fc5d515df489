#include "search/coarse_estimate.h"

#include <algorithm>

#include "graph/flops.h"
#include "hardware/cost.h"
#include "models/build.h"
#include "optim/step_builder.h"
#include "sim/durations.h"

namespace quintet::search {
CoarseEstimate::CoarseEstimate(const config::Recipe& r, const plan::Assumptions& a)
    : recipe_(r), cluster_(a.cluster) {
  const graph::Graph model =
      models::build(r.model, {.mode = graph::Mode::Train,
                              .compute = r.precision.compute,
                              .param_grad = base::accumulator_of(r.precision.compute),
                              .tokens = r.data.seq_len * std::max<int64_t>(1, r.model.moe.capacity_group),
                              .seq_len = r.data.seq_len,
                              .loss_chunk = r.loss.chunk,
                              .groups = models::param_groups(r.optimizer)});
  const auto sequences = static_cast<double>(std::max<int64_t>(1, r.model.moe.capacity_group));
  const graph::Flops flops = graph::flops_of(model);
  // Rows past an expert's capacity are dropped.
  const double factor = r.model.moe.capacity_factor, dropped = factor > 0 ? std::max(0.0, 1 - factor) : 0;
  const double matmuls = flops.matmul - dropped * flops.expert_matmul;
  const hardware::Accelerator& x = a.cluster.accelerator;
  const hardware::Efficiency& e = x.efficiency;
  const hardware::Arithmetic wide = hardware::usable_arithmetic(sim::arithmetic_of(r.precision.compute), x);
  double matmul = a.matmul ? std::max(x.dense(*a.matmul), x.dense(wide)) : x.dense(wide);
  if (r.precision.quantises()) matmul = std::max(matmul, x.dense(hardware::Arithmetic::FP8));
  const double share = std::min(1.0, std::max({e.matmul, e.matmul_fp8, e.matmul_fp4}) * a.stack.matmul);
  const double attention =
      matmul * std::min(1.0, std::max(e.attention_forward, e.attention_backward) * a.stack.attention);
  least_seconds_ = (matmuls / (matmul * share) + flops.attention_runs / attention) / sequences *
                   static_cast<double>(r.batch.global) / a.cluster.world();
  // Gradients may reuse the bytes of dead activations.
  int64_t stored = 0;
  for (const graph::StateDecl& state : optim::build_step(model, r.optimizer, r.precision).states)
    if (state.role != graph::Role::Gradient) stored += graph::stored_bytes(state);
  least_bytes_ = stored / a.cluster.world() + x.runtime_bytes;
}

double CoarseEstimate::likely_seconds(const Family& way) const {
  const config::Model& m = recipe_.model;
  const auto link = [&](int64_t span) {
    const hardware::Link& l = span <= cluster_.domain ? cluster_.inner : cluster_.outer;
    return std::max(1.0, l.effective_bytes_per_s());
  };
  const auto others = [](int64_t n) { return static_cast<double>(n - 1) / static_cast<double>(n); };
  const auto size = static_cast<double>(base::size_of(recipe_.precision.compute)),
             width = size * static_cast<double>(m.embed);
  // Tokens that pass through the blocks on one context rank, counted once per block.
  const double rows = static_cast<double>(recipe_.batch.global * recipe_.data.seq_len) *
                      static_cast<double>(way.tp) / cluster_.world();
  const auto layers = static_cast<double>(m.layers);
  double seconds = least_seconds_;
  // Two sums in the forward pass and two in the backward pass, each a gather and a scatter.
  seconds += rows * layers * 8 * width * others(way.tp) / link(way.tp);
  if (way.cp > 1) {
    const auto kv = size * static_cast<double>(2 * m.kv_heads * m.head_dim) / static_cast<double>(way.tp);
    const bool waits = way.method != config::ContextMethod::Ring;
    seconds += rows * layers * (waits ? 3 : 0.5) * kv * others(way.cp) / link(way.tp * way.cp);
  }
  if (way.ep * way.etp > 1) {
    const double blocks = layers - static_cast<double>(m.moe.first_dense),
                 row = size * static_cast<double>(m.expert_width()),
                 copies = static_cast<double>(m.moe.top_k * way.etp);
    seconds += rows / static_cast<double>(way.tp) * blocks * 4 * copies * row * others(way.ep * way.etp) /
               link(way.ep * way.etp);
  }
  return seconds;
}

}  // namespace quintet::search
