// The report as JSON.
#include "base/json.h"

#include <nlohmann/json.hpp>

#include "config/print.h"
#include "plan/confidence.h"
#include "plan/text.h"

namespace quintet::plan {
namespace {

using Json = nlohmann::ordered_json;

std::string class_name(size_t i) {
  return std::string(program::to_string(static_cast<program::MemoryClass>(i)));
}

Json json_of(const RankMemory& r) {
  Json json = {{"rank", r.rank.value},
               {"stage", r.stage},
               {"total_bytes", r.total()},
               {"arena_bytes", r.arena_bytes},
               {"runtime_bytes", r.runtime_bytes}};
  for (size_t i = 0; i < r.by_class.size(); ++i) json[class_name(i)] = r.by_class[i];
  json["gaps"] = r.gaps();
  json["expert_rows"] = r.routed_bytes;
  json["expected_expert_rows"] = r.expected_routed_bytes;
  json["copies_of_state"] = r.device_copies;
  json["host_bytes"] = r.host_copies;
  json["disk_bytes"] = 0;
  json["peak_at"] = r.peak_at;
  return json;
}

// Live bytes over the step, by column: names once, then a row for every moment.
Json timeline_of(const Memory& m) {
  Json names = Json::array({"seconds"}), points = Json::array();
  for (size_t i = 0; i < program::kNumMemoryClasses; ++i) names.push_back(class_name(i));
  for (const MemoryPoint& p : m.timeline) {
    Json point = Json::array({p.seconds});
    for (const int64_t bytes : p.by_class) point.push_back(bytes);
    points.push_back(std::move(point));
  }
  return {{"rank", m.ranks[m.most_loaded].rank.value},
          {"columns", std::move(names)},
          {"points", std::move(points)}};
}

Json json_of(const Memory& m) {
  Json ranks = Json::array();
  for (const RankMemory& r : m.ranks) ranks.push_back(json_of(r));
  Json json = {{"fits", m.fits()},
               {"limit_bytes", m.limit},
               {"peak_bytes", m.ranks[m.most_loaded].total()},
               {"most_loaded", m.ranks[m.most_loaded].rank.value},
               {"host_bytes_per_node", m.host_copies},
               {"host_limit_bytes", m.host_limit},
               {"ranks", std::move(ranks)}};
  if (!m.timeline.empty()) json["timeline"] = timeline_of(m);
  return json;
}

// In seconds and tokens/s per device: the most tokens are the fewest seconds.
Json band_json(const Report& r) {
  const Confidence& c = confidence(r.recipe, r.assumptions.stack);
  const Band band = band_of(r);
  const double each = r.time.tokens_per_s_per_device;
  return {{"tokens_per_s_per_device", {band.least * each, band.most * each}},
          {"step_seconds", {r.time.step / band.most, r.time.step / band.least}},
          {"median_error", c.median},
          {"nine_in_ten_error", c.nine_in_ten},
          {"rows", c.rows},
          {"basis", c.basis}};
}

Json json_of(const Time& t) {
  Json shares = Json::array(), links = Json::array();
  for (const TimeShare& s : t.shares) shares.push_back({{"what", s.what}, {"seconds", s.seconds}});
  for (const LinkBytes& l : t.links)
    links.push_back({{"axes", l.axes},
                     {"link", l.link},
                     {"bytes", l.bytes},
                     {"collectives", l.count},
                     {"seconds", l.seconds},
                     {"exposed", l.exposed}});
  return {{"step_seconds", t.step},
          {"tokens", t.tokens},
          {"tokens_per_s", t.tokens_per_s},
          {"tokens_per_s_per_device", t.tokens_per_s_per_device},
          {"model_flops", t.model_flops},
          {"hardware_flops", t.hardware_flops},
          {"model_flops_per_s_per_device", t.model_flops_per_device()},
          {"peak_flops", t.peak_flops},
          {"mfu", t.mfu},
          {"hfu", t.hfu},
          {"busiest_stage", t.busiest},
          {"compute_rate", t.compute_rate},
          {"stage_seconds", t.stage_seconds},
          {"stage_variation", t.stage_variation()},
          {"shares", std::move(shares)},
          {"links", std::move(links)}};
}

}  // namespace

Json json_of(const Report& r) {
  const hardware::Cluster& c = r.assumptions.cluster;
  Json json = {{"fits", r.memory.fits()},
               {"world", r.time.devices},
               {"parameters", r.parameters},
               {"active_parameters", r.active_parameters},
               {"cluster",
                {{"accelerator", c.accelerator.name},
                 {"nodes", c.nodes},
                 {"per_node", c.per_node},
                 {"inner", c.inner.name},
                 {"outer", c.outer.name}}},
               {"memory", json_of(r.memory)},
               {"time", json_of(r.time)},
               {"band", band_json(r)},
               {"warnings", r.warnings},
               {"notes", r.notes},
               {"recipe", Json::parse(config::to_json(r.recipe))}};
  const CheckpointPlan& p = r.checkpoint;
  json["checkpoint"] = {{"bytes", p.bytes},
                        {"bytes_per_rank", p.bytes_per_rank},
                        {"host_staging_bytes", p.host.staging},
                        {"host_peer_bytes", p.host.peers},
                        {"files", p.files},
                        {"metadata_operations", p.metadata_operations},
                        {"load_operations", p.load_operations},
                        {"metadata_rate", r.assumptions.storage.metadata},
                        {"write_rate", p.write_rate},
                        {"read_rate", r.assumptions.storage.read},
                        {"disk_bytes", p.disk_bytes},
                        {"save_seconds", p.save_seconds},
                        {"load_seconds", p.load_seconds}};
  return json;
}

std::string to_json(const Report& r) { return base::json_text(json_of(r), kJsonLevels) + "\n"; }

}  // namespace quintet::plan
