// What to change when a plan does not fit: its largest terms, and single changes, each fully planned.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"

namespace quintet::advice {

struct Term {
  std::string what;  // "optimizer"
  int64_t bytes = 0;
};

struct Advice {
  std::string what;               // "zero 3", "recompute selective"
  std::vector<std::string> sets;  // --set arguments; empty for what the engine cannot run yet
  bool runs = true;               // false: plan-only, estimated from bytes
  int64_t bytes = 0;              // needed by the most loaded device after the change
  int64_t saved = 0;
  double step = 0;  // seconds
  double lost = 0;  // seconds added to a step (negative: it is faster)
};

// Terms of the most loaded device, largest first.
std::vector<Term> largest_terms(const plan::Report& report);

// Changes that make the plan fit, least added time first; changes the engine can run precede plan-only ones.
std::vector<Advice> advise(const plan::Report& report, int threads = 2);

// If the worst-case reserve for expert rows is what does not fit, a sentence with its bytes; otherwise empty.
std::string expert_reserve_text(const plan::Report& report);

// "1.2 ms more per step (+3.1 %)"
std::string change_of_time(const Advice& advice, const plan::Report& report);

// "does not fit: ..." with terms and changes. Empty if the report fits.
std::string advice_text(const plan::Report& report, const std::vector<Advice>& advice);

}  // namespace quintet::advice
