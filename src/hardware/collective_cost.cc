#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "hardware/cost.h"

namespace quintet::hardware {
namespace {

// Link bandwidth as a group sees it, in bytes per second: what one member sends to its neighbours in the
// domain, and what the members of a domain send out of it together.
struct Rates {
  double inner, out_of_domain;
  double inner_latency, outer_latency;
};

// Never above the wire: links reach at most their bandwidth, stacks at most what links reach.
Rates rates_of(const Spread& s, const Cluster& c, const Stack& stack) {
  QUINTET_CHECK(stack.network > 0 && stack.network <= 1, "stack {} has network {}", stack.name,
                stack.network);
  return {c.inner.effective_bytes_per_s() * stack.network,
          c.outer.effective_bytes_per_s() * stack.network * c.ports_per_device * s.per_domain,
          c.inner.latency_s, c.outer.latency_s};
}

double log2_steps(int n) { return std::ceil(std::log2(std::max(1, n))); }

CollectiveCost better(CollectiveCost a, CollectiveCost b) { return b.seconds < a.seconds ? b : a; }

CollectiveCost cost(CollectiveAlgorithm algorithm, double latency, double transfer) {
  return {latency + transfer, latency, algorithm};
}

// Rings through all members, as many in parallel as there are ports: each byte crosses every link of a ring
// `rounds` times, except for the last piece.
CollectiveCost ring(double rounds, double bytes, const Spread& s, const Rates& r) {
  const double slowest = s.domains > 1 ? std::min(r.inner, r.out_of_domain) : r.inner;
  // A domain with one member has no inner hop.
  const double rate = s.per_domain == 1 && s.domains > 1 ? r.out_of_domain : slowest;
  const int crossings = s.domains > 1 ? s.domains : 0;
  const double per_round =
      (crossings * r.outer_latency + (s.members - crossings) * r.inner_latency) * (s.members - 1) / s.members;
  return cost(CollectiveAlgorithm::Ring, rounds * per_round,
              rounds * (s.members - 1) / s.members * bytes / rate);
}

// Up and down two binary trees over the domains, each with half of the bytes. A domain is a leaf of one tree
// and an inner node of the other, so it sends everything twice; with two domains each is root once and leaf
// once, so everything is sent once. Inside a domain, a chain leads to its port.
CollectiveCost tree(double bytes, const Spread& s, const Rates& r) {
  const double rate =
      s.domains > 1 ? (s.per_domain == 1 ? r.out_of_domain : std::min(r.inner, r.out_of_domain)) : r.inner;
  const double latency =
      2 * (log2_steps(s.domains) * r.outer_latency + log2_steps(s.per_domain) * r.inner_latency);
  return cost(CollectiveAlgorithm::Tree, latency, (s.domains == 2 ? 1 : 2) * bytes / rate);
}

// All-reduce as reduce-scatter within the domain, all-reduce of the pieces between domains, and all-gather
// within the domain. Libraries offer no such form of plain all-gather and reduce-scatter.
CollectiveCost hierarchical(double bytes, const Spread& s, const Rates& r) {
  const double p = s.per_domain, d = s.domains;
  const double inner = 2 * (p - 1) / p * bytes / r.inner;
  const double outer = 2 * (d - 1) / d * bytes / r.out_of_domain;
  const double latency = 2 * ((p - 1) * r.inner_latency + (d - 1) * r.outer_latency);
  return cost(CollectiveAlgorithm::Hierarchical, latency, inner + outer);
}

CollectiveCost all_to_all(double bytes, const Spread& s, const Rates& r) {
  // Each member sends 1/members of its bytes to every other one; traffic within the domain and out of it
  // overlaps. Sends to different peers start one after another, several in flight.
  constexpr double kInFlight = 8;
  const double near = (s.per_domain - 1.0) / s.members * bytes / r.inner;
  const double far = (s.members - s.per_domain + 0.0) / s.members * bytes / (r.out_of_domain / s.per_domain);
  const double near_latency = s.per_domain > 1 ? r.inner_latency * (1 + (s.per_domain - 2) / kInFlight) : 0;
  const double far_latency =
      s.domains > 1 ? r.outer_latency * (1 + (s.members - s.per_domain - 1) / kInFlight) : 0;
  return cost(CollectiveAlgorithm::Pairwise, std::max(near_latency, far_latency), std::max(near, far));
}

}  // namespace

std::string_view to_string(CollectiveAlgorithm algorithm) {
  constexpr std::string_view names[] = {"none",         "ring",     "tree",   "in-network",
                                        "hierarchical", "pairwise", "message"};
  return names[static_cast<size_t>(algorithm)];
}

Spread spread_of(std::span<const base::RankId> members, const Cluster& cluster) {
  std::vector<int> domains;
  domains.reserve(members.size());
  for (const base::RankId rank : members) domains.push_back(rank.value / cluster.domain);
  std::sort(domains.begin(), domains.end());
  Spread s{static_cast<int>(members.size()), 1, 1};
  int run = 1;
  for (size_t i = 1; i < domains.size(); ++i) {
    run = domains[i] == domains[i - 1] ? run + 1 : 1;
    s.domains += run == 1;
    s.per_domain = std::max(s.per_domain, run);
  }
  return s;
}

Spread spread_of(int first, int stride, int members, const Cluster& cluster) {
  std::vector<base::RankId> ranks;
  ranks.reserve(static_cast<size_t>(members));
  for (int i = 0; i < members; ++i) ranks.emplace_back(first + i * stride);
  return spread_of(ranks, cluster);
}

CollectiveCost collective_cost(CollectiveShape shape, double bytes, const Spread& s, const Cluster& cluster,
                               const Stack& stack) {
  QUINTET_CHECK(
      s.members >= 1 && s.per_domain >= 1 && s.domains >= 1 && s.per_domain * s.domains >= s.members,
      "{} members, {} in each of {} domains", s.members, s.per_domain, s.domains);
  if (s.members == 1) return {};
  const Rates r = rates_of(s, cluster, stack);
  CollectiveCost best;
  switch (shape) {
    case CollectiveShape::AllReduce:
      best = better(ring(2, bytes, s, r), tree(bytes, s, r));
      if (s.domains > 1 && s.per_domain > 1) best = better(best, hierarchical(bytes, s, r));
      if (s.domains == 1 && cluster.inner.in_network > 0)
        best = better(best,
                      cost(CollectiveAlgorithm::InNetwork, 4 * r.inner_latency,
                           bytes / (cluster.inner.bytes_per_s * cluster.inner.in_network * stack.network)));
      break;
    case CollectiveShape::AllGather:
    case CollectiveShape::ReduceScatter:
      best = ring(1, bytes, s, r);
      break;
    case CollectiveShape::AllToAll:
      best = all_to_all(bytes, s, r);
      break;
    case CollectiveShape::Message:
      best = s.domains > 1
                 ? cost(CollectiveAlgorithm::Point, r.outer_latency, bytes / (r.out_of_domain / s.per_domain))
                 : cost(CollectiveAlgorithm::Point, r.inner_latency, bytes / r.inner);
      break;
  }
  const double launch = cluster.accelerator.efficiency.launch_seconds + stack.launch_seconds;
  best.latency_seconds += launch;
  best.seconds += launch;
  return best;
}

double collective_seconds(CollectiveShape shape, double message_bytes, const Spread& spread,
                          const Cluster& cluster, const Stack& stack) {
  return collective_cost(shape, message_bytes, spread, cluster, stack).seconds;
}

double host_copy_seconds(double bytes, const Cluster& c) {
  return c.host.latency_s + bytes / c.host.effective_bytes_per_s();
}

double disk_seconds(double bytes, const Cluster& c) {
  if (c.disk.bytes_per_s <= 0)
    base::fail_user("the cluster has no disk; add one, such as nvme-gen4 (7 GB/s) or nvme-gen5 (14 GB/s)");
  return c.disk.latency_s + bytes / c.disk.effective_bytes_per_s();
}

}  // namespace quintet::hardware
