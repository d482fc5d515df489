// What to change when a plan does not fit: its largest terms, and single changes, each planned as a whole.
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
  std::vector<std::string> sets;  // as after --set; empty for what the engine cannot run yet
  bool runs = true;               // false: plan-only, from bytes alone
  int64_t bytes = 0;              // that the fullest device then needs
  int64_t saved = 0;
  double step = 0;  // seconds
  double lost = 0;  // seconds of a step more than before (less than 0: it is faster)
};

// Of the fullest device, largest first.
std::vector<Term> largest_terms(const plan::Report& report);

// Changes that make it fit, those that cost least time first; what the engine can run comes before the rest.
std::vector<Advice> advise(const plan::Report& report, int threads = 2);

// Where the room for rows of experts that may come is what does not fit: that, with its bytes. Else nothing.
std::string room_words(const plan::Report& report);

// "1.2 ms more a step (+3.1 %)"
std::string change_of_time(const Advice& advice, const plan::Report& report);

// "does not fit: ..." with terms and changes. A report that fits gives nothing.
std::string advice_text(const plan::Report& report, const std::vector<Advice>& advice);

}  // namespace quintet::advice
