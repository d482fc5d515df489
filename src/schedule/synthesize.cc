#include "schedule/synthesize.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "schedule/check.h"
#include "schedule/draft.h"
#include "schedule/generators.h"
#include "schedule/greedy.h"
#include "schedule/refill.h"

namespace quintet::schedule {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// The most chunk activations that a rank holds.
double held_by(const Schedule& s, double freed_at_b) {
  double most = 0;
  for (const std::vector<Action>& actions : s.ranks) {
    double held = 0;
    for (const Action& a : actions) {
      if (a.kind == Kind::F) most = std::max(most, ++held);
      if (a.kind == Kind::BW) --held;
      if (a.kind == Kind::B) held -= freed_at_b;
      if (a.kind == Kind::W) held -= 1 - freed_at_b;
    }
  }
  return most;
}

// Times along the chain F of stage 0 ... F of the last stage, B of the last stage ... B of stage 0, without
// contention.
struct Chain {
  Chain(const Schedule& s, const Costs& c) : starts(s.virtual_stages()), rest(s.virtual_stages()) {
    const int stages = s.virtual_stages();
    const auto hop = [&](int from, int to) { return s.home_of(from).rank == s.home_of(to).rank ? 0 : c.hop; };
    for (int i = 1; i < stages; ++i) starts[i] = starts[i - 1] + c.f[i - 1] + hop(i - 1, i);
    // rest[i]: from the end of F of stage i to the start of its B.
    for (int i = stages - 2; i >= 0; --i) rest[i] = 2 * hop(i, i + 1) + c.f[i + 1] + rest[i + 1] + c.b[i + 1];
    // up[i]: from the end of B of stage i to the end of B of stage 0.
    up.assign(stages, 0);
    for (int i = 1; i < stages; ++i) up[i] = up[i - 1] + c.b[i - 1] + hop(i, i - 1);
  }
  std::vector<double> starts, rest, up;
};

class Search {
 public:
  explicit Search(const Problem& problem) : p_(problem) {}

  Synthesis run() {
    for (const std::string& name : schedule_names()) try_named(name);
    for (const auto& [chunks, placement] : shapes()) try_greedy(chunks, placement);
    if (!best_)
      base::fail_user(
          "no schedule of {} ranks and {} micro-batches fits {} stage activations per rank; the smallest "
          "found needs {:.4g}",
          p_.ranks, p_.micro_batches, p_.memory, least_);
    check(best_->schedule);
    best_->bound = kNever;
    for (const auto& [chunks, placement] : shapes()) {
      const Schedule shape = blank("bound", p_.ranks, chunks, p_.micro_batches, placement);
      best_->bound =
          std::min(best_->bound, makespan_bound(shape, p_.costs(shape), p_.memory * chunks, p_.freed_at_b));
    }
    best_->named = std::move(named_);
    return std::move(*best_);
  }

 private:
  std::vector<std::pair<int, Placement>> shapes() const {
    std::vector<std::pair<int, Placement>> list = {{1, Placement::Looped}};
    if (p_.max_chunks >= 2 && p_.ranks > 1) {
      list.emplace_back(2, Placement::VShape);
      for (int v = 2; v <= p_.max_chunks; ++v) list.emplace_back(v, Placement::Looped);
    }
    return list;
  }

  // Returns its makespan, infinite if it exceeds the memory.
  double consider(Schedule s, const Costs& costs, const std::string& origin) {
    const double held = held_by(s, p_.freed_at_b) / s.chunks;
    least_ = std::min(least_, held);
    if (held > p_.memory * (1 + 1e-9)) return kNever;
    Timeline line = simulate(s, costs);
    const double makespan = line.makespan;
    if (!best_ || makespan < best_->timeline.makespan * (1 - 1e-9)) {
      s.name = "synthesized";
      best_ = Synthesis{.schedule = std::move(s),
                        .costs = costs,
                        .timeline = std::move(line),
                        .origin = origin,
                        .bound = 0,
                        .named = {}};
    }
    return makespan;
  }

  void refill(const Schedule& s, const Costs& costs, const std::string& origin) {
    try {
      Schedule refilled = refill_weights(s, costs, {p_.memory * s.chunks, p_.freed_at_b});
      consider(std::move(refilled), costs, origin);
    } catch (const base::UserError&) {
      // The order of F and B alone exceeds the memory.
    }
  }

  void try_named(const std::string& name) {
    std::optional<Schedule> made;
    try {
      made = make_schedule(name, p_.ranks, 0, p_.micro_batches);
    } catch (const base::UserError&) {
      // Undefined for this number of ranks and micro-batches.
    }
    if (!made || made->chunks > p_.max_chunks) {
      named_.push_back({name, kNever});
      return;
    }
    const Costs costs = p_.costs(*made);
    named_.push_back({name, consider(*made, costs, name)});
    bool whole = false;
    for (const auto& actions : made->ranks)
      for (const Action& a : actions) whole |= a.kind == Kind::BW || a.with_next;
    if (!whole) refill(*made, costs, name + " with W placed by cost");
  }

  void try_greedy(int chunks, Placement placement) {
    const Schedule shape = blank("greedy", p_.ranks, chunks, p_.micro_batches, placement);
    const Costs costs = p_.costs(shape);
    const Memory memory{p_.memory * chunks, p_.freed_at_b};
    const std::string origin = fmt::format("greedy, {} chunk{}{}", chunks, chunks == 1 ? "" : "s",
                                           chunks == 1                      ? ""
                                           : placement == Placement::VShape ? ", V placement"
                                                                            : ", looped placement");
    const double all = std::min(p_.memory, static_cast<double>(p_.micro_batches));
    for (const double slope : {0.0, 0.5, 1.0, 2.0})
      for (const double base : {0.5, 1.0, 2.0, all / 2, all})
        for (const double patience : {0.0, 0.3, 0.6, 1.0})
          for (const bool forward_first : {false, true}) {
            if (base > all) continue;
            const Policy policy{base, slope, patience, forward_first};
            std::optional<Schedule> made = greedy(shape, costs, memory, policy);
            if (!made) continue;
            const double before = best_ ? best_->timeline.makespan : kNever;
            if (consider(*made, costs, origin) < before * (1 - 1e-9))
              refill(*made, costs, origin + ", W placed by cost");
          }
  }

  const Problem& p_;
  std::optional<Synthesis> best_;
  std::vector<Synthesis::NamedResult> named_;
  double least_ = kNever;
};

}  // namespace

// Three statements hold for every rank and any order of its actions:
// - all its work comes after the earliest moment at which it has anything to do;
// - before the earliest start of its first B it can only compute F, and no more of these than it may hold;
// - an activation is held at least for the time from its F to its B without contention, and the sum of these
//   times is at most the memory limit times the time available (Little's law). After the rank's last B, the
//   stages before it still have to run theirs.
double makespan_bound(const Schedule& s, const Costs& c, double most, double freed_at_b) {
  const Chain chain(s, c);
  const double m = s.micro_batches;
  double bound = 0;
  for (int r = 0; r < s.stages; ++r) {
    double head = kNever, first_b = kNever, work = 0, longest_f = 0, forwards = 0, held = 0, kept = 0,
           tail = kNever;
    for (int k = 0; k < s.chunks; ++k) {
      const int i = s.stage_of(r, k);
      const size_t at = static_cast<size_t>(i);
      head = std::min(head, chain.starts[at]);
      first_b = std::min(first_b, chain.starts[at] + c.f[at] + chain.rest[at]);
      work += m * (c.f[at] + c.b[at] + c.w[at]);
      forwards += m * c.f[at];
      longest_f = std::max(longest_f, c.f[at]);
      held += m * (c.f[at] + chain.rest[at] + c.b[at]);
      kept += m * (1 - freed_at_b) * c.w[at];
      tail = std::min(tail, chain.up[at]);
    }
    const double before_b = std::min(forwards, std::floor(most + 1e-9) * longest_f);
    bound = std::max({bound, head + work, first_b + work - std::min(before_b, first_b - head),
                      head + held / most + tail, head + (held + kept) / most});
  }
  return bound;
}

Synthesis synthesize(const Problem& problem) { return Search(problem).run(); }

}  // namespace quintet::schedule
