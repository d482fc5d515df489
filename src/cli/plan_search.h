// The options of `quintet plan` that look beyond one layout: search, advice, verdict, scaling, cost.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "plan/html.h"
#include "plan/plan.h"

namespace quintet::cli {

struct SearchOptions {
  bool search = false, scaling = false;
  int top = 5, plans = 96;
  std::string emit, tokens;

  void add_to(CLI::App& command);
  // Refuses options that mean nothing without others.
  void check() const;
};

// The best layout of the cluster for the recipe's model and batch; nothing when none fits. Prints what was
// found (unless `quiet`), says which strategy it is and why simpler ones are not, and writes --emit.
std::optional<config::Recipe> search_layout(const SearchOptions& options, const config::Recipe& recipe,
                                            const plan::Assumptions& assumptions, bool quiet,
                                            plan::PageParts& parts);

// What comes after a report: advice when it does not fit, the scaling curve, the cost of a token budget.
// The text is empty where nothing was asked.
std::string beyond_report(const SearchOptions& options, const plan::Report& report, plan::PageParts& parts);

}  // namespace quintet::cli
