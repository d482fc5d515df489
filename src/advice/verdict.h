// Which strategy, in words: the ladder of decision rules from the simplest up, each rung planned, and for
// every rung that was passed over the inequality that it breaks, with its numbers.
//
//   DDP, full shard, hybrid shard, tensor, pipeline, context, expert; then offload and LoRA, which the engine
//   does not run yet and which are told from bytes.
//
// The answer is the first rung that fits and takes at most kNearBest of the fastest rung's step: never a
// smaller batch as the first cure, and no axis that brings nothing.
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
  std::optional<plan::Report> report;  // its fastest layout that fits, or the least that it needs
  std::string text;                    // "needs 128.5 GiB per device, has 32.0 GiB: ..."
};

struct Verdict {
  std::vector<Rung> rungs;
  int answer = -1;                    // rung; -1: nothing fits
  std::string text;                   // of the answer
  std::vector<std::string> warnings;  // what rules say about the recipe's machine and layout
};

struct VerdictOptions {
  int plans = 6;                        // for each rung
  int64_t groups = 300, layouts = 300;  // for each rung (search/search.h)
  double work = 5e4, longest = 2.2e4;   // for each rung (search/search.h)
  int threads = 2;
  std::function<void(const std::string& rung)> progress = {};
  const search::Bounds* bounds = nullptr;  // as in search/search.h
  // What a search over all axes found. Where no rung comes near it, a mixture of rungs is one more.
  const plan::Report* best = nullptr;
};

Verdict decide(const config::Recipe& recipe, const plan::Assumptions& assumptions,
               const VerdictOptions& options = {});

// What the rules say about one plan: a tensor axis beyond the inner link, a pipeline with few micro-batches,
// tensor parallel without sequence parallel, full recompute where selective would do, a fabric that is too
// slow.
std::vector<std::string> warnings_of(const plan::Report& report);

std::string to_text(const Verdict& verdict);

}  // namespace quintet::advice
