// What can only be seen with all ranks side by side: communicators, sequences, deadlock.
#include <algorithm>
#include <deque>
#include <map>

#include "program/verify.h"
#include "program/verify_internal.h"

namespace quintet::program {
namespace verifier {
namespace {

// A set of ranks that meet: the same communicator as its members know it.
struct Group {
  std::string name;
  std::vector<RankId> members;
};

// What one rank does at a meeting, as far as the others must do the same.
struct Entry {
  int issue;
  const Instr* instr;
};

class Together {
 public:
  Together(const std::vector<const Program*>& programs, const std::vector<const Expanded*>& expanded)
      : p_(programs), e_(expanded), world_(programs.size()) {
    if (expanded.size() != world_) fail("world", "{} programs, {} expansions", world_, expanded.size());
    for (size_t r = 0; r < world_; ++r)
      if (p_[r]->rank.index() != r || static_cast<size_t>(p_[r]->world) != world_)
        fail(fmt::format("rank {}", r), "its program is that of rank {} of {}, not of {} of {}", p_[r]->rank,
             p_[r]->world, r, world_);
  }

  void run() {
    match_groups();
    match_sequences();
    dry_run();
  }

 private:
  // Every member of a communicator has a communicator of that name with the same members.
  void match_groups() {
    group_of_.resize(world_);
    std::map<std::pair<std::string, std::vector<RankId>>, int> ids;
    for (size_t r = 0; r < world_; ++r)
      for (const Communicator& c : p_[r]->comms) {
        const auto [it, is_new] = ids.try_emplace({c.name, c.members}, static_cast<int>(groups_.size()));
        if (is_new) groups_.push_back({c.name, c.members});
        group_of_[r].push_back(it->second);
        const size_t position = static_cast<size_t>(c.position);
        if (c.position < 0 || position >= c.members.size() || c.members[position].index() != r)
          fail(user_of(r, groups_.size() - 1), "communicator {} does not have rank {} at position {}", c.name,
               r, c.position);
      }
    for (size_t g = 0; g < groups_.size(); ++g)
      for (const RankId m : groups_[g].members) {
        if (!m.valid() || m.index() >= world_)
          fail(user_of(someone_in(g).index(), g), "communicator {}: there is no rank {}", groups_[g].name, m);
        const auto& theirs = group_of_[m.index()];
        if (std::find(theirs.begin(), theirs.end(), static_cast<int>(g)) == theirs.end())
          fail(user_of(someone_in(g).index(), g), "rank {} has no communicator {} with the same members", m,
               groups_[g].name);
      }
  }

  // The first instruction of a rank on the communicator; the rank alone if there is none.
  std::string user_of(size_t r, size_t group) const {
    for (const Issue& issue : e_[r]->issues) {
      const Instr& instr = instr_of(*p_[r], issue);
      if (instr.kind != InstrKind::Collective) continue;
      const size_t comm = instr.collective.comm.index();
      if (comm < group_of_[r].size() && group_of_[r][comm] == static_cast<int>(group))
        return name_of(*p_[r], issue);
    }
    return fmt::format("rank {}", r);
  }

  RankId someone_in(size_t group) const {
    for (size_t r = 0; r < world_; ++r)
      if (std::find(group_of_[r].begin(), group_of_[r].end(), static_cast<int>(group)) != group_of_[r].end())
        return RankId(static_cast<int32_t>(r));
    return RankId();
  }

  void match_sequences() {
    std::vector<std::map<size_t, std::vector<Entry>>> by_group(groups_.size());  // group -> rank -> entries
    for (size_t r = 0; r < world_; ++r)
      for (size_t k = 0; k < e_[r]->issues.size(); ++k) {
        const Instr& instr = instr_of(*p_[r], e_[r]->issues[k]);
        if (instr.kind != InstrKind::Collective) continue;
        const int g = group_of_[r][instr.collective.comm.index()];
        by_group[static_cast<size_t>(g)][r].push_back({static_cast<int>(k), &instr});
      }
    for (size_t g = 0; g < groups_.size(); ++g) {
      const size_t first = groups_[g].members.front().index();
      const std::vector<Entry>& model = by_group[g][first];
      for (const RankId m : groups_[g].members) {
        const std::vector<Entry>& own = by_group[g][m.index()];
        for (size_t i = 0; i < std::min(own.size(), model.size()); ++i)
          if (!agree(*own[i].instr, *model[i].instr))
            fail(name_of(*p_[m.index()], issue(m.index(), own[i].issue)),
                 "is number {} on communicator {}, where the others have {}", i, groups_[g].name,
                 name_of(*p_[first], issue(first, model[i].issue)));
        if (own.size() == model.size()) continue;
        const bool fewer = own.size() < model.size();
        const size_t extra = fewer ? first : m.index();
        const Entry& entry = fewer ? model[own.size()] : own[model.size()];
        fail(name_of(*p_[extra], issue(extra, entry.issue)),
             "rank {} issues {} collectives on communicator {}, rank {} issues {}: this one has no partner",
             m, own.size(), groups_[g].name, first, model.size());
      }
    }
  }

  // The communicator is the meeting place; its number may differ from rank to rank. Label and block tell
  // messages of one size apart, so that a rank that sends its parts of two parameters in the wrong order is
  // found.
  static bool agree(const Instr& x, const Instr& y) {
    const Collective &a = x.collective, &b = y.collective;
    const bool message = (a.kind == CollectiveKind::Send && b.kind == CollectiveKind::Recv) ||
                         (a.kind == CollectiveKind::Recv && b.kind == CollectiveKind::Send);
    const bool both_ways =
        &x != &y && a.kind == b.kind && (a.kind == CollectiveKind::Send || a.kind == CollectiveKind::Recv);
    return (a.kind == b.kind || message) && !both_ways && a.count == b.count && a.dtype == b.dtype &&
           a.reduction == b.reduction && x.phase == y.phase && x.block == y.block && x.note == y.note &&
           x.attrs == y.attrs;
  }

  // Runs all streams of all ranks as far as they get. A plain instruction is done when it is at the head of
  // its stream and what it waits for is done; one that needs partners when all of them are there too. Steps
  // never take anything away from each other, so the order of trying them does not matter: what stalls here
  // stalls always.
  void dry_run() {
    ranks_.resize(world_);
    for (size_t r = 0; r < world_; ++r) {
      ranks_[r].streams.resize(p_[r]->streams.size());
      for (size_t k = 0; k < e_[r]->issues.size(); ++k)
        ranks_[r].streams[instr_of(*p_[r], e_[r]->issues[k]).stream.index()].push_back(static_cast<int>(k));
      ranks_[r].done.assign(p_[r]->streams.size(), 0);
      ranks_[r].arrived.assign(p_[r]->streams.size(), false);
    }
    present_.assign(groups_.size(), {});
    std::deque<size_t> todo;
    for (size_t r = 0; r < world_; ++r) todo.push_back(r);
    while (!todo.empty()) {
      const size_t r = todo.front();
      todo.pop_front();
      for (const size_t woken : advance(r)) todo.push_back(woken);
    }
    for (size_t r = 0; r < world_; ++r)
      for (size_t s = 0; s < ranks_[r].streams.size(); ++s)
        if (ranks_[r].done[s] < ranks_[r].streams[s].size()) fail_stalled();
  }

  struct Rank {
    std::vector<std::vector<int>> streams;  // issues by position
    std::vector<size_t> done;               // by stream
    std::vector<char> arrived;              // by stream: its head stands at a meeting
  };
  using Place = std::pair<size_t, size_t>;  // rank and stream

  // Moves the streams of a rank on; gives the ranks that a meeting set free.
  std::vector<size_t> advance(size_t r) {
    std::vector<size_t> woken;
    Rank& rank = ranks_[r];
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t s = 0; s < rank.streams.size(); ++s) {
        while (rank.done[s] < rank.streams[s].size() && !rank.arrived[s] && ready(r, s)) {
          const std::vector<Place>* partners = arrive(r, s);
          if (partners == nullptr) {  // needs nobody
            ++rank.done[s];
            moved = true;
            continue;
          }
          if (partners->empty()) break;  // not everybody is there yet
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

  // The head of the stream takes its place at its meeting. Null: it needs none. Empty: others are missing.
  // Otherwise all who met. A further kind of meeting, such as a send and its receive, is a further case here.
  const std::vector<Place>* arrive(size_t r, size_t s) {
    const Instr& instr = instr_of(*p_[r], head_of(r, s));
    if (instr.kind != InstrKind::Collective) return nullptr;
    const size_t g = static_cast<size_t>(group_of_[r][instr.collective.comm.index()]);
    ranks_[r].arrived[s] = true;
    present_[g].emplace_back(r, s);
    met_.clear();
    if (present_[g].size() == groups_[g].members.size()) met_.swap(present_[g]);
    return &met_;
  }

  [[noreturn]] void fail_stalled() const {
    std::string report;
    std::string where;
    for (size_t r = 0; r < world_; ++r)
      for (size_t s = 0; s < ranks_[r].streams.size(); ++s) {
        if (ranks_[r].done[s] >= ranks_[r].streams[s].size()) continue;
        if (where.empty()) where = name_of(*p_[r], head_of(r, s));
        report += fmt::format("\n  rank {} stream {} stands at {} and waits for {}", r,
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
    const size_t g = static_cast<size_t>(group_of_[r][instr.collective.comm.index()]);
    std::string missing;
    for (const RankId m : groups_[g].members)
      if (std::none_of(present_[g].begin(), present_[g].end(),
                       [&](const Place& p) { return p.first == m.index(); }))
        missing += fmt::format("{}{}", missing.empty() ? "" : ", ", m);
    return fmt::format("rank {}", missing);
  }

  const Issue& issue(size_t r, int k) const { return e_[r]->issues[static_cast<size_t>(k)]; }
  const Issue& head_of(size_t r, size_t s) const { return issue(r, ranks_[r].streams[s][ranks_[r].done[s]]); }

  const std::vector<const Program*>& p_;
  const std::vector<const Expanded*>& e_;
  const size_t world_;
  std::vector<Group> groups_;
  std::vector<std::vector<int>> group_of_;  // by rank and CommId: into groups_
  std::vector<Rank> ranks_;
  std::vector<std::vector<Place>> present_;  // by group: who waits there
  std::vector<Place> met_;
};

}  // namespace
}  // namespace verifier

void verify_together(const std::vector<const Program*>& programs,
                     const std::vector<const Expanded*>& expanded) {
  verifier::Together(programs, expanded).run();
}

}  // namespace quintet::program
