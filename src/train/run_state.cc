#include "train/run_state.h"

#include <cmath>
#include <limits>

#include "base/error.h"

namespace quintet::train {
namespace {

using checkpoint::Json;

// JSON has no numbers for these.
Json number(double v) {
  if (std::isfinite(v)) return v;
  return std::isnan(v) ? "nan" : v > 0 ? "inf" : "-inf";
}

double number_of(const Json& json) {
  if (json.is_number()) return json.get<double>();
  const auto text = json.get<std::string>();
  if (text == "inf") return std::numeric_limits<double>::infinity();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  throw Json::type_error::create(302, "not a number: " + text, &json);
}

}  // namespace

Json to_json(const RunState& s) {
  Json scalars = Json::object(), spikes = Json::array(), evaluations = Json::array();
  for (const auto& [name, value] : s.scalars) scalars[name] = number(value);
  for (const SpikeGuard::Accepted& a : s.spikes) spikes.push_back({a.step, number(a.loss), number(a.norm)});
  for (const Summary::Evaluation& e : s.summary.evaluations)
    evaluations.push_back({e.step, number(e.loss), e.tokens});
  return {{"version", s.version},
          {"environment", s.environment},
          {"step", s.step},
          {"sequences", s.sequences},
          {"schedule_steps", s.schedule_steps},
          {"scalars", std::move(scalars)},
          {"spikes", std::move(spikes)},
          {"noise",
           {s.noise.estimates, number(s.noise.variance), number(s.noise.squared), number(s.noise.weight)}},
          {"summary",
           {{"first_loss", number(s.summary.first_loss)},
            {"last_loss", number(s.summary.last_loss)},
            {"tokens", s.summary.tokens},
            {"seconds", number(s.summary.seconds)},
            {"tokens_per_s", number(s.summary.tokens_per_s)},
            {"skipped_steps", s.summary.skipped_steps},
            {"timed_tokens", s.timed_tokens},
            {"timed_seconds", number(s.timed_seconds)},
            {"evaluations", std::move(evaluations)},
            {"evaluation_due", s.evaluation_due}}},
          {"data",
           {{"tokens", s.data.tokens},
            {"documents", s.data.documents},
            {"samples", s.data.samples},
            {"fingerprint", s.data.fingerprint}}},
          {"streams", s.streams},
          {"tokenizer", s.tokenizer},
          {"program", s.program},
          {"gemm_algorithms", s.algorithms},
          {"recipe", s.recipe}};
}

RunState parse_run_state(const Json& json, const std::string& source) {
  try {
    RunState s{.step = json.at("step").get<int64_t>(),
               .sequences = json.at("sequences").get<int64_t>(),
               .schedule_steps = json.at("schedule_steps").get<int64_t>(),
               .streams = json.at("streams").get<std::vector<std::string>>(),
               .tokenizer = json.at("tokenizer").get<std::string>(),
               .recipe = json.at("recipe").get<std::string>(),
               .program = json.at("program").get<std::string>(),
               .version = json.at("version").get<std::string>(),
               .environment = json.value("environment", Json::object()),  // not in those of older versions
               .algorithms = json.at("gemm_algorithms").get<std::string>()};
    for (const auto& [name, value] : json.at("scalars").items()) s.scalars[name] = number_of(value);
    for (const Json& a : json.at("spikes"))
      s.spikes.push_back({a.at(0).get<int64_t>(), number_of(a.at(1)), number_of(a.at(2))});
    const Json& noise = json.at("noise");
    s.noise = {noise.at(0).get<int64_t>(), number_of(noise.at(1)), number_of(noise.at(2)),
               number_of(noise.at(3))};
    const Json& summary = json.at("summary");
    s.summary.steps = s.step;
    s.summary.first_loss = number_of(summary.at("first_loss"));
    s.summary.last_loss = number_of(summary.at("last_loss"));
    s.summary.tokens = summary.at("tokens").get<int64_t>();
    s.summary.seconds = number_of(summary.at("seconds"));
    s.summary.tokens_per_s = number_of(summary.at("tokens_per_s"));
    s.summary.skipped_steps = summary.at("skipped_steps").get<int64_t>();
    s.timed_tokens = summary.at("timed_tokens").get<int64_t>();
    s.timed_seconds = number_of(summary.at("timed_seconds"));
    for (const Json& e : summary.at("evaluations"))
      s.summary.evaluations.push_back({e.at(0).get<int64_t>(), number_of(e.at(1)), e.at(2).get<int64_t>()});
    s.evaluation_due = summary.value("evaluation_due", false);  // not in checkpoints of older versions
    const Json& data = json.at("data");
    s.data = {.tokens = data.at("tokens").get<int64_t>(),
              .documents = data.at("documents").get<int64_t>(),
              .samples = data.at("samples").get<int64_t>(),
              .fingerprint = data.at("fingerprint").get<std::string>()};
    return s;
  } catch (const nlohmann::json::exception& e) {
    base::fail_user("{}: the state of the run is not complete: {}", source, e.what());
  }
}

}  // namespace quintet::train
