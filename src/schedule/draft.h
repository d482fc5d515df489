// What the generators share. Not for users of the room.
#pragma once

#include <deque>
#include <string>
#include <utility>

#include "schedule/schedule.h"

namespace quintet::schedule {

// An empty schedule of that shape; refuses p, chunks or m below 1.
Schedule blank(std::string name, int p, int chunks, int m, Placement placement);

// Drops the micro-batches from m on. No action depends on another micro-batch, so what is left is legal and
// keeps its order; a mixed backward is never of a later micro-batch than its forward, so no pair is torn.
// Generators whose start-up needs more micro-batches than there are write those and drop them here.
void keep_micro_batches(Schedule& schedule, int m);

// Promises the peaks that the finished lists have. `most` is the closed form for enough micro-batches; no
// rank may exceed it.
void promise(Schedule& schedule, int most);

// Writes one rank's actions of a schedule that takes the micro-batches of every chunk in order.
class RankWriter {
 public:
  explicit RankWriter(std::vector<Action>& actions) : actions_(actions) {}
  void f(int chunk) { actions_.push_back({Kind::F, chunk, f_[chunk]++}); }
  void bw(int chunk) { actions_.push_back({Kind::BW, chunk, b_[chunk]++}); }
  void b(int chunk) {
    waiting_.emplace_back(chunk, b_[chunk]);
    actions_.push_back({Kind::B, chunk, b_[chunk]++});
  }
  // The W of the oldest B that has none yet; nothing when there is none.
  void w() {
    if (waiting_.empty()) return;
    actions_.push_back({Kind::W, waiting_.front().first, waiting_.front().second});
    waiting_.pop_front();
  }
  void all_w() {
    while (!waiting_.empty()) w();
  }
  void mix_with_next() { actions_.back().with_next = true; }
  int forwards(int chunk) const { return f_[chunk]; }
  int backwards(int chunk) const { return b_[chunk]; }

 private:
  std::vector<Action>& actions_;
  int f_[2] = {0, 0};
  int b_[2] = {0, 0};
  std::deque<std::pair<int, int>> waiting_;
};

}  // namespace quintet::schedule
