#include "schedule/simulate.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "schedule/order.h"

namespace quintet::schedule {
namespace {

// End times of F and B (or BW) of every (virtual stage, micro-batch).
class Ends {
 public:
  explicit Ends(const Schedule& s)
      : micro_(s.micro_batches), ends_(2 * static_cast<size_t>(s.virtual_stages()) * s.micro_batches, 0.0) {}
  double& at(Kind kind, int stage, int micro) {
    return ends_[(static_cast<size_t>(stage) * micro_ + micro) * 2 + (kind == Kind::F ? 0 : 1)];
  }

 private:
  int micro_;
  std::vector<double> ends_;
};

}  // namespace

Costs Costs::uniform(const Schedule& s, double f, double b, double w, double hop) {
  const size_t n = s.virtual_stages();
  return {std::vector<double>(n, f), std::vector<double>(n, b), std::vector<double>(n, w), hop, 0};
}

double Timeline::work() const { return std::accumulate(busy.begin(), busy.end(), 0.0) / busy.size(); }

double duration(const Schedule& s, const Costs& costs, int rank, const Action& action) {
  const int stage = s.stage_of(rank, action.chunk);
  switch (action.kind) {
    case Kind::F:
      return costs.f[stage];
    case Kind::B:
      return costs.b[stage];
    case Kind::W:
      return costs.w[stage];
    case Kind::BW:
      return costs.b[stage] + costs.w[stage];
  }
  base::fail_internal("kind {}", static_cast<int>(action.kind));
}

Timeline simulate(const Schedule& s, const Costs& costs) {
  const size_t n = s.virtual_stages();
  if (costs.f.size() != n || costs.b.size() != n || costs.w.size() != n)
    base::fail_user("schedule {}: costs for {}, {} and {} virtual stages, but it has {}", s.name,
                    costs.f.size(), costs.b.size(), costs.w.size(), n);
  Timeline line;
  for (const std::vector<Action>& actions : s.ranks) line.ranks.emplace_back(actions.size());
  line.busy.assign(s.stages, 0);
  Ends ends(s);
  std::vector<double> free(s.stages, 0);
  const auto ready = [&](int rank, const Action& action) {
    double time = free[rank];
    for (const Need& need : needs_of(s, rank, action)) {
      const double hop = s.home_of(need.stage).rank == rank ? 0 : costs.hop;
      time = std::max(time, ends.at(need.kind, need.stage, need.micro) + hop);
    }
    return time;
  };
  const auto place = [&](int rank, int index, double start, double end) {
    const Action& action = s.ranks[rank][index];
    line.ranks[rank][index] = {start, end};
    if (action.kind != Kind::W) ends.at(action.kind, s.stage_of(rank, action.chunk), action.micro) = end;
  };
  const auto stuck = walk(s, [&](int rank, int index) {
    const std::vector<Action>& actions = s.ranks[rank];
    if (index > 0 && actions[index - 1].with_next) return;  // placed together with its predecessor
    double start = ready(rank, actions[index]);
    double length = duration(s, costs, rank, actions[index]);
    if (actions[index].with_next) {
      start = std::max(start, ready(rank, actions[index + 1]));
      length = std::max(length + duration(s, costs, rank, actions[index + 1]) - costs.mix_saving, 0.0);
      place(rank, index + 1, start, start + length);
    }
    place(rank, index, start, start + length);
    free[rank] = start + length;
    line.busy[rank] += length;
  });
  if (stuck) base::fail_user("schedule {}: {}", s.name, *stuck);
  for (const std::vector<Slot>& slots : line.ranks) {
    if (slots.empty()) continue;
    line.makespan = std::max(line.makespan, slots.back().end);
    line.longest_span = std::max(line.longest_span, slots.back().end - slots.front().start);
  }
  return line;
}

}  // namespace quintet::schedule
