// A plan as one HTML page: the layout's memory, time and cost, how it ranks among others, what it assumes.
// Self-contained: it loads nothing; it fits phone screens and prints well. Everything on it describes the
// layout of the report, unless a table says otherwise.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/provenance.h"
#include "plan/plan.h"

namespace quintet::report {

// Parts that accompany a report on its page, as plain text. Empty parts are left out.
struct PageParts {
  using Row = std::vector<std::string>;
  std::vector<Row> ranking;          // the best layouts of a search; the first is the one of the report
  std::vector<std::string> reasons;  // why the first one is the way it is
  std::string search_note;           // what was looked at, and how far the result is from the bound
  std::vector<Row> strategies;       // name, what it needs or does
  std::string strategy_note;
  std::vector<std::string> warnings;
  struct Point {
    int64_t devices = 0;
    double tokens_per_s = 0;
    double ideal = 0;  // with perfect scaling
  };
  std::vector<Point> scaling;
  std::vector<Row> strong, weak;  // tables of kScalingHead
  std::string scaling_note;       // the point of diminishing returns
  // A change that makes a plan fit.
  struct Change {
    std::string what, needs, time, how;
  };
  std::vector<Change> advice;
  std::vector<std::pair<std::string, std::string>> cost;         // label, amount
  std::vector<std::pair<std::string, std::string>> assumptions;  // label, text
  base::Provenance provenance;
  std::string date;
};
inline const PageParts::Row kScalingHead = {"devices",  "batch",      "step", "tokens/s",
                                            "speed-up", "efficiency", "MFU",  "layout"};
inline const PageParts::Row kRankingHead = {"", "layout", "step", "tokens/s per device", "MFU", "memory"};

// Draws the pipeline if the report has a timeline (Assumptions::timeline).
std::string to_html(const plan::Report& report, const PageParts& parts = {});

}  // namespace quintet::report
