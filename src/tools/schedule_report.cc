#include "tools/schedule_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "observe/metrics.h"
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
      base::fail_user("--costs {}: '{}' is no time; expected F,B,W or F,B,W,comm such as 1,1,0.8,0.05", text,
                      text.substr(at, end - at));
    if (found < 4) *places[found] = value;
    at = end + 1;
  }
  if (text.empty()) return costs;
  if (found != 3 && found != 4)
    base::fail_user("--costs {}: {} number{}; expected F,B,W or F,B,W,comm", text, found,
                    found == 1 ? "" : "s");
  if (costs.f + costs.b + costs.w == 0)
    base::fail_user("--costs {}: at least one of F, B, W is above 0", text);
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
      "# {}: takes {:.6g}, at most {:.2f} % above the least possible ({:.6g})\n# best named schedule: {}\n",
      s.origin, s.timeline.makespan, 100 * s.gap(), s.bound,
      std::isfinite(best->makespan) ? fmt::format("{} with {:.6g} ({:+.2f} %)", best->name, best->makespan,
                                                  100 * (best->makespan / s.timeline.makespan - 1))
                                    : "none keeps to the memory");
}

std::string summary(const Schedule& s, const Timeline& line) {
  return fmt::format(
      "{}: {} stages x {} chunk{}, {} micro-batches; bubble {:.2f} % ({:.2f} % by rank), in flight {}",
      s.name, s.stages, s.chunks, s.chunks == 1 ? "" : "s", s.micro_batches, 100 * line.bubble_rate(),
      100 * line.span_bubble_rate(), fmt::join(schedule::in_flight(s).until_w, " "));
}

std::string to_json(const Schedule& s, const StageCosts& costs, const Timeline& line) {
  using observe::json_number;
  const schedule::InFlight held = schedule::in_flight(s);
  std::string ranks;
  for (size_t r = 0; r < s.ranks.size(); ++r) {
    std::string actions;
    for (size_t i = 0; i < s.ranks[r].size(); ++i) {
      const schedule::Action& a = s.ranks[r][i];
      const schedule::Slot& slot = line.ranks[r][i];
      actions += fmt::format("{}\n      {{\"action\": \"{}\", \"start\": {}, \"end\": {}{}}}",
                             i == 0 ? "" : ",", to_text(a), json_number(slot.start), json_number(slot.end),
                             a.with_next ? ", \"mixed_with_next\": true" : "");
    }
    ranks += fmt::format(
        "{}\n    {{\"rank\": {}, \"in_flight\": {}, \"in_flight_until_b\": {}, \"promised\": {}, \"busy\": "
        "{}, "
        "\"actions\": [{}\n    ]}}",
        r == 0 ? "" : ",", r, held.until_w[r], held.until_b[r],
        s.max_in_flight.empty() ? "null" : std::to_string(s.max_in_flight[r]), json_number(line.busy[r]),
        actions);
  }
  return fmt::format(
      "{{\n  \"name\": {}, \"stages\": {}, \"chunks\": {}, \"micro_batches\": {}, \"placement\": \"{}\", "
      "\"splits_backward\": {},\n  \"costs\": {{\"f\": {}, \"b\": {}, \"w\": {}, \"comm\": {}}},\n"
      "  \"makespan\": {}, \"bubble\": {}, \"bubble_rate\": {}, \"span_bubble\": {}, \"span_bubble_rate\": "
      "{},\n"
      "  \"ranks\": [{}\n  ]\n}}\n",
      observe::json_string(s.name), s.stages, s.chunks, s.micro_batches, to_text(s.placement),
      s.splits_backward, json_number(costs.f), json_number(costs.b), json_number(costs.w),
      json_number(costs.comm), json_number(line.makespan), json_number(line.bubble()),
      json_number(line.bubble_rate()), json_number(line.span_bubble()), json_number(line.span_bubble_rate()),
      ranks);
}

}  // namespace quintet::tools
