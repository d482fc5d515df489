#include "advice/not_run_yet.h"

#include <algorithm>

namespace quintet::advice {

using graph::Role;

namespace {

// Weights of trained parameters: frozen ones are never updated.
double trained_weight_bytes(const plan::ModelState& s) {
  const plan::ModelState::Sum &weights = s.of(Role::Weight), &gradients = s.of(Role::Gradient);
  if (weights.elements == 0) return 0;
  return static_cast<double>(weights.bytes) * static_cast<double>(gradients.elements) /
         static_cast<double>(weights.elements);
}

}  // namespace

OffloadCost optimizer_offload(const plan::ModelState& state, double share, const hardware::Cluster& cluster,
                              double host_bytes_per_s) {
  OffloadCost c;
  c.down_bytes = share * static_cast<double>(state.of(Role::Gradient).bytes);
  c.up_bytes = share * trained_weight_bytes(state);
  // Reads the gradient; reads and writes master and moments; writes the weight.
  c.touched_bytes = c.down_bytes + 2 * share * static_cast<double>(state.optimizer_bytes()) + c.up_bytes;
  const double link = cluster.host.bytes_per_s * cluster.host.efficiency;
  if (link > 0) c.seconds = (c.down_bytes + c.up_bytes) / link;
  c.seconds += c.touched_bytes * cluster.per_node / host_bytes_per_s;
  return c;
}

OffloadCost disk_offload(const plan::ModelState& state, double share, const hardware::Cluster& cluster) {
  OffloadCost c;
  // Master and moments are read and written, the weight is written.
  c.disk_bytes = share * (2 * static_cast<double>(state.optimizer_bytes()) + trained_weight_bytes(state));
  const double disk = cluster.disk.bytes_per_s * cluster.disk.efficiency;
  if (disk > 0) c.seconds = c.disk_bytes * cluster.per_node / disk;
  return c;
}

int64_t saved_by_8bit_moments(const plan::ModelState& state) {
  return std::max<int64_t>(0, state.of(Role::Moment).bytes - state.of(Role::Moment).elements);
}

double lora_parameters(const config::Model& m, int64_t rank) {
  const auto d = static_cast<double>(m.embed), f = static_cast<double>(m.ffn);
  const double q = static_cast<double>(m.heads * m.head_dim),
               kv = static_cast<double>(m.kv_heads * m.head_dim);
  // Input plus output width of each matrix: q, k, v, o, and the three of the feed-forward layer.
  const double widths = (d + q) + 2 * (d + kv) + (q + d) + 3 * (d + f);
  return static_cast<double>(m.layers * rank) * widths;
}

double lora_bytes(const config::Model& m, const plan::ModelState& state, int64_t rank, double weight_bytes) {
  return static_cast<double>(state.of(Role::Weight).elements) * weight_bytes +
         lora_parameters(m, rank) * state.bytes_per_trained_parameter();
}

}  // namespace quintet::advice
