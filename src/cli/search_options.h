// The options of `quintet plan` that look beyond one layout: search, advice, verdict, scaling, cost.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "report/make_findings.h"

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
  // As the report room has them.
  report::FindingsOptions findings() const;
};

}  // namespace quintet::cli
