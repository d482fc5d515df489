#include "config/schedule_traits.h"

#include <algorithm>
#include <array>

namespace quintet::config {
namespace {

using Kind = PipelineSchedule;

constexpr std::array<std::string_view, 9> kNames = {"gpipe", "1f1b",   "interleaved", "zb-h1",    "zb-h2",
                                                    "zb-v",  "v-half", "v-min",       "dualpipev"};
constexpr std::array<ScheduleTraits, 9> kTraits = {{
    {.kind = Kind::GPipe},
    {.kind = Kind::OneFOneB},
    {.kind = Kind::Interleaved},
    {.kind = Kind::ZbH1, .splits_backward = true, .fills_bubbles = true},
    {.kind = Kind::ZbH2, .splits_backward = true, .fills_bubbles = true},
    {.kind = Kind::ZbV, .v_shaped = true, .splits_backward = true, .fills_bubbles = true},
    {.kind = Kind::VHalf, .v_shaped = true, .splits_backward = true},
    {.kind = Kind::VMin, .v_shaped = true, .splits_backward = true},
    {.kind = Kind::DualPipeV, .v_shaped = true, .splits_backward = true, .fills_bubbles = true},
}};

}  // namespace

std::span<const std::string_view> pipeline_schedules() { return kNames; }

std::optional<std::string> schedule_file(std::string_view schedule) {
  constexpr std::string_view kPrefix = "file:";
  if (!schedule.starts_with(kPrefix)) return std::nullopt;
  return std::string(schedule.substr(kPrefix.size()));
}

ScheduleTraits traits_of(std::string_view schedule) {
  if (schedule.empty()) return {.kind = Kind::None};
  if (schedule_file(schedule)) return {.kind = Kind::File, .splits_backward = true};
  const auto name = std::find(kNames.begin(), kNames.end(), schedule);
  return name == kNames.end() ? ScheduleTraits{} : kTraits[static_cast<size_t>(name - kNames.begin())];
}

}  // namespace quintet::config
