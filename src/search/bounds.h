// Lower bounds on what a recipe's plan will say, without compiling its whole model: for the search, which may
// then leave out what cannot win, and for nothing else.
//
// A model has few kinds of blocks. A model of three or four blocks with the same layout of values is compiled
// once, and its tables say for each kind of block: seconds of its forward and backward, the bytes it keeps
// between them, its parameters. A plan is then bounded from these:
//
//   time    the schedule's own makespan over the stages' seconds, and the optimizer's update after it. A
//           block's seconds are the longest chain from its first instruction to the next block's: what runs
//           on the compute stream, and the messages that this stream has to wait for with nothing to do.
//           State that travels beside it (gathers, reductions) is taken to be hidden behind it, though not to
//           take less than its own stream needs.
//   memory  parameters, gradients and optimizer state as they are stored, and what blocks keep, times the
//           micro-batches that the schedule has under way at once. Gathered copies, scratch, padding and gaps
//           come on top in a plan.
//
// Neither exceeds what make_plan() finds: programs of the whole model hold the same instructions for every
// block, in the same order on the same streams, and more.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "schedule/schedule.h"
#include "search/block_tables.h"
#include "search/state_costs.h"

namespace quintet::search {

struct Bound {
  double seconds = 0;
  int64_t bytes = 0;  // of the fullest device, with context and libraries
  // Guesses, only to decide what is tried first: the bounds and what they leave out.
  double likely_seconds = 0;
  int64_t likely_bytes = 0;
};

// Remembers what recipes have in common; all recipes must have one model, sequence, batch.global, precision,
// optimizer and loss. Safe to ask from several threads.
class Bounds {
 public:
  explicit Bounds(const plan::Assumptions& assumptions);

  // All take resolved recipes. Whatever the schedule and its chunks are:
  Bound of_any_schedule(const config::Recipe& recipe) const;
  // From closed forms for the recipe's schedule.
  Bound quick(const config::Recipe& recipe) const;
  // From the schedule itself (of very many micro-batches: time from closed forms still). At least quick().
  Bound exact(const config::Recipe& recipe) const;

  std::shared_ptr<const BlockTables> tables(const config::Recipe& recipe) const;

 private:
  std::shared_ptr<const std::vector<int64_t>> blocks_of_stages(const config::Recipe& recipe) const;
  std::shared_ptr<const schedule::Schedule> schedule_of(const config::Recipe& recipe) const;
  enum class Effort { AnySchedule, ClosedForms, Schedule };
  Bound bound(const config::Recipe& recipe, Effort effort) const;
  double update_seconds(const StateCosts& costs) const;
  Bound with_runtime(Bound bound) const;

  sim::Machine machine_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::shared_ptr<const BlockTables>> tables_;
  mutable std::map<std::pair<int64_t, int64_t>, std::shared_ptr<const std::vector<int64_t>>> stages_;
  mutable std::map<std::string, std::shared_ptr<const schedule::Schedule>> schedules_;
};

}  // namespace quintet::search
