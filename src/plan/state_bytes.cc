#include "plan/state_bytes.h"

#include <algorithm>

#include "optim/step_builder.h"

namespace quintet::plan {

StateFormat format_of(const config::Precision& p, const config::Optimizer& o) {
  const auto size = [](base::DType t) { return static_cast<double>(base::size_of(t)); };
  double moments = 0;
  for (const graph::StateDecl& state : optim::states_of_parameter(o, p))
    if (state.role == graph::Role::Moment) moments += size(state.type.dtype);
  return {.weight = size(p.compute),
          .gradient = size(p.gradients),
          .master = p.split_master()               ? size(base::DType::I16)
                    : p.master_type() == p.compute ? 0
                                                   : size(p.master_type()),
          .moments = moments};
}

StateFormat pure_f32() { return {.weight = 4, .gradient = 4, .master = 0, .moments = 8}; }
StateFormat mixed_bf16_gradients() { return {.weight = 2, .gradient = 2, .master = 4, .moments = 8}; }
StateFormat mixed_f32_gradients() { return {.weight = 2, .gradient = 4, .master = 4, .moments = 8}; }
StateFormat mixed_two_gradients() {
  return {.weight = 2, .gradient = 2, .gradient_copy = 4, .master = 4, .moments = 8};
}
StateFormat pure_bf16() { return {.weight = 2, .gradient = 2, .master = 0, .moments = 4}; }
StateFormat eight_bit_moments() { return {.weight = 2, .gradient = 2, .master = 4, .moments = 2}; }

double sharded_bytes(const StateFormat& f, int zero, double ranks) {
  const double gradient = f.gradient + f.gradient_copy, rest = f.master + f.moments;
  switch (zero) {
    case 0:
      return f.total();
    case 1:
      return f.weight + gradient + rest / ranks;
    case 2:
      return f.weight + (gradient + rest) / ranks;
    default:
      return f.total() / ranks;
  }
}

double traffic(int zero, int64_t micro_batches) {
  const auto n = static_cast<double>(micro_batches);
  return zero <= 1 ? 2 : zero == 2 ? n + 1 : 3 * n;
}

OffloadCost optimizer_offload(double parameters, const hardware::Cluster& cluster, double host_bytes_per_s) {
  OffloadCost c;
  // Reads the gradient; reads and writes master and both moments; writes the weight.
  c.touched_bytes = 4 + 2 * 4 + 2 * 8 + 2;
  const double link = cluster.host.bytes_per_s * cluster.host.efficiency;
  if (link > 0) c.seconds = parameters * (c.down_bytes + c.up_bytes) / link;
  c.seconds += parameters * c.touched_bytes * cluster.per_node / host_bytes_per_s;
  return c;
}

OffloadCost disk_offload(double parameters, const hardware::Cluster& cluster) {
  OffloadCost c;
  c.disk_bytes = 2 * 12 + 2;  // master and moments read and written, weight written
  const double disk = cluster.disk.bytes_per_s * cluster.disk.efficiency;
  if (disk > 0) c.seconds = parameters * c.disk_bytes * cluster.per_node / disk;
  return c;
}

double lora_parameters(const config::Model& m, int64_t rank) {
  const auto d = static_cast<double>(m.embed), f = static_cast<double>(m.ffn);
  const double q = static_cast<double>(m.heads * m.head_dim),
               kv = static_cast<double>(m.kv_heads * m.head_dim);
  // Input plus output width of each matrix: q, k, v, o, and the three of the feed-forward layer.
  const double widths = (d + q) + 2 * (d + kv) + (q + d) + 3 * (d + f);
  return static_cast<double>(m.layers * rank) * widths;
}

double lora_bytes(const config::Model& m, double parameters, int64_t rank, double weight_bytes) {
  return parameters * weight_bytes + lora_parameters(m, rank) * mixed_f32_gradients().total();
}

}  // namespace quintet::plan
