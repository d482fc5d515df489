#include "cli/plan_search.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/verbs.h"
#include "plan/text.h"
#include "search/emit_recipe.h"

namespace quintet::cli {
namespace {

constexpr int kThreads = 2;
// What a search looks at closely: groups of families, and layouts for every one that is compiled.
constexpr int64_t kGroups = 1500, kLayoutsPerPlan = 20;
constexpr double kWorkPerPlan = 7000,
                 kLongest = 2.2e4;  // search.h; seconds on two cores for models that fill large clusters
constexpr double kThousandDeviceDays = 24 * 1000;  // in hours of a device
constexpr int kHalvings = 3, kDoublings = 2;       // of the cluster, for the scaling curve

// One line on a terminal, nothing elsewhere.
class Line {
 public:
  ~Line() {
    if (shown_) write("\r\033[K");
  }
  void show(const std::string& text) {
    if (::isatty(STDERR_FILENO) == 0) return;
    write("\r\033[K" + text);
    shown_ = true;
  }

 private:
  // A terminal that is gone is no error: the search goes on.
  static void write(const std::string& text) { std::fputs(text.c_str(), stderr); }

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
                   "look for the fastest layouts that fit the cluster, whatever layout the recipe has; what "
                   "--set says of the layout stays");
  command.add_option("--top", top, "with --search: how many to show")
      ->type_name("N")
      ->check(CLI::Range(1, 100));
  command.add_option("--plans", plans, "with --search: how many layouts to compile at most")
      ->type_name("N")
      ->check(CLI::Range(1, 100000));
  command
      .add_option("--allow-drops", allow_drops,
                  "with --search: experts may have this capacity and drop tokens beyond it, e.g. 1.25")
      ->type_name("FACTOR")
      ->check(CLI::Range(0.01, 1000.0));
  command.add_option("--emit", emit, "with --search: write the best layout as a recipe that runs")
      ->type_name("FILE");
  command.add_flag("--scaling", scaling, "the scaling curve over numbers of devices");
  command.add_option("--tokens", tokens, "cost, energy, carbon and goodput of so many tokens, e.g. 15T")
      ->type_name("N");
  const hardware::Reliability usual;
  command
      .add_option("--failures", failures,
                  fmt::format("with --tokens: failures of 1,000 devices in a day ({:.2f}: Llama 3 405B, 419 "
                              "stops of 16,384 GPUs in 54 days)",
                              usual.failures_per_device_hour * kThousandDeviceDays))
      ->type_name("X")
      ->check(CLI::Range(0.0, 1e6));
  command
      .add_option("--checkpoint-seconds", checkpoint_seconds,
                  fmt::format("with --tokens: that training stands still for a checkpoint ({:.0f}, assumed)",
                              usual.checkpoint_seconds))
      ->type_name("S")
      ->check(CLI::Range(0.0, 1e6));
  command
      .add_option(
          "--restart-seconds", restart_seconds,
          fmt::format("with --tokens: from a failure to the last checkpoint's state ({:.0f}, assumed)",
                      usual.restart_seconds))
      ->type_name("S")
      ->check(CLI::Range(0.0, 1e7));
}

void SearchOptions::check() const {
  if (!emit.empty() && !search) base::fail_user("--emit writes what --search finds; give --search too");
  if (!search && (top != SearchOptions{}.top || plans != SearchOptions{}.plans || allow_drops > 0))
    base::fail_user("--top, --plans and --allow-drops say how far --search goes; give --search too");
  if (!tokens.empty())
    report::parse_tokens(tokens);
  else if (failures >= 0 || checkpoint_seconds >= 0 || restart_seconds >= 0)
    base::fail_user(
        "--failures, --checkpoint-seconds and --restart-seconds are of a run of so many tokens; give "
        "--tokens "
        "too, e.g. --tokens 15T");
}

hardware::Reliability SearchOptions::reliability() const {
  hardware::Reliability r;
  if (failures >= 0) r.failures_per_device_hour = failures / kThousandDeviceDays;
  if (checkpoint_seconds >= 0) r.checkpoint_seconds = checkpoint_seconds;
  if (restart_seconds >= 0) r.restart_seconds = restart_seconds;
  return r;
}

std::optional<config::Recipe> search_layout(const SearchOptions& o, const SearchFor& what,
                                            const plan::Assumptions& assumptions,
                                            report::Findings& findings) {
  const config::Recipe& recipe = what.recipe;
  Line line;
  const auto progress = [&](const search::Progress& p) {
    line.show(fmt::format("search [{}] {} of {} groups of layouts looked at, {} of at most {} compiled{}",
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
                                .bounds = &bounds};
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
                      .progress = [&](const std::string& rung) { line.show("which strategy: " + rung); },
                      .bounds = &bounds,
                      .best = best.empty() ? nullptr : &best.front().report});
  if (best.empty()) return std::nullopt;
  if (!o.emit.empty()) {
    const search::EmittedRecipe e =
        search::emit_recipe(best.front().report.recipe, assumptions.cluster, what.made_up);
    base::write_file_atomically(o.emit, e.text);
    findings.emitted = {o.emit, e.to_do};
  }
  return best.front().report.recipe;
}

void add_findings(const SearchOptions& o, const plan::Report& report, report::Findings& findings) {
  Line line;
  if (!report.memory.fits()) {
    line.show("changes that would make it fit");
    findings.advice = advice::advise(report, kThreads);
  }
  if (o.scaling)
    findings.scaling = search::scale(report.recipe, report.assumptions,
                                     search::device_counts(report.assumptions.cluster, kHalvings, kDoublings),
                                     {.threads = kThreads, .progress = [&](int n) {
                                        line.show(fmt::format("scaling: {} devices", base::thousands(n)));
                                      }});
  if (!o.tokens.empty())
    findings.economy = report::economy(report, report::parse_tokens(o.tokens), o.reliability());
}

std::string text_before(const report::Findings& b, const plan::Assumptions& assumptions) {
  std::string out = (b.verdict ? advice::to_text(*b.verdict) : "") +
                    (b.search ? search::to_text(*b.search, assumptions) : "");
  if (b.emitted) {
    out += fmt::format("wrote {}\n", b.emitted->file);
    for (const std::string& what : b.emitted->to_do) out += fmt::format("  to fill in: {}\n", what);
  }
  return out;
}

std::string text_after(const report::Findings& b, const plan::Report& report) {
  return (b.advice ? advice::advice_text(report, *b.advice) : "") +
         (b.scaling ? search::to_text(*b.scaling) : "") +
         (b.economy ? report::to_text(*b.economy, report.assumptions.cluster) : "");
}

}  // namespace quintet::cli
