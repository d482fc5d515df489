#include "plan/scaling.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "plan/text.h"

namespace quintet::plan {
namespace {

std::vector<ScalePoint> curve(const config::Recipe& recipe, const Assumptions& assumptions,
                              const std::vector<int>& devices, const ScalingOptions& options, bool weak) {
  std::vector<ScalePoint> points;
  const ScalePoint* first = nullptr;
  points.reserve(devices.size());
  for (const int n : devices) {
    ScalePoint& point = points.emplace_back(ScalePoint{.devices = n, .global_batch = recipe.batch.global});
    config::Recipe r = recipe;
    if (weak) {
      const int64_t batch = recipe.batch.global * n;
      if (batch % assumptions.cluster.world() != 0) continue;
      point.global_batch = r.batch.global = batch / assumptions.cluster.world();
      if (point.global_batch < 1) continue;
    }
    if (options.progress) options.progress(n);
    Assumptions a = assumptions;
    a.cluster = resized(assumptions.cluster, n);
    SearchResult found = search(r, a, usual_space(r, a.cluster),
                                {.keep = 1, .plans = options.plans, .threads = options.threads});
    if (found.best.empty()) continue;
    point.best = std::move(found.best.front().report);
    if (first == nullptr) first = &point;
    point.speedup = point.best->time.tokens_per_s / first->best->time.tokens_per_s;
    point.efficiency = point.speedup * first->devices / n;
  }
  return points;
}

// The last number before a step up that is not worth it, by twice the devices.
int worthwhile_of(const std::vector<ScalePoint>& points) {
  int last = 0;
  const ScalePoint* before = nullptr;
  for (const ScalePoint& p : points) {
    if (!p.best) continue;
    if (before != nullptr) {
      const double growth = static_cast<double>(p.devices) / before->devices;
      if (p.speedup / before->speedup < std::pow(kWorthwhile, std::log2(growth))) break;
    }
    last = p.devices;
    before = &p;
  }
  return last;
}

std::string table(const std::vector<ScalePoint>& points) {
  std::string out = "  devices  batch         step     tokens/s  speed-up  efficiency     MFU  layout\n";
  for (const ScalePoint& p : points) {
    if (!p.best) {
      out += fmt::format("  {:>7}  {:>5}  no layout fits\n", base::thousands(p.devices), p.global_batch);
      continue;
    }
    const Time& t = p.best->time;
    out += fmt::format("  {:>7}  {:>5}  {:>11}  {:>11}  {:>7.2f}x  {:>8.1f} %  {:>4.1f} %  {}\n",
                       base::thousands(p.devices), p.global_batch, seconds_text(t.step),
                       base::thousands(std::llround(t.tokens_per_s)), p.speedup, 100 * p.efficiency,
                       100 * t.mfu, layout_words(p.best->recipe));
  }
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

Scaling scale(const config::Recipe& recipe, const Assumptions& assumptions, const std::vector<int>& devices,
              const ScalingOptions& options) {
  Scaling s;
  s.strong = curve(recipe, assumptions, devices, options, false);
  if (options.weak) s.weak = curve(recipe, assumptions, devices, options, true);
  s.worthwhile = worthwhile_of(s.strong);
  return s;
}

std::string to_text(const Scaling& s) {
  std::string out = "strong scaling: the same batch on more devices\n" + table(s.strong);
  if (s.worthwhile == 0) {
    out += "no number of devices that was tried holds it\n";
  } else if (const auto& last = s.strong.back(); last.best && last.devices == s.worthwhile) {
    out += fmt::format("every doubling up to {} devices is worth it (at least {:.1f}x each)\n",
                       base::thousands(s.worthwhile), kWorthwhile);
  } else {
    out += fmt::format("beyond {} devices twice as many bring less than {:.1f}x\n",
                       base::thousands(s.worthwhile), kWorthwhile);
  }
  if (!s.weak.empty()) out += "weak scaling: a batch that grows with the devices\n" + table(s.weak);
  return out;
}

}  // namespace quintet::plan
