#include "program/simulate.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "program/ledger.h"

namespace quintet::program {
namespace {

// Runs every rank as far as it gets, in turns, until all are done. When an instruction runs depends only on
// what it waits for, so the order of turns does not matter.
class Simulator {
 public:
  Simulator(const std::vector<const Program*>& programs, const std::vector<const Expanded*>& expanded,
            const SimRates& rates)
      : p_(programs), e_(expanded), rates_(rates), ranks_(programs.size()) {
    for (size_t r = 0; r < ranks_.size(); ++r) {
      Rank& rank = ranks_[r];
      const size_t streams = p_[r]->streams.size();
      rank.streams.resize(streams);
      rank.ends.resize(streams);
      for (size_t k = 0; k < e_[r]->issues.size(); ++k)
        rank.streams[instr_of(*p_[r], e_[r]->issues[k]).stream.index()].push_back(k);
      rank.arrived.assign(streams, 0);
      for (const Communicator& c : p_[r]->comms) rank.meetings.push_back(&meetings_[{c.members, c.name}]);
      out_.ranks.emplace_back(e_[r]->issues.size());
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
                      r, p_[r]->streams[s].name);
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
  struct Rank {
    std::vector<std::vector<size_t>> streams;  // issues by position
    std::vector<std::vector<double>> ends;     // by stream and position, of what is done
    std::vector<char> arrived;                 // by stream: its head stands at a meeting
    std::vector<Meeting*> meetings;            // by CommId
  };

  // The head of a stream: done, or at its meeting, if what it waits for is done.
  bool step(size_t r, size_t s) {
    Rank& rank = ranks_[r];
    const size_t at = rank.ends[s].size();
    if (at == rank.streams[s].size() || rank.arrived[s]) return false;
    const size_t k = rank.streams[s][at];
    const Issue& issue = e_[r]->issues[k];
    SimSpan& span = out_.ranks[r][k];
    span.start = span.ready = at == 0 ? 0 : rank.ends[s][at - 1];
    span.waited_for = StreamId();
    for (int w = issue.first_wait; w < issue.first_wait + issue.num_waits; ++w) {
      const Wait& wait = e_[r]->waits[static_cast<size_t>(w)];
      const std::vector<double>& ends = ranks_[r].ends[wait.stream.index()];
      if (static_cast<size_t>(wait.position) >= ends.size()) return false;
      if (const double then = ends[static_cast<size_t>(wait.position)]; then > span.start)
        span.start = then, span.waited_for = wait.stream;
    }
    const Instr& instr = instr_of(*p_[r], issue);
    const double duration = duration_ns(*p_[r], instr, rates_);
    if (instr.kind != InstrKind::Collective) {
      finish(r, s, span.start, duration);
      return true;
    }
    Meeting& meeting = *rank.meetings[instr.collective.comm.index()];
    rank.arrived[s] = 1;
    meeting.present.push_back({r, s});
    meeting.start = std::max(meeting.start, span.start);
    meeting.duration = std::max(meeting.duration, duration);
    if (meeting.present.size() < p_[r]->comms[instr.collective.comm.index()].members.size()) return true;
    const Meeting met = std::exchange(meeting, {});
    for (const Meeting::Member& m : met.present) finish(m.rank, m.stream, met.start, met.duration);
    return true;
  }

  void finish(size_t r, size_t s, double start, double duration) {
    Rank& rank = ranks_[r];
    SimSpan& span = out_.ranks[r][rank.streams[s][rank.ends[s].size()]];
    if (start > span.start) span.start = start, span.waited_for = StreamId(static_cast<int32_t>(s));
    span.end = start + duration;
    rank.ends[s].push_back(span.end);
    rank.arrived[s] = 0;
    out_.end = std::max(out_.end, span.end);
  }

  const std::vector<const Program*>& p_;
  const std::vector<const Expanded*>& e_;
  const SimRates rates_;
  std::vector<Rank> ranks_;
  std::map<std::pair<std::vector<RankId>, std::string>, Meeting> meetings_;
  Simulation out_;
};

}  // namespace

double duration_ns(const Program& program, const Instr& instr, const SimRates& rates) {
  if (instr.kind == InstrKind::Collective) {
    const int members = static_cast<int>(program.comms[instr.collective.comm.index()].members.size());
    return rates.latency_ns + sent_bytes(instr.collective, members) / rates.sent_bytes_per_ns;
  }
  const graph::Cost cost = cost_of(instr);
  return std::max(cost.flops / rates.flops_per_ns, cost.bytes / rates.memory_bytes_per_ns);
}

Simulation simulate(const std::vector<const Program*>& programs, const std::vector<const Expanded*>& expanded,
                    const SimRates& rates) {
  return Simulator(programs, expanded, rates).run();
}

}  // namespace quintet::program
