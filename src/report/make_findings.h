// Finds what `quintet plan` was asked beyond one layout: search, verdict, advice, scaling, the cost of a run.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "report/findings.h"

namespace quintet::report {

struct FindingsOptions {
  bool scaling = false, pareto = false;
  double noise_tokens = 0;  // see search::ScalingOptions
  int top = 5, plans = 96;
  double allow_drops = 0;  // the capacity of an expert that a search may use; 0: none
  std::string emit;        // the file for the best layout as a recipe; empty: none
  double tokens = 0;       // whose cost is asked; 0: it is not
  hardware::Reliability reliability = {};
  std::function<void(const std::string&)> progress = [](const std::string&) {};  // one line of status
};

// What is searched for: the recipe's model and batch. `sets` are what --set gave: those of them that speak of
// the layout stay as they are, the rest of the layout is the search's to choose.
struct SearchFor {
  const config::Recipe& recipe;
  const std::vector<std::string>& sets;
  bool from_model = false;  // from --model
};

// The best layout of the cluster; nothing when none fits. Says which strategy it is and why simpler ones are
// not, and writes `emit`.
std::optional<config::Recipe> search_layout(const FindingsOptions& options, const SearchFor& what,
                                            const plan::Assumptions& assumptions, Findings& findings);

// A number of tokens ("1.2M"), or the last noise scale in the metrics of a run folder. UserError for others.
double parse_noise_scale(const std::string& text);

// What comes after a report: advice when it does not fit, the scaling curve, the cost of a token budget.
void add_findings(const FindingsOptions& options, const plan::Report& report, Findings& findings);

// Readable text before and after a report. Empty if nothing was requested.
std::string text_before(const Findings& findings, const plan::Assumptions& assumptions);
std::string text_after(const Findings& findings, const plan::Report& report);

}  // namespace quintet::report
