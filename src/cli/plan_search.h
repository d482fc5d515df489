// The options of `quintet plan` that look beyond one layout: search, advice, verdict, scaling, cost.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "report/findings.h"

namespace quintet::cli {

struct SearchOptions {
  bool search = false, scaling = false;
  int top = 5, plans = 96;
  double allow_drops = 0;  // the capacity of an expert that a search may use; 0: none
  std::string emit, tokens;
  // Of --tokens. Below 0: not given.
  double failures = -1, checkpoint_seconds = -1, restart_seconds = -1;

  void add_to(CLI::App& command);
  // Refuses options that mean nothing without others.
  void check() const;
  hardware::Reliability reliability() const;
};

// What is searched for: the recipe's model and batch. `sets` are what --set gave: those of them that speak of
// the layout stay as they are, the rest of the layout is the search's to choose.
struct SearchFor {
  const config::Recipe& recipe;
  const std::vector<std::string>& sets;
  bool made_up = false;  // from --model
};

// The best layout of the cluster; nothing when none fits. Says which strategy it is and why simpler ones are
// not, and writes --emit.
std::optional<config::Recipe> search_layout(const SearchOptions& options, const SearchFor& what,
                                            const plan::Assumptions& assumptions, report::Findings& findings);

// What comes after a report: advice when it does not fit, the scaling curve, the cost of a token budget.
void add_findings(const SearchOptions& options, const plan::Report& report, report::Findings& findings);

// For people: what stands before a report, and after it. Empty where nothing was asked.
std::string text_before(const report::Findings& findings, const plan::Assumptions& assumptions);
std::string text_after(const report::Findings& findings, const plan::Report& report);

}  // namespace quintet::cli
