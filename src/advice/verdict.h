// Recommends a parallelism strategy: the ladder of decision rules from the simplest up, each rung planned,
// and for every rejected rung the inequality that it violates, with its numbers.
//
//   DDP, full shard, hybrid shard, tensor, pipeline, context, expert; then offload and LoRA, which the engine
//   does not run yet and which are estimated from bytes.
//
// The answer is the first rung that fits and whose step takes at most kNearBest times the fastest rung's:
// a smaller batch is never the first remedy, and no axis is used without a gain.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "search/bounds.h"

namespace quintet::advice {

inline constexpr double kNearBest = 1.05;

struct Rung {
  enum class State : uint8_t { DoesNotApply, DoesNotFit, Fits, PlanOnly };
  std::string name;  // "DDP"
  State state = State::DoesNotApply;
  std::optional<plan::Report> report;  // its fastest layout that fits, or the smallest one
  std::string text;                    // "needs 128.5 GiB per device, has 32.0 GiB: ..."
};

struct Verdict {
  std::vector<Rung> rungs;
  int answer = -1;                    // rung; -1: nothing fits
  std::string text;                   // of the answer
  std::vector<std::string> warnings;  // rules violated by the layout on this cluster
};

struct VerdictOptions {
  int plans = 6;                        // per rung
  int64_t groups = 300, layouts = 300;  // per rung (search/search.h)
  double work = 5e4, longest = 2.2e4;   // per rung (search/search.h)
  int threads = 2;
  std::function<void(const std::string& rung)> progress = {};
  const search::Bounds* bounds = nullptr;  // as in search/search.h
  // Result of a search over all axes. If no rung comes close to it, it becomes an additional mixed rung.
  const plan::Report* best = nullptr;
};

Verdict decide(const config::Recipe& recipe, const plan::Assumptions& assumptions,
               const VerdictOptions& options = {});

// Rules violated by one plan: its own warnings (tp across the slow link), a pipeline with few micro-batches,
// tensor parallelism without sequence parallelism, full recompute where selective would do, a fabric that is
// too slow.
std::vector<std::string> warnings_of(const plan::Report& report);

std::string to_text(const Verdict& verdict);

}  // namespace quintet::advice
