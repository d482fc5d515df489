#include "report/run_files.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"

namespace quintet::report {
namespace {

using Json = nlohmann::ordered_json;

// A value of the expected type, or the default: readers of these files ignore what they do not know.
std::string text_of(const Json& object, const char* name) {
  const auto it = object.is_object() ? object.find(name) : object.end();
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}
double number_of(const Json& object, const char* name, double otherwise = 0) {
  const auto it = object.is_object() ? object.find(name) : object.end();
  return it != object.end() && it->is_number() ? it->get<double>() : otherwise;
}
int64_t count_of(const Json& object, const char* name, int64_t otherwise = 0) {
  const double value = number_of(object, name, static_cast<double>(otherwise));
  return std::abs(value) < 9e18 ? static_cast<int64_t>(value) : otherwise;
}
const Json& list_in(const Json& object, const char* name) {
  static const Json empty = Json::array();
  const auto it = object.is_object() ? object.find(name) : object.end();
  return it != object.end() && it->is_array() ? *it : empty;
}

Json parsed(const base::Path& path) {
  if (!base::file_exists(path)) return Json::object();
  Json json = base::parse_ordered_json(base::read_file(path));
  if (!json.is_object())
    base::fail_user("'{}' is not a JSON object: it does not come from a run, or is damaged", path.string());
  return json;
}

void read_metrics(const base::Path& path, RunFiles::Metrics& m) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  if (!base::file_exists(path)) return;
  const std::string text = base::read_file(path);
  int64_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    if (end == std::string::npos) break;  // being written
    ++number;
    const Json record = base::parse_ordered_json(std::string_view(text).substr(at, end - at));
    at = end + 1;
    const double step = number_of(record, "step", kNone);
    if (!std::isfinite(step))
      base::fail_user("'{}', line {}: expected an object with \"step\", a number", path.string(), number);
    m.step.push_back(step);
    for (const auto& [name, value] : record.items()) {
      if (!value.is_number() || name == "step") continue;
      std::vector<double>& column = m.columns[name];
      column.resize(m.step.size() - 1, kNone);
      column.push_back(value.get<double>());
    }
    if (const auto it = record.find("skipped"); it != record.end() && *it == true) m.skipped.push_back(step);
  }
  for (auto& [name, column] : m.columns) column.resize(m.step.size(), kNone);
}

void read_facts(const Json& json, RunFiles& run) {
  run.version = text_of(json, "version");
  run.command = text_of(json, "command");
  run.working_folder = text_of(json, "folder");
  run.host = text_of(json, "host");
  run.machine = text_of(json, "machine");
  run.device = text_of(json, "device");
  run.backend = text_of(json, "backend");
  run.started = text_of(json, "started");
  run.model = text_of(json, "model");
  run.threads = count_of(json, "threads");
  run.parameters = count_of(json, "parameters");
  run.steps = count_of(json, "steps");
  run.ranks = std::max<int64_t>(1, count_of(json, "ranks", 1));
  int64_t product = 1;
  for (const Json& axis : list_in(json, "mesh")) {
    const int64_t size = count_of(axis, "size");
    if (size < 2 || size > run.ranks || product > run.ranks / size) continue;
    product *= size;
    run.mesh.push_back({text_of(axis, "axis"), size});
  }
  if (product != run.ranks) run.mesh.clear();
  const auto data = json.find("data");
  if (data == json.end()) return;
  std::string paths;
  for (const Json& path : list_in(*data, "paths"))
    if (path.is_string()) paths += (paths.empty() ? "" : ", ") + path.get<std::string>();
  run.data = {{"data", paths},
              {"read", text_of(*data, "reading")},
              {"tokens", fmt::format("{} in {} document{}", base::thousands(count_of(*data, "tokens")),
                                     base::thousands(count_of(*data, "documents")),
                                     count_of(*data, "documents") == 1 ? "" : "s")},
              {"sequences", fmt::format("{} for training, {} for validation, {} tokens each",
                                        base::thousands(count_of(*data, "train_sequences")),
                                        base::thousands(count_of(*data, "validation_sequences")),
                                        base::thousands(count_of(*data, "seq_len")))}};
}

void read_summary(const Json& json, RunFiles& run) {
  run.ended = text_of(json, "ended");
  run.ended_at = text_of(json, "ended_at");
  run.seconds = number_of(json, "seconds");
  run.tokens = number_of(json, "tokens");
  run.tokens_per_s = number_of(json, "tokens_per_s");
  run.memory_is_bound = text_of(json, "planned_peak") == "bound";
  for (const Json& rank : list_in(json, "ranks")) {
    RunFiles::RankMemory m{.planned = count_of(rank, "planned_peak_bytes"),
                           .measured = count_of(rank, "measured_peak_bytes"),
                           .by_class = {}};
    if (const auto planned = rank.find("planned"); planned != rank.end() && planned->is_object())
      for (const auto& [name, bytes] : planned->items())
        if (bytes.is_number()) m.by_class.emplace_back(name, bytes.get<int64_t>());
    run.memory.push_back(std::move(m));
  }
  for (const Json& row : list_in(json, "communication"))
    run.traffic.push_back({.group = text_of(row, "group"),
                           .call = text_of(row, "call"),
                           .link = text_of(row, "link"),
                           .members = count_of(row, "members"),
                           .calls = count_of(row, "calls"),
                           .sent_bytes = number_of(row, "sent_bytes"),
                           .seconds = number_of(row, "seconds"),
                           .waiting = number_of(row, "waiting_seconds"),
                           .bandwidth = number_of(row, "bandwidth_bytes_per_s"),
                           .bus_bandwidth = number_of(row, "bus_bandwidth_bytes_per_s"),
                           .longest_wait_rank = count_of(row, "longest_wait_rank")});
}

void read_timeline(const Json& json, RunFiles& run) {
  run.traced_step = count_of(json, "step");
  for (const Json& rank : list_in(json, "ranks")) {
    RunFiles::RankTimeline t{
        .rank = count_of(rank, "rank"), .begin = number_of(rank, "begin_ns") * 1e-9, .streams = {}};
    for (const Json& stream : list_in(rank, "streams")) {
      RunFiles::RankTimeline::Stream& s = t.streams.emplace_back();
      s.name = text_of(stream, "name");
      for (const Json& part : list_in(stream, "spans"))
        if (part.is_array() && part.size() == 4 && part[0].is_number() && part[1].is_number() &&
            part[2].is_string() && part[3].is_number_integer())
          s.parts.push_back({part[0].get<double>() * 1e-9, part[1].get<double>() * 1e-9,
                             part[2].get<std::string>(), part[3].get<int64_t>()});
    }
    run.timelines.push_back(std::move(t));
  }
}

}  // namespace

const std::vector<double>* RunFiles::Metrics::column(const std::string& name) const {
  const auto it = columns.find(name);
  return it == columns.end() ? nullptr : &it->second;
}

RunFiles read_run(const base::Path& folder) {
  if (!base::directory_exists(folder)) base::fail_user("there is no run folder '{}'", folder.string());
  if (!base::file_exists(folder / "recipe.toml") || !base::file_exists(folder / "metrics.jsonl"))
    base::fail_user(
        "'{}' is not a run folder: it lacks {}; expected the folder that `quintet train` names in its last "
        "line",
        folder.string(), base::file_exists(folder / "recipe.toml") ? "metrics.jsonl" : "recipe.toml");
  RunFiles run;
  run.folder = folder;
  run.recipe = base::read_file(folder / "recipe.toml");
  read_metrics(folder / "metrics.jsonl", run.metrics);
  const Json facts = parsed(folder / "run.json"), summary = parsed(folder / "summary.json");
  run.name = text_of(facts, "name");
  if (run.name.empty()) run.name = text_of(summary, "name");
  if (run.name.empty()) run.name = folder.filename().string();
  read_facts(facts, run);
  read_summary(summary, run);
  read_timeline(parsed(folder / "timeline.json"), run);
  return run;
}

}  // namespace quintet::report
