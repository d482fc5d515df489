#include "search/state_costs.h"

#include <algorithm>

#include "hardware/cost.h"
#include "optim/step_builder.h"

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

double size(base::DType t) { return static_cast<double>(base::size_of(t)); }

// Bytes per parameter of all optimizer state other than the weight and its master.
double moment_bytes(const config::Recipe& r) {
  double bytes = 0;
  for (const graph::StateDecl& state : optim::states_of_parameter(r.optimizer, r.precision))
    if (state.role == graph::Role::Moment) bytes += size(state.type.dtype);
  return bytes;
}

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
    : recipe_(r), machine_(machine), moments_(moment_bytes(r)) {
  const config::Parallel& p = r.parallel;
  const int64_t group = p.ep * p.etp, sharded = p.tp * p.cp * p.dp_shard, all = sharded * p.dp_replicate;
  dense_ = p.zero == 0 ? Place{p.tp, 1, p.dp() * p.cp} : Place{p.tp, p.dp_shard * p.cp, p.dp_replicate};
  expert_ = p.zero == 0 || group >= sharded ? Place{group, 1, all / group}
                                            : Place{group, sharded / group, p.dp_replicate};
}

StateCosts StateCostModel::of(const BlockTable& b) const {
  StateCosts c;
  add(c, dense_, b.dense, b.frozen_dense);
  add(c, expert_, b.expert, b.frozen_expert);
  return c;
}

int64_t StateCostModel::gathered(const BlockTable& b) const {
  if (recipe_.parallel.zero < 3) return 0;
  return (dense_.shards > 1 ? b.dense + b.frozen_dense : 0) +
         (expert_.shards > 1 ? b.expert + b.frozen_expert : 0);
}

void StateCostModel::add(StateCosts& c, const Place& place, int64_t trainable, int64_t frozen) const {
  const config::Precision& p = recipe_.precision;
  const base::DType grad = p.gradients;
  const int64_t zero = recipe_.parallel.zero;
  const auto n = static_cast<double>(place.shards), all = static_cast<double>(trainable + frozen),
             own = static_cast<double>(trainable) / n;
  // The master, stored in addition to the compute weight; a split master stores only its lower half there.
  const double beside = p.split_master()               ? size(base::DType::I16)
                        : p.master_type() == p.compute ? 0
                                                       : size(p.master_type());
  c.bytes += all * size(p.compute) / (zero == 3 ? n : 1);
  c.bytes += own * beside;
  c.bytes += own * moments_;
  // With a single micro-batch, gradients reuse the bytes of activations that are dead by then.
  const bool stay = recipe_.batch.accumulation > 1 || recipe_.parallel.pp > 1;
  if (stay) c.bytes += (zero >= 2 ? own : static_cast<double>(trainable)) * size(grad);
  // The gradient is read once for its norm and once for the update.
  c.norm_bytes += own * size(grad);
  c.update_bytes += own * (2 * size(grad) + beside + moments_ + size(p.compute));
  const auto seconds = [&](CollectiveShape shape, double bytes, int64_t stride, int64_t count) {
    if (count <= 1 || bytes <= 0) return 0.0;
    const hardware::Cluster& cluster = machine_.cluster;
    return hardware::collective_seconds(shape, bytes, spread_of(stride, count, std::max(cluster.domain, 1)),
                                        cluster, machine_.stack);
  };
  const double gathered = (zero == 3 ? all : static_cast<double>(trainable)) * size(p.compute);
  c.gather += seconds(CollectiveShape::AllGather, gathered, place.stride, place.shards);
  c.reduce += seconds(CollectiveShape::ReduceScatter, static_cast<double>(trainable) * size(p.reduce),
                      place.stride, place.shards);
  c.replicate +=
      seconds(CollectiveShape::AllReduce, own * size(p.reduce), place.stride * place.shards, place.replicas);
}

double StateCostModel::travel(const StateCosts& c) const {
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
  const auto beyond = [](double seconds, double hidden) { return std::max(0.0, seconds - hidden); };
  switch (recipe_.parallel.zero) {
    case 0:
    case 1:
      return beyond(c.gather, f) + beyond(c.reduce + c.replicate, b);
    case 2:  // the next block's gradients need the buffer of those still in flight
      return beyond(c.gather, f) + n * kReductionsWaitedFor * c.reduce + beyond(c.replicate, b);
    default:
      return n * (beyond(c.gather, f) + kReductionsWaitedFor * c.reduce + beyond(c.again, b)) +
             0.1 * c.replicate;
  }
}

}  // namespace quintet::search
