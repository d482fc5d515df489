// Checks that need several ranks at once: communicators, sequences, one order, deadlock.
#include <fmt/ranges.h>

#include <algorithm>
#include <deque>
#include <map>

#include "program/verify.h"
#include "program/verify_internal.h"

namespace quintet::program {
namespace verifier {
namespace {

bool is_message(const Instr& instr) {
  return instr.kind == InstrKind::Collective &&
         (instr.collective.kind == CollectiveKind::Send || instr.collective.kind == CollectiveKind::Recv);
}

// A participant of a meeting: a program and, for a ring (see Together::ring_of), its side of the message.
struct Seat {
  size_t program;
  bool receives = false;
  friend auto operator<=>(const Seat&, const Seat&) = default;
};

// A set of programs that meet: one communicator as its members see it. A meeting happens when all seats are
// taken.
struct Group {
  std::string name;
  std::vector<RankId> members;
  std::vector<Seat> seats;
  bool ring = false;
};

// What one program does at a meeting, as far as the others must match it.
struct Entry {
  int issue;
  const Instr* instr;
};

class Together {
 public:
  Together(const std::vector<const Program*>& programs, const std::vector<const Expanded*>& expanded,
           const std::function<int(RankId)>& like)
      : p_(programs), e_(expanded), like_(like), count_(programs.size()) {
    if (expanded.size() != count_) fail("world", "{} programs, {} expansions", count_, expanded.size());
    world_ = like ? (count_ == 0 ? 0 : static_cast<size_t>(p_[0]->world)) : count_;
    for (size_t r = 0; r < count_; ++r)
      if (static_cast<size_t>(p_[r]->world) != world_ || program_of(p_[r]->rank) != r)
        fail(fmt::format("rank {}", r), "its program is that of rank {} of {}, not of {} of {}", p_[r]->rank,
             p_[r]->world, r, world_);
  }

  void run() {
    match_groups();
    match_sequences();
    one_order();
    dry_run();
  }

 private:
  // The program that a rank of the world runs.
  size_t program_of(RankId rank) const {
    return like_ ? static_cast<size_t>(like_(rank)) : static_cast<size_t>(rank.value);
  }

  // Every program of a communicator's members has a communicator of that name with the same members. Of a
  // message from one rank to another of the same class, both sides are the representative's own: the k-th
  // that it receives was sent when it sent its k-th. All such channels over the same atoms are one group, a
  // ring.
  void match_groups() {
    group_of_.resize(count_);
    std::map<std::pair<std::string, std::vector<RankId>>, int> ids;
    for (size_t r = 0; r < count_; ++r) {
      const std::vector<char> messages = carries_messages(*p_[r]);
      for (size_t i = 0; i < p_[r]->comms.size(); ++i) {
        const Communicator& c = p_[r]->comms[i];
        for (const RankId m : c.members)
          if (!m.valid() || m.index() >= world_)
            fail(user_of(r, i), "communicator {}: there is no rank {}", c.name(), m);
        const bool ring = like_ && messages[i] && c.members.size() == 2 &&
                          program_of(c.members[0]) == program_of(c.members[1]);
        std::pair<std::string, std::vector<RankId>> key{c.name(), c.members};
        if (ring) key = {fmt::format("ring over {}", fmt::join(c.atoms, ",")), {p_[r]->rank}};
        const auto [it, is_new] = ids.try_emplace(std::move(key), static_cast<int>(groups_.size()));
        if (is_new) groups_.push_back({c.name(), c.members, seats_of(r, c, ring), ring});
        group_of_[r].push_back(it->second);
        const size_t position = static_cast<size_t>(c.position);
        if (c.position < 0 || position >= c.members.size() || c.members[position] != p_[r]->rank)
          fail(user_of(r, i), "communicator {} does not have rank {} at position {}", c.name(), p_[r]->rank,
               c.position);
      }
    }
    for (size_t g = 0; g < groups_.size(); ++g)
      for (const Seat& seat : groups_[g].seats) {
        const auto& theirs = group_of_[seat.program];
        if (std::find(theirs.begin(), theirs.end(), static_cast<int>(g)) == theirs.end())
          fail(first_user_of(g), "rank {} has no communicator {} with the same members",
               p_[seat.program]->rank, groups_[g].name);
      }
  }

  static std::vector<char> carries_messages(const Program& p) {
    std::vector<char> out(p.comms.size(), 0);
    for (const Body& body : p.bodies)
      for (const Instr& instr : body.instrs)
        if (is_message(instr) && instr.collective.comm.index() < out.size())
          out[instr.collective.comm.index()] = 1;
    return out;
  }

  std::vector<Seat> seats_of(size_t r, const Communicator& c, bool ring) const {
    if (ring) return {{r, false}, {r, true}};
    std::vector<Seat> seats;
    for (const RankId m : c.members) seats.push_back({program_of(m)});
    if (like_) {  // several members may be like one program
      std::sort(seats.begin(), seats.end());
      seats.erase(std::unique(seats.begin(), seats.end()), seats.end());
    }
    return seats;
  }

  // The first instruction of a program on its communicator; the rank alone if there is none.
  std::string user_of(size_t r, size_t comm) const {
    for (const Issue& issue : e_[r]->issues) {
      const Instr& instr = instr_of(*p_[r], issue);
      if (instr.kind == InstrKind::Collective && instr.collective.comm.index() == comm)
        return name_of(*p_[r], issue);
    }
    return fmt::format("rank {}", p_[r]->rank);
  }

  std::string first_user_of(size_t group) const {
    for (size_t r = 0; r < count_; ++r)
      for (size_t i = 0; i < group_of_[r].size(); ++i)
        if (group_of_[r][i] == static_cast<int>(group)) return user_of(r, i);
    return "world";
  }

  size_t group_of(size_t r, const Instr& instr) const {
    return static_cast<size_t>(group_of_[r][instr.collective.comm.index()]);
  }
  size_t seat_of(size_t r, const Instr& instr, const Group& group) const {
    if (group.ring) return instr.collective.kind == CollectiveKind::Recv ? 1 : 0;
    for (size_t s = 0; s < group.seats.size(); ++s)
      if (group.seats[s].program == r) return s;
    base::fail_internal("rank {} has no seat in {}", p_[r]->rank, group.name);
  }

  void match_sequences() {
    entries_.resize(groups_.size());
    for (size_t g = 0; g < groups_.size(); ++g) entries_[g].resize(groups_[g].seats.size());
    for (size_t r = 0; r < count_; ++r) {
      std::vector<size_t> seat_of_comm(p_[r]->comms.size());  // if it is not a ring
      for (size_t i = 0; i < seat_of_comm.size(); ++i) {
        const Group& group = groups_[static_cast<size_t>(group_of_[r][i])];
        if (!group.ring) seat_of_comm[i] = seat_of(r, {}, group);
      }
      for (size_t k = 0; k < e_[r]->issues.size(); ++k) {
        const Instr& instr = instr_of(*p_[r], e_[r]->issues[k]);
        if (instr.kind != InstrKind::Collective) continue;
        const size_t g = group_of(r, instr);
        const size_t seat =
            groups_[g].ring ? seat_of(r, instr, groups_[g]) : seat_of_comm[instr.collective.comm.index()];
        entries_[g][seat].push_back({static_cast<int>(k), &instr});
      }
    }
    for (size_t g = 0; g < groups_.size(); ++g) {
      const size_t first = groups_[g].seats[0].program;
      const std::vector<Entry>& model = entries_[g][0];
      for (size_t s = 0; s < groups_[g].seats.size(); ++s) {
        const size_t program = groups_[g].seats[s].program;
        const std::vector<Entry>& own = entries_[g][s];
        for (size_t i = 0; i < std::min(own.size(), model.size()); ++i)
          if (!agree(*own[i].instr, *model[i].instr))
            fail(name_of(*p_[program], issue(program, own[i].issue)),
                 "is number {} on communicator {}, where the other members have {}", i, groups_[g].name,
                 name_of(*p_[first], issue(first, model[i].issue)));
        if (own.size() == model.size()) continue;
        const bool fewer = own.size() < model.size();
        const size_t extra = fewer ? first : program;
        const Entry& entry = fewer ? model[own.size()] : own[model.size()];
        fail(name_of(*p_[extra], issue(extra, entry.issue)),
             "rank {} issues {} collectives on communicator {}, rank {} issues {}: this one has no partner",
             p_[program]->rank, own.size(), groups_[g].name, p_[first]->rank, model.size());
      }
    }
  }

  // The communicator is the meeting point; its number may differ from rank to rank. Label and block
  // distinguish messages of one size, so that a rank that sends its parts of two parameters in the wrong
  // order is found.
  static bool agree(const Instr& x, const Instr& y) {
    const Collective &a = x.collective, &b = y.collective;
    const bool message = (a.kind == CollectiveKind::Send && b.kind == CollectiveKind::Recv) ||
                         (a.kind == CollectiveKind::Recv && b.kind == CollectiveKind::Send);
    const bool both_ways =
        &x != &y && a.kind == b.kind && (a.kind == CollectiveKind::Send || a.kind == CollectiveKind::Recv);
    return (a.kind == b.kind || message) && !both_ways && x.repeated == y.repeated && a.count == b.count &&
           a.dtype == b.dtype && a.reduction == b.reduction && x.phase == y.phase && x.block == y.block &&
           x.note == y.note && x.attrs == y.attrs;
  }

  // The union of all issue orders over collectives has no cycle. Found by running every program's collectives
  // one after another in issue order, without streams: a cycle makes that stall. Messages are left out:
  // pipelines send up and down in opposite orders, each pair on streams of its own.
  void one_order() {
    std::vector<std::vector<int>> queue(count_);  // issues
    for (size_t r = 0; r < count_; ++r)
      for (size_t k = 0; k < e_[r]->issues.size(); ++k) {
        const Instr& instr = instr_of(*p_[r], e_[r]->issues[k]);
        if (instr.kind == InstrKind::Collective && !is_message(instr))
          queue[r].push_back(static_cast<int>(k));
      }
    std::vector<size_t> done(count_, 0);         // of the queue
    std::vector<size_t> met(groups_.size(), 0);  // meetings held
    std::vector<std::vector<size_t>> present(groups_.size());
    std::vector<size_t> todo(count_);
    for (size_t r = 0; r < count_; ++r) todo[r] = r;
    const auto group_at_head = [&](size_t r) {
      return group_of(r, instr_of(*p_[r], issue(r, queue[r][done[r]])));
    };
    while (!todo.empty()) {
      const size_t r = todo.back();
      todo.pop_back();
      if (done[r] == queue[r].size()) continue;
      const size_t g = group_at_head(r);
      present[g].push_back(r);
      if (present[g].size() < groups_[g].seats.size()) continue;
      ++met[g];
      for (const size_t who : present[g]) ++done[who], todo.push_back(who);
      present[g].clear();
    }
    for (size_t r = 0; r < count_; ++r)
      if (done[r] < queue[r].size()) return fail_order(r, queue, done, met, group_at_head);
  }

  // Every program that stalled waits at a meeting for a missing one, which waits elsewhere: following that
  // leads into a cycle.
  template <class GroupAtHead>
  [[noreturn]] void fail_order(size_t start, const std::vector<std::vector<int>>& queue,
                               const std::vector<size_t>& done, const std::vector<size_t>& met,
                               const GroupAtHead& group_at_head) const {
    std::vector<size_t> path = {start};
    std::vector<size_t> cycle;
    while (cycle.empty()) {
      const size_t g = group_at_head(path.back());
      const auto missing = std::find_if(groups_[g].seats.begin(), groups_[g].seats.end(), [&](const Seat& s) {
        return done[s.program] < queue[s.program].size() && group_at_head(s.program) != g;
      });
      const auto seen = std::find(path.begin(), path.end(), missing->program);
      if (seen != path.end()) cycle.assign(seen, path.end());
      path.push_back(missing->program);
    }
    // Each is what the previous one waits for: it issues its own collective before the other's.
    std::string report;
    for (size_t i = 0; i < cycle.size(); ++i) {
      const size_t r = cycle[i], before = cycle[(i + cycle.size() - 1) % cycle.size()];
      const size_t g = group_at_head(before);
      size_t seat = 0;
      while (groups_[g].seats[seat].program != r) ++seat;
      report += fmt::format("\n  {} is issued before {}", name_of(*p_[r], issue(r, queue[r][done[r]])),
                            name_of(*p_[r], issue(r, entries_[g][seat][met[g]].issue)));
    }
    const size_t r = cycle[0];
    fail(name_of(*p_[r], issue(r, queue[r][done[r]])),
         "ranks issue collectives in different orders, all must follow one:{}", report);
  }

  // Runs all streams of all programs as far as they get. A plain instruction completes when it is at the head
  // of its stream and what it waits for is complete; one that needs partners when all of them are there too.
  // Steps never disable each other, so the order of trying them does not matter: what stalls here always
  // stalls.
  void dry_run() {
    ranks_.resize(count_);
    for (size_t r = 0; r < count_; ++r) {
      ranks_[r].streams.resize(p_[r]->streams.size());
      for (size_t k = 0; k < e_[r]->issues.size(); ++k)
        ranks_[r].streams[instr_of(*p_[r], e_[r]->issues[k]).stream.index()].push_back(static_cast<int>(k));
      ranks_[r].done.assign(p_[r]->streams.size(), 0);
      ranks_[r].arrived.assign(p_[r]->streams.size(), false);
    }
    present_.assign(groups_.size(), {});
    std::deque<size_t> todo;
    for (size_t r = 0; r < count_; ++r) todo.push_back(r);
    while (!todo.empty()) {
      const size_t r = todo.front();
      todo.pop_front();
      for (const size_t woken : advance(r)) todo.push_back(woken);
    }
    for (size_t r = 0; r < count_; ++r)
      for (size_t s = 0; s < ranks_[r].streams.size(); ++s)
        if (ranks_[r].done[s] < ranks_[r].streams[s].size()) fail_stalled();
  }

  struct Rank {
    std::vector<std::vector<int>> streams;  // issues by position
    std::vector<size_t> done;               // by stream
    std::vector<char> arrived;              // by stream: its head waits at a meeting
  };
  using Place = std::pair<size_t, size_t>;  // program and stream

  // Advances the streams of a program; returns the programs that a meeting released.
  std::vector<size_t> advance(size_t r) {
    std::vector<size_t> woken;
    Rank& rank = ranks_[r];
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t s = 0; s < rank.streams.size(); ++s) {
        while (rank.done[s] < rank.streams[s].size() && !rank.arrived[s] && ready(r, s)) {
          const std::vector<Place>* partners = arrive(r, s);
          if (partners == nullptr) {  // needs no partner
            ++rank.done[s];
            moved = true;
            continue;
          }
          if (partners->empty()) break;  // some are still missing
          for (const auto& [other, stream] : std::vector<Place>(*partners)) {
            ++ranks_[other].done[stream];
            ranks_[other].arrived[stream] = false;
            if (other != r) woken.push_back(other);
          }
          moved = true;
        }
      }
    }
    return woken;
  }

  bool ready(size_t r, size_t s) const {
    const Issue& head = head_of(r, s);
    for (int w = head.first_wait; w < head.first_wait + head.num_waits; ++w) {
      const Wait& wait = e_[r]->waits[static_cast<size_t>(w)];
      if (ranks_[r].done[wait.stream.index()] <= static_cast<size_t>(wait.position)) return false;
    }
    return true;
  }

  // The head of the stream takes its seat at its meeting. Null: it needs none. Empty: others are missing.
  // Otherwise all participants. The two sides of a ring belong to one program: they meet when both are there.
  const std::vector<Place>* arrive(size_t r, size_t s) {
    const Instr& instr = instr_of(*p_[r], head_of(r, s));
    if (instr.kind != InstrKind::Collective) return nullptr;
    const size_t g = group_of(r, instr);
    ranks_[r].arrived[s] = true;
    present_[g].emplace_back(r, s);
    met_.clear();
    if (present_[g].size() == groups_[g].seats.size()) met_.swap(present_[g]);
    return &met_;
  }

  [[noreturn]] void fail_stalled() const {
    std::string report;
    std::string where;
    for (size_t r = 0; r < count_; ++r)
      for (size_t s = 0; s < ranks_[r].streams.size(); ++s) {
        if (ranks_[r].done[s] >= ranks_[r].streams[s].size()) continue;
        if (where.empty()) where = name_of(*p_[r], head_of(r, s));
        report += fmt::format("\n  rank {} stream {} is at {} and waits for {}", p_[r]->rank,
                              p_[r]->streams[s].name, name_of(*p_[r], head_of(r, s)), waits_for(r, s));
      }
    fail(where, "deadlock:{}", report);
  }

  std::string waits_for(size_t r, size_t s) const {
    const Issue& head = head_of(r, s);
    for (int w = head.first_wait; w < head.first_wait + head.num_waits; ++w) {
      const Wait& wait = e_[r]->waits[static_cast<size_t>(w)];
      if (ranks_[r].done[wait.stream.index()] <= static_cast<size_t>(wait.position))
        return fmt::format("position {} of its stream {}", wait.position,
                           p_[r]->streams[wait.stream.index()].name);
    }
    const Instr& instr = instr_of(*p_[r], head);
    if (instr.kind != InstrKind::Collective) return "nothing";
    const Group& group = groups_[group_of(r, instr)];
    if (group.ring) return "the other side of the ring";
    std::string missing;
    for (const Seat& seat : group.seats)
      if (std::none_of(present_[group_of(r, instr)].begin(), present_[group_of(r, instr)].end(),
                       [&](const Place& p) { return p.first == seat.program; }))
        missing += fmt::format("{}{}", missing.empty() ? "" : ", ", p_[seat.program]->rank);
    return fmt::format("rank {}", missing);
  }

  const Issue& issue(size_t r, int k) const { return e_[r]->issues[static_cast<size_t>(k)]; }
  const Issue& head_of(size_t r, size_t s) const { return issue(r, ranks_[r].streams[s][ranks_[r].done[s]]); }

  const std::vector<const Program*>& p_;
  const std::vector<const Expanded*>& e_;
  const std::function<int(RankId)> like_;  // empty: the programs are the world's, in rank order
  const size_t count_;                     // of programs
  size_t world_ = 0;
  std::vector<Group> groups_;
  std::vector<std::vector<int>> group_of_;                // by program and CommId: into groups_
  std::vector<std::vector<std::vector<Entry>>> entries_;  // by group and seat: all it issues there, in order
  std::vector<Rank> ranks_;
  std::vector<std::vector<Place>> present_;  // by group: the streams that wait there
  std::vector<Place> met_;
};

}  // namespace
}  // namespace verifier

void verify_together(const std::vector<const Program*>& programs,
                     const std::vector<const Expanded*>& expanded) {
  verifier::Together(programs, expanded, {}).run();
}

void verify_classes(const std::vector<const Program*>& programs, const std::vector<const Expanded*>& expanded,
                    const std::function<int(RankId)>& like) {
  verifier::Together(programs, expanded, like).run();
}

}  // namespace quintet::program
