#include "search/state_costs.h"

#include <algorithm>

#include "hardware/cost.h"

namespace quintet::search {

using hardware::CollectiveShape;

namespace {

// How ranks 0, stride, 2 stride, ... are spread over domains.
hardware::Spread spread_of(int64_t stride, int64_t count, int64_t domain) {
  const int64_t in_first = std::clamp<int64_t>((domain + stride - 1) / stride, 1, count);
  const int64_t domains = stride >= domain ? count : (count - 1) * stride / domain + 1;
  return {.members = static_cast<int>(count),
          .per_domain = static_cast<int>(in_first),
          .domains = static_cast<int>(domains)};
}

constexpr double kReductionsWaitedFor = 0.7;  // estimated from simulated steps

}  // namespace

void StateCosts::add(const StateCosts& b, bool gathered_again) {
  bytes += b.bytes;
  update_bytes += b.update_bytes;
  norm_bytes += b.norm_bytes;
  gather += b.gather;
  if (gathered_again) again += b.gather;
  reduce += b.reduce;
  replicate += b.replicate;
}

StateCostModel::StateCostModel(const config::Recipe& r, const sim::Machine& machine)
    : recipe_(r), machine_(machine) {
  const config::Parallel& p = r.parallel;
  const int64_t group = p.ep * p.etp, sharded = p.tp * p.cp * p.dp_shard, all = sharded * p.dp_replicate;
  dense_ = p.zero == 0 ? Place{p.tp, 1, p.dp() * p.cp} : Place{p.tp, p.dp_shard * p.cp, p.dp_replicate};
  expert_ = p.zero == 0 || group >= sharded ? Place{group, 1, all / group}
                                            : Place{group, sharded / group, p.dp_replicate};
}

StateCosts StateCostModel::of(const BlockTable& b) const {
  StateCosts c;
  for (const GroupTable& g : b.groups) add(c, g);
  return c;
}

int64_t StateCostModel::gathered(const BlockTable& b) const {
  int64_t elements = 0;
  if (recipe_.parallel.zero == 3)
    for (const GroupTable& g : b.groups)
      if (place(g).shards > 1) elements += g.elements;
  return elements;
}

void StateCostModel::add(StateCosts& c, const GroupTable& group) const {
  using graph::Role;
  const Place& at = place(group);
  const int zero = static_cast<int>(recipe_.parallel.zero);
  int64_t block = 1;
  for (const layout::StateRow& s : group.states) block = std::max(block, s.block);
  const layout::GroupStorage storage{
      .elements = layout::padded_count(group.used, at.shards, block), .shards = at.shards, .zero = zero};
  // With a single micro-batch, gradients reuse the bytes of activations that are dead by then.
  const bool gradients_stay = recipe_.batch.accumulation > 1 || recipe_.parallel.pp > 1;
  const double own = static_cast<double>(group.elements) / static_cast<double>(at.shards);
  for (const layout::StateRow& s : group.states) {
    const auto size = static_cast<double>(base::size_of(s.stored)) / static_cast<double>(s.block);
    if (s.role != Role::Gradient || gradients_stay) c.bytes += layout::local_bytes(s, storage);
    if (!group.trainable) continue;
    // The update reads or writes every state once; the norm reads the gradient before it.
    c.update_bytes += own * size;
    if (s.role == Role::Gradient) c.norm_bytes += own * size, c.update_bytes += own * size;
  }
  const auto seconds = [&](CollectiveShape shape, double elements, base::DType dtype, int64_t stride,
                           int64_t count) {
    if (count <= 1 || elements <= 0) return 0.0;
    const hardware::Cluster& cluster = machine_.cluster;
    return hardware::collective_seconds(shape, elements * static_cast<double>(base::size_of(dtype)),
                                        spread_of(stride, count, std::max(cluster.domain, 1)), cluster,
                                        machine_.stack);
  };
  const config::Precision& p = recipe_.precision;
  const auto all = static_cast<double>(group.elements);
  if (group.trainable || zero == 3)
    c.gather += seconds(CollectiveShape::AllGather, all, p.compute, at.stride, at.shards);
  if (!group.trainable) return;
  c.reduce += seconds(CollectiveShape::ReduceScatter, all, p.reduce, at.stride, at.shards);
  c.replicate += seconds(CollectiveShape::AllReduce, own, p.reduce, at.stride * at.shards, at.replicas);
}

double StateCostModel::stream_seconds(const StateCosts& c) const {
  const auto n = static_cast<double>(recipe_.batch.accumulation);
  const bool twice = recipe_.parallel.reshard_after_forward.kind == config::ReshardAfterForward::Kind::Yes;
  switch (recipe_.parallel.zero) {
    case 0:
      return c.replicate;
    case 1:
      return c.gather + c.reduce + c.replicate;
    case 2:
      return c.gather + n * c.reduce + c.replicate;
    default:
      return n * (c.gather + (twice ? c.again : 0) + c.reduce) + c.replicate;
  }
}

double StateCostModel::likely_exposed(const StateCosts& c, double busy) const {
  const auto n = static_cast<double>(recipe_.batch.accumulation);
  const double f = busy / 3, b = busy - f;
  const auto exposed = [](double seconds, double hidden) { return std::max(0.0, seconds - hidden); };
  switch (recipe_.parallel.zero) {
    case 0:
    case 1:
      return exposed(c.gather, f) + exposed(c.reduce + c.replicate, b);
    case 2:  // the next block's gradients need the buffer of those still in flight
      return exposed(c.gather, f) + n * kReductionsWaitedFor * c.reduce + exposed(c.replicate, b);
    default:
      return n * (exposed(c.gather, f) + kReductionsWaitedFor * c.reduce + exposed(c.again, b)) +
             0.1 * c.replicate;
  }
}

}  // namespace quintet::search
