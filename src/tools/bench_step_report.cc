#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "tools/bench_step.h"

namespace quintet::tools {

using base::human_bytes;
using base::thousands;

// A GEMM may be consistently faster within the step than in isolation; then its isolated time is not a lower
// bound.
static double lesser_floor(const StepBench& b) {
  double sum = 0;
  for (const OpClassTime& c : b.classes) sum += std::min(c.floor_seconds, c.seconds);
  return sum;
}

static std::string floors(const StepBench& b) {
  if (b.copy_bytes_per_s == 0)
    return b.floors_wanted ? "\nfloors: not measured; they require a GPU and a single rank\n" : "";
  std::string text = fmt::format(
      "\nfloors: GEMMs and attention as fast as in isolation, every other byte once at copy speed, {:.0f} "
      "GB/s\n"
      "  {:<18}{:>13}{:>13}{:>13}\n",
      b.copy_bytes_per_s * 1e-9, "", "in the step", "alone", "floor");
  for (const OpClassTime& c : b.classes)
    if (c.alone_seconds > 0)
      text += fmt::format("  {:<18}{:>10.3f} ms{:>10.3f} ms{:>10.3f} ms\n", c.name, c.seconds * 1e3,
                          c.alone_seconds * 1e3, c.floor_seconds * 1e3);
  return text + fmt::format(
                    "  the step takes {:.3f} ms, {:.3f} x the sum of its floors, {:.3f} ms; {:.3f} x when "
                    "each floor is capped at the time in the step\n",
                    b.step_seconds * 1e3, b.step_seconds / b.floor_seconds, b.floor_seconds * 1e3,
                    b.step_seconds / lesser_floor(b));
}

std::string to_table(const StepBench& b) {
  std::string text;
  const auto line = [&](std::string_view label, const std::string& value) {
    text += fmt::format("{:<13}{}\n", label, value);
  };
  line("recipe", fmt::format("{}, {} parameters, {}, {} tokens per step", b.name, thousands(b.parameters),
                             b.dtype, thousands(b.tokens_per_step)));
  line("data", "random tokens, one document per sequence");
  line("device", fmt::format("{} x {}", b.world, b.device));
  line("set-up", fmt::format("{:.2f} s, first step {:.3f} s; finished {:.2f} s after process start",
                             b.setup_seconds, b.first_step_seconds, b.until_first_step_seconds));
  line("step", fmt::format("{:.3f} ms median of {} ({:.3f} to {:.3f})", b.step_seconds * 1e3, b.steps,
                           b.fastest_seconds * 1e3, b.slowest_seconds * 1e3));
  line("speed", fmt::format("{} tokens/s", thousands(static_cast<int64_t>(b.tokens_per_s))));
  line("model", fmt::format("{:.1f} TFLOP/s per device: {}", b.tflops, kModelFlopsFormula));
  line("program", fmt::format("{:.4g} TFLOP per step on all ranks, {:.4g} of them model FLOPs",
                              b.program_flops * 1e-12, b.model_flops * 1e-12));
  line("MFU", b.peak_tflops > 0
                  ? fmt::format("{:.1f} % of {:.1f} TFLOP/s ({})", b.mfu * 100, b.peak_tflops, b.peak_source)
                  : "unknown: no peak for this device; set it with --peak TFLOPS");
  line("memory", fmt::format("planned {}, measured {}, outside the plan {}", human_bytes(b.planned_bytes),
                             human_bytes(b.measured_bytes), human_bytes(b.extra_bytes)));
  line("loss", fmt::format("{:.6f} after the last step", b.loss));
  double sum = 0;
  for (const OpClassTime& c : b.classes) sum += c.seconds;
  text += fmt::format("\none traced step, {:.3f} ms:\n", b.traced_seconds * 1e3);
  for (const OpClassTime& c : b.classes)
    text += fmt::format("  {:<18}{:>10.3f} ms {:>6.1f} % {:>7} launches\n", c.name, c.seconds * 1e3,
                        sum > 0 ? c.seconds / sum * 100 : 0, c.instructions);
  return text + floors(b);
}

std::string to_json(const StepBench& b) {
  nlohmann::ordered_json json = {{"recipe", b.name},
                                 {"device", b.device},
                                 {"world", b.world},
                                 {"dtype", b.dtype},
                                 {"parameters", b.parameters},
                                 {"tokens_per_step", b.tokens_per_step},
                                 {"steps", b.steps},
                                 {"setup_s", b.setup_seconds},
                                 {"first_step_s", b.first_step_seconds},
                                 {"until_first_step_s", b.until_first_step_seconds},
                                 {"step_s", b.step_seconds},
                                 {"fastest_step_s", b.fastest_seconds},
                                 {"slowest_step_s", b.slowest_seconds},
                                 {"tokens_per_s", b.tokens_per_s},
                                 {"model_flops_per_step", b.model_flops},
                                 {"model_flops_formula", kModelFlopsFormula},
                                 {"program_flops_per_step", b.program_flops},
                                 {"model_tflops_per_device", b.tflops},
                                 {"peak_tflops_per_device", b.peak_tflops},
                                 {"peak_source", b.peak_source},
                                 {"mfu", b.mfu},
                                 {"planned_peak_bytes", b.planned_bytes},
                                 {"measured_peak_bytes", b.measured_bytes},
                                 {"extra_bytes", b.extra_bytes},
                                 {"last_loss", b.loss},
                                 {"first_losses", b.first_losses},
                                 {"traced_step_s", b.traced_seconds}};
  json["op_classes"] = nlohmann::ordered_json::array();
  for (const OpClassTime& c : b.classes)
    json["op_classes"].push_back({{"class", c.name},
                                  {"instructions", c.instructions},
                                  {"s", c.seconds},
                                  {"alone_s", c.alone_seconds},
                                  {"floor_s", c.floor_seconds}});
  json["copy_bytes_per_s"] = b.copy_bytes_per_s;
  json["floor_s"] = b.floor_seconds;
  json["lesser_floor_s"] = lesser_floor(b);
  return json.dump(2) + "\n";
}

}  // namespace quintet::tools
