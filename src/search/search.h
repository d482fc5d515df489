// The best layouts of a space for a cluster. Bounds (bounds.h) put aside what cannot fit or cannot be among
// the best; what is left is compiled and simulated, likely ones first. What is likely is found out step by
// step, and only for what comes to the front: a way to lay out values (coarse_estimate.h), a group of
// families that share it with micro-batch and recompute (the small model that bounds need is compiled), a
// family, a layout. The answer is a pure function of the recipe, the assumptions, the space and the number of
// plans allowed: threads only make it come sooner.
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
  int64_t looked = 0, groups = 0;  // groups of families that were looked at, of all
  double best_seconds = 0;         // of a step; 0: nothing fits yet
};

struct SearchOptions {
  int keep = 5;    // layouts to return
  int plans = 96;  // that are compiled at most
  // Groups of families, and layouts, that are looked at closely at most.
  int64_t groups = 1 << 30, layouts = 1 << 30;
  // How long programs may be (micro-batches x blocks, see search.cc): those of all plans together, and those
  // of one, unless nothing shorter fits. Programs of large models on long pipelines take seconds each.
  double work = 1e30, longest = 1e30;
  int threads = 2;
  std::function<void(const Progress&)> progress = {};
  // Of the same assumptions and the same model: what other searches found out is not found out again.
  const Bounds* bounds = nullptr;
};

struct Found {
  plan::Report report;
  std::vector<std::string> reasons;  // see explain()
};

struct SearchResult {
  std::vector<Found> best;                           // fastest first; empty: nothing fits
  int64_t families = 0;                              // considered
  int64_t too_large = 0, too_slow = 0, illegal = 0;  // families and layouts put aside: by bounds, by rules
  int planned = 0, did_not_fit = 0;
  // No layout of the space takes less than this, planned or not.
  double bound_seconds = 0;
  bool proven = false;  // the best is the best of the space: bound_seconds is its step
  // When nothing fits: the smallest that was planned, and what has the smallest bound of all that was put
  // aside without a plan.
  std::optional<plan::Report> smallest;
  std::optional<config::Recipe> smallest_bound;
};

SearchResult search(const config::Recipe& recipe, const plan::Assumptions& assumptions,
                    const LayoutSpace& space, const SearchOptions& options = {});

// The best `keep` of both, and what was looked at for them: of two spaces whose layouts differ in the model.
void merge(SearchResult& result, SearchResult other, int keep);

// Why a layout is as it is: for every choice that is not the simplest, what the simpler one would need or
// take, each planned. "tp 8: with tp 4 a device needs 97.3 GiB of 79.6 GiB".
std::vector<std::string> explain(const plan::Report& report, int threads = 2);

// What was considered and found, for people.
std::string to_text(const SearchResult& result, const plan::Assumptions& assumptions);

}  // namespace quintet::search
