#include "schedule/published_bubbles.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <map>

#include "base/error.h"
#include "schedule/check.h"
#include "schedule/generators.h"
#include "schedule/refill.h"
#include "schedule/simulate.h"

namespace quintet::schedule {
namespace {

using Row = std::map<std::string, std::string, std::less<>>;

std::vector<std::string> cells(std::string_view line) {
  std::vector<std::string> out;
  for (size_t at = 0;;) {
    const size_t comma = line.find(',', at);
    out.emplace_back(line.substr(at, comma - at));
    if (comma == std::string_view::npos) return out;
    at = comma + 1;
  }
}

std::vector<Row> read_table(std::string_view csv) {
  std::vector<std::string> header;
  std::vector<Row> rows;
  for (int line = 1; !csv.empty(); ++line) {
    const size_t end = csv.find('\n');
    std::string_view text = csv.substr(0, end);
    csv = end == std::string_view::npos ? std::string_view{} : csv.substr(end + 1);
    if (text.ends_with('\r')) text.remove_suffix(1);
    if (text.empty() || text.starts_with('#')) continue;
    const std::vector<std::string> values = cells(text);
    if (header.empty()) {
      header = values;
      continue;
    }
    if (values.size() != header.size())
      base::fail_user("line {}: {} cells, but the header has {}", line, values.size(), header.size());
    Row& row = rows.emplace_back();
    for (size_t i = 0; i < values.size(); ++i) row[header[i]] = values[i];
  }
  return rows;
}

std::string cell(const Row& row, std::string_view key) {
  const auto found = row.find(key);
  return found == row.end() ? "" : found->second;
}

double number(const Row& row, std::string_view key) {
  const std::string text = cell(row, key);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    base::fail_user("column {}: expected a number, found '{}'", key, text);
  return value;
}

// Costs of a whole stage, divided evenly among the chunks of the schedule.
Costs share(const Schedule& s, const Row& row) {
  const double v = s.chunks;
  return Costs::uniform(s, number(row, "f") / v, number(row, "b") / v, number(row, "w") / v,
                        number(row, "hop"));
}

void by_makespan(PublishedBubble& out, const Schedule& s, const Row& row, std::string note) {
  check(s);
  out.simulated = simulate(s, share(s, row)).bubble_rate();
  out.note = std::move(note);
  out.was_simulated = true;
}

void by_rank(PublishedBubble& out, const Schedule& s, const Row& row, std::string note) {
  check(s);
  out.simulated = simulate(s, share(s, row)).span_bubble_rate();
  out.note = std::move(note);
  out.was_simulated = true;
}

void simulate_row(PublishedBubble& out, const Row& row) {
  const int p = out.stages, m = out.micro_batches;
  for (const char* key : {"f", "b", "w", "hop"})
    if (cell(row, key).empty()) {
      out.note = fmt::format("not simulated: no cost {}", key);
      return;
    }
  const auto refilled = [&](const Schedule& s, double most) {
    return refill_weights(s, share(s, row), {most, number(row, "freed_at_b")});
  };
  if (out.schedule == "1F1B") {
    by_makespan(out, one_f_one_b(p, m), row, "makespan");
  } else if (out.schedule == "1F1B-I") {
    const int chunks = static_cast<int>(number(row, "layers")) / p;
    by_makespan(out, interleaved(p, chunks, m), row, fmt::format("makespan, {} chunks", chunks));
  } else if (out.schedule == "ZB-H1") {
    by_makespan(out, zb_h1(p, m), row, "makespan");
  } else if (out.schedule == "ZB-H2") {
    by_rank(out, zb_h2(p, m), row, "by rank");
  } else if (out.schedule == "ZB-1p") {
    by_rank(out, refilled(zb_h1(p, m), p), row, "ZB-H1 with W placed by cost in p activations; by rank");
  } else if (out.schedule == "ZB-2p") {
    by_rank(out, refilled(zb_h2(p, m), 2 * p), row, "ZB-H2 with W placed by cost in 2p activations; by rank");
  } else if (out.schedule == "ZB-V") {
    by_rank(out, refilled(zb_v(p, m), 2 * p), row, "ZB-V with W placed by cost in p activations; by rank");
  } else {
    out.note = "not simulated: unknown schedule";
  }
}

}  // namespace

std::vector<PublishedBubble> compare_published(std::string_view csv) {
  std::vector<PublishedBubble> out;
  for (const Row& row : read_table(csv)) {
    PublishedBubble& bubble = out.emplace_back();
    bubble.source = cell(row, "source");
    bubble.model = cell(row, "model");
    bubble.schedule = cell(row, "schedule");
    bubble.stages = static_cast<int>(number(row, "stages"));
    bubble.micro_batches = static_cast<int>(number(row, "microbatches"));
    bubble.published = number(row, "bubble_rate");
    simulate_row(bubble, row);
  }
  return out;
}

std::string report(const std::vector<PublishedBubble>& rows) {
  std::string out;
  for (const PublishedBubble& row : rows) {
    out += fmt::format("{:<20} {:<10} p {:>3} m {:>3} {:<7} published {:.4f} ", row.source, row.model,
                       row.stages, row.micro_batches, row.schedule, row.published);
    if (row.was_simulated)
      out += fmt::format("simulated {:.4f} difference {:+.4f} ", row.simulated, row.difference());
    out += row.note + "\n";
  }
  return out;
}

}  // namespace quintet::schedule
