// What is asked of a plan beyond one layout (search, verdict, advice, scaling, the cost of tokens), in every
// form in which a report is given.
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

// Parts that were not asked for are empty.
struct Findings {
  std::vector<std::string> notes;  // on the question; a report has them among its own
  std::optional<advice::Verdict> verdict;
  std::optional<search::SearchResult> search;
  std::optional<std::vector<advice::Advice>> advice;  // of a report that does not fit
  std::optional<search::Scaling> scaling;
  std::optional<EconomyReport> economy;
  struct Emit {
    std::string file;
    std::vector<std::string> to_do;
  };
  std::optional<Emit> emitted;  // a recipe that was written
};

// One JSON object: the report's own fields (to_json(Report)), then "verdict", "search", "advice", "scaling"
// and "economy" where they are there. Without a report (a search that found nothing) it says "fits": false
// and has "notes" of its own.
std::string to_json(const plan::Report* report, const Findings& findings);

// What stands on the page beside the report.
PageParts page_parts(const plan::Report& report, const Findings& findings);

}  // namespace quintet::report
