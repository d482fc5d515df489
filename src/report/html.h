// A plan as one HTML page: verdict, memory by rank and class, time breakdown, pipeline timeline, links,
// scaling and cost. Self-contained: no scripts, no network; it fits phone screens and prints well.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "plan/plan.h"

namespace quintet::report {

// Parts that accompany a report on its page. Empty parts are left out.
struct PageParts {
  std::vector<std::string> verdict;  // paragraphs of plain text
  struct Point {
    int64_t devices = 0;
    double tokens_per_s = 0;
    double ideal = 0;  // with perfect scaling
    std::string label;
  };
  std::vector<Point> scaling;
  // A change that makes a plan fit, as text.
  struct Change {
    std::string what, needs, time, how;
  };
  std::vector<Change> advice;
  std::string scaling_note;                               // the point of diminishing returns, as text
  std::vector<std::pair<std::string, std::string>> cost;  // label, amount
};

// Draws the pipeline if the report has a timeline (Assumptions::timeline).
std::string to_html(const plan::Report& report, const PageParts& parts = {});

}  // namespace quintet::report
