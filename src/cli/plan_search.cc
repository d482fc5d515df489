#include "cli/plan_search.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/verbs.h"
#include "config/print.h"
#include "plan/text.h"

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
  if (!search && (top != SearchOptions{}.top || plans != SearchOptions{}.plans))
    base::fail_user("--top and --plans say how far --search goes; give --search too");
  if (!tokens.empty()) plan::parse_tokens(tokens);
}

std::optional<config::Recipe> search_layout(const SearchOptions& o, const config::Recipe& recipe,
                                            const plan::Assumptions& assumptions, plan::Beyond& beyond) {
  Line line;
  const auto progress = [&](const plan::Progress& p) {
    line.show(fmt::format("search [{}] {} of at most {} layouts compiled{}", bar(p.planned, p.most),
                          p.planned, p.most,
                          p.best_seconds > 0 ? ", best " + plan::seconds_text(p.best_seconds) : ""));
  };
  beyond.search = plan::search(recipe, assumptions, plan::usual_space(recipe, assumptions.cluster),
                               {.keep = o.top, .plans = o.plans, .threads = kThreads, .progress = progress});
  std::vector<plan::Found>& best = beyond.search->best;
  if (!best.empty()) best.front().reasons = plan::explain(best.front().report, kThreads);
  line.show("which strategy");
  beyond.verdict = plan::decide(recipe, assumptions, {.plans = 6, .threads = kThreads});
  if (best.empty()) return std::nullopt;
  if (!o.emit.empty()) base::write_file_atomically(o.emit, config::to_toml(best.front().report.recipe));
  return best.front().report.recipe;
}

void look_beyond(const SearchOptions& o, const plan::Report& report, plan::Beyond& beyond) {
  Line line;
  if (!report.memory.fits()) {
    line.show("changes that would make it fit");
    beyond.advice = plan::advise(report, kThreads);
  }
  if (o.scaling)
    beyond.scaling = plan::scale(report.recipe, report.assumptions,
                                 plan::device_counts(report.assumptions.cluster, kHalvings, kDoublings),
                                 {.threads = kThreads, .progress = [&](int n) {
                                    line.show(fmt::format("scaling: {} devices", base::thousands(n)));
                                  }});
  if (!o.tokens.empty()) beyond.economy = plan::economy(report, plan::parse_tokens(o.tokens));
}

std::string text_before(const plan::Beyond& b, const plan::Assumptions& assumptions) {
  return (b.verdict ? plan::to_text(*b.verdict) : "") +
         (b.search ? plan::to_text(*b.search, assumptions) : "");
}

std::string text_after(const plan::Beyond& b, const plan::Report& report) {
  return (b.advice ? plan::advice_text(report, *b.advice) : "") +
         (b.scaling ? plan::to_text(*b.scaling) : "") +
         (b.economy ? plan::to_text(*b.economy, report.assumptions.cluster) : "");
}

}  // namespace quintet::cli
