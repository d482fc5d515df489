#include "plan/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <queue>

#include "base/error.h"
#include "base/parallel_for.h"
#include "config/validate.h"

namespace quintet::plan {
namespace {

// Plans that are made before the next is chosen. Not a matter of threads, or they would change the answer.
constexpr size_t kBatch = 8;

enum class Stage : uint8_t { Family, Closed, Exact };  // what is known of an entry: whose bound it has

struct Entry {
  double likely = 0;  // seconds
  double bound = 0;
  size_t family = 0, schedule = 0;
  Stage stage = Stage::Family;
  bool doubtful = false;  // is likely not to fit
};

// Likely ones first; ties in the order of the space.
struct Later {
  bool operator()(const Entry& a, const Entry& b) const {
    return std::tuple(a.doubtful, a.likely, a.family, a.schedule) >
           std::tuple(b.doubtful, b.likely, b.family, b.schedule);
  }
};

class Searcher {
 public:
  Searcher(const config::Recipe& recipe, const Assumptions& assumptions, const Space& space,
           const SearchOptions& options)
      : recipe_(recipe),
        assumptions_(assumptions),
        space_(space),
        options_(options),
        limit_(assumptions.cluster.accelerator.memory_bytes),
        bounds_(assumptions) {
    assumptions_.timeline = false;
    assumptions_.threads = 1;
  }

  SearchResult run() {
    families_ = families(recipe_, space_, assumptions_.cluster.world());
    result_.families = static_cast<int64_t>(families_.size());
    begin();
    std::vector<Entry> batch;
    while (result_.planned < options_.plans) {
      fill(batch);
      if (batch.empty()) break;
      plan(batch);
      tell();
    }
    finish();
    return std::move(result_);
  }

 private:
  config::Recipe recipe_of(const Entry& e) const {
    const Family& f = families_[e.family];
    return with_layout(recipe_, f, schedules(f, space_)[e.schedule]);
  }

  // Bounds of all families, where the rules allow any layout of it.
  void begin() {
    struct First {
      bool legal = false;
      Bound bound;
    };
    std::vector<First> first(families_.size());
    constexpr size_t kPiece = 64;
    base::parallel_for(options_.threads, (families_.size() + kPiece - 1) / kPiece, [&](size_t piece) {
      const size_t end = std::min(families_.size(), (piece + 1) * kPiece);
      for (size_t i = piece * kPiece; i < end; ++i) {
        const Family& f = families_[i];
        // A schedule of its own has rules of its own, which are asked later.
        const config::Recipe r = with_layout(recipe_, f, {f.pp > 1 ? "1f1b" : "", 1});
        first[i].legal = config::problems_of(r).empty();
        if (first[i].legal) first[i].bound = bounds_.of_any_schedule(config::resolve(r));
      }
    });
    for (size_t i = 0; i < first.size(); ++i) {
      if (!first[i].legal)
        ++result_.illegal;
      else if (first[i].bound.bytes > limit_)
        ++result_.too_large;
      else
        queue_.push({.likely = first[i].bound.likely_seconds, .bound = first[i].bound.seconds, .family = i});
    }
  }

  double worst_kept() const {
    if (static_cast<int>(result_.best.size()) < options_.keep) return std::numeric_limits<double>::infinity();
    return result_.best.back().report.time.step;
  }

  // The next layouts to plan: entries that come to the front are looked at more closely until they are known
  // as well as bounds can know them.
  void fill(std::vector<Entry>& batch) {
    batch.clear();
    const size_t most = std::min(kBatch, static_cast<size_t>(options_.plans - result_.planned));
    while (batch.size() < most && !queue_.empty()) {
      const Entry e = queue_.top();
      queue_.pop();
      if (e.bound >= worst_kept()) {
        ++result_.too_slow;
        continue;
      }
      if (e.stage == Stage::Exact) {
        batch.push_back(e);
        continue;
      }
      if (e.stage == Stage::Family) {
        const size_t n = schedules(families_[e.family], space_).size();
        for (size_t s = 0; s < n; ++s) consider({.family = e.family, .schedule = s, .stage = Stage::Closed});
      } else {
        consider({.family = e.family, .schedule = e.schedule, .stage = Stage::Exact});
      }
    }
  }

  void consider(Entry e) {
    const config::Recipe unresolved = recipe_of(e);
    if (e.stage == Stage::Closed && !config::problems_of(unresolved).empty()) {
      ++result_.illegal;
      return;
    }
    const config::Recipe r = config::resolve(unresolved);
    const Bound b = e.stage == Stage::Closed ? bounds_.quick(r) : bounds_.exact(r);
    if (b.bytes > limit_) {
      ++result_.too_large;
      return;
    }
    e.likely = b.likely_seconds;
    e.bound = b.seconds;
    e.doubtful = b.likely_bytes > limit_;
    queue_.push(e);
  }

  void plan(const std::vector<Entry>& batch) {
    std::vector<std::optional<Report>> reports(batch.size());
    base::parallel_for(options_.threads, batch.size(), [&](size_t i) {
      reports[i] = make_plan(config::resolve(recipe_of(batch[i])), assumptions_);
    });
    for (std::optional<Report>& report : reports) {
      ++result_.planned;
      if (!report->memory.fits()) {
        ++result_.did_not_fit;
        if (!result_.smallest || needs(*report) < needs(*result_.smallest))
          result_.smallest = std::move(report);
        continue;
      }
      const auto place = std::upper_bound(
          result_.best.begin(), result_.best.end(), *report, [](const Report& a, const Found& b) {
            return std::pair(a.time.step, needs(a)) < std::pair(b.report.time.step, needs(b.report));
          });
      result_.best.insert(place, {std::move(*report), {}});
      if (static_cast<int>(result_.best.size()) > options_.keep) result_.best.pop_back();
    }
  }

  static int64_t needs(const Report& r) { return r.memory.ranks[r.memory.most_loaded].total(); }

  void tell() const {
    if (!options_.progress) return;
    options_.progress({.planned = result_.planned,
                       .most = options_.plans,
                       .left = static_cast<int64_t>(queue_.size()),
                       .best_seconds = result_.best.empty() ? 0 : result_.best.front().report.time.step});
  }

  // What was not planned has at least its bound.
  void finish() {
    double least = result_.best.empty() ? std::numeric_limits<double>::infinity()
                                        : result_.best.front().report.time.step;
    result_.proven = true;
    for (; !queue_.empty(); queue_.pop()) {
      if (queue_.top().bound >= least) continue;
      least = queue_.top().bound;
      result_.proven = false;
    }
    result_.bound_seconds = std::isfinite(least) ? least : 0;
    if (!result_.best.empty()) result_.smallest.reset();
  }

  const config::Recipe& recipe_;
  Assumptions assumptions_;
  const Space& space_;
  const SearchOptions& options_;
  const int64_t limit_;
  const Bounds bounds_;
  std::vector<Family> families_;
  std::priority_queue<Entry, std::vector<Entry>, Later> queue_;
  SearchResult result_;
};

}  // namespace

SearchResult search(const config::Recipe& recipe, const Assumptions& assumptions, const Space& space,
                    const SearchOptions& options) {
  return Searcher(recipe, assumptions, space, options).run();
}

}  // namespace quintet::plan
