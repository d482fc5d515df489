#include "report/findings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "base/text.h"
#include "plan/layout_changes.h"
#include "plan/text.h"
#include "search/layout_space.h"

namespace quintet::report {
namespace {

void add_scaling(const search::Scaling& s, PageParts& parts) {
  const search::ScalePoint* first = nullptr;
  for (const search::ScalePoint& p : s.strong) {
    if (!p.best) continue;
    if (first == nullptr) first = &p;
    parts.scaling.push_back({.devices = p.devices,
                             .tokens_per_s = p.best->time.tokens_per_s,
                             .ideal = first->best->time.tokens_per_s * p.devices / first->devices,
                             .label = search::layout_words(p.best->recipe)});
  }
  if (s.worthwhile > 0 && !s.strong.empty() && s.worthwhile == s.strong.back().devices)
    parts.scaling_note = fmt::format("every doubling up to {} devices gains at least {:.1f}x",
                                     base::thousands(s.worthwhile), search::kWorthwhile);
  else if (s.worthwhile > 0)
    parts.scaling_note =
        fmt::format("worthwhile up to {} devices; past that, doubling gains less than {:.1f}x",
                    base::thousands(s.worthwhile), search::kWorthwhile);
}

void add_cost(const EconomyReport& e, PageParts& parts) {
  const hardware::RunCost& c = e.with_losses;
  const auto whole = [](double x) { return base::thousands(std::llround(x)); };
  parts.cost = {{"tokens", base::human_count(e.tokens)},
                {"time, including failures", long_duration(c.seconds)},
                {"device-hours", whole(c.device_hours)},
                {"energy", whole(c.kwh / 1e3) + " MWh"},
                {"carbon", whole(c.co2_kg / 1e3) + " t CO2"},
                {"goodput", fmt::format("{:.1f} %", 100 * e.goodput.share)}};
  if (c.usd > 0) parts.cost.insert(parts.cost.begin() + 3, {"cost", whole(c.usd) + " USD"});
}

}  // namespace

PageParts page_parts(const plan::Report& report, const Findings& b) {
  PageParts parts;
  if (b.verdict) {
    parts.verdict.push_back(b.verdict->text);
    for (const advice::Rung& r : b.verdict->rungs) parts.verdict.push_back(r.name + ": " + r.text);
    for (const std::string& w : b.verdict->warnings) parts.verdict.push_back("warning: " + w);
  }
  if (b.search && !b.search->best.empty())
    for (const std::string& reason : b.search->best.front().reasons) parts.verdict.push_back(reason);
  if (b.advice)
    for (const advice::Advice& a : *b.advice)
      parts.advice.push_back(
          {.what = a.what,
           .needs = plan::gib(a.bytes),
           .time = advice::change_of_time(a, report),
           .how = a.runs ? fmt::format("--set {}", fmt::join(a.sets, " --set ")) : "plan-only"});
  if (b.scaling) add_scaling(*b.scaling, parts);
  if (b.economy) add_cost(*b.economy, parts);
  return parts;
}

}  // namespace quintet::report
