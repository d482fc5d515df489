#include "cli/search_options.h"

#include <fmt/format.h>

#include "base/error.h"

namespace quintet::cli {
namespace {

constexpr double kThousandDeviceDays = 24 * 1000;  // in hours of a device

}  // namespace

void SearchOptions::add_to(CLI::App& command) {
  command.add_flag("--search", search,
                   "look for the fastest layouts that fit the cluster, whatever layout the recipe has; what "
                   "--set says of the layout stays");
  command.add_option("--top", top, "with --search: how many to show")
      ->type_name("N")
      ->check(CLI::Range(1, 100));
  command.add_option("--plans", plans, "with --search: how many layouts to compile at most")
      ->type_name("N")
      ->check(CLI::Range(1, 100000));
  command
      .add_option("--allow-drops", allow_drops,
                  "with --search: experts may have this capacity and drop tokens beyond it, e.g. 1.25")
      ->type_name("FACTOR")
      ->check(CLI::Range(0.01, 1000.0));
  command.add_option("--emit", emit, "with --search: write the best layout as a recipe that runs")
      ->type_name("FILE");
  command.add_flag("--scaling", scaling, "the scaling curve over numbers of devices");
  command.add_option("--tokens", tokens, "cost, energy, carbon and goodput of so many tokens, e.g. 15T")
      ->type_name("N");
  const hardware::Reliability usual;
  command
      .add_option("--failures", failures,
                  fmt::format("with --tokens: failures of 1,000 devices in a day ({:.2f}: Llama 3 405B, 419 "
                              "stops of 16,384 GPUs in 54 days)",
                              usual.failures_per_device_hour * kThousandDeviceDays))
      ->type_name("X")
      ->check(CLI::Range(0.0, 1e6));
  command
      .add_option("--checkpoint-seconds", checkpoint_seconds,
                  fmt::format("with --tokens: that training stands still for a checkpoint ({:.0f}, assumed)",
                              usual.checkpoint_seconds))
      ->type_name("S")
      ->check(CLI::Range(0.0, 1e6));
  command
      .add_option(
          "--restart-seconds", restart_seconds,
          fmt::format("with --tokens: from a failure to the last checkpoint's state ({:.0f}, assumed)",
                      usual.restart_seconds))
      ->type_name("S")
      ->check(CLI::Range(0.0, 1e7));
}

void SearchOptions::check() const {
  if (!emit.empty() && !search) base::fail_user("--emit writes what --search finds; give --search too");
  if (!search && (top != SearchOptions{}.top || plans != SearchOptions{}.plans || allow_drops > 0))
    base::fail_user("--top, --plans and --allow-drops say how far --search goes; give --search too");
  if (!tokens.empty())
    report::parse_tokens(tokens);
  else if (failures >= 0 || checkpoint_seconds >= 0 || restart_seconds >= 0)
    base::fail_user(
        "--failures, --checkpoint-seconds and --restart-seconds are of a run of so many tokens; give "
        "--tokens "
        "too, e.g. --tokens 15T");
}

report::FindingsOptions SearchOptions::findings() const {
  report::FindingsOptions f{
      .scaling = scaling, .top = top, .plans = plans, .allow_drops = allow_drops, .emit = emit};
  if (!tokens.empty()) f.tokens = report::parse_tokens(tokens);
  hardware::Reliability& r = f.reliability;
  if (failures >= 0) r.failures_per_device_hour = failures / kThousandDeviceDays;
  if (checkpoint_seconds >= 0) r.checkpoint_seconds = checkpoint_seconds;
  if (restart_seconds >= 0) r.restart_seconds = restart_seconds;
  return f;
}

}  // namespace quintet::cli
