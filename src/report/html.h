// A plan as one page for a browser: verdict, memory by rank and class, where the step goes, the pipeline in
// time, links, scaling and cost. Self-contained: no script, no network; it fits a phone and a printer.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "plan/plan.h"

namespace quintet::report {

// What stands beside a report on its page. Empty parts are left out.
struct PageParts {
  std::vector<std::string> verdict;  // paragraphs in plain words
  struct Point {
    int64_t devices = 0;
    double tokens_per_s = 0;
    double ideal = 0;  // if speed grew with the devices
    std::string label;
  };
  std::vector<Point> scaling;
  // A change that makes a plan fit, in words.
  struct Cure {
    std::string what, needs, time, how;
  };
  std::vector<Cure> advice;
  std::string scaling_note;                               // the point of diminishing return in words
  std::vector<std::pair<std::string, std::string>> cost;  // what, how much
};

// The pipeline is drawn where the report has its timeline (Assumptions::timeline).
std::string to_html(const plan::Report& report, const PageParts& parts = {});

}  // namespace quintet::report
