#include "sim/time_breakdown.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/error.h"

namespace quintet::sim {

using program::BodyKind;
using program::Instr;
using program::InstrKind;
using program::kComputeStream;

namespace {

class Attribution {
 public:
  Attribution(const Simulation& sim, const World& world, size_t rank)
      : program_(*world.ranks[rank].program),
        issues_(world.ranks[rank].expanded->issues),
        spans_(sim.ranks[rank]),
        blocked_(sim.blocked[rank]),
        before_(issues_.size(), -1),
        joins_stages_(program_.comms.size(), 0) {
    breakdown_.waits.assign(program_.comms.size(), 0);
    std::vector<int> last(program_.streams.size(), -1);
    for (size_t k = 0; k < issues_.size(); ++k) {
      int& previous = last[instr(k).stream.index()];
      before_[k] = previous;
      previous = static_cast<int>(k);
    }
    for (size_t c = 0; c < program_.comms.size(); ++c) {
      std::set<int> kinds;
      for (const base::RankId m : program_.comms[c].members)
        kinds.insert(world.like ? world.like(m) : static_cast<int>(m.value));
      joins_stages_[c] = joins_stages(program_.comms[c]);
    }
  }

  TimeBreakdown run(double end) {
    double now = 0;
    size_t next_blocked = 0;
    for (size_t k = 0; k < issues_.size(); ++k) {
      const Instr& i = instr(k);
      if (i.stream != kComputeStream || i.kind == InstrKind::Free) continue;
      const Span& span = spans_[k];
      double from = now;
      while (next_blocked < blocked_.size() && static_cast<size_t>(blocked_[next_blocked].issue) <= k) {
        const Blocked& b = blocked_[next_blocked++];
        const double seconds = std::min(b.seconds, std::max(span.start - from, 0.0));
        breakdown_.waits[instr(static_cast<size_t>(b.collective)).collective.comm.index()] += seconds;
        from += seconds;
      }
      if (span.start > from) waited(static_cast<int>(k), from, span.start);
      count(k, span.end - span.start);
      now = span.end;
    }
    // The rest of the step belongs to other streams, then to other stages.
    for (size_t s = 0; s < program_.streams.size() && now < end; ++s) {
      int last = -1;
      for (size_t k = 0; k < issues_.size(); ++k)
        if (instr(k).stream.index() == s) last = static_cast<int>(k);
      if (last < 0 || spans_[static_cast<size_t>(last)].end <= now) continue;
      const double until = spans_[static_cast<size_t>(last)].end;
      follow(last, now, until);
      now = until;
    }
    breakdown_.bubble += std::max(end - now, 0.0);
    return breakdown_;
  }

 private:
  const Instr& instr(size_t k) const { return instr_of(program_, issues_[k]); }

  void count(size_t k, double seconds) {
    const BodyKind body = program_.bodies[static_cast<size_t>(issues_[k].body)].kind;
    const Instr& i = instr(k);
    if (body == BodyKind::Begin || body == BodyKind::Step) {
      breakdown_.optimizer += seconds;
    } else if (i.kind != InstrKind::Compute) {
      breakdown_.other += seconds;
    } else {
      const WorkClass c = class_of(*i.op);
      (c == WorkClass::Matmul      ? breakdown_.matmul
       : c == WorkClass::Attention ? breakdown_.attention
                                   : breakdown_.other) += seconds;
    }
  }

  // Attributes [from, to), during which issue k was stalled.
  void waited(int k, double from, double to) {
    const Span& span = spans_[static_cast<size_t>(k)];
    if (span.cause >= 0)
      follow(span.cause, from, to);
    else
      breakdown_.other += to - from;
  }

  // Attributes [from, to), spent waiting for issue k to end.
  void follow(int k, double from, double to) {
    while (k >= 0 && to > from) {
      const Span& span = spans_[static_cast<size_t>(k)];
      const Instr& i = instr(static_cast<size_t>(k));
      const auto take = [&](double begin, double& share) {
        begin = std::max(begin, from);
        if (to > begin) share += to - begin, to = begin;
      };
      if (i.kind == InstrKind::Collective) {
        const size_t comm = i.collective.comm.index();
        take(span.start, breakdown_.waits[comm]);
        take(span.arrived, joins_stages_[comm] ? breakdown_.bubble : breakdown_.waits[comm]);
        // An exposed part lies between what was waited for and its arrival.
        const double reason =
            span.cause >= 0 ? std::max(spans_[static_cast<size_t>(span.cause)].end, span.ready) : span.ready;
        take(reason, breakdown_.waits[comm]);
      } else {
        // Work on another stream (casts of data to send); on the compute stream, `from` ends it.
        take(span.start, breakdown_.other);
      }
      k = span.cause >= 0 ? span.cause : before_[static_cast<size_t>(k)];
    }
    if (to > from) breakdown_.other += to - from;
  }

  const program::Program& program_;
  const std::vector<program::Issue>& issues_;
  const std::vector<Span>& spans_;
  const std::vector<Blocked>& blocked_;
  std::vector<int> before_;  // by issue: its predecessor in its stream
  std::vector<char> joins_stages_;
  TimeBreakdown breakdown_;
};

}  // namespace

bool joins_stages(const program::Communicator& comm) {
  return !comm.moves_experts() && comm.axes().front() == layout::Axis::Pp;
}

double TimeBreakdown::total() const {
  return busy() + bubble + std::accumulate(waits.begin(), waits.end(), 0.0);
}

TimeBreakdown time_breakdown(const Simulation& sim, const World& world, size_t rank) {
  return Attribution(sim, world, rank).run(sim.end);
}

}  // namespace quintet::sim
