// Results beyond a single layout (search, verdict, advice, scaling, cost), in every form in which a report is
// printed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "advice/advice.h"
#include "advice/verdict.h"
#include "report/economy_report.h"
#include "report/html.h"
#include "search/scaling.h"
#include "search/search.h"

namespace quintet::report {

// Parts that were not requested are empty.
struct Findings {
  std::vector<std::string> notes;  // on the request; a report repeats them in its own notes
  std::optional<advice::Verdict> verdict;
  std::optional<search::SearchResult> search;
  bool pareto = false;                                // the set of time and memory was asked for
  std::optional<std::vector<advice::Advice>> advice;  // for a report that does not fit
  std::optional<search::Scaling> scaling;
  std::optional<EconomyReport> economy;
  struct Emit {
    std::string file;
    std::vector<std::string> to_do;
  };
  std::optional<Emit> emitted;  // the recipe written, if any
};

// Names the layout of the plan where it is not the one that the verdict recommends; else empty.
std::string fastest_beside_verdict(const Findings& findings);

// One JSON object: the report's own fields (to_json(Report)), then "verdict", "search", "advice", "scaling"
// and "economy" if present. Without a report (a search that found nothing) it has "fits": false and its own
// "notes".
std::string to_json(const plan::Report* report, const Findings& findings);

// The parts of the HTML page that accompany the report.
PageParts page_parts(const plan::Report& report, const Findings& findings);

}  // namespace quintet::report
