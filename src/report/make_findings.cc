#include "report/make_findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "plan/text.h"
#include "report/run_files.h"
#include "search/emit_recipe.h"

namespace quintet::report {
namespace {

constexpr int kThreads = 2;
// What a search looks at closely: groups of families, and layouts for every one that is compiled.
constexpr int64_t kGroups = 1500, kLayoutsPerPlan = 20;
constexpr double kWorkPerPlan = 7000,
                 kLongest = 2.2e4;  // search.h; seconds on two cores for models that fill large clusters
constexpr int kHalvings = 3, kDoublings = 2;  // of the cluster, for the scaling curve

std::string bar(int done, int most) {
  constexpr int kWidth = 30;
  const int full = most > 0 ? std::min(kWidth, done * kWidth / most) : 0;
  return std::string(static_cast<size_t>(full), '#') + std::string(static_cast<size_t>(kWidth - full), '.');
}

std::string plan_beside_verdict(const Findings& b) {
  const std::string fastest = fastest_beside_verdict(b);
  return fastest.empty() ? std::string() : fmt::format("the plan below is that of {}\n", fastest);
}

}  // namespace

std::optional<config::Recipe> search_layout(const FindingsOptions& o, const SearchFor& what,
                                            const plan::Assumptions& assumptions, Findings& findings) {
  const config::Recipe& recipe = what.recipe;
  const auto progress = [&](const search::Progress& p) {
    o.progress(fmt::format("search [{}] {} of {} groups of layouts examined, {} of at most {} compiled{}",
                           bar(p.planned, p.most), base::thousands(p.looked), base::thousands(p.groups),
                           p.planned, p.most,
                           p.best_seconds > 0 ? ", best " + plan::seconds_text(p.best_seconds) : ""));
  };
  const search::Bounds bounds(assumptions);
  const search::LayoutSpace space =
      search::fixed(search::usual_space(recipe, assumptions.cluster), what.sets);
  search::SearchOptions options{.keep = o.top,
                                .plans = o.plans,
                                .groups = kGroups,
                                .layouts = kLayoutsPerPlan * o.plans,
                                .work = kWorkPerPlan * o.plans,
                                .longest = kLongest,
                                .threads = kThreads,
                                .progress = progress,
                                .pareto = o.pareto,
                                .bounds = &bounds};
  findings.pareto = o.pareto;
  findings.search = search::search(recipe, assumptions, space, options);
  if (o.allow_drops > 0) {
    const config::Recipe dropping = search::with_capacity(recipe, o.allow_drops);
    const search::Bounds own(assumptions);
    options.bounds = &own;
    search::merge(*findings.search, search::search(dropping, assumptions, space, options), o.top);
  }
  std::vector<search::Found>& best = findings.search->best;
  if (!best.empty()) best.front().reasons = search::explain(best.front().report, kThreads);
  findings.verdict =
      advice::decide(recipe, assumptions,
                     {.plans = 6,
                      .threads = kThreads,
                      .progress = [&](const std::string& rung) { o.progress("which strategy: " + rung); },
                      .bounds = &bounds,
                      .best = best.empty() ? nullptr : &best.front().report});
  if (best.empty()) return std::nullopt;
  if (!o.emit.empty()) {
    const search::EmittedRecipe e =
        search::emit_recipe(best.front().report.recipe, assumptions.cluster, what.from_model);
    base::write_file_atomically(o.emit, e.text);
    findings.emitted = {o.emit, e.to_do};
  }
  return best.front().report.recipe;
}

double parse_noise_scale(const std::string& text) {
  if (!base::directory_exists(text)) {
    if (base::file_exists(text))
      base::fail_user("--noise-scale {}: expected a number of tokens or a run folder, got a file", text);
    return parse_tokens(text);
  }
  const RunFiles run = read_run(text);
  const std::vector<double>* const column = run.metrics.column("noise_scale");
  for (size_t i = column == nullptr ? 0 : column->size(); i-- > 0;)
    if ((*column)[i] > 0 && std::isfinite((*column)[i])) return (*column)[i];
  base::fail_user("--noise-scale {}: its metrics have no noise scale; train with run.noise_scale_every = 100",
                  text);
}

void add_findings(const FindingsOptions& o, const plan::Report& report, Findings& findings) {
  if (!report.memory.fits()) {
    o.progress("changes that would make it fit");
    findings.advice = advice::advise(report, kThreads);
  }
  if (o.scaling)
    findings.scaling =
        search::scale(report.recipe, report.assumptions,
                      search::device_counts(report.assumptions.cluster, kHalvings, kDoublings),
                      {.threads = kThreads, .noise_tokens = o.noise_tokens, .progress = [&](int n) {
                         o.progress(fmt::format("scaling: {} devices", base::thousands(n)));
                       }});
  if (o.tokens > 0) findings.economy = economy(report, o.tokens, o.reliability);
}

std::string text_before(const Findings& b, const plan::Assumptions& assumptions) {
  std::string out = (b.verdict ? advice::to_text(*b.verdict) + plan_beside_verdict(b) + "\n" : "") +
                    (b.search ? search::to_text(*b.search, assumptions) : "") +
                    (b.search && b.pareto ? search::pareto_text(*b.search) : "");
  if (b.emitted) {
    out += fmt::format("wrote {}\n", b.emitted->file);
    for (const std::string& what : b.emitted->to_do) out += fmt::format("  to fill in: {}\n", what);
  }
  if (b.search && !b.search->best.empty()) out += "\n";
  return out;
}

std::string text_after(const Findings& b, const plan::Report& report) {
  return (b.advice ? advice::advice_text(report, *b.advice) : "") +
         (b.scaling ? search::to_text(*b.scaling) : "") +
         (b.scaling && b.pareto ? search::price_text(*b.scaling, report.assumptions.cluster.price_per_hour)
                                : "") +
         (b.economy ? to_text(*b.economy, report.assumptions.cluster) : "");
}

}  // namespace quintet::report
