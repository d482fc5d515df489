#include "report/economy_report.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "plan/confidence.h"
#include "sim/durations.h"

namespace quintet::report {

double parse_tokens(std::string_view text) {
  const std::string word(text);
  double number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  const std::string_view unit(end, static_cast<size_t>(word.data() + word.size() - end));
  double factor = 0;
  for (const auto& [name, value] : {std::pair{"", 1.0}, {"K", 1e3}, {"M", 1e6}, {"B", 1e9}, {"T", 1e12}})
    if (unit == name) factor = value;
  constexpr double kMost = 1e21;
  if (error != std::errc() || factor == 0 || !(number * factor >= 1 && number * factor <= kMost))
    base::fail_user(
        "'{}' is not a number of tokens; expected one from 1 to 1e21, with K, M, B or T, such as 15T or 300B",
        word);
  return number * factor;
}

EconomyReport economy(const plan::Report& r, double tokens, const hardware::Reliability& reliability) {
  const plan::Assumptions& a = r.assumptions;
  hardware::share_of_peak(r.time.model_flops_per_device(), a.cluster.accelerator,
                          a.matmul.value_or(sim::arithmetic_of(r.recipe.precision.compute)),
                          "the plan's rate");
  EconomyReport e{.tokens = tokens, .reliability = reliability};
  e.ideal = hardware::cost_of_tokens(tokens, r.time.tokens_per_s, a.cluster);
  e.goodput = hardware::goodput(reliability, a.cluster.world());
  const auto at = [&](double tokens_per_s) {
    return hardware::cost_of_tokens(tokens, tokens_per_s * e.goodput.share, a.cluster);
  };
  e.with_losses = at(r.time.tokens_per_s);
  const plan::Band band = plan::band_of(r);
  e.least = at(band.most * r.time.tokens_per_s);
  e.most = at(band.least * r.time.tokens_per_s);
  return e;
}

std::string long_duration(double seconds) {
  constexpr double kYear = 365.25 * 86400;
  if (seconds < 10 * kYear) return base::human_duration(std::llround(seconds * 1e9));
  return base::thousands(std::llround(seconds / kYear)) + " years";
}

std::string to_text(const EconomyReport& e, const hardware::Cluster& cluster) {
  const auto whole = [](double x) { return base::thousands(std::llround(x)); };
  std::string out = fmt::format("{} tokens\n", base::human_count(e.tokens));
  const auto line = [&](const char* what, const hardware::RunCost& c) {
    out += fmt::format("  {:<14} {}, {} device-hours{}, {} MWh, {} t CO2\n", what, long_duration(c.seconds),
                       whole(c.device_hours), c.usd > 0 ? fmt::format(", {} USD", whole(c.usd)) : "",
                       whole(c.kwh / 1e3), whole(c.co2_kg / 1e3));
  };
  line("undisturbed", e.ideal);
  line("with failures", e.with_losses);
  line("  at least", e.least);
  line("  at most", e.most);
  out += fmt::format(
      "  {:.2f} failures per day, one in {}; the best checkpoint interval is {}: {:.1f} % of the time is "
      "progress, {:.1f} % goes into checkpoints, {:.1f} % is lost\n",
      e.goodput.failures_per_day, long_duration(e.goodput.mean_between_failures_seconds),
      long_duration(e.goodput.interval_seconds), 100 * e.goodput.share, 100 * e.goodput.checkpoint_share,
      100 * e.goodput.lost_share);
  const hardware::Reliability& r = e.reliability;
  const auto usual = [&](double hardware::Reliability::*value, const char* source) {
    return r.*value == hardware::Reliability{}.*value ? source : "given";
  };
  out += fmt::format(
      "  assuming {:.2f} failures per 1,000 devices per day ({}), {} per checkpoint ({}), {} to restart "
      "({})\n",
      r.failures_per_device_hour * 24 * 1000,
      usual(&hardware::Reliability::failures_per_device_hour, "as in the Llama 3 405B run; --failures"),
      long_duration(r.checkpoint_seconds),
      usual(&hardware::Reliability::checkpoint_seconds, "assumed; --checkpoint-seconds"),
      long_duration(r.restart_seconds),
      usual(&hardware::Reliability::restart_seconds, "assumed; --restart-seconds"));
  if (cluster.price_per_hour <= 0)
    out +=
        fmt::format("  the catalogue has no price for {}: pass --price, in USD per device-hour\n",
                    cluster.accelerator.title.empty() ? cluster.accelerator.name : cluster.accelerator.title);
  else
    out += fmt::format("  at {:.2f} USD per device-hour{}\n", cluster.price_per_hour,
                       cluster.price_source.empty() ? "" : fmt::format(" ({})", cluster.price_source));
  return out;
}

}  // namespace quintet::report
