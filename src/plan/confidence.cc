#include "plan/confidence.h"

#include <algorithm>
#include <array>

#include "hardware/catalogue.h"

namespace quintet::plan {
namespace {

// The held-out columns "configurations" and "software" of docs/benchmarks/reference-runs.md, 2026-11-15.
constexpr std::array kTable = {
    Confidence{0.044, 0.170, 400, "dense models, software in the table"},
    Confidence{0.110, 0.325, 106, "models with experts, software in the table"},
    Confidence{0.096, 0.290, 400, "dense models, software that is not in the table"},
    Confidence{0.139, 0.600, 106, "models with experts, software that is not in the table"},
};

}  // namespace

const Confidence& confidence(const config::Recipe& recipe, const hardware::Stack& stack) {
  const bool experts = recipe.model.moe.experts > 0, known = [&] {
    const std::vector<std::string>& fitted = hardware::catalogue().fitted_stacks;
    return std::find(fitted.begin(), fitted.end(), stack.name) != fitted.end();
  }();
  return kTable[static_cast<size_t>(known ? 0 : 2) + (experts ? 1 : 0)];
}

Band band_of(const Report& r) {
  const double error = confidence(r.recipe, r.assumptions.stack).nine_in_ten;
  const double to_peak = r.time.hfu > 0 ? std::max(1.0, 1 / r.time.hfu) : 1;
  return {.least = 1 / (1 + error), .most = std::min(1 / (1 - error), to_peak)};
}

std::span<const Confidence> confidences() { return kTable; }

}  // namespace quintet::plan
