#include "sim/simulate.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "program/ledger.h"

namespace quintet::sim {

using program::CollectiveKind;
using program::Communicator;
using program::Instr;
using program::InstrKind;
using program::Issue;
using program::kComputeStream;
using program::Program;
using program::StreamId;

namespace {

bool is_message(const Instr& instr) {
  return instr.collective.kind == CollectiveKind::Send || instr.collective.kind == CollectiveKind::Recv;
}

// Runs every rank as far as it gets, in turns, until all are done. When an instruction runs depends only on
// what it waits for, so the order of turns does not matter.
class Simulator {
 public:
  Simulator(const World& world, const DurationFn& duration, const Options& options)
      : world_(world), hidden_(options.hidden), ranks_(world.ranks.size()) {
    QUINTET_CHECK(hidden_ >= 0 && hidden_ <= 1, "hidden is {}", hidden_);
    out_.blocked.resize(ranks_.size());
    for (size_t r = 0; r < ranks_.size(); ++r) {
      const Program& p = program(r);
      const auto& issues = world.ranks[r].expanded->issues;
      State& rank = ranks_[r];
      rank.streams.resize(p.streams.size());
      rank.ends.resize(p.streams.size());
      rank.arrived.assign(p.streams.size(), 0);
      for (size_t k = 0; k < issues.size(); ++k)
        rank.streams[instr_of(p, issues[k]).stream.index()].push_back(static_cast<int>(k));
      for (size_t s = 0; s < p.streams.size(); ++s) rank.ends[s].reserve(rank.streams[s].size());
      for (const program::Body& body : p.bodies) {
        auto& list = rank.durations.emplace_back();
        for (const Instr& instr : body.instrs)
          list.push_back(instr.kind == InstrKind::Free ? 0 : duration(p, instr));
      }
      for (const Communicator& c : p.comms) rank.groups.push_back(group_of(c));
      out_.ranks.emplace_back(issues.size());
      if (hidden_ < 1) find_blocking(r);
    }
  }

  Simulation run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t r = 0; r < ranks_.size(); ++r)
        for (size_t s = 0; s < ranks_[r].streams.size(); ++s)
          while (step(r, s)) moved = true;
    }
    for (size_t r = 0; r < ranks_.size(); ++r)
      for (size_t s = 0; s < ranks_[r].streams.size(); ++s)
        QUINTET_CHECK(ranks_[r].ends[s].size() == ranks_[r].streams[s].size(), "rank {} stream {} never ends",
                      program(r).rank, program(r).streams[s].name);
    return std::move(out_);
  }

 private:
  struct Meeting {
    struct Member {
      size_t rank, stream;
    };
    std::vector<Member> present;
    double start = 0, duration = 0;
  };
  struct Group {                      // a communicator as one of its members sees it
    Meeting *collectives, *messages;  // where its members meet
    size_t kinds;                     // of members
  };
  struct State {
    std::vector<std::vector<int>> streams;       // issues by position
    std::vector<std::vector<double>> ends;       // by stream and position, of what is done
    std::vector<char> arrived;                   // by stream: its head stands at a meeting
    std::vector<Group> groups;                   // by CommId
    std::vector<std::vector<double>> durations;  // by body and instruction
    // hidden < 1: of collectives, how many compute instructions were issued before; of these, what
    // collectives took before them.
    std::vector<int> computed_before;
    std::vector<double> blocked;
  };

  const Program& program(size_t r) const { return *world_.ranks[r].program; }

  Group group_of(const Communicator& c) {
    Meeting* const own = &meetings_[{c.members, c.name}];
    if (!world_.like) return {own, own, c.members.size()};
    std::set<int> kinds;
    for (const base::RankId m : c.members) kinds.insert(world_.like(m));
    // Of ranks of one kind, what the next receives is what this one receives from the one before.
    return {own, kinds.size() == 1 ? &rings_[{*kinds.begin(), c.atoms}] : own, kinds.size()};
  }

  void find_blocking(size_t r) {
    State& rank = ranks_[r];
    const auto& issues = world_.ranks[r].expanded->issues;
    rank.computed_before.assign(issues.size(), 0);
    rank.blocked.assign(issues.size(), 0);
    const auto& compute = rank.streams[kComputeStream.index()];
    int before = 0;
    for (size_t k = 0; k < issues.size(); ++k) {
      const Instr& instr = instr_of(program(r), issues[k]);
      rank.computed_before[k] = before;
      if (instr.stream == kComputeStream) ++before;
      if (instr.kind != InstrKind::Collective || is_message(instr)) continue;
      if (static_cast<size_t>(before) >= compute.size()) continue;
      const double seconds = (1 - hidden_) * duration_of(r, issues[k]);
      const int next = compute[static_cast<size_t>(before)];
      rank.blocked[static_cast<size_t>(next)] += seconds;
      out_.blocked[r].push_back({next, static_cast<int>(k), seconds});
    }
  }

  double duration_of(size_t r, const Issue& issue) const {
    return ranks_[r].durations[static_cast<size_t>(issue.body)][static_cast<size_t>(issue.instr)];
  }

  // The head of a stream: done, or at its meeting, if what it waits for is done.
  bool step(size_t r, size_t s) {
    State& rank = ranks_[r];
    const size_t at = rank.ends[s].size();
    if (at == rank.streams[s].size() || rank.arrived[s]) return false;
    const int k = rank.streams[s][at];
    const program::Expanded& expanded = *world_.ranks[r].expanded;
    const Issue& issue = expanded.issues[static_cast<size_t>(k)];
    Span& span = out_.ranks[r][static_cast<size_t>(k)];
    span.ready = at == 0 ? 0 : rank.ends[s][at - 1];
    span.arrived = span.ready;
    span.cause = -1;
    if (hidden_ < 1) span.arrived += rank.blocked[static_cast<size_t>(k)];
    const auto wait_for = [&](size_t stream, size_t position) {
      if (position >= rank.ends[stream].size()) return false;
      if (const double then = rank.ends[stream][position]; then > span.arrived)
        span.arrived = then, span.cause = rank.streams[stream][position];
      return true;
    };
    for (int w = issue.first_wait; w < issue.first_wait + issue.num_waits; ++w) {
      const program::Wait& wait = expanded.waits[static_cast<size_t>(w)];
      if (!wait_for(wait.stream.index(), static_cast<size_t>(wait.position))) return false;
    }
    const Instr& instr = instr_of(program(r), issue);
    double duration = duration_of(r, issue);
    if (instr.kind != InstrKind::Collective) {
      finish(r, s, span.arrived, duration);
      return true;
    }
    if (hidden_ < 1 && !is_message(instr)) {
      const int before = rank.computed_before[static_cast<size_t>(k)];
      if (before > 0 && !wait_for(kComputeStream.index(), static_cast<size_t>(before) - 1)) return false;
      span.arrived += (1 - hidden_) * duration;
      duration *= hidden_;
    }
    const Group& group = rank.groups[instr.collective.comm.index()];
    Meeting& meeting = is_message(instr) ? *group.messages : *group.collectives;
    rank.arrived[s] = 1;
    meeting.present.push_back({r, s});
    meeting.start = std::max(meeting.start, span.arrived);
    meeting.duration = std::max(meeting.duration, duration);
    if (meeting.present.size() < (is_message(instr) ? 2 : group.kinds)) return true;
    const Meeting met = std::exchange(meeting, {});
    for (const Meeting::Member& m : met.present) finish(m.rank, m.stream, met.start, met.duration);
    return true;
  }

  void finish(size_t r, size_t s, double start, double duration) {
    State& rank = ranks_[r];
    Span& span = out_.ranks[r][static_cast<size_t>(rank.streams[s][rank.ends[s].size()])];
    span.start = start;
    span.end = start + duration;
    rank.ends[s].push_back(span.end);
    rank.arrived[s] = 0;
    out_.end = std::max(out_.end, span.end);
  }

  const World& world_;
  const double hidden_;
  std::vector<State> ranks_;
  std::map<std::pair<std::vector<base::RankId>, std::string>, Meeting> meetings_;
  std::map<std::pair<int, layout::AtomList>, Meeting> rings_;
  Simulation out_;
};

}  // namespace

Simulation simulate(const World& world, const DurationFn& duration, const Options& options) {
  return Simulator(world, duration, options).run();
}

DurationFn by_rates(const Rates& rates) {
  return [rates](const Program& program, const Instr& instr) {
    if (instr.kind == InstrKind::Collective) {
      const int members = static_cast<int>(program.comms[instr.collective.comm.index()].members.size());
      return rates.latency_s + program::sent_bytes(instr.collective, members) / rates.sent_bytes_per_s;
    }
    const graph::Cost cost = program::cost_of(instr);
    return std::max(cost.flops / rates.flops_per_s, cost.bytes / rates.memory_bytes_per_s);
  };
}

StreamId waited_for(const Rank& rank, const std::vector<Span>& spans, size_t k) {
  const Span& span = spans[k];
  const auto stream = [&](size_t issue) {
    return instr_of(*rank.program, rank.expanded->issues[issue]).stream;
  };
  if (span.waited_for_members()) return stream(k);
  return span.cause < 0 ? StreamId() : stream(static_cast<size_t>(span.cause));
}

}  // namespace quintet::sim
