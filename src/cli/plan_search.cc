#include "cli/plan_search.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/verbs.h"
#include "config/print.h"
#include "plan/advice.h"
#include "plan/economy_report.h"
#include "plan/scaling.h"
#include "plan/search.h"
#include "plan/text.h"
#include "plan/verdict.h"

namespace quintet::cli {
namespace {

constexpr int kThreads = 2;
constexpr int kHalvings = 3, kDoublings = 2;  // of the cluster, for the scaling curve

// One line on a terminal, nothing elsewhere.
class Line {
 public:
  ~Line() {
    if (shown_) fmt::print(stderr, "\r\033[K");
  }
  void show(const std::string& text) {
    if (::isatty(STDERR_FILENO) == 0) return;
    fmt::print(stderr, "\r\033[K{}", text);
    shown_ = true;
  }

 private:
  bool shown_ = false;
};

std::string bar(int done, int most) {
  constexpr int kWidth = 30;
  const int full = most > 0 ? std::min(kWidth, done * kWidth / most) : 0;
  return std::string(static_cast<size_t>(full), '#') + std::string(static_cast<size_t>(kWidth - full), '.');
}

}  // namespace

void SearchOptions::add_to(CLI::App& command) {
  command.add_flag("--search", search,
                   "look for the fastest layouts that fit the cluster, whatever layout the recipe has");
  command.add_option("--top", top, "with --search: how many to show")
      ->type_name("N")
      ->check(CLI::Range(1, 100));
  command.add_option("--plans", plans, "with --search: how many layouts to compile at most")
      ->type_name("N")
      ->check(CLI::Range(1, 100000));
  command.add_option("--emit", emit, "with --search: write the best layout as a recipe")->type_name("FILE");
  command.add_flag("--scaling", scaling, "the scaling curve over numbers of devices");
  command.add_option("--tokens", tokens, "cost, energy, carbon and goodput of so many tokens, e.g. 15T")
      ->type_name("N");
}

void SearchOptions::check() const {
  if (!emit.empty() && !search) base::fail_user("--emit writes what --search finds; give --search too");
  if (!tokens.empty()) plan::parse_tokens(tokens);
}

std::optional<config::Recipe> search_layout(const SearchOptions& o, const config::Recipe& recipe,
                                            const plan::Assumptions& assumptions, bool quiet,
                                            plan::PageParts& parts) {
  Line line;
  const auto progress = [&](const plan::Progress& p) {
    line.show(fmt::format("search [{}] {} of at most {} layouts compiled{}", bar(p.planned, p.most),
                          p.planned, p.most,
                          p.best_seconds > 0 ? ", best " + plan::seconds_text(p.best_seconds) : ""));
  };
  plan::SearchResult found =
      plan::search(recipe, assumptions, plan::usual_space(recipe, assumptions.cluster),
                   {.keep = o.top, .plans = o.plans, .threads = kThreads, .progress = progress});
  if (!found.best.empty()) found.best.front().reasons = plan::explain(found.best.front().report, kThreads);
  line.show("which strategy");
  const plan::Verdict verdict = plan::decide(recipe, assumptions, {.plans = 6, .threads = kThreads});
  line.show("");
  parts.verdict.push_back(verdict.text);
  for (const plan::Rung& r : verdict.rungs) parts.verdict.push_back(r.name + ": " + r.text);
  if (!quiet) print(plan::to_text(verdict) + plan::to_text(found, assumptions));
  if (found.best.empty()) return std::nullopt;
  const config::Recipe& best = found.best.front().report.recipe;
  if (!o.emit.empty()) base::write_file_atomically(o.emit, config::to_toml(best));
  return best;
}

std::string beyond_report(const SearchOptions& o, const plan::Report& report, plan::PageParts& parts) {
  std::string out;
  if (!report.memory.fits()) out += plan::advice_text(report, plan::advise(report, kThreads));
  if (o.scaling) {
    Line line;
    const hardware::Cluster& cluster = report.assumptions.cluster;
    const plan::Scaling s = plan::scale(
        report.recipe, report.assumptions, plan::device_counts(cluster, kHalvings, kDoublings),
        {.threads = kThreads,
         .progress = [&](int n) { line.show(fmt::format("scaling: {} devices", base::thousands(n))); }});
    out += plan::to_text(s);
    const plan::ScalePoint* first = nullptr;
    for (const plan::ScalePoint& p : s.strong) {
      if (!p.best) continue;
      if (first == nullptr) first = &p;
      parts.scaling.push_back({.devices = p.devices,
                               .tokens_per_s = p.best->time.tokens_per_s,
                               .ideal = first->best->time.tokens_per_s * p.devices / first->devices,
                               .label = plan::layout_words(p.best->recipe)});
    }
    if (s.worthwhile > 0)
      parts.scaling_note =
          fmt::format("worth it up to {} devices: beyond, twice as many bring less than {:.1f}x",
                      base::thousands(s.worthwhile), plan::kWorthwhile);
  }
  if (!o.tokens.empty()) {
    const plan::EconomyReport e = plan::economy(report, plan::parse_tokens(o.tokens));
    out += plan::to_text(e, report.assumptions.cluster);
    const hardware::RunCost& c = e.with_losses;
    const auto whole = [](double x) { return base::thousands(std::llround(x)); };
    parts.cost = {{"tokens", base::human_count(e.tokens)},
                  {"time, failures included", base::human_duration(std::llround(c.seconds * 1e9))},
                  {"device-hours", whole(c.device_hours)},
                  {"energy", whole(c.kwh / 1e3) + " MWh"},
                  {"carbon", whole(c.co2_kg / 1e3) + " t of CO2"},
                  {"goodput", fmt::format("{:.1f} %", 100 * e.goodput.share)}};
    if (c.usd > 0) parts.cost.insert(parts.cost.begin() + 3, {"money", whole(c.usd) + " USD"});
  }
  return out;
}

}  // namespace quintet::cli
