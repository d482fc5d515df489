#include "report/findings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "plan/layout_changes.h"
#include "plan/text.h"
#include "search/layout_space.h"

namespace quintet::report {
namespace {

PageParts::Row scaling_row(const search::ScalePoint& p) {
  PageParts::Row row = {base::thousands(p.devices), base::thousands(p.global_batch)};
  if (!p.best) {
    row.resize(7);
    row.emplace_back("no layout fits");
    return row;
  }
  const plan::Time& t = p.best->time;
  for (const std::string& cell :
       {plan::seconds_text(t.step), base::thousands(std::llround(t.tokens_per_s)),
        fmt::format("{:.2f}x", p.speedup), fmt::format("{:.1f} %", 100 * p.efficiency),
        fmt::format("{:.1f} %", 100 * t.mfu), search::layout_words(p.best->recipe)})
    row.push_back(cell);
  return row;
}

void add_scaling(const search::Scaling& s, PageParts& parts) {
  const search::ScalePoint* first = nullptr;
  for (const search::ScalePoint& p : s.strong) {
    parts.strong.push_back(scaling_row(p));
    if (!p.best) continue;
    if (first == nullptr) first = &p;
    parts.scaling.push_back({.devices = p.devices,
                             .tokens_per_s = p.best->time.tokens_per_s,
                             .ideal = first->best->time.tokens_per_s * p.devices / first->devices});
  }
  for (const search::ScalePoint& p : s.weak) parts.weak.push_back(scaling_row(p));
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

void add_search(const search::SearchResult& s, PageParts& parts) {
  constexpr size_t kShown = 5;
  for (size_t i = 0; i < std::min(s.best.size(), kShown); ++i) {
    const plan::Report& r = s.best[i].report;
    parts.ranking.push_back(
        {fmt::format("{}.", i + 1), search::layout_words(r.recipe), plan::seconds_text(r.time.step),
         plan::number_text(r.time.tokens_per_s_per_device), fmt::format("{:.1f} %", 100 * r.time.mfu),
         fmt::format("{} of {}", plan::gib(plan::needs(r)), plan::gib(r.memory.limit))});
  }
  if (s.best.empty()) return;
  parts.reasons = s.best.front().reasons;
  parts.search_note = fmt::format("{} families of layouts, {} layouts compiled and simulated. {}",
                                  base::thousands(s.families), s.planned,
                                  s.proven ? std::string("No other layout of the space is faster.")
                                           : fmt::format("Layouts that were not planned take at least {}.",
                                                         plan::seconds_text(s.bound_seconds)));
}

void add_verdict(const advice::Verdict& v, const std::string& fastest, PageParts& parts) {
  for (const advice::Rung& r : v.rungs) parts.strategies.push_back({r.name, r.text});
  if (v.answer >= 0)
    parts.strategy_note =
        fmt::format("The simplest whose step takes at most {:.0f} % longer than the fastest: {}.",
                    100 * (advice::kNearBest - 1), v.rungs[static_cast<size_t>(v.answer)].name);
  if (!fastest.empty()) parts.strategy_note += fmt::format(" Everything else here is about {}", fastest);
}

void add_assumptions(const plan::Report& report, const Findings& b, PageParts& parts) {
  const hardware::Cluster& c = report.assumptions.cluster;
  const hardware::Accelerator& a = c.accelerator;
  parts.assumptions = {
      {"cluster", hardware::describe(c)},
      {"accelerator", a.source.empty() ? "" : fmt::format("{} ({})", a.source, a.date)},
      {"software", report.assumptions.stack.title},
      {"price", c.price_per_hour > 0
                    ? fmt::format("{:.2f} USD per device-hour{}", c.price_per_hour,
                                  c.price_source.empty() ? "" : fmt::format(" ({})", c.price_source))
                    : "none in the catalogue (--price)"}};
  if (!b.economy) return;
  const hardware::Reliability& r = b.economy->reliability;
  parts.assumptions.emplace_back(
      "failures", fmt::format("{:.2f} per 1,000 devices and day", r.failures_per_device_hour * 24 * 1000));
  parts.assumptions.emplace_back("checkpoint", long_duration(r.checkpoint_seconds));
  parts.assumptions.emplace_back("restart", long_duration(r.restart_seconds));
  parts.assumptions.emplace_back("site",
                                 fmt::format("PUE {:g}, {:g} kg CO2 per kWh", c.pue, c.carbon_kg_per_kwh));
}

}  // namespace

std::string fastest_beside_verdict(const Findings& b) {
  if (!b.verdict || b.verdict->answer < 0 || !b.search || b.search->best.empty()) return {};
  const std::optional<plan::Report>& answer = b.verdict->rungs[static_cast<size_t>(b.verdict->answer)].report;
  const plan::Report& best = b.search->best.front().report;
  if (!answer || answer->recipe == best.recipe) return {};
  return fmt::format("the fastest layout found, {}: {}.", plan::seconds_text(best.time.step),
                     search::layout_words(best.recipe));
}

PageParts page_parts(const plan::Report& report, const Findings& b) {
  PageParts parts;
  if (b.search) add_search(*b.search, parts);
  if (b.verdict) add_verdict(*b.verdict, fastest_beside_verdict(b), parts);
  parts.warnings = advice::warnings_of(report);
  add_assumptions(report, b, parts);
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
