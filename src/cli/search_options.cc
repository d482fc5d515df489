#include "cli/search_options.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/output_path.h"
#include "cli/number.h"

namespace quintet::cli {
namespace {

constexpr double kThousandDeviceDays = 24 * 1000;  // in device-hours

}  // namespace

void SearchOptions::add_to(CLI::App& command) {
  command.add_flag("--search", search,
                   "find the fastest layouts that fit the cluster, ignoring the recipe's layout; layout keys "
                   "given with --set stay fixed");
  command.add_flag(
      "--pareto", pareto,
      "with --search: show the layouts for which no other needs both less time and less memory, and, "
      "with --scaling, the device counts at which no other is both faster and cheaper");
  command.add_option("--top", top, "with --search: number of layouts to show")
      ->type_name("N")
      ->check(integer_in(1, 100));
  command.add_option("--plans", plans, "with --search: maximum number of layouts to compile")
      ->type_name("N")
      ->check(integer_in(1, 100000));
  command
      .add_option(
          "--allow-drops", allow_drops,
          "with --search: allow experts of this capacity factor, which drop tokens past it, e.g. 1.25")
      ->type_name("FACTOR")
      ->check(number_in(0.01, 1000));
  command.add_option("--emit", emit, "with --search: write the best layout as a recipe")->type_name("FILE");
  command.add_flag("--overwrite", overwrite, "with --emit: replace an existing file");
  command.add_flag("--scaling", scaling, "show strong and weak scaling over the number of devices");
  command
      .add_option("--noise-scale", noise,
                  "with --scaling: the gradient noise scale in tokens, or a run whose metrics have it "
                  "(run.noise_scale_every); shows how much larger batches help")
      ->type_name("TOKENS|RUN");
  command
      .add_option("--tokens", tokens, "show cost, energy, carbon and goodput for this many tokens, e.g. 15T")
      ->type_name("N");
  const hardware::Reliability usual;
  command
      .add_option("--failures", failures,
                  fmt::format("with --tokens: failures per 1,000 devices per day ({:.2f}: Llama 3 405B, 419 "
                              "interruptions of 16,384 GPUs in 54 days)",
                              usual.failures_per_device_hour * kThousandDeviceDays))
      ->type_name("X")
      ->check(number_in(0, 1e6));
  command
      .add_option("--checkpoint-seconds", checkpoint_seconds,
                  fmt::format("with --tokens: time that training stalls for a checkpoint ({:.0f}, assumed)",
                              usual.checkpoint_seconds))
      ->type_name("S")
      ->check(number_in(0, 1e6));
  command
      .add_option(
          "--restart-seconds", restart_seconds,
          fmt::format("with --tokens: time from a failure to the restored checkpoint ({:.0f}, assumed)",
                      usual.restart_seconds))
      ->type_name("S")
      ->check(number_in(0, 1e7));
}

void SearchOptions::check() const {
  if (!emit.empty() && !search) base::fail_user("--emit needs --search");
  if (pareto && !search) base::fail_user("--pareto needs --search");
  if (!noise.empty() && !scaling) base::fail_user("--noise-scale needs --scaling");
  if (overwrite && emit.empty()) base::fail_user("--overwrite needs --emit");
  if (!emit.empty()) base::require_new_file("--emit", emit, overwrite);
  if (!search && (top != SearchOptions{}.top || plans != SearchOptions{}.plans || allow_drops > 0))
    base::fail_user("--top, --plans and --allow-drops need --search");
  if (!tokens.empty())
    report::parse_tokens(tokens);
  else if (failures >= 0 || checkpoint_seconds >= 0 || restart_seconds >= 0)
    base::fail_user(
        "--failures, --checkpoint-seconds and --restart-seconds need --tokens, e.g. --tokens 15T");
}

report::FindingsOptions SearchOptions::findings() const {
  report::FindingsOptions f{
      .scaling = scaling, .top = top, .plans = plans, .allow_drops = allow_drops, .emit = emit};
  f.pareto = pareto;
  if (!noise.empty()) f.noise_tokens = report::parse_noise_scale(noise);
  if (!tokens.empty()) f.tokens = report::parse_tokens(tokens);
  hardware::Reliability& r = f.reliability;
  if (failures >= 0) r.failures_per_device_hour = failures / kThousandDeviceDays;
  if (checkpoint_seconds >= 0) r.checkpoint_seconds = checkpoint_seconds;
  if (restart_seconds >= 0) r.restart_seconds = restart_seconds;
  return f;
}

}  // namespace quintet::cli
