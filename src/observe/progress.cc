#include "observe/progress.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace quintet::observe {

std::string fit_fields(const std::vector<std::string>& fields, int width) {
  std::string line;
  for (const std::string& field : fields) {
    if (line.empty()) {
      line = field;
      continue;
    }
    if (width > 0 && line.size() + 2 + field.size() > static_cast<size_t>(width)) break;
    line += "  " + field;
  }
  return line;
}

Progress::Progress(Console& console, Options options)
    : console_(console), options_(options), start_ns_(options.now_ns()) {}

std::vector<std::string> Progress::fields(const StepReport& report) const {
  const std::string total = fmt::format("{}", options_.total_steps);
  std::vector<std::string> fields = {fmt::format("step {:>{}}/{}", report.step, total.size(), total),
                                     fmt::format("loss {:.4f}", report.loss),
                                     fmt::format("{} tok/s", base::human_count(report.tokens_per_s)),
                                     fmt::format("grad {:.3f}", report.grad_norm),
                                     fmt::format("lr {:.2e}", report.lr)};
  if (report.load > 0) fields.push_back(fmt::format("load {:.2f}x", report.load));
  const int64_t done = report.step - options_.done_before, left = options_.total_steps - report.step;
  if (done > 0 && left >= 0) {
    const double per_step = static_cast<double>(options_.now_ns() - start_ns_) / static_cast<double>(done);
    // Whole seconds, so that the display does not flicker.
    const auto seconds = static_cast<int64_t>(per_step * static_cast<double>(left) * 1e-9 + 0.5);
    fields.push_back(seconds < 60 ? fmt::format("left {}s", seconds)
                                  : fmt::format("left {}", base::human_duration(seconds * 1'000'000'000)));
  }
  return fields;
}

void Progress::update(const StepReport& report) {
  if (finished_) return;
  if (console_.is_terminal()) {
    console_.set_live(fit_fields(fields(report), std::max(1, console_.width() - 1)));
    return;
  }
  const bool first = report.step == options_.done_before + 1, last = report.step == options_.total_steps;
  if (first || last || report.step % std::max<int64_t>(1, options_.every) == 0)
    console_.print_line(fit_fields(fields(report), 0));
}

void Progress::finish() {
  if (finished_) return;
  finished_ = true;
  console_.end_live();
}

}  // namespace quintet::observe
