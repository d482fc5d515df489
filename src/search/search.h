// Finds the best layouts of a space for a cluster. Bounds (bounds.h) discard what cannot fit or cannot be
// among the best; the rest is compiled and simulated, most promising first. Candidates are refined lazily,
// only when they reach the front of the queue: a way of laying out values (coarse_estimate.h), a group of
// families that share it with micro-batch and recompute (which compiles the small model that bounds need), a
// family, a layout. The result is a pure function of the recipe, the assumptions, the space and the number of
// plans allowed; it does not depend on the number of threads.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "search/bounds.h"
#include "search/layout_space.h"

namespace quintet::search {

struct Progress {
  int planned = 0, most = 0;       // plans made, and allowed
  int64_t looked = 0, groups = 0;  // groups of families examined, and in total
  double best_seconds = 0;         // per step; 0: nothing fits yet
};

struct SearchOptions {
  int keep = 5;    // layouts to return
  int plans = 96;  // compiled at most
  // Groups of families, and layouts, examined closely at most.
  int64_t groups = 1 << 30, layouts = 1 << 30;
  // Limits on program length (micro-batches x blocks, see search.cc): over all plans, and for a single plan
  // unless nothing shorter fits. Programs of large models on long pipelines take seconds each.
  double work = 1e30, longest = 1e30;
  int threads = 2;
  std::function<void(const Progress&)> progress = {};
  // Find the layouts for which no other needs both less time and less memory (SearchResult::pareto), instead
  // of the fastest alone: nothing is discarded for being slow unless a found layout needs no more memory.
  bool pareto = false;
  // Shared cache for searches with the same assumptions and model.
  const Bounds* bounds = nullptr;
};

struct Found {
  plan::Report report;
  std::vector<std::string> reasons;  // see explain()
};

struct SearchResult {
  std::vector<Found> best;  // fastest first; empty: nothing fits
  // Of the planned layouts that fit, those for which no other is both as fast and as small; fastest first.
  // With SearchOptions::pareto and `pareto_proven`, of all layouts of the space.
  std::vector<plan::Report> pareto;
  bool pareto_proven = false;
  int64_t families = 0;                              // considered
  int64_t too_large = 0, too_slow = 0, illegal = 0;  // families and layouts discarded: by bounds, by rules
  int planned = 0, did_not_fit = 0;
  // Lower bound on the step time of every layout of the space, planned or not.
  double bound_seconds = 0;
  bool proven = false;  // the best found is the best of the space: bound_seconds equals its step time
  // If nothing fits: the smallest layout that was planned, and the one with the smallest memory bound among
  // those discarded without a plan.
  std::optional<plan::Report> smallest;
  std::optional<config::Recipe> smallest_bound;
};

// UserError for a custom model.
SearchResult search(const config::Recipe& recipe, const plan::Assumptions& assumptions,
                    const LayoutSpace& space, const SearchOptions& options = {});

// Combines searches of two spaces whose layouts differ in the model: the best `keep` of both, statistics
// added.
void merge(SearchResult& result, SearchResult other, int keep);

// Adds a report to a set in which no one is as fast and as small as another.
void add_to_pareto(std::vector<plan::Report>& set, const plan::Report& report);

// Why a layout is the way it is: for every choice that is not the simplest, the memory or time of the simpler
// one, planned. "tp 8: with tp 4 a device needs 97.3 GiB, has 79.6 GiB".
std::vector<std::string> explain(const plan::Report& report, int threads = 2);

// Human-readable summary of what was considered and found.
std::string to_text(const SearchResult& result, const plan::Assumptions& assumptions);
// The set of time and memory as a table.
std::string pareto_text(const SearchResult& result);

}  // namespace quintet::search
