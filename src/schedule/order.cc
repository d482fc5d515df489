#include "schedule/order.h"

#include <fmt/core.h>

#include <set>

#include "base/error.h"

namespace quintet::schedule {
namespace {

// Which F, B (or BW) and W of every (virtual stage, micro-batch) have been visited.
class Visited {
 public:
  explicit Visited(const Schedule& s)
      : micro_(s.micro_batches),
        done_(3 * static_cast<size_t>(s.virtual_stages()) * s.micro_batches, false) {}
  bool has(const Need& need) const { return done_[at(need.kind, need.stage, need.micro)]; }
  void add(Kind kind, int stage, int micro) { done_[at(kind, stage, micro)] = true; }

 private:
  size_t at(Kind kind, int stage, int micro) const {
    const size_t row = kind == Kind::F ? 0 : kind == Kind::W ? 2 : 1;
    return (static_cast<size_t>(stage) * micro_ + micro) * 3 + row;
  }
  int micro_;
  std::vector<bool> done_;
};

std::optional<Need> missing(const Schedule& s, const Visited& visited, int rank, const Action& action) {
  for (const Need& need : needs_of(s, rank, action))
    if (!visited.has(need)) return need;
  return std::nullopt;
}

// Follows the chain of waiting ranks from one stuck rank until a rank repeats.
std::string describe(const Schedule& s, const Visited& visited, const std::vector<size_t>& next, int rank) {
  std::string text;
  std::set<int> seen;
  while (seen.insert(rank).second) {
    const std::vector<Action>& actions = s.ranks[rank];
    size_t at = next[rank];
    std::optional<Need> need = missing(s, visited, rank, actions[at]);
    if (!need) need = missing(s, visited, rank, actions[++at]);  // the second of a mixed pair
    const Home home = s.home_of(need->stage);
    text +=
        fmt::format("{}rank {} at {} waits for {} on rank {}", text.empty() ? "" : ", ", rank,
                    to_text(actions[at]), to_text(Action{need->kind, home.chunk, need->micro}), home.rank);
    rank = home.rank;
  }
  return "deadlock: " + text;
}

}  // namespace

std::vector<Need> needs_of(const Schedule& s, int rank, const Action& action) {
  const int stage = s.stage_of(rank, action.chunk);
  std::vector<Need> needs;
  if (action.kind == Kind::W) {
    needs.push_back({Kind::B, stage, action.micro});
  } else if (action.kind == Kind::F) {
    if (stage > 0) needs.push_back({Kind::F, stage - 1, action.micro});
  } else {
    needs.push_back({Kind::F, stage, action.micro});
    if (stage + 1 < s.virtual_stages()) needs.push_back({Kind::B, stage + 1, action.micro});
  }
  return needs;
}

std::optional<std::string> walk(const Schedule& s, const std::function<void(int, int)>& visit) {
  Visited visited(s);
  std::vector<size_t> next(s.stages, 0);
  const auto take = [&](int rank) {
    const Action& action = s.ranks[rank][next[rank]];
    visit(rank, static_cast<int>(next[rank]));
    visited.add(action.kind, s.stage_of(rank, action.chunk), action.micro);
    ++next[rank];
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (int rank = 0; rank < s.stages; ++rank) {
      const std::vector<Action>& actions = s.ranks[rank];
      while (next[rank] < actions.size()) {
        const Action& action = actions[next[rank]];
        if (missing(s, visited, rank, action)) break;
        if (action.with_next) {
          QUINTET_CHECK(next[rank] + 1 < actions.size(), "{} on rank {} has no action to be mixed with",
                        to_text(action), rank);
          if (missing(s, visited, rank, actions[next[rank] + 1])) break;
          take(rank);
        }
        take(rank);
        moved = true;
      }
    }
  }
  for (int rank = 0; rank < s.stages; ++rank)
    if (next[rank] < s.ranks[rank].size()) return describe(s, visited, next, rank);
  return std::nullopt;
}

}  // namespace quintet::schedule
