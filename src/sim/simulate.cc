#include "sim/simulate.h"

#include <algorithm>
#include <cmath>
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

// Advances every rank as far as possible, in turn, until all are done. The time of an instruction depends
// only on what it waits for, so the order of turns does not matter.
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
        for (const Instr& instr : body.instrs) list.push_back(does_work(instr) ? duration(p, instr) : 0);
      }
      if (options.use) find_links(r, options.use);
      for (const Communicator& c : p.comms) rank.groups.push_back(group_of(c));
      out_.ranks.emplace_back(issues.size());
      if (hidden_ < 1) find_blocking(r);
    }
    loads_.find_shared();
  }

  Simulation run() {
    // If nothing else can advance, everything not yet started waits for a transfer in flight, so the next one
    // to end is known.
    std::vector<size_t> awake;
    for (size_t r = 0; r < ranks_.size(); ++r) awake.push_back(r);
    for (;;) {
      while (!awake.empty()) {
        const size_t r = awake.back();
        awake.pop_back();
        advance(r, awake);
      }
      if (loads_.empty()) break;
      const Transfer done = loads_.pop();
      for (const Meeting::Member& m : done.members) {
        finish(m.rank, m.stream, done.start, done.end - done.start);
        awake.push_back(m.rank);
      }
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
    std::vector<int> loads;  // of its members (indices in Loads)
    double start = 0, duration = 0, latency = 0;
  };
  struct Group {                      // a communicator from the view of one member
    Meeting *collectives, *messages;  // where its members meet
    size_t kinds;                     // distinct kinds of members
  };
  struct State {
    std::vector<std::vector<int>> streams;       // issues by position
    std::vector<std::vector<double>> ends;       // by stream and position, of finished issues
    std::vector<char> arrived;                   // by stream: its head is waiting at a meeting
    std::vector<Group> groups;                   // by CommId
    std::vector<std::vector<double>> durations;  // by body and instruction
    std::vector<std::vector<Use>> uses;          // by body and instruction, if links are shared
    // hidden < 1: for each collective, the number of compute instructions issued before it; for each compute
    // instruction, the exclusive time that collectives took before it.
    std::vector<int> computed_before;
    std::vector<double> blocked;
  };

  const Program& program(size_t r) const { return *world_.ranks[r].program; }

  Group group_of(const Communicator& c) {
    Meeting* const own = &meetings_[{c.members, c.channel}];
    if (!world_.like) return {own, own, c.members.size()};
    std::set<int> kinds;
    for (const base::RankId m : c.members) kinds.insert(world_.like(m));
    // Between ranks of one kind, what the next rank receives equals what this one receives from the previous.
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
      if (!meets(r, issues[k]) || is_message(instr)) continue;
      if (static_cast<size_t>(before) >= compute.size()) continue;
      const double seconds = (1 - hidden_) * duration_of(r, issues[k]);
      const int next = compute[static_cast<size_t>(before)];
      rank.blocked[static_cast<size_t>(next)] += seconds;
      out_.blocked[r].push_back({next, static_cast<int>(k), seconds});
    }
  }

  void find_links(size_t r, const UseFn& use) {
    const Program& p = program(r);
    for (const program::Body& body : p.bodies) {
      auto& list = ranks_[r].uses.emplace_back(body.instrs.size());
      for (size_t i = 0; i < body.instrs.size(); ++i) {
        const Instr& instr = body.instrs[i];
        if (instr.kind != InstrKind::Collective) continue;
        list[i] = use(p, instr);
        for (const int load : loads_of(r, instr, list[i])) loads_.add(load, instr.stream.value);
      }
    }
  }

  // The link directions of a rank that a collective loads.
  std::vector<int> loads_of(size_t r, const Instr& instr, const Use& use) const {
    if (use.link < 0) return {};
    const int out = static_cast<int>(r) * 2 * kMaxLinks + 2 * use.link, in = out + 1;
    if (instr.collective.kind == CollectiveKind::Send) return {out};
    if (instr.collective.kind == CollectiveKind::Recv) return {in};
    return {out, in};
  }

  // Runs everything on a rank that does not wait for others. Adds the ranks it unblocks to `awake`.
  void advance(size_t r, std::vector<size_t>& awake) {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t s = 0; s < ranks_[r].streams.size(); ++s)
        while (step(r, s, awake)) moved = true;
    }
  }

  double duration_of(size_t r, const Issue& issue) const {
    return ranks_[r].durations[static_cast<size_t>(issue.body)][static_cast<size_t>(issue.instr)];
  }

  // A collective, unless it belongs to further passes of experts that do not run.
  bool meets(size_t r, const Issue& issue) const {
    const Instr& instr = instr_of(program(r), issue);
    return instr.kind == InstrKind::Collective && (!instr.repeated || duration_of(r, issue) > 0);
  }

  // Advances the head of a stream, to completion or to its meeting, if what it waits for is done.
  bool step(size_t r, size_t s, std::vector<size_t>& awake) {
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
    if (!meets(r, issue)) {
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
    if (!rank.uses.empty()) {
      const Use& use = rank.uses[static_cast<size_t>(issue.body)][static_cast<size_t>(issue.instr)];
      meeting.latency = std::max(meeting.latency, use.latency);
      for (const int load : loads_of(r, instr, use)) meeting.loads.push_back(load);
    }
    if (meeting.present.size() < (is_message(instr) ? 2 : group.kinds)) return true;
    Meeting met = std::exchange(meeting, {});
    if (loads_.shared(met.loads)) {
      const double latency = std::min(met.latency, met.duration);
      loads_.push({.members = std::move(met.present),
                   .loads = std::move(met.loads),
                   .start = met.start,
                   .begin = met.start + latency,
                   .left = met.duration - latency});
      return true;
    }
    for (const Meeting::Member& m : met.present) {
      finish(m.rank, m.stream, met.start, met.duration);
      if (m.rank != r) awake.push_back(m.rank);
    }
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

  // A collective in flight on links that it may share.
  struct Transfer {
    std::vector<Meeting::Member> members;
    std::vector<int> loads;
    double start = 0, begin = 0;  // begin: when bytes start to flow
    double left = 0;              // seconds at full speed
    double end = 0;
    bool flows = false;
  };

  // Transfers in flight and how they slow each other down. Time advances from end to end: a pushed transfer
  // never starts before the end that was popped last.
  class Loads {
   public:
    void add(int load, int stream) {
      if (static_cast<size_t>(load) >= streams_.size()) streams_.resize(static_cast<size_t>(load) + 1);
      streams_[static_cast<size_t>(load)].insert(stream);
    }
    // A link loaded by a single stream is never shared, because its collectives are sequential.
    void find_shared() {
      for (const std::set<int>& s : streams_) several_.push_back(s.size() > 1);
      flowing_.assign(streams_.size(), 0);
    }
    bool shared(const std::vector<int>& loads) const {
      return std::any_of(loads.begin(), loads.end(),
                         [&](int l) { return several_[static_cast<size_t>(l)] != 0; });
    }
    bool empty() const { return list_.empty(); }
    void push(Transfer t) { list_.push_back(std::move(t)); }

    // Removes the transfer that ends first.
    Transfer pop() {
      for (;;) {
        size_t next = 0;
        double when = INFINITY;
        for (size_t i = 0; i < list_.size(); ++i) {
          const Transfer& t = list_[i];
          const double then = t.flows ? now_ + t.left * slowness(t) : t.begin;
          if (then < when) when = then, next = i;
        }
        const double passed = std::max(when - now_, 0.0);
        for (Transfer& t : list_)
          if (t.flows) t.left = std::max(t.left - passed / slowness(t), 0.0);
        now_ = std::max(now_, when);
        Transfer& t = list_[next];
        for (const int l : t.loads) flowing_[static_cast<size_t>(l)] += t.flows ? -1 : 1;
        if (!t.flows) {
          t.flows = true;
          continue;
        }
        t.end = when;
        Transfer done = std::move(t);
        list_.erase(list_.begin() + static_cast<std::ptrdiff_t>(next));
        return done;
      }
    }

   private:
    double slowness(const Transfer& t) const {
      int most = 1;
      for (const int l : t.loads) most = std::max(most, flowing_[static_cast<size_t>(l)]);
      return most;
    }
    std::vector<std::set<int>> streams_;  // by load
    std::vector<char> several_;           // by load
    std::vector<int> flowing_;            // by load: transfers in flight
    std::vector<Transfer> list_;
    double now_ = 0;
  };
  static constexpr int kMaxLinks = 4;  // kinds of links per rank

  const World& world_;
  const double hidden_;
  Loads loads_;
  std::vector<State> ranks_;
  std::map<std::pair<std::vector<base::RankId>, program::Channel>, Meeting> meetings_;
  std::map<std::pair<int, layout::AtomList>, Meeting> rings_;
  Simulation out_;
};

}  // namespace

Simulation simulate(const World& world, const DurationFn& duration, const Options& options) {
  return Simulator(world, duration, options).run();
}

DurationFn by_rates(const Rates& rates) {
  return [rates](const Program& program, const Instr& instr) {
    if (instr.repeated) return 0.0;
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
