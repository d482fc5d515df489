#include <fmt/format.h>
#include <fmt/ranges.h>

#include "config/print.h"
#include "observe/metrics.h"
#include "plan/text.h"

namespace quintet::plan {

using observe::json_number;
using observe::json_string;

namespace {

template <class List, class Fn>
std::string array_of(const List& list, Fn&& item) {
  std::vector<std::string> parts;
  for (const auto& x : list) parts.push_back("\n    " + item(x));
  return fmt::format("[{}{}]", fmt::join(parts, ","), parts.empty() ? "" : "\n  ");
}

std::string rank_json(const RankMemory& r) {
  std::string classes;
  for (size_t i = 0; i < r.by_class.size(); ++i)
    classes +=
        fmt::format("\"{}\": {}, ", program::to_string(static_cast<program::MemoryClass>(i)), r.by_class[i]);
  return fmt::format(
      "{{\"rank\": {}, \"stage\": {}, \"total_bytes\": {}, \"arena_bytes\": {}, \"runtime_bytes\": {}, "
      "{}\"gaps\": {}, \"expert_rows\": {}, \"expected_expert_rows\": {}, \"host_bytes\": 0, \"disk_bytes\": "
      "0, "
      "\"peak_at\": {}}}",
      r.rank, r.stage, r.total(), r.arena_bytes, r.runtime_bytes, classes, r.gaps(), r.routed_bytes,
      r.expected_routed_bytes, json_string(r.peak_at));
}

// Live bytes over the step, by column: names once, then a row for every moment.
std::string timeline_json(const Memory& m) {
  std::string names = "\"seconds\"";
  for (int i = 0; i < program::kNumMemoryClasses; ++i)
    names += fmt::format(", \"{}\"", program::to_string(static_cast<program::MemoryClass>(i)));
  return fmt::format("{{\"rank\": {}, \"columns\": [{}], \"points\": {}}}", m.ranks[m.most_loaded].rank,
                     names, array_of(m.timeline, [](const MemoryPoint& p) {
                       return fmt::format("[{}, {}]", json_number(p.seconds), fmt::join(p.by_class, ", "));
                     }));
}

}  // namespace

std::string json_fields(const Report& r) {
  const Memory& m = r.memory;
  const Time& t = r.time;
  const hardware::Cluster& c = r.assumptions.cluster;
  const std::string memory = fmt::format(
      "{{\"fits\": {}, \"limit_bytes\": {}, \"peak_bytes\": {}, \"most_loaded\": {}, \"ranks\": {}{}}}",
      m.fits(), m.limit, m.ranks[m.most_loaded].total(), m.ranks[m.most_loaded].rank,
      array_of(m.ranks, rank_json), m.timeline.empty() ? "" : ",\n  \"timeline\": " + timeline_json(m));
  const std::string shares = array_of(t.shares, [](const TimeShare& s) {
    return fmt::format("{{\"what\": {}, \"seconds\": {}}}", json_string(s.what), json_number(s.seconds));
  });
  const std::string links = array_of(t.links, [](const LinkBytes& l) {
    return fmt::format("{{\"axes\": {}, \"link\": {}, \"bytes\": {}, \"seconds\": {}, \"exposed\": {}}}",
                       json_string(l.axes), json_string(l.link), json_number(l.bytes), json_number(l.seconds),
                       json_number(l.exposed));
  });
  const std::string time = fmt::format(
      "{{\"step_seconds\": {}, \"tokens\": {}, \"tokens_per_s\": {}, \"tokens_per_s_per_device\": {},\n"
      "  \"model_flops\": {}, \"hardware_flops\": {}, \"model_flops_per_s_per_device\": {}, \"peak_flops\": "
      "{}, "
      "\"mfu\": {}, \"hfu\": {},\n  \"busiest_stage\": {}, \"compute_rate\": {}, \"shares\": {},\n  "
      "\"links\": {}}}",
      json_number(t.step), json_number(t.tokens), json_number(t.tokens_per_s),
      json_number(t.tokens_per_s_per_device), json_number(t.model_flops), json_number(t.hardware_flops),
      json_number(t.model_flops_per_device()), json_number(t.peak_flops), json_number(t.mfu),
      json_number(t.hfu), t.busiest, json_number(t.compute_rate), shares, links);
  return fmt::format(
      "\"fits\": {}, \"world\": {}, \"parameters\": {}, \"active_parameters\": {},\n\"cluster\": "
      "{{\"accelerator\": {}, \"nodes\": {}, \"per_node\": {}, \"inner\": {}, \"outer\": {}}},\n\"memory\": "
      "{},\n"
      "\"time\": {},\n\"notes\": {},\n\"recipe\": {}",
      m.fits(), t.devices, r.parameters, r.active_parameters, json_string(c.accelerator.name), c.nodes,
      c.per_node, json_string(c.inner.name), json_string(c.outer.name), memory, time,
      array_of(r.notes, [](const std::string& n) { return json_string(n); }), config::to_json(r.recipe));
}

std::string to_json(const Report& r) { return "{\n" + json_fields(r) + "\n}\n"; }

}  // namespace quintet::plan
