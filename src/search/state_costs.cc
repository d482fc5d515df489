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
  if (p.zero_replicas > 0)
    for (Place* place : {&dense_, &expert_}) place->outer = place->replicas;
}

StateCosts StateCostModel::of(const BlockTable& b) const {
  StateCosts c;
  for (const GroupTable& g : b.groups) add(c, g);
  return c;
}

int64_t StateCostModel::gathered(const BlockTable& b) const {
  int64_t elements = 0;
  if (recipe_.parallel.zero != 3) return 0;
  for (const GroupTable& g : b.groups)
    if (place(g).shards > 1 && !may_persist(g)) elements += g.elements;
  // A block that is split may have as little as one part gathered.
  const config::Grouping& grouping = recipe_.parallel.group;
  const bool split = (grouping.kind == config::Grouping::Kind::Bytes && bytes_of(elements) > grouping.size) ||
                     !recipe_.parallel.group_match.empty() || !recipe_.parallel.keep_match.empty();
  return split ? 0 : elements;
}

int64_t StateCostModel::bytes_of(int64_t elements) const {
  return elements * base::size_of(recipe_.precision.compute);
}

bool StateCostModel::may_persist(const GroupTable& group) const {
  return bytes_of(group.elements) < recipe_.parallel.persist_below.value ||
         !recipe_.parallel.persist_match.empty();
}

double StateCostModel::blocks_per_group(const GroupTable& group) const {
  const config::Grouping& g = recipe_.parallel.group;
  switch (g.kind) {
    case config::Grouping::Kind::Auto:
      return 1;
    case config::Grouping::Kind::Blocks:
      return static_cast<double>(g.size);
    case config::Grouping::Kind::Bytes:
      return std::max(
          1.0, static_cast<double>(g.size) / std::max(1.0, static_cast<double>(bytes_of(group.elements))));
  }
  return 1;
}

void StateCostModel::add(StateCosts& c, const GroupTable& group) const {
  using graph::Role;
  const Place& at = place(group);
  const int zero = static_cast<int>(recipe_.parallel.zero);
  int64_t block = 1;
  for (const layout::StateRow& s : group.states) block = std::max(block, s.block);
  // Joined blocks share the padding at their end.
  const bool alone = recipe_.parallel.group.kind == config::Grouping::Kind::Auto;
  const layout::GroupStorage storage{
      .elements = alone ? layout::padded_count(group.used, at.shards * at.outer, block) : group.elements,
      .shards = at.shards,
      .zero = zero,
      .outer = at.outer};
  // With a single micro-batch, gradients reuse the bytes of activations that are dead by then.
  const bool gradients_stay = recipe_.batch.accumulation > 1 || recipe_.parallel.pp > 1;
  const double own = static_cast<double>(group.elements) / static_cast<double>(at.shards);
  for (const layout::StateRow& s : group.states) {
    const auto size = static_cast<double>(base::size_of(s.stored)) / static_cast<double>(s.block);
    if (s.role != Role::Gradient || gradients_stay) c.bytes += layout::local_bytes(s, storage);
    if (!group.trainable) continue;
    // The update reads or writes every state once; the norm reads the gradient before it.
    const double updated = own * size / static_cast<double>(at.outer);
    c.update_bytes += updated;
    if (s.role == Role::Gradient) c.norm_bytes += updated, c.update_bytes += updated;
  }
  // A block's share of a collective of its group.
  const double blocks = blocks_per_group(group);
  const auto seconds = [&](CollectiveShape shape, double elements, base::DType dtype, int64_t stride,
                           int64_t count) {
    if (count <= 1 || elements <= 0) return 0.0;
    const hardware::Cluster& cluster = machine_.cluster;
    return hardware::collective_seconds(shape, blocks * elements * static_cast<double>(base::size_of(dtype)),
                                        spread_of(stride, count, std::max(cluster.domain, 1)), cluster,
                                        machine_.stack) /
           blocks;
  };
  const config::Precision& p = recipe_.precision;
  const auto all = static_cast<double>(group.elements);
  if ((group.trainable || zero == 3) && !may_persist(group))
    c.gather += seconds(CollectiveShape::AllGather, all, p.compute, at.stride, at.shards);
  if (!group.trainable) return;
  c.reduce += seconds(CollectiveShape::ReduceScatter, all, p.reduce, at.stride, at.shards);
  const int64_t outer = at.stride * at.shards;
  if (at.outer > 1)
    c.replicate += seconds(CollectiveShape::ReduceScatter, own, p.reduce, outer, at.outer) +
                   seconds(CollectiveShape::AllGather, own, p.compute, outer, at.outer);
  else
    c.replicate += seconds(CollectiveShape::AllReduce, own, p.reduce, outer, at.replicas);
}

double StateCostModel::stream_seconds(const StateCosts& c) const {
  const auto n = static_cast<double>(recipe_.batch.accumulation);
  const bool twice = recipe_.parallel.reshard_after_forward.kind == config::ReshardAfterForward::Kind::Yes &&
                     recipe_.parallel.reshard_experts != config::ReshardExperts::Never &&
                     recipe_.parallel.keep_match.empty();
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
