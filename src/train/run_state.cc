#include "train/run_state.h"

#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/json.h"
#include "program/program.h"

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

constexpr double kLargest = std::numeric_limits<double>::max();
constexpr int64_t kMostSteps = int64_t{1} << 53;  // as the manifest's own step

// Reads values in the range that a run can have; anything else is a UserError that names the value.
class Values {
 public:
  explicit Values(const std::string& source) : source_(source) {}

  int64_t integer(const Json& v, const std::string& name, int64_t least = 0, int64_t most = INT64_MAX) const {
    // Unsigned numbers above 2^63 would wrap, and get() would round fractions.
    const bool is_exact =
        v.is_number_integer() && !(v.is_number_unsigned() && v.get<uint64_t>() > uint64_t{INT64_MAX});
    if (!is_exact || v.get<int64_t>() < least || v.get<int64_t>() > most)
      refuse(name, fmt::format("an integer from {} to {}", least, most), v);
    return v.get<int64_t>();
  }
  int64_t field(const Json& json, const char* key, int64_t least = 0, int64_t most = INT64_MAX) const {
    return integer(json.at(key), key, least, most);
  }
  double finite(const Json& v, const std::string& name, double least = -kLargest,
                double most = kLargest) const {
    const double value = number_of(v);
    if (!(value >= least && value <= most))
      refuse(name,
             least == -kLargest ? "a finite number"
             : most == kLargest ? fmt::format("a finite number of at least {}", least)
                                : fmt::format("a number from {} to {}", least, most),
             v);
    return value;
  }
  double finite_field(const Json& json, const char* key, double least, double most = kLargest) const {
    return finite(json.at(key), key, least, most);
  }
  // Of the state after `step` steps, which counts no more than those.
  double scalar(const std::string& name, const Json& v, int64_t step) const {
    const double value = number_of(v);
    if (name == program::scalars::kLossScale && !(std::isfinite(value) && value > 0))
      refuse(name, "a number above 0", v);
    for (const std::string_view count : {program::scalars::kUpdateCount, program::scalars::kSkippedInRow,
                                         program::scalars::kSkippedTotal, program::scalars::kGoodSteps})
      if (name == count && !(value >= 0 && value <= static_cast<double>(step) && value == std::floor(value)))
        refuse(name, fmt::format("an integer from 0 to {}, the number of steps", step), v);
    return value;
  }

  [[noreturn]] void refuse(const std::string& name, const std::string& expected, const Json& v) const {
    base::fail_user("{}: \"{}\" in the state of the run must be {}, got {}", source_, name, expected,
                    base::json_text(v).substr(0, 60));
  }

 private:
  const std::string& source_;
};

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
  const Values values(source);
  try {
    RunState s{.step = values.field(json, "step", 0, kMostSteps),
               .sequences = values.field(json, "sequences"),
               .schedule_steps = values.field(json, "schedule_steps", 1, kMostSteps),
               .streams = json.at("streams").get<std::vector<std::string>>(),
               .tokenizer = json.at("tokenizer").get<std::string>(),
               .recipe = json.at("recipe").get<std::string>(),
               .program = json.at("program").get<std::string>(),
               .version = json.at("version").get<std::string>(),
               .environment = json.value("environment", Json::object()),  // not in those of older versions
               .algorithms = json.at("gemm_algorithms").get<std::string>()};
    for (const auto& [name, value] : json.at("scalars").items())
      s.scalars[name] = values.scalar(name, value, s.step);
    int64_t before = -1;  // 0-based
    for (const Json& a : json.at("spikes")) {
      before = values.integer(a.at(0), "spikes", before + 1, s.step - 1);
      s.spikes.push_back({before, values.finite(a.at(1), "spikes"), values.finite(a.at(2), "spikes", 0)});
    }
    const Json& noise = json.at("noise");
    s.noise = {values.integer(noise.at(0), "noise", 0, s.step), values.finite(noise.at(1), "noise"),
               values.finite(noise.at(2), "noise"), values.finite(noise.at(3), "noise", 0, 1)};
    if ((s.noise.estimates > 0) != (s.noise.weight > 0))  // averages are divided by it
      values.refuse("noise", "a number of estimates, and a weight that is 0 without one", noise);
    const Json& summary = json.at("summary");
    s.summary.steps = s.step;
    s.summary.first_loss = number_of(summary.at("first_loss"));
    s.summary.last_loss = number_of(summary.at("last_loss"));
    s.summary.tokens = values.field(summary, "tokens");
    s.summary.seconds = values.finite_field(summary, "seconds", 0);
    s.summary.tokens_per_s = values.finite_field(summary, "tokens_per_s", 0);
    s.summary.skipped_steps = values.field(summary, "skipped_steps", 0, s.step);
    s.timed_tokens = values.field(summary, "timed_tokens", 0, s.summary.tokens);
    s.timed_seconds = values.finite_field(summary, "timed_seconds", 0, s.summary.seconds);
    int64_t evaluated = 0;
    for (const Json& e : summary.at("evaluations")) {
      evaluated = values.integer(e.at(0), "evaluations", evaluated, s.step);
      s.summary.evaluations.push_back(
          {evaluated, number_of(e.at(1)), values.integer(e.at(2), "evaluations")});
    }
    s.evaluation_due = summary.value("evaluation_due", false);  // not in checkpoints of older versions
    const Json& data = json.at("data");
    s.data = {.tokens = values.field(data, "tokens"),
              .documents = values.field(data, "documents"),
              .samples = values.field(data, "samples"),
              .fingerprint = data.at("fingerprint").get<std::string>()};
    return s;
  } catch (const nlohmann::json::exception& e) {
    base::fail_user("{}: the state of the run is not complete: {}", source, e.what());
  }
}

}  // namespace quintet::train
