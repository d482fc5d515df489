#include "observe/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace quintet::observe {

namespace {
// Without the sign of a NaN, which says nothing.
double shown(double value) { return std::isnan(value) ? std::abs(value) : value; }
}  // namespace

std::string fit_fields(const std::vector<std::string>& fields, int width) {
  if (fields.empty()) return {};
  std::string line = fields.front();
  const std::string last = fields.size() > 1 ? "  " + fields.back() : "";
  for (size_t i = 1; i + 1 < fields.size(); ++i) {
    if (width > 0 && line.size() + 2 + fields[i].size() + last.size() > static_cast<size_t>(width)) break;
    line += "  " + fields[i];
  }
  return line + last;
}

Progress::Progress(Console& console, Options options)
    : console_(console), options_(options), start_ns_(options.now_ns()) {}

std::vector<std::string> Progress::fields(const StepReport& report) const {
  const std::string total = fmt::format("{}", options_.total_steps);
  std::vector<std::string> fields = {fmt::format("step {:>{}}/{}", report.step, total.size(), total),
                                     fmt::format("loss {:.4f}", shown(report.loss)),
                                     fmt::format("{} tok/s", base::human_count(report.tokens_per_s)),
                                     fmt::format("grad {:.3f}", shown(report.grad_norm)),
                                     fmt::format("lr {:.2e}", report.lr)};
  if (report.load > 0) fields.push_back(fmt::format("load {:.2f}x", report.load));
  if (const std::string left = time_left(report); !left.empty()) fields.push_back(left);
  return fields;
}

std::string Progress::time_left(const StepReport& report) const {
  const int64_t done = report.step - options_.done_before, left = options_.total_steps - report.step;
  if (done <= 0 || left < 0) return {};
  const double per_step = static_cast<double>(options_.now_ns() - start_ns_) / static_cast<double>(done);
  // Whole seconds, so that the display does not flicker.
  const auto seconds = static_cast<int64_t>(per_step * static_cast<double>(left) * 1e-9 + 0.5);
  return seconds < 60 ? fmt::format("left {}s", seconds)
                      : fmt::format("left {}", base::human_duration(seconds * 1'000'000'000));
}

// "[=====>    ]  55 %"
std::string Progress::bar(int64_t step) const {
  constexpr int kCells = 16;
  const double share =
      options_.total_steps > 0 ? static_cast<double>(step) / static_cast<double>(options_.total_steps) : 0;
  const int full = std::clamp(static_cast<int>(share * kCells), 0, kCells);
  return fmt::format("[{:<{}}] {:>3.0f} %",
                     std::string(static_cast<size_t>(full), '=') + (full < kCells ? ">" : ""), kCells,
                     std::floor(100 * share));
}

void Progress::keep(const StepReport& report) {
  const bool terminal = console_.is_terminal();
  console_.print_line(fit_fields(fields(report), terminal ? std::max(1, console_.width() - 1) : 0));
  kept_ = true;
}

void Progress::update(const StepReport& report) {
  if (finished_) return;
  last_ = report;
  kept_ = false;
  const bool first = report.step == options_.done_before + 1, last = report.step == options_.total_steps;
  if (first || last || report.step % std::max<int64_t>(1, options_.every) == 0) keep(report);
  if (!console_.is_terminal()) return;
  if (last) return console_.clear_live();
  // "step   8/200" is padded for columns, which one line has not.
  std::vector<std::string> live = {
      bar(report.step), fmt::format("step {}/{}", report.step, options_.total_steps),
      fmt::format("loss {:.4f}", shown(report.loss)),
      fmt::format("{} tok/s", base::human_count(report.tokens_per_s)), time_left(report)};
  console_.set_live(fit_fields(live, std::max(1, console_.width() - 1)));
}

void Progress::finish() {
  if (finished_) return;
  finished_ = true;
  if (!kept_) keep(last_);
  console_.clear_live();
}

}  // namespace quintet::observe
