#include "schedule/greedy.h"

#include <algorithm>
#include <deque>
#include <limits>

namespace quintet::schedule {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// An action that a rank could compute, and its earliest start.
struct Ready {
  Action action;
  double time = 0;
};

class Greedy {
 public:
  Greedy(const Schedule& shape, const Costs& costs, const Memory& memory, const Policy& policy)
      : s_(shape), costs_(costs), memory_(memory), policy_(policy), ranks_(static_cast<size_t>(s_.stages)) {
    s_.splits_backward = true;
    s_.ranks.assign(static_cast<size_t>(s_.stages), {});
    for (int m = 0; m < s_.micro_batches; ++m) arrive(0, Kind::F, m, 0, -1);
  }

  // Places actions in order of their start, so nothing unknown at the time of a decision can start earlier.
  std::optional<Schedule> run() {
    for (int left = 3 * s_.virtual_stages() * s_.micro_batches; left > 0; --left) {
      Ready first{.action = {}, .time = kNever};
      int rank = -1;
      for (int r = 0; r < s_.stages; ++r)
        if (const Ready choice = choose(r); choice.time < first.time) first = choice, rank = r;
      if (rank < 0) return std::nullopt;
      place(rank, first);
    }
    s_.max_in_flight = in_flight(s_).until_w;
    return std::move(s_);
  }

 private:
  // Messages of a channel are consumed in the order sent (check.h), so only the first one can be next.
  struct Channel {
    int from;  // -1: the input batch
    Kind kind;
    std::deque<Ready> queue;
  };
  struct Rank {
    std::vector<Channel> channels;  // including the rank's own results, which also stay in order
    std::deque<Action> weights;     // W whose B is placed
    double free = 0;
    double held = 0;  // chunk activations, as Memory counts them
    int between = 0;  // between F and B
  };

  void arrive(int stage, Kind kind, int micro, double time, int from) {
    const Home home = s_.home_of(stage);
    std::vector<Channel>& channels = ranks_[static_cast<size_t>(home.rank)].channels;
    // Results that a rank passes to itself between chunks never block: one queue per chunk.
    const int key = from == home.rank ? -2 - home.chunk : from;
    auto it = std::find_if(channels.begin(), channels.end(),
                           [&](const Channel& c) { return c.from == key && c.kind == kind; });
    if (it == channels.end()) it = channels.insert(channels.end(), {key, kind, {}});
    it->queue.push_back({{kind, home.chunk, micro}, time});
  }

  bool may_begin(int r, const Action& f) const {
    const Rank& rank = ranks_[static_cast<size_t>(r)];
    // The chunks that a micro-batch has yet to pass on this rank need memory too.
    const double room = memory_.most - rank.held + 1e-9;
    if (room < s_.chunks - f.chunk) return false;
    const double most = s_.chunks * (policy_.base + policy_.slope * (s_.stages - 1 - r));
    // A micro-batch already in flight proceeds: other ranks wait for it.
    return f.chunk > 0 || rank.between < std::max(1.0, most);
  }

  Ready choose(int r) const {
    const Rank& rank = ranks_[static_cast<size_t>(r)];
    Ready f{.action = {}, .time = kNever}, b = f, w = f;
    for (const Channel& c : rank.channels) {
      if (c.queue.empty()) continue;
      const Ready& head = c.queue.front();
      if (c.kind == Kind::F && !may_begin(r, head.action)) continue;
      // Of several ready chunks, the later one will free its memory sooner.
      Ready& best = c.kind == Kind::F ? f : b;
      const double time = std::max(head.time, rank.free);
      const bool later = time == best.time && head.action.chunk > best.action.chunk;
      if (time < best.time || later) best = {head.action, time};
    }
    if (!rank.weights.empty()) w = {rank.weights.front(), rank.free};

    Ready choice = b;
    if (f.time < choice.time || (policy_.forward_first && f.time <= choice.time)) choice = f;
    if (w.time < choice.time) choice = w;
    if (choice.action.kind != Kind::B && b.time < kNever) {
      const double patience = policy_.patience * duration(s_, costs_, r, choice.action);
      if (b.time < choice.time + patience) return b;
    }
    return choice;
  }

  void place(int r, const Ready& choice) {
    Rank& rank = ranks_[static_cast<size_t>(r)];
    const Action& a = choice.action;
    rank.free = choice.time + duration(s_, costs_, r, a);
    s_.ranks[static_cast<size_t>(r)].push_back(a);
    if (a.kind == Kind::W) {
      rank.weights.pop_front();
      rank.held -= 1 - memory_.freed_at_b;
      return;
    }
    for (Channel& c : rank.channels)
      if (!c.queue.empty() && c.queue.front().action == a) {
        c.queue.pop_front();
        break;
      }
    const int stage = s_.stage_of(r, a.chunk);
    if (a.kind == Kind::F) {
      ++rank.held;
      ++rank.between;
      if (stage + 1 < s_.virtual_stages())
        send(r, stage + 1, Kind::F, a.micro, rank.free);
      else
        arrive(stage, Kind::B, a.micro, rank.free, r);
    } else {
      rank.held -= memory_.freed_at_b;
      --rank.between;
      rank.weights.push_back({Kind::W, a.chunk, a.micro});
      if (stage > 0) send(r, stage - 1, Kind::B, a.micro, rank.free);
    }
  }

  void send(int from, int stage, Kind kind, int micro, double time) {
    arrive(stage, kind, micro, time + (s_.home_of(stage).rank == from ? 0 : costs_.hop), from);
  }

  Schedule s_;
  const Costs& costs_;
  const Memory& memory_;
  const Policy& policy_;
  std::vector<Rank> ranks_;
};

}  // namespace

std::optional<Schedule> greedy(const Schedule& shape, const Costs& costs, const Memory& memory,
                               const Policy& policy) {
  return Greedy(shape, costs, memory, policy).run();
}

}  // namespace quintet::schedule
