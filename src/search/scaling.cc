#include "search/scaling.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "config/validate.h"
#include "plan/layout_changes.h"
#include "plan/text.h"

namespace quintet::search {
namespace {

class Curve {
 public:
  Curve(const config::Recipe& recipe, const plan::Assumptions& assumptions, const ScalingOptions& options)
      : recipe_(recipe), assumptions_(assumptions), options_(options) {}

  std::vector<ScalePoint> points(const std::vector<int>& devices, bool weak) {
    std::vector<ScalePoint> list;
    for (const int n : devices) {
      ScalePoint& point = list.emplace_back(ScalePoint{.devices = n, .global_batch = recipe_.batch.global});
      if (weak) {
        const int64_t batch = recipe_.batch.global * n;
        point.global_batch =
            batch % assumptions_.cluster.world() == 0 ? batch / assumptions_.cluster.world() : 0;
      }
      if (point.global_batch < 1) continue;
      if (options_.progress) options_.progress(n);
      search_for(point);
    }
    // A good layout for one device count may suit its neighbours: propagate downwards, then upwards.
    for (size_t i = list.size(); i-- > 1;) take_over(list[i], list[i - 1]);
    for (size_t i = 1; i < list.size(); ++i) take_over(list[i - 1], list[i]);
    const ScalePoint* first = nullptr;
    for (ScalePoint& p : list) {
      if (!p.best) continue;
      if (first == nullptr) first = &p;
      p.speedup = p.best->time.tokens_per_s / first->best->time.tokens_per_s;
      p.efficiency = p.speedup * first->devices / p.devices;
      if (options_.noise_tokens <= 0) continue;
      const auto share = [&](const ScalePoint& of) {
        return useful_share(static_cast<double>(of.global_batch * recipe_.data.seq_len),
                            options_.noise_tokens);
      };
      p.useful = share(p);
      p.useful_speedup = p.speedup * p.useful / share(*first);
    }
    return list;
  }

 private:
  plan::Assumptions assumptions_for(int devices) const {
    plan::Assumptions a = assumptions_;
    a.cluster = resized(assumptions_.cluster, devices);
    return a;
  }

  void search_for(ScalePoint& point) const {
    config::Recipe r = recipe_;
    r.batch.global = point.global_batch;
    const plan::Assumptions a = assumptions_for(point.devices);
    SearchResult found = search(r, a, usual_space(r, a.cluster),
                                {.keep = 1,
                                 .plans = options_.plans,
                                 .groups = options_.groups,
                                 .layouts = options_.layouts,
                                 .work = options_.work,
                                 .longest = options_.longest,
                                 .threads = options_.threads});
    if (!found.best.empty()) point.best = std::move(found.best.front().report);
  }

  // Adopts the layout of `from` with dp rescaled to `to`, if it is legal, fits and is faster.
  void take_over(const ScalePoint& from, ScalePoint& to) const {
    if (!from.best || to.global_batch < 1) return;
    config::Recipe r = from.best->recipe;
    config::Parallel& p = r.parallel;
    p.ranks = 0;
    const int64_t inner = p.pp * p.cp * p.tp;
    if (to.devices % inner != 0) return;
    const int64_t dp = to.devices / inner;
    if (p.dp_replicate > 1 && dp % p.dp_shard == 0)
      p.dp_replicate = dp / p.dp_shard;
    else
      p.dp_replicate = 1, p.dp_shard = dp;
    if (p.zero > 0 && p.dp_shard * p.cp == 1) p.zero = 0;
    if (to.global_batch % (r.batch.micro * dp) != 0) return;
    r.batch.global = to.global_batch;
    r.batch.accumulation = to.global_batch / (r.batch.micro * dp);
    if (!config::problems_of(r).empty()) return;
    std::vector<std::optional<plan::Report>> plans =
        plan::plan_all({config::resolve(r)}, assumptions_for(to.devices), 1);
    if (!plans.front() || !plans.front()->memory.fits()) return;
    if (!to.best || plans.front()->time.step < to.best->time.step) to.best = std::move(plans.front());
  }

  const config::Recipe& recipe_;
  const plan::Assumptions& assumptions_;
  const ScalingOptions& options_;
};

// The last device count before a doubling that is not worthwhile, in tokens or in progress.
int worthwhile_of(const std::vector<ScalePoint>& points, double ScalePoint::*speedup = &ScalePoint::speedup) {
  int last = 0;
  const ScalePoint* before = nullptr;
  for (const ScalePoint& p : points) {
    if (!p.best) continue;
    if (before != nullptr) {
      const double growth = static_cast<double>(p.devices) / before->devices;
      if (p.*speedup / before->*speedup < std::pow(kWorthwhile, std::log2(growth))) break;
    }
    last = p.devices;
    before = &p;
  }
  return last;
}

std::string table(const std::vector<ScalePoint>& points, bool progress = false) {
  std::string out =
      fmt::format("  devices  batch         step     tokens/s  speed-up  efficiency     MFU  {}layout\n",
                  progress ? "useful  progress  " : "");
  for (const ScalePoint& p : points) {
    if (!p.best) {
      out += fmt::format("  {:>7}  {:>5}  no layout fits\n", base::thousands(p.devices), p.global_batch);
      continue;
    }
    const plan::Time& t = p.best->time;
    out +=
        fmt::format("  {:>7}  {:>5}  {:>11}  {:>11}  {:>7.2f}x  {:>8.1f} %  {:>4.1f} %  {}{}\n",
                    base::thousands(p.devices), p.global_batch, plan::seconds_text(t.step),
                    base::thousands(std::llround(t.tokens_per_s)), p.speedup, 100 * p.efficiency, 100 * t.mfu,
                    progress ? fmt::format("{:>4.0f} %  {:>7.2f}x  ", 100 * p.useful, p.useful_speedup) : "",
                    layout_words(p.best->recipe));
  }
  if (std::any_of(points.begin(), points.end(), [](const ScalePoint& p) { return p.efficiency > 1.005; }))
    out +=
        "  above 100 %: fewer devices have less memory for the same model and pay for it in time (recompute, "
        "smaller micro-batches, a deeper pipeline); more devices need not\n";
  return out;
}

}  // namespace

hardware::Cluster resized(const hardware::Cluster& cluster, int devices) {
  hardware::Cluster c = cluster;
  c.nodes = std::max(1, devices / cluster.per_node);
  c.per_node = devices / c.nodes;
  c.domain = std::max(1, std::min(cluster.domain, devices));
  return c;
}

std::vector<int> device_counts(const hardware::Cluster& cluster, int down, int up) {
  std::vector<int> list;
  int n = cluster.world();
  for (int i = 0; i < down && n % 2 == 0; ++i) n /= 2;
  for (; n <= cluster.world() << up; n *= 2) list.push_back(n);
  return list;
}

double useful_share(double batch_tokens, double noise_tokens) {
  return 1 / (1 + batch_tokens / noise_tokens);
}

Scaling scale(const config::Recipe& recipe, const plan::Assumptions& assumptions,
              const std::vector<int>& devices, const ScalingOptions& options) {
  Scaling s;
  Curve curve(recipe, assumptions, options);
  s.strong = curve.points(devices, false);
  if (options.weak) s.weak = curve.points(devices, true);
  s.worthwhile = worthwhile_of(s.strong);
  s.noise_tokens = options.noise_tokens;
  if (s.noise_tokens > 0) s.worthwhile_weak = worthwhile_of(s.weak, &ScalePoint::useful_speedup);
  return s;
}

std::vector<const ScalePoint*> pareto(const std::vector<ScalePoint>& points) {
  std::vector<const ScalePoint*> list;
  const auto cost = [](const ScalePoint& p) { return p.best->time.step * p.devices; };
  for (const ScalePoint& p : points) {
    if (!p.best) continue;
    const bool covered = std::any_of(points.begin(), points.end(), [&](const ScalePoint& q) {
      if (&q == &p || !q.best) return false;
      const bool same = q.best->time.step == p.best->time.step && cost(q) == cost(p);
      return q.best->time.step <= p.best->time.step && cost(q) <= cost(p) && (!same || &q < &p);
    });
    if (!covered) list.push_back(&p);
  }
  std::sort(list.begin(), list.end(),
            [](const ScalePoint* a, const ScalePoint* b) { return a->best->time.step < b->best->time.step; });
  return list;
}

std::string price_text(const Scaling& s, double price) {
  std::string out = "no other number of devices is both faster and cheaper, for the same batch\n";
  for (const ScalePoint* p : pareto(s.strong)) {
    const double device_seconds = p->best->time.step * p->devices;
    out += fmt::format("  {:>7} devices  {:>11}  {:>9} of {}  {:>9.4g} device-s/step{}\n",
                       base::thousands(p->devices), plan::seconds_text(p->best->time.step),
                       plan::gib(plan::needs(*p->best)), plan::gib(p->best->memory.limit), device_seconds,
                       price > 0 ? fmt::format("  {:.4g} USD per 1B tokens",
                                               device_seconds / 3600 * price / p->best->time.tokens * 1e9)
                                 : "");
  }
  return out;
}

std::string to_text(const Scaling& s) {
  std::string out = "strong scaling: the same batch on more devices\n" + table(s.strong);
  if (s.worthwhile == 0) {
    out += "the model fits none of the device counts tried\n";
  } else if (const auto& last = s.strong.back(); last.best && last.devices == s.worthwhile) {
    out += fmt::format("every doubling up to {} devices is worthwhile (at least {:.1f}x each)\n",
                       base::thousands(s.worthwhile), kWorthwhile);
  } else {
    out += fmt::format("past {} devices, doubling gains less than {:.1f}x\n", base::thousands(s.worthwhile),
                       kWorthwhile);
  }
  if (!s.weak.empty())
    out += "weak scaling: a batch proportional to the devices\n" + table(s.weak, s.noise_tokens > 0);
  if (s.noise_tokens > 0) {
    out += fmt::format(
        "critical batch size: {} tokens (the measured noise scale); a token of a batch of that size makes "
        "half of the progress of one in a small batch\n",
        base::human_count(s.noise_tokens));
    if (s.worthwhile_weak > 0)
      out += fmt::format(
          "with a growing batch, {} {} devices: {} doubling gains {} {:.1f}x in progress\n",
          !s.weak.empty() && s.weak.back().devices == s.worthwhile_weak ? "worthwhile up to the"
                                                                        : "worthwhile up to",
          base::thousands(s.worthwhile_weak),
          !s.weak.empty() && s.weak.back().devices == s.worthwhile_weak ? "every" : "the next",
          !s.weak.empty() && s.weak.back().devices == s.worthwhile_weak ? "at least" : "less than",
          kWorthwhile);
  }
  return out;
}

}  // namespace quintet::search
