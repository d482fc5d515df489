// The comparison as text and as JSON.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "published/comparison.h"

namespace quintet::published {
namespace {

using Json = nlohmann::ordered_json;

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string speed(double tokens) {
  return tokens <= 0 ? "-" : tokens < 1000 ? fmt::format("{:.1f}", tokens) : fmt::format("{:.0f}", tokens);
}

std::string table(std::string_view title, const std::vector<std::pair<std::string, ErrorSummary>>& groups) {
  if (groups.empty()) return {};
  std::string text =
      fmt::format("\n{:<24} {:>5} {:>9} {:>9} {:>9}\n", title, "rows", "median", "p90", "bias");
  for (const auto& [name, s] : groups)
    text += fmt::format("{:<24} {:>5} {:>9} {:>9} {:>9}\n", name, s.rows, percent(s.median), percent(s.p90),
                        fmt::format("{:+.1f} %", 100 * s.bias));
  return text;
}

// An error of no rows is none, not 0.
Json number_of(const ErrorSummary& s, double value) { return s.rows > 0 ? Json(value) : Json(nullptr); }

Json json_of(const ErrorSummary& s) {
  return {{"rows", s.rows},
          {"median_error", number_of(s, s.median)},
          {"p90_error", number_of(s, s.p90)},
          {"bias", number_of(s, s.bias)}};
}

Json json_of(const std::vector<std::pair<std::string, ErrorSummary>>& groups) {
  Json out = Json::array();
  for (const auto& [name, s] : groups) {
    Json group = {{"name", name}};
    group.update(json_of(s));
    out.push_back(std::move(group));
  }
  return out;
}

Json json_of(const ComparedRun& row) {
  Json json = {{"id", row.published.id},
               {"source", row.published.source},
               {"model", row.published.model},
               {"gpu", row.published.gpu},
               {"gpus", row.published.gpus.value_or(0)},
               {"modelled", row.mapping.run.has_value()}};
  if (!row.mapping.run) {
    json["reason"] = row.mapping.reason;
    return json;
  }
  const ModelledRun& run = *row.mapping.run;
  json["accelerator"] = row.accelerator;
  json["stack"] = row.stack;
  json["stated"] = run.stated;
  json["assumed"] = fmt::format("{}", fmt::join(run.assumed, "; "));
  if (row.scored()) {
    json["published_tokens_per_s_per_gpu"] = row.tokens_per_s;
    json["convention"] = run.convention;
    json["predicted_tokens_per_s_per_gpu"] = row.predicted;
    json["error"] = row.error();
  }
  if (row.memory_scored()) {
    json["published_memory_gib"] = row.memory_gib;
    json["predicted_memory_gib"] = row.predicted_memory;
    json["memory_error"] = row.memory_error();
  }
  json["step_seconds"] = row.time.step;
  json["mfu"] = row.time.mfu;
  json["fits"] = row.fits;
  Json& shares = json["shares"] = Json::array();
  for (const plan::TimeShare& share : row.time.shares)
    shares.push_back({{"what", share.what}, {"seconds", share.seconds}});
  return json;
}

}  // namespace

std::string to_text(const Comparison& report) {
  std::string text;
  for (const ComparedRun& row : report.rows) {
    if (!row.mapping.run) continue;
    if (text.empty())
      text =
          fmt::format("{:<10} {:<24} {:<16} {:>5} {:>10} {:>10} {:>8}  {:>7} {:>7} {:>8}\n", "row", "model",
                      "accelerator", "GPUs", "published", "predicted", "error", "GiB", "planned", "error");
    const std::string model = row.published.model.substr(0, 24);
    text +=
        fmt::format("{:<10} {:<24} {:<16} {:>5} {:>10} {:>10} {:>8}  {:>7} {:>7} {:>8}\n", row.published.id,
                    model, row.accelerator, row.published.gpus.value_or(0), speed(row.tokens_per_s),
                    speed(row.predicted), row.scored() ? fmt::format("{:+.1f} %", 100 * row.error()) : "-",
                    row.memory_gib > 0 ? fmt::format("{:.1f}", row.memory_gib) : "-",
                    fmt::format("{:.1f}", row.predicted_memory),
                    row.memory_scored() ? fmt::format("{:+.1f} %", 100 * row.memory_error()) : "-");
  }
  std::string neutral;
  for (const ComparedRun& row : report.rows)
    if (row.mapping.run)
      for (const std::string& note : row.mapping.run->assumed)
        if (note.find("neutral terms") != std::string::npos)
          neutral += fmt::format("  {:<10} {}\n", row.published.id, note);
  if (!neutral.empty()) text += "\nnot calibrated:\n" + neutral;
  text += table("source", report.by_source);
  text += table("accelerator", report.by_accelerator);
  text += table("stack", report.by_stack);
  if (!text.empty()) text += '\n';
  if (report.unmodelled > 0)
    text +=
        fmt::format("{} row{} not modelled:\n", report.unmodelled, report.unmodelled == 1 ? " is" : "s are");
  for (const ComparedRun& row : report.rows)
    if (!row.mapping.run) text += fmt::format("  {:<10} {}\n", row.published.id, row.mapping.reason);
  if (report.unmodelled > 0) text += '\n';
  if (report.all.rows == 0 && report.memory.rows == 0)
    return text + "no row could be compared, so there is no error to report\n";
  const auto errors = [](const ErrorSummary& s) {
    return s.rows == 0 ? std::string("none")
                       : fmt::format("median error {}, 90 % within {}", percent(s.median), percent(s.p90));
  };
  text += fmt::format("{} rows: {}\n", report.all.rows, errors(report.all));
  text += fmt::format("{} of them state model, layout and hardware: {}\n", report.stated.rows,
                      errors(report.stated));
  text += fmt::format("memory, {} rows: {}\n", report.memory.rows, errors(report.memory));
  return text;
}

std::string to_json(const Comparison& report) {
  Json rows = Json::array();
  for (const ComparedRun& row : report.rows) rows.push_back(json_of(row));
  const Json json = {{"summary",
                      {{"median_error", number_of(report.all, report.all.median)},
                       {"p90_error", number_of(report.all, report.all.p90)},
                       {"rows", report.all.rows},
                       {"unmodelled", report.unmodelled},
                       {"memory_median_error", number_of(report.memory, report.memory.median)},
                       {"memory_p90_error", number_of(report.memory, report.memory.p90)},
                       {"memory_rows", report.memory.rows},
                       {"bias", number_of(report.all, report.all.bias)},
                       {"by_source", json_of(report.by_source)},
                       {"by_accelerator", json_of(report.by_accelerator)},
                       {"by_stack", json_of(report.by_stack)},
                       {"stated", json_of(report.stated)}}},
                     {"rows", std::move(rows)}};
  return base::json_text(json, 2) + "\n";
}

}  // namespace quintet::published
