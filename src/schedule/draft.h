// Helpers shared by the generators. Internal to this room.
#pragma once

#include <deque>
#include <string>
#include <utility>

#include "schedule/schedule.h"

namespace quintet::schedule {

// An empty schedule of that shape. Throws UserError if p, chunks or m is below 1.
Schedule blank(std::string name, int p, int chunks, int m, Placement placement);

// Drops all micro-batches from m on. No action depends on another micro-batch, so the rest stays legal and in
// order; a mixed backward never belongs to a later micro-batch than its forward, so no pair is split.
// Generators whose warm-up needs more micro-batches than requested generate the extra ones and drop them
// here.
void keep_micro_batches(Schedule& schedule, int m);

// Sets max_in_flight to the peaks of the finished lists. `most` is the closed form for enough micro-batches;
// no rank may exceed it.
void promise(Schedule& schedule, int most);

// Writes one rank's actions for a schedule that visits the micro-batches of every chunk in order.
class RankWriter {
 public:
  explicit RankWriter(std::vector<Action>& actions) : actions_(actions) {}
  void f(int chunk) { actions_.push_back({Kind::F, chunk, f_[chunk]++}); }
  void bw(int chunk) { actions_.push_back({Kind::BW, chunk, b_[chunk]++}); }
  void b(int chunk) {
    waiting_.emplace_back(chunk, b_[chunk]);
    actions_.push_back({Kind::B, chunk, b_[chunk]++});
  }
  // The W of the oldest B that has none yet; no-op if there is none.
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
