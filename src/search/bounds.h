// Lower bounds on a recipe's plan without compiling the whole model. Used only by the search, to discard
// layouts that cannot win.
//
// A model has few kinds of blocks. A model of three or four blocks with the same layout of values is compiled
// once; its tables give, for each kind of block, the seconds of its forward and backward pass, the bytes kept
// between them, and its parameters. A plan is then bounded from these:
//
//   time    the schedule's own makespan over the stages' seconds, followed by the optimizer's update. A
//           block's seconds are the longest chain from its first instruction to the next block's: what runs
//           on the compute stream, and communication that this stream waits for while idle. State traffic on
//           other streams (gathers, reductions) is assumed to be hidden, but takes at least as long as its
//           own stream needs.
//   memory  parameters, gradients and optimizer state as stored, plus the bytes that blocks keep, times the
//           micro-batches that the schedule has in flight. A plan adds gathered copies, scratch, padding and
//           gaps.
//
// Neither exceeds what make_plan() finds: the full program holds the same instructions for every block, in
// the same order on the same streams, and more.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "compiler/stage_balance.h"
#include "plan/plan.h"
#include "schedule/schedule.h"
#include "search/block_tables.h"
#include "search/state_costs.h"

namespace quintet::search {

struct Bound {
  double seconds = 0;
  int64_t bytes = 0;  // of the most loaded device, including context and libraries
  // Estimates that only decide what is tried first: the bounds plus what they leave out.
  double likely_seconds = 0;
  int64_t likely_bytes = 0;
};

// Caches what recipes have in common. All recipes must share model, sequence length, batch.global, precision,
// optimizer and loss. Thread-safe.
class Bounds {
 public:
  explicit Bounds(const plan::Assumptions& assumptions);

  // All functions take resolved recipes. This bound holds for every schedule and number of chunks:
  Bound of_any_schedule(const config::Recipe& recipe) const;
  // Closed forms for the recipe's schedule.
  Bound quick(const config::Recipe& recipe) const;
  // From the schedule itself (with very many micro-batches, time still comes from closed forms). Never below
  // quick().
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
  mutable std::map<std::string, std::shared_ptr<const compiler::BlockWork>> work_;
  mutable std::map<std::string, std::shared_ptr<const std::vector<int64_t>>> stages_;
  mutable std::map<std::string, std::shared_ptr<const schedule::Schedule>> schedules_;
};

}  // namespace quintet::search
