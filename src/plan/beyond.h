// What is asked of a plan beyond one layout (search, verdict, advice, scaling, the cost of tokens), in every
// form in which a report is given.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/advice.h"
#include "plan/economy_report.h"
#include "plan/html.h"
#include "plan/scaling.h"
#include "plan/search.h"
#include "plan/verdict.h"

namespace quintet::plan {

// Parts that were not asked for are empty.
struct Beyond {
  std::vector<std::string> notes;  // on the question; a report has them among its own
  std::optional<Verdict> verdict;
  std::optional<SearchResult> search;
  std::optional<std::vector<Advice>> advice;  // of a report that does not fit
  std::optional<Scaling> scaling;
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
std::string to_json(const Report* report, const Beyond& beyond);

// What stands on the page beside the report.
PageParts page_parts(const Report& report, const Beyond& beyond);

}  // namespace quintet::plan
