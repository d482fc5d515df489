#include "schedule/refill.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <optional>

#include "base/error.h"
#include "schedule/order.h"

namespace quintet::schedule {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Whether every rank respects the memory in the given order.
bool fits(const Schedule& s, const Memory& memory) {
  for (const std::vector<Action>& actions : s.ranks) {
    double held = 0;
    for (const Action& action : actions) {
      if (action.kind == Kind::F && ++held > memory.most + 1e-9) return false;
      if (action.kind == Kind::B) held -= memory.freed_at_b;
      if (action.kind == Kind::W) held -= 1 - memory.freed_at_b;
    }
  }
  return true;
}

// By the longest span of a rank; by makespan if the spans are equal up to rounding.
bool shorter(const Timeline& a, const Timeline& b) {
  if (std::abs(a.longest_span - b.longest_span) > 1e-9 * b.longest_span)
    return a.longest_span < b.longest_span;
  return a.makespan < b.makespan * (1 - 1e-9);
}

// The fraction of a W by which it may delay what follows.
constexpr double kDelays[] = {0, 0.25, 0.5, 0.8, 1};

struct RankState {
  std::vector<Action> order;  // F and B only
  size_t next = 0;
  std::deque<Action> waiting;  // W whose B is placed
  double free = 0;
  double held = 0;
};

class Refill {
 public:
  Refill(const Schedule& schedule, const Costs& costs, const Memory& memory, double delay)
      : s_(schedule),
        costs_(costs),
        memory_(memory),
        delay_(delay),
        ends_(2 * static_cast<size_t>(schedule.virtual_stages()) * schedule.micro_batches, kNever),
        ranks_(schedule.stages) {
    for (int r = 0; r < s_.stages; ++r) {
      for (const Action& action : s_.ranks[r]) {
        if (action.kind == Kind::BW || action.with_next)
          base::fail_user(
              "schedule {}: rank {}: {} is not split; W can be placed only if every backward is split",
              s_.name, r, to_text(action));
        if (action.kind != Kind::W) ranks_[r].order.push_back(action);
      }
      s_.ranks[r].clear();
    }
  }

  // Places actions in order of their start, so nothing unknown at the time of a decision can start earlier.
  Schedule run() {
    for (size_t left = 3 * static_cast<size_t>(s_.virtual_stages()) * s_.micro_batches; left > 0; --left) {
      std::optional<Choice> first;
      for (int r = 0; r < s_.stages; ++r) {
        const Choice choice = choose(r);
        if (choice.start < kNever && (!first || choice.start < first->start)) first = choice;
      }
      QUINTET_CHECK(first.has_value(), "schedule {} stalls with {} actions left", s_.name, left);
      place(*first);
    }
    s_.max_in_flight = in_flight(s_).until_w;
    return std::move(s_);
  }

 private:
  struct Choice {
    double start;
    int rank;
    Action action;
  };

  double& end_of(Kind kind, int stage, int micro) {
    return ends_[(static_cast<size_t>(stage) * s_.micro_batches + micro) * 2 + (kind == Kind::F ? 0 : 1)];
  }

  double ready(int rank, const Action& action) {
    double time = ranks_[rank].free;
    for (const Need& need : needs_of(s_, rank, action)) {
      const double hop = s_.home_of(need.stage).rank == rank ? 0 : costs_.hop;
      time = std::max(time, end_of(need.kind, need.stage, need.micro) + hop);
    }
    return time;
  }

  Choice choose(int rank) {
    const RankState& state = ranks_[rank];
    const bool over = state.next == state.order.size();
    const bool can_fill = !state.waiting.empty();
    if (over) return can_fill ? Choice{state.free, rank, state.waiting.front()} : Choice{kNever, rank, {}};
    const Action& next = state.order[state.next];
    const double start = ready(rank, next);
    const bool full = next.kind == Kind::F && start < kNever && state.held + 1 > memory_.most + 1e-9;
    if (full && !can_fill)
      base::fail_user(
          "schedule {}: rank {} holds {} activations at {} wherever W is placed, but only {} are allowed",
          s_.name, rank, state.held + 1, to_text(next), memory_.most);
    if (can_fill) {
      const Action& w = state.waiting.front();
      if (full ||
          start - state.free >= duration(s_, costs_, rank, w) * (1 - delay_) + (delay_ == 1 ? 1e-9 : 0))
        return {state.free, rank, w};
    }
    return {start, rank, next};
  }

  void place(const Choice& choice) {
    const Action& action = choice.action;
    RankState& state = ranks_[choice.rank];
    state.free = choice.start + duration(s_, costs_, choice.rank, action);
    if (action.kind == Kind::W) {
      state.held -= 1 - memory_.freed_at_b;
    } else {
      end_of(action.kind, s_.stage_of(choice.rank, action.chunk), action.micro) = state.free;
      state.held += action.kind == Kind::F ? 1 : -memory_.freed_at_b;
      ++state.next;
    }
    s_.ranks[choice.rank].push_back(action);
    if (action.kind == Kind::W) state.waiting.pop_front();
    if (action.kind == Kind::B) state.waiting.push_back({Kind::W, action.chunk, action.micro});
  }

  Schedule s_;
  Costs costs_;
  Memory memory_;
  double delay_;
  std::vector<double> ends_;
  std::vector<RankState> ranks_;
};

}  // namespace

Schedule refill_weights(const Schedule& schedule, const Costs& costs, const Memory& memory) {
  std::optional<Schedule> best;
  Timeline best_line;
  const auto consider = [&](Schedule candidate) {
    Timeline line = simulate(candidate, costs);
    if (best && !shorter(line, best_line)) return;
    best = std::move(candidate);
    best_line = std::move(line);
  };
  if (fits(schedule, memory)) consider(schedule);
  for (const double delay : kDelays) consider(Refill(schedule, costs, memory, delay).run());
  return *best;
}

}  // namespace quintet::schedule
