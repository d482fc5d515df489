#include "tools/schedule_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "schedule/check.h"
#include "schedule/text.h"

namespace quintet::tools {

using schedule::Schedule;
using schedule::Timeline;

StageCosts parse_costs(const std::string& text) {
  StageCosts costs;
  double* const places[] = {&costs.f, &costs.b, &costs.w, &costs.comm};
  size_t found = 0;
  for (size_t at = 0; !text.empty() && at <= text.size(); ++found) {
    const size_t end = std::min(text.find(',', at), text.size());
    double value = 0;
    const auto [stop, error] = std::from_chars(text.data() + at, text.data() + end, value);
    if (error != std::errc{} || stop != text.data() + end || !std::isfinite(value) || value < 0)
      base::fail_user("--costs {}: '{}' is not a valid cost; expected F,B,W or F,B,W,comm, e.g. 1,1,0.8,0.05",
                      text, text.substr(at, end - at));
    if (found < 4) *places[found] = value;
    at = end + 1;
  }
  if (text.empty()) return costs;
  if (found != 3 && found != 4)
    base::fail_user("--costs {}: expected F,B,W or F,B,W,comm, got {} number{}", text, found,
                    found == 1 ? "" : "s");
  if (costs.f + costs.b + costs.w == 0)
    base::fail_user("--costs {}: at least one of F, B, W must be greater than 0", text);
  return costs;
}

schedule::Costs costs_of(const Schedule& s, const StageCosts& costs) {
  const double share = 1.0 / s.chunks;
  return schedule::Costs::uniform(s, costs.f * share, costs.b * share, costs.w * share, costs.comm);
}

std::string explain(const schedule::Synthesis& s) {
  const auto best = std::min_element(s.named.begin(), s.named.end(),
                                     [](const auto& a, const auto& b) { return a.makespan < b.makespan; });
  return fmt::format(
      "# {}: takes {:.6g}, at most {:.2f} % above the lower bound {:.6g}\n# best named schedule: {}\n",
      s.origin, s.timeline.makespan, 100 * s.gap(), s.bound,
      std::isfinite(best->makespan) ? fmt::format("{} with {:.6g} ({:+.2f} %)", best->name, best->makespan,
                                                  100 * (best->makespan / s.timeline.makespan - 1))
                                    : "none fits the memory limit");
}

std::string summary(const Schedule& s, const Timeline& line) {
  return fmt::format(
      "{}: {} stages x {} chunk{}, {} micro-batches; bubble {:.2f} % ({:.2f} % by rank), in flight {}",
      s.name, s.stages, s.chunks, s.chunks == 1 ? "" : "s", s.micro_batches, 100 * line.bubble_rate(),
      100 * line.span_bubble_rate(), fmt::join(schedule::in_flight(s).until_w, " "));
}

std::string to_json(const Schedule& s, const StageCosts& costs, const Timeline& line) {
  using Json = nlohmann::ordered_json;
  const schedule::InFlight held = schedule::in_flight(s);
  Json ranks = Json::array();
  for (size_t r = 0; r < s.ranks.size(); ++r) {
    Json actions = Json::array();
    for (size_t i = 0; i < s.ranks[r].size(); ++i) {
      const schedule::Action& a = s.ranks[r][i];
      const schedule::Slot& slot = line.ranks[r][i];
      Json action = {{"action", to_text(a)}, {"start", slot.start}, {"end", slot.end}};
      if (a.with_next) action["mixed_with_next"] = true;
      actions.push_back(std::move(action));
    }
    ranks.push_back({{"rank", r},
                     {"in_flight", held.until_w[r]},
                     {"in_flight_until_b", held.until_b[r]},
                     {"promised", s.max_in_flight.empty() ? Json() : Json(s.max_in_flight[r])},
                     {"busy", line.busy[r]},
                     {"actions", std::move(actions)}});
  }
  const Json json = {{"name", s.name},
                     {"stages", s.stages},
                     {"chunks", s.chunks},
                     {"micro_batches", s.micro_batches},
                     {"placement", to_text(s.placement)},
                     {"splits_backward", s.splits_backward},
                     {"costs", {{"f", costs.f}, {"b", costs.b}, {"w", costs.w}, {"comm", costs.comm}}},
                     {"makespan", line.makespan},
                     {"bubble", line.bubble()},
                     {"bubble_rate", line.bubble_rate()},
                     {"span_bubble", line.span_bubble()},
                     {"span_bubble_rate", line.span_bubble_rate()},
                     {"ranks", std::move(ranks)}};
  return base::json_text(json, 4) + "\n";
}

}  // namespace quintet::tools
