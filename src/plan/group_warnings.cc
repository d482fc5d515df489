#include "plan/group_warnings.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "config/byte_size.h"
#include "plan/text.h"

namespace quintet::plan {
namespace {

using config::Grouping;

// Differences that are worth a sentence: of memory and of the step.
constexpr double kMemory = 0.02, kTime = 0.01;
// Blocks that are tried where one is too few.
constexpr int64_t kSeveral = 4;

template <class Field>
double over_data(const Report& r, const Field& field) {
  double sum = 0;
  for (const LinkBytes& l : r.time.links)
    if (l.data) sum += field(l);
  return sum;
}

int64_t peak(const Report& r) { return r.memory.ranks[r.memory.most_loaded].total(); }

// Compute waits for messages of which most of the time is latency.
bool waits_for_latency(const Report& r) {
  const hardware::Cluster& c = r.assumptions.cluster;
  const double count = data_collectives(r),
               seconds = over_data(r, [](const LinkBytes&l) { return l.seconds; }),
               bytes = over_data(r, [](const LinkBytes&l) { return l.bytes; });
  if (count == 0 || over_data(r, [](const LinkBytes& l) { return l.exposed; }) < 2 * kTime * r.time.step)
    return false;
  const bool crosses = r.time.devices > std::max(c.domain, 1);
  const double rate = (crosses ? c.outer : c.inner).bytes_per_s;
  return rate > 0 && bytes / rate < 0.5 * seconds;
}

std::optional<Report> plan_with(const Report& r, const Grouping& group) {
  config::Recipe recipe = r.recipe;
  recipe.parallel.group = group;
  Assumptions trial = r.assumptions;
  trial.timeline = false;
  trial.verify = false;
  try {
    return make_plan(recipe, trial);
  } catch (const base::UserError&) {
    return std::nullopt;  // parallel.gathered_limit may allow only the one
  }
}

std::string name_of(const Grouping& g) {
  if (g.kind == Grouping::Kind::Auto) return "\"auto\"";
  return g.kind == Grouping::Kind::Blocks ? fmt::format("{}", g.size)
                                          : fmt::format("\"{}\"", config::byte_size_text(g.size));
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

}  // namespace

double data_collectives(const Report& r) {
  return over_data(r, [](const LinkBytes& l) { return l.count; });
}

std::vector<std::string> group_warnings(const Report& r) {
  const config::Parallel& p = r.recipe.parallel;
  if (p.dp() * p.cp == 1) return {};
  const bool is_set = p.group.kind != Grouping::Kind::Auto;
  const int64_t several = std::min(kSeveral, r.recipe.model.layers / (p.pp * std::max<int64_t>(p.chunks, 1)));
  if (!is_set && (several < 2 || !waits_for_latency(r))) return {};
  const Grouping other = is_set ? Grouping{} : Grouping{Grouping::Kind::Blocks, several};
  const std::optional<Report> o = plan_with(r, other);
  if (!o) return {};
  const double slower = r.time.step / o->time.step - 1;
  const int64_t more = peak(r) - peak(*o);
  const auto count = [](const Report& report) {
    return base::thousands(static_cast<int64_t>(data_collectives(report)));
  };
  const std::string step =
      fmt::format("{} per step instead of {}", seconds_text(r.time.step), seconds_text(o->time.step));
  std::vector<std::string> list;
  if (!is_set) {
    if (slower > kTime)
      list.push_back(fmt::format(
          "one block per group is too fine for these links: most of the time of its {} collectives over data "
          "ranks is latency; parallel.group = {} has {} and takes {} per step instead of {}{}",
          count(r), name_of(other), count(*o), seconds_text(o->time.step), seconds_text(r.time.step),
          more < 0 ? fmt::format(", and {} more", base::human_bytes(-more)) : ""));
    return list;
  }
  const bool fits_less = !r.memory.fits() && o->memory.fits();
  if (fits_less || (slower > -kTime && static_cast<double>(more) > kMemory * static_cast<double>(peak(*o))))
    list.push_back(
        fmt::format("parallel.group = {} is too coarse: {} per device instead of {} with one block per "
                    "group, and {}{}",
                    name_of(p.group), base::human_bytes(peak(r)), base::human_bytes(peak(*o)), step,
                    fits_less ? "; one block per group fits" : ""));
  else if (slower > kTime)
    list.push_back(
        fmt::format("parallel.group = {} is too {}: {}, {} slower than with one block per group, with {} "
                    "collectives over data ranks instead of {}",
                    name_of(p.group), data_collectives(r) > data_collectives(*o) ? "fine" : "coarse", step,
                    percent(slower), count(r), count(*o)));
  return list;
}

}  // namespace quintet::plan
