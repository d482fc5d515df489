// The options of `quintet plan` that go beyond one layout: search, advice, verdict, scaling, cost.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "report/make_findings.h"

namespace quintet::cli {

struct SearchOptions {
  bool search = false, pareto = false, scaling = false, overwrite = false;
  int top = 5, plans = 96;
  double allow_drops = 0;           // expert capacity factor that the search may use; 0: no dropping
  std::string emit, tokens, noise;  // noise: tokens, or a run folder
  // With --tokens. Negative: not given.
  double failures = -1, checkpoint_seconds = -1, restart_seconds = -1;

  void add_to(CLI::App& command);
  // UserError for options that require others which are not given, and for --emit when the file cannot be
  // written.
  void check() const;
  // The same in terms of the report room.
  report::FindingsOptions findings() const;
};

}  // namespace quintet::cli
