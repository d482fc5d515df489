// The comparison as text and as JSON.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "observe/metrics.h"
#include "published/comparison.h"

namespace quintet::published {
namespace {

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string speed(double tokens) {
  return tokens <= 0 ? "-" : tokens < 1000 ? fmt::format("{:.1f}", tokens) : fmt::format("{:.0f}", tokens);
}

std::string table(std::string_view title, const std::vector<std::pair<std::string, ErrorSummary>>& groups) {
  std::string text =
      fmt::format("\n{:<24} {:>5} {:>9} {:>9} {:>9}\n", title, "rows", "median", "p90", "bias");
  for (const auto& [name, s] : groups)
    text += fmt::format("{:<24} {:>5} {:>9} {:>9} {:>9}\n", name, s.rows, percent(s.median), percent(s.p90),
                        fmt::format("{:+.1f} %", 100 * s.bias));
  return text;
}

observe::Record record(const ErrorSummary& s) {
  observe::Record r;
  r.set("rows", s.rows).set("median_error", s.median).set("p90_error", s.p90).set("bias", s.bias);
  return r;
}

std::vector<observe::Record> records(const std::vector<std::pair<std::string, ErrorSummary>>& groups) {
  std::vector<observe::Record> out;
  for (const auto& [name, s] : groups) {
    observe::Record r;
    r.set("name", name).set("rows", s.rows).set("median_error", s.median).set("p90_error", s.p90);
    r.set("bias", s.bias);
    out.push_back(r);
  }
  return out;
}

observe::Record record(const ComparedRun& row) {
  observe::Record r;
  r.set("id", row.published.id).set("source", row.published.source).set("model", row.published.model);
  r.set("gpu", row.published.gpu).set("gpus", row.published.gpus.value_or(0));
  r.set("modelled", row.mapping.run.has_value());
  if (!row.mapping.run) {
    r.set("reason", row.mapping.reason);
    return r;
  }
  const ModelledRun& run = *row.mapping.run;
  r.set("accelerator", row.accelerator).set("stack", row.stack).set("stated", run.stated);
  r.set("assumed", fmt::format("{}", fmt::join(run.assumed, "; ")));
  if (row.scored()) {
    r.set("published_tokens_per_s_per_gpu", row.tokens_per_s).set("convention", run.convention);
    r.set("predicted_tokens_per_s_per_gpu", row.predicted).set("error", row.error());
  }
  if (row.memory_scored()) {
    r.set("published_memory_gib", row.memory_gib).set("predicted_memory_gib", row.predicted_memory);
    r.set("memory_error", row.memory_error());
  }
  r.set("step_seconds", row.time.step).set("mfu", row.time.mfu).set("fits", row.fits);
  std::vector<observe::Record> shares;
  for (const plan::TimeShare& share : row.time.shares) {
    observe::Record s;
    s.set("what", share.what).set("seconds", share.seconds);
    shares.push_back(s);
  }
  r.set("shares", shares);
  return r;
}

}  // namespace

std::string to_text(const Comparison& report) {
  std::string text =
      fmt::format("{:<10} {:<24} {:<16} {:>5} {:>10} {:>10} {:>8}  {:>7} {:>7} {:>8}\n", "row", "model",
                  "accelerator", "GPUs", "published", "predicted", "error", "GiB", "planned", "error");
  for (const ComparedRun& row : report.rows) {
    if (!row.mapping.run) continue;
    const std::string model = row.published.model.substr(0, 24);
    text +=
        fmt::format("{:<10} {:<24} {:<16} {:>5} {:>10} {:>10} {:>8}  {:>7} {:>7} {:>8}\n", row.published.id,
                    model, row.accelerator, row.published.gpus.value_or(0), speed(row.tokens_per_s),
                    speed(row.predicted), row.scored() ? fmt::format("{:+.1f} %", 100 * row.error()) : "-",
                    row.memory_gib > 0 ? fmt::format("{:.1f}", row.memory_gib) : "-",
                    fmt::format("{:.1f}", row.predicted_memory),
                    row.memory_scored() ? fmt::format("{:+.1f} %", 100 * row.memory_error()) : "-");
  }
  text += table("source", report.by_source);
  text += table("accelerator", report.by_accelerator);
  text += table("stack", report.by_stack);
  if (report.unmodelled > 0) text += fmt::format("\n{} rows are not modelled:\n", report.unmodelled);
  for (const ComparedRun& row : report.rows)
    if (!row.mapping.run) text += fmt::format("  {:<10} {}\n", row.published.id, row.mapping.reason);
  if (report.all.rows == 0 && report.memory.rows == 0)
    return text + "\nno row could be compared, so there is no error to report\n";
  text += fmt::format("\n{} rows: median error {}, 90 % within {}\n", report.all.rows,
                      percent(report.all.median), percent(report.all.p90));
  text += fmt::format("{} of them state model, layout and hardware: median {}, 90 % within {}\n",
                      report.stated.rows, percent(report.stated.median), percent(report.stated.p90));
  text += fmt::format("memory, {} rows: median error {}, 90 % within {}\n", report.memory.rows,
                      percent(report.memory.median), percent(report.memory.p90));
  return text;
}

std::string to_json(const Comparison& report) {
  observe::Record summary;
  summary.set("median_error", report.all.median).set("p90_error", report.all.p90);
  summary.set("rows", report.all.rows).set("unmodelled", report.unmodelled);
  summary.set("memory_median_error", report.memory.median).set("memory_p90_error", report.memory.p90);
  summary.set("memory_rows", report.memory.rows).set("bias", report.all.bias);
  const auto sources = records(report.by_source), accelerators = records(report.by_accelerator),
             stacks = records(report.by_stack);
  summary.set("by_source", sources).set("by_accelerator", accelerators).set("by_stack", stacks);
  std::vector<observe::Record> rows;
  for (const ComparedRun& row : report.rows) rows.push_back(record(row));
  std::string list;
  for (const observe::Record& row : rows) list += (list.empty() ? "" : ",\n") + row.json();
  std::string head = summary.json();
  head.pop_back();  // a record holds no record, only lists of them
  return fmt::format("{{\"summary\": {}, \"stated\": {}}},\n\"rows\": [\n{}\n]}}\n", head,
                     record(report.stated).json(), list);
}

}  // namespace quintet::published
