#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "plan/layout_changes.h"
#include "plan/text.h"
#include "search/search.h"

namespace quintet::search {

std::vector<std::string> explain(const plan::Report& report, int threads) {
  const std::vector<plan::LayoutChange> changes = plan::simpler(report.recipe);
  std::vector<config::Recipe> recipes;
  for (const plan::LayoutChange& c : changes) recipes.push_back(c.recipe);
  const std::vector<std::optional<plan::Report>> plans = plan::plan_all(recipes, report.assumptions, threads);
  std::vector<std::string> reasons;
  for (size_t i = 0; i < changes.size(); ++i) {
    if (!plans[i]) continue;
    const plan::Report& other = *plans[i];
    const std::string begin = fmt::format("{}: with {}", changes[i].subject, changes[i].what);
    if (!other.memory.fits()) {
      reasons.push_back(fmt::format("{} {}", begin, plan::misfit_text(other)));
      continue;
    }
    const double more = other.time.step / report.time.step - 1;
    reasons.push_back(fmt::format("{} a step takes {}, {:.1f} % {}", begin,
                                  plan::seconds_text(other.time.step), 100 * std::abs(more),
                                  more >= 0 ? "more" : "less"));
  }
  return reasons;
}

std::string to_text(const SearchResult& s, const plan::Assumptions& a) {
  const std::string counts = fmt::format(
      "{} families of layouts; discarded: {} families and layouts by the rules, {} that cannot fit, {} that "
      "cannot be among the best; {} compiled and simulated, of which {} did not fit\n",
      base::thousands(s.families), base::thousands(s.illegal), base::thousands(s.too_large),
      base::thousands(s.too_slow), s.planned, s.did_not_fit);
  if (s.families == 0)
    return counts +
           fmt::format(
               "no layout is possible: the axes fixed with --set must divide {0} devices, and the "
               "remaining data ranks must divide the global batch; one sequence per device ({0}) leaves "
               "the most layouts\n",
               base::thousands(a.cluster.world()));
  std::string out;
  if (s.best.empty() && s.too_large == 0 && s.did_not_fit == 0)
    return counts + "every layout breaks a rule: the lines above name one for each strategy\n";
  if (s.best.empty()) {
    out = counts +
          fmt::format("nothing fits into the {} of a device", plan::gib(a.cluster.accelerator.memory_bytes));
    if (s.smallest)
      out += fmt::format("; the smallest layout planned needs {}: {}", plan::gib(plan::needs(*s.smallest)),
                         layout_words(s.smallest->recipe));
    return out + "\n";
  }
  out = "fastest layouts; the first is planned below\n";
  for (size_t i = 0; i < s.best.size(); ++i) {
    const plan::Report& r = s.best[i].report;
    out += fmt::format("{:2}. {}  {} tokens/s per device, MFU {:.1f} %, {} of {}\n    {}\n", i + 1,
                       plan::seconds_text(r.time.step), plan::number_text(r.time.tokens_per_s_per_device),
                       100 * r.time.mfu, plan::gib(plan::needs(r)), plan::gib(r.memory.limit),
                       layout_words(r.recipe));
    for (const std::string& reason : s.best[i].reasons) out += fmt::format("      {}\n", reason);
  }
  out += counts;
  const double best = s.best.front().report.time.step;
  if (s.proven)
    out += "no other layout of the space is faster: every other one was planned or has a higher bound\n";
  else
    out += fmt::format("layouts that were not planned take at least {}, {:.1f} % less than the best\n",
                       plan::seconds_text(s.bound_seconds), 100 * (1 - s.bound_seconds / best));
  return out;
}

std::string pareto_text(const SearchResult& s) {
  if (s.pareto.empty()) return {};
  std::string out = "no other layout needs both less time and less memory\n";
  for (const plan::Report& r : s.pareto)
    out += fmt::format("  {:>11}  {:>10} of {}  {:>8.4g} device-s/step  {}\n",
                       plan::seconds_text(r.time.step), plan::gib(plan::needs(r)), plan::gib(r.memory.limit),
                       r.time.step * r.time.devices, layout_words(r.recipe));
  return out + (s.pareto_proven
                    ? "the set is complete: every other layout was planned or is bounded by one of these\n"
                    : "of the layouts that were planned; --plans allows more\n");
}

}  // namespace quintet::search
