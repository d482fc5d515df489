#include "search/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>

#include "base/error.h"
#include "base/parallel_for.h"
#include "config/schedule_traits.h"
#include "config/validate.h"
#include "plan/layout_changes.h"
#include "search/coarse_estimate.h"

namespace quintet::search {
namespace {

// Plans made, and entries examined, before the next batch is chosen. Constants, because deriving them from
// the number of threads would make the result depend on it.
constexpr size_t kBatch = 8, kFront = 16;
constexpr size_t kLongOnes = 2;  // plans past SearchOptions::longest when nothing else fits
// Estimated gain of doubling the micro-batch, and the fraction held by the leanest schedules.
constexpr double kLargerMicro = 0.98, kLeanSchedule = 0.3;

// Length of a layout's programs: blocks x micro-batches, a block with experts counting twice. Schedules that
// split the backward pass have several kinds of slots, and their programs repeat bodies for each.
double work_of(const config::Recipe& r) {
  constexpr double kSplit = 6;
  const bool split = r.parallel.pp > 1 && config::traits_of(r.parallel.schedule).splits_backward;
  return static_cast<double>(r.model.layers) * (r.model.moe.experts > 0 ? 2 : 1) *
         (r.parallel.pp > 1 ? static_cast<double>(r.batch.accumulation) : 1) * (split ? kSplit : 1);
}

// How far an entry has been refined, which determines its bound.
enum class Stage : uint8_t { Way, Group, Family, Closed, Exact };

struct Entry {
  Family family;
  size_t schedule = 0;
  Stage stage = Stage::Way;
  double likely = 0;  // seconds
  double bound = 0;
  int64_t bytes = 0;      // at least; 0: not bounded yet
  bool doubtful = false;  // probably does not fit
  int64_t order = 0;      // of insertion
};

// Most promising first; ties in insertion order.
struct LessPromising {
  bool operator()(const Entry& a, const Entry& b) const {
    return std::tuple(a.doubtful, a.likely, a.order) > std::tuple(b.doubtful, b.likely, b.order);
  }
};

// Result of refining an entry.
struct Look {
  std::vector<Entry> entries;
  int64_t too_large = 0, illegal = 0;
  int64_t least_bytes = std::numeric_limits<int64_t>::max();  // of what is too large
  std::optional<config::Recipe> least;
};

class Searcher {
 public:
  Searcher(const config::Recipe& recipe, const plan::Assumptions& assumptions, const LayoutSpace& space,
           const SearchOptions& options)
      : recipe_(recipe),
        assumptions_(assumptions),
        space_(space),
        options_(options),
        world_(assumptions.cluster.world()),
        limit_(assumptions.cluster.accelerator.memory_bytes),
        estimate_(recipe, assumptions),
        own_bounds_(assumptions),
        bounds_(options.bounds != nullptr ? *options.bounds : own_bounds_) {
    assumptions_.timeline = false;
    assumptions_.threads = 1;
    assumptions_.verify = false;
  }

  SearchResult run() {
    begin();
    std::vector<Entry> batch;
    while (result_.planned < options_.plans && work_ < options_.work) {
      fill(batch);
      if (batch.empty()) break;
      plan(batch);
      report_progress();
    }
    for (size_t i = 0; i < long_.size(); ++i)
      if (result_.best.empty() && i < kLongOnes) {
        plan({long_[i]});
        report_progress();
      } else {
        skipped_bound_ = std::min(skipped_bound_, long_[i].bound);
      }
    finish();
    return std::move(result_);
  }

 private:
  config::Recipe recipe_of(const Entry& e) const {
    return with_layout(recipe_, e.family, schedules(e.family, space_)[e.schedule]);
  }

  // Number of families that an entry represents.
  int64_t count(const Entry& e) const {
    if (e.stage > Stage::Group) return 1;
    if (e.stage == Stage::Group)
      return static_cast<int64_t>(families_of(e.family, recipe_, space_, world_).size());
    int64_t n = 0;
    for (const Entry& group : groups_of(e)) n += count(group);
    return n;
  }

  std::vector<Entry> groups_of(const Entry& way) const {
    std::vector<Entry> list;
    for (const int64_t micro : space_.micro)
      for (const config::RecomputeKind recompute : space_.recompute) {
        Entry e = way;
        e.stage = Stage::Group;
        e.family.micro = micro;
        e.family.recompute = recompute;
        list.push_back(e);
      }
    return list;
  }

  void push(Entry e) {
    e.order = order_++;
    queue_.push(e);
  }

  void begin() {
    const std::vector<Family> all = ways(space_, world_);
    groups_ = static_cast<int64_t>(all.size() * space_.micro.size() * space_.recompute.size());
    for (const Family& way : all) {
      Entry e{.family = way, .likely = estimate_.likely_seconds(way), .bound = estimate_.least_seconds()};
      const int64_t n = count(e);
      result_.families += n;
      if (estimate_.least_bytes() > limit_)
        result_.too_large += n;
      else if (n > 0)
        push(e);
    }
    report_progress();
  }

  double worst_kept() const {
    if (static_cast<int>(result_.best.size()) < options_.keep) return std::numeric_limits<double>::infinity();
    return result_.best.back().report.time.step;
  }

  // Whether the entry cannot be in the result.
  bool is_beaten(const Entry& e) const {
    if (!options_.pareto) return e.bound >= worst_kept();
    const int64_t bytes = std::max(e.bytes, estimate_.least_bytes());
    return e.bound >= worst_kept() &&
           std::any_of(result_.pareto.begin(), result_.pareto.end(), [&](const plan::Report& r) {
             return r.time.step <= e.bound && plan::needs(r) <= bytes;
           });
  }

  // Chooses the next layouts to plan: entries at the front are refined until their bounds are final.
  void fill(std::vector<Entry>& batch) {
    batch.clear();
    const size_t most = std::min(kBatch, static_cast<size_t>(options_.plans - result_.planned));
    std::vector<Entry> front;
    while (batch.size() < most && !queue_.empty()) {
      front.clear();
      while (!queue_.empty() && front.size() < kFront) {
        const Entry& e = queue_.top();
        const bool slow = is_beaten(e);
        if (!slow && e.stage == Stage::Exact) break;
        if (slow)
          result_.too_slow += count(e);
        else if (!is_worth(e))
          skipped_bound_ = std::min(skipped_bound_, e.bound);
        else
          front.push_back(e);
        queue_.pop();
      }
      if (!front.empty()) {
        look_closer(front);
      } else if (!queue_.empty()) {
        const Entry e = queue_.top();
        queue_.pop();
        const double work = work_of(recipe_of(e));
        if (work > options_.longest) {
          long_.push_back(e);
          continue;
        }
        work_ += work;
        batch.push_back(e);
        if (work_ >= options_.work) return;
      }
    }
  }

  // Whether the budget allows examining the entry; charges it if so.
  bool is_worth(const Entry& e) {
    if (e.stage == Stage::Group) return ++looked_ <= options_.groups;
    if (e.stage == Stage::Closed) return ++layouts_ <= options_.layouts;
    return true;
  }

  void look_closer(const std::vector<Entry>& front) {
    std::vector<Look> looks(front.size());
    base::parallel_for(options_.threads, front.size(), [&](size_t i) { looks[i] = look(front[i]); });
    for (size_t i = 0; i < front.size(); ++i) {
      Look& l = looks[i];
      for (Entry& e : l.entries) push(e);
      result_.too_large += l.too_large;
      result_.illegal += l.illegal;
      if (l.least && l.least_bytes < least_bytes_) {
        least_bytes_ = l.least_bytes;
        result_.smallest_bound = std::move(l.least);
      }
    }
    report_progress();
  }

  Look look(const Entry& e) const {
    switch (e.stage) {
      case Stage::Way:
        return look_at_way(e);
      case Stage::Group:
        return look_at_group(e);
      case Stage::Family: {
        Look l;
        const size_t n = schedules(e.family, space_).size();
        for (size_t s = 0; s < n; ++s)
          consider({.family = e.family, .schedule = s, .stage = Stage::Closed}, l);
        return l;
      }
      default: {
        Look l;
        consider({.family = e.family, .schedule = e.schedule, .stage = Stage::Exact}, l);
        return l;
      }
    }
  }

  // The smallest recipe with the tables of a group: a way has a legal layout only if this one is legal.
  std::optional<config::Recipe> smallest_of(Family f) const {
    const int64_t inner = f.tp * f.cp, experts = f.ep * f.etp;
    if (experts % inner != 0 && inner % experts != 0) return std::nullopt;
    f.dp_replicate = std::max<int64_t>(1, experts / inner);
    config::Recipe r = recipe_;
    r.batch.global = f.micro * f.dp_replicate;
    r = with_layout(r, f, {});
    if (!config::problems_of(r).empty()) return std::nullopt;
    return config::resolve(r);
  }

  // The groups of a way, ordered by time and memory of its smallest micro-batch.
  Look look_at_way(const Entry& way) const {
    Look l;
    for (const config::RecomputeKind recompute : space_.recompute) {
      Family f = way.family;
      f.recompute = recompute;
      f.micro = space_.micro.front();
      const std::optional<config::Recipe> small = smallest_of(f);
      const std::shared_ptr<const BlockTables> t = small ? bounds_.tables(*small) : nullptr;
      double seconds = 0, kept = 0;
      if (t)
        for (const int kind : t->kind) {
          const BlockTable& b = t->of_kind[static_cast<size_t>(kind)];
          seconds += b.forward.own + b.backward.own;
          kept += static_cast<double>(b.kept_bytes);
        }
      const double lean = space_.pp.back() > 1 ? kLeanSchedule : 1;
      for (const int64_t micro : space_.micro) {
        Entry e = way;
        e.stage = Stage::Group;
        e.family.recompute = recompute;
        e.family.micro = micro;
        if (!t) {
          l.illegal += count(e);
          continue;
        }
        const double times = static_cast<double>(micro) / static_cast<double>(f.micro);
        e.likely = std::max(e.bound, seconds / static_cast<double>(f.micro * world_) *
                                         static_cast<double>(recipe_.batch.global * f.tp * f.cp) *
                                         std::pow(kLargerMicro, std::log2(times)));
        e.doubtful =
            static_cast<double>(estimate_.least_bytes()) + lean * times * kept > static_cast<double>(limit_);
        if (count(e) > 0) l.entries.push_back(e);
      }
    }
    return l;
  }

  // The families of a group for which the rules allow at least one layout.
  Look look_at_group(const Entry& group) const {
    Look l;
    for (const Family& f : families_of(group.family, recipe_, space_, world_)) {
      // Rules of specific schedules are checked later.
      const config::Recipe r = with_layout(recipe_, f, {f.pp > 1 ? "1f1b" : "", 1});
      if (!config::problems_of(r).empty()) {
        ++l.illegal;
        continue;
      }
      const config::Recipe resolved = config::resolve(r);
      const Bound b = bounds_.of_any_schedule(resolved);
      if (b.bytes > limit_)
        count_too_large(resolved, b.bytes, l);
      else
        l.entries.push_back({.family = f,
                             .stage = Stage::Family,
                             .likely = b.likely_seconds,
                             .bound = b.seconds,
                             .bytes = b.bytes,
                             .doubtful = b.likely_bytes > limit_});
    }
    return l;
  }

  void consider(Entry e, Look& l) const {
    const config::Recipe unresolved = recipe_of(e);
    if (e.stage == Stage::Closed && !config::problems_of(unresolved).empty()) {
      ++l.illegal;
      return;
    }
    const config::Recipe r = config::resolve(unresolved);
    const Bound b = e.stage == Stage::Closed ? bounds_.quick(r) : bounds_.exact(r);
    if (b.bytes > limit_) return count_too_large(r, b.bytes, l);
    e.likely = b.likely_seconds;
    e.bound = b.seconds;
    e.bytes = b.bytes;
    e.doubtful = b.likely_bytes > limit_;
    l.entries.push_back(e);
  }

  static void count_too_large(const config::Recipe& r, int64_t bytes, Look& l) {
    ++l.too_large;
    if (bytes >= l.least_bytes) return;
    l.least_bytes = bytes;
    l.least = r;
  }

  void plan(const std::vector<Entry>& batch) {
    std::vector<std::optional<plan::Report>> reports(batch.size());
    base::parallel_for(options_.threads, batch.size(), [&](size_t i) {
      reports[i] = plan::make_plan(config::resolve(recipe_of(batch[i])), assumptions_);
    });
    for (std::optional<plan::Report>& report : reports) {
      ++result_.planned;
      if (!report->memory.fits()) {
        ++result_.did_not_fit;
        if (!result_.smallest || plan::needs(*report) < plan::needs(*result_.smallest))
          result_.smallest = std::move(report);
        continue;
      }
      add_to_pareto(result_.pareto, *report);
      const auto place = std::upper_bound(result_.best.begin(), result_.best.end(), *report,
                                          [](const plan::Report& a, const Found& b) {
                                            return std::pair(a.time.step, plan::needs(a)) <
                                                   std::pair(b.report.time.step, plan::needs(b.report));
                                          });
      result_.best.insert(place, {std::move(*report), {}});
      if (static_cast<int>(result_.best.size()) > options_.keep) result_.best.pop_back();
    }
  }

  void report_progress() const {
    if (!options_.progress) return;
    options_.progress({.planned = result_.planned,
                       .most = options_.plans,
                       .looked = std::min(looked_, options_.groups),
                       .groups = groups_,
                       .best_seconds = result_.best.empty() ? 0 : result_.best.front().report.time.step});
  }

  // Entries that were not planned take at least their bound. Results are verified; trials are not.
  void finish() {
    base::parallel_for(options_.threads, result_.best.size(),
                       [&](size_t i) { plan::verify_programs(result_.best[i].report.recipe, assumptions_); });
    if (options_.pareto)
      base::parallel_for(options_.threads, result_.pareto.size(),
                         [&](size_t i) { plan::verify_programs(result_.pareto[i].recipe, assumptions_); });
    double least = result_.best.empty() ? std::numeric_limits<double>::infinity()
                                        : result_.best.front().report.time.step;
    result_.proven = skipped_bound_ >= least;
    // What was left out might be in the set.
    result_.pareto_proven = options_.pareto && queue_.empty() && !std::isfinite(skipped_bound_);
    least = std::min(least, skipped_bound_);
    for (; !queue_.empty(); queue_.pop()) {
      if (queue_.top().bound >= least) continue;
      least = queue_.top().bound;
      result_.proven = false;
    }
    result_.bound_seconds = std::isfinite(least) ? least : 0;
    if (!result_.best.empty()) {
      result_.smallest.reset();
      result_.smallest_bound.reset();
    }
  }

  const config::Recipe& recipe_;
  plan::Assumptions assumptions_;
  const LayoutSpace& space_;
  const SearchOptions& options_;
  const int64_t world_, limit_;
  const CoarseEstimate estimate_;
  const Bounds own_bounds_;
  const Bounds& bounds_;
  std::priority_queue<Entry, std::vector<Entry>, LessPromising> queue_;
  int64_t order_ = 0, looked_ = 0, layouts_ = 0, groups_ = 0;
  int64_t least_bytes_ = std::numeric_limits<int64_t>::max();
  double work_ = 0;
  std::vector<Entry> long_;                                         // most promising first
  double skipped_bound_ = std::numeric_limits<double>::infinity();  // bound of groups past options_.groups
  SearchResult result_;
};

}  // namespace

void add_to_pareto(std::vector<plan::Report>& set, const plan::Report& report) {
  const auto covers = [](const plan::Report& a, const plan::Report& b) {
    return a.time.step <= b.time.step && plan::needs(a) <= plan::needs(b);
  };
  if (std::any_of(set.begin(), set.end(), [&](const plan::Report& r) { return covers(r, report); })) return;
  std::erase_if(set, [&](const plan::Report& r) { return covers(report, r); });
  set.insert(std::upper_bound(
                 set.begin(), set.end(), report,
                 [](const plan::Report& a, const plan::Report& b) { return a.time.step < b.time.step; }),
             report);
}

void merge(SearchResult& r, SearchResult other, int keep) {
  for (const plan::Report& report : other.pareto) add_to_pareto(r.pareto, report);
  r.pareto_proven = r.pareto_proven && other.pareto_proven;
  std::move(other.best.begin(), other.best.end(), std::back_inserter(r.best));
  std::stable_sort(r.best.begin(), r.best.end(),
                   [](const Found& a, const Found& b) { return a.report.time.step < b.report.time.step; });
  if (static_cast<int>(r.best.size()) > keep) r.best.resize(static_cast<size_t>(keep));
  r.families += other.families;
  r.too_large += other.too_large;
  r.too_slow += other.too_slow;
  r.illegal += other.illegal;
  r.planned += other.planned;
  r.did_not_fit += other.did_not_fit;
  r.bound_seconds = r.bound_seconds > 0 && other.bound_seconds > 0
                        ? std::min(r.bound_seconds, other.bound_seconds)
                        : std::max(r.bound_seconds, other.bound_seconds);
  r.proven = !r.best.empty() && r.bound_seconds >= r.best.front().report.time.step;
  if (!r.best.empty()) {
    r.smallest.reset();
    r.smallest_bound.reset();
  }
}

SearchResult search(const config::Recipe& recipe, const plan::Assumptions& assumptions,
                    const LayoutSpace& space, const SearchOptions& options) {
  // Bounds come from a small model of the same family, and a custom model has no other size.
  if (recipe.model.family == config::Family::Custom)
    base::fail_user(
        "a search needs a model of a built-in family, such as llama, not model.family = \"custom\": plan the "
        "layouts in question one by one (plan::make_plan)");
  return Searcher(recipe, assumptions, space, options).run();
}

}  // namespace quintet::search
