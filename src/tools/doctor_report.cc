#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "plan/text.h"
#include "tools/doctor.h"

namespace quintet::tools {
namespace {

using plan::seconds_text;

constexpr Part kParts[] = {Part::Compute,   Part::Network, Part::Pipeline,
                           Part::LateRanks, Part::Input,   Part::Host};
constexpr double kWorthSaying = 0.1;   // fraction of the step
constexpr double kSlowerThanLink = 2;  // measured over planned: the links do not match the cluster

std::string percent(double part, double whole) {
  return fmt::format("{:.0f} %", whole > 0 ? 100 * part / whole : 0);
}

std::string rate_text(double bytes_per_s) {
  constexpr std::string_view prefixes[] = {"", "k", "M", "G", "T"};
  size_t i = 0;
  for (; bytes_per_s >= 1000 && i + 1 < std::size(prefixes); ++i) bytes_per_s /= 1000;
  return fmt::format("{:.3g} {}B/s", bytes_per_s, prefixes[i]);
}

const DoctorRow* largest(const Diagnosis& d, Part part) {
  const DoctorRow* best = nullptr;
  for (const DoctorRow& r : d.rows)
    if (r.part == part && (best == nullptr || r.measured > best->measured)) best = &r;
  return best;
}

std::string oversubscribed_text(const Diagnosis& d) {
  return fmt::format(
      "{} ranks of {} thread{} share {} core{}, so this is mostly waiting for a core, not for a link; start "
      "fewer ranks on this host",
      d.ranks_here, d.threads, d.threads == 1 ? "" : "s", d.cores, d.cores == 1 ? "" : "s");
}

std::string network_sentence(const Diagnosis& d) {
  const DoctorRow* most = largest(d, Part::Network);
  if (most == nullptr) return {};
  std::string text = fmt::format("network: compute waits {} of {} ({}) for {}, planned {}",
                                 seconds_text(most->measured), seconds_text(d.step),
                                 percent(most->measured, d.step), most->axes, seconds_text(most->planned));
  std::string slower;
  for (const AxisTraffic& t : d.traffic) {
    if (t.axes != most->axes || t.measured <= 0 || t.planned <= 0) continue;
    text += fmt::format("; {} per step at {}, planned {}", base::human_bytes(std::llround(t.bytes)),
                        rate_text(t.bytes / t.measured), rate_text(t.bytes / t.planned));
    if (t.measured > kSlowerThanLink * t.planned)
      slower = fmt::format("delivers {:.2g} of {}, and ", t.planned / t.measured,
                           d.probed ? "the probed bandwidth" : "the cluster's bandwidth");
  }
  if (d.oversubscribed()) return text + ": " + oversubscribed_text(d);
  return text +
         fmt::format(
             ": the fabric {}is undersized for this layout. No flag fixes that: use a faster link, or a "
             "layout that communicates less (quintet plan RECIPE --search)",
             slower);
}

std::string compute_sentence(const Diagnosis& d) {
  const double measured = d.measured_of(Part::Compute), planned = d.planned_of(Part::Compute);
  const DoctorRow* most = largest(d, Part::Compute);
  return fmt::format("compute: kernels take {} of {} ({}), mostly {} ({}), at {:.2f} of the speed {}",
                     seconds_text(measured), seconds_text(d.step), percent(measured, d.step), most->what,
                     seconds_text(most->measured), measured > 0 ? planned / measured : 0,
                     d.probed ? "measured by the probe" : "given by the cluster");
}

}  // namespace

std::string_view to_string(Part part) {
  switch (part) {
    case Part::Compute:
      return "compute";
    case Part::Network:
      return "network";
    case Part::Pipeline:
      return "pipeline";
    case Part::LateRanks:
      return "late ranks";
    case Part::Input:
      return "input";
    case Part::Host:
      return "host";
  }
  return "";
}

double Diagnosis::planned_of(Part part) const {
  double sum = 0;
  for (const DoctorRow& r : rows)
    if (r.part == part) sum += r.planned;
  return sum;
}

double Diagnosis::measured_of(Part part) const {
  double sum = 0;
  for (const DoctorRow& r : rows)
    if (r.part == part) sum += r.measured;
  return sum;
}

Part Diagnosis::bottleneck() const {
  return *std::max_element(std::begin(kParts), std::end(kParts),
                           [&](Part a, Part b) { return measured_of(a) < measured_of(b); });
}

std::string Diagnosis::sentence() const {
  const Part part = bottleneck();
  const double seconds = measured_of(part);
  const std::string share =
      fmt::format("{} of {} ({})", seconds_text(seconds), seconds_text(step), percent(seconds, step));
  const std::string planned = seconds_text(planned_of(part));
  switch (part) {
    case Part::Compute:
      return compute_sentence(*this);
    case Part::Network:
      return network_sentence(*this);
    case Part::Pipeline:
      return fmt::format(
          "pipeline: rank {} waits {} for other stages, planned {}: use more micro-batches, more chunks or a "
          "zero-bubble schedule",
          rank, share, planned);
    case Part::LateRanks:
      return fmt::format(
          "late ranks: even rank {}, which waits least, waits {} for late ranks: {}", rank, share,
          oversubscribed() ? oversubscribed_text(*this)
                           : "different ranks are late at different times, as on hosts with other load");
    case Part::Input:
      return fmt::format(
          "input: reading batches takes {}: use a faster disk, or convert the data to a token file", share);
    case Part::Host:
      return fmt::format(
          "host: {} is neither kernels nor waiting nor input, planned {}: instructions are too short for "
          "their launch overhead; use larger micro-batches",
          share, planned);
  }
  return {};
}

std::string Diagnosis::largest_excess() const {
  Part most = Part::Compute;
  for (const Part p : kParts)
    if (measured_of(p) - planned_of(p) > measured_of(most) - planned_of(most)) most = p;
  const double excess = measured_of(most) - planned_of(most);
  if (most == bottleneck() || excess < kWorthSaying * step) return {};
  return fmt::format("exceeds the plan: {} takes {}, planned {}", to_string(most),
                     seconds_text(measured_of(most)), seconds_text(planned_of(most)));
}

std::string to_text(const Diagnosis& d) {
  std::string text = fmt::format("{} on {} x {}\n", d.plan.recipe.name, d.world, d.device);
  const auto line = [&]<class... Args>(fmt::format_string<Args...> form, Args&&... args) {
    text += fmt::format(form, std::forward<Args>(args)...) + "\n";
  };
  line("planned on {}{}", hardware::describe(d.plan.assumptions.cluster), d.probed ? ", just probed" : "");
  if (is_busy(d.machine))
    line(
        "warning: the load average of this machine was {:.1f} on {} core{}: other processes are running, and "
        "all times are too long",
        d.machine.load_average, d.machine.machine_cores, d.machine.machine_cores == 1 ? "" : "s");
  line("");
  line("  {:<18} {:>11} {:>11} {:>11}", "", "measured", "planned", "difference");
  const auto times = [&](const std::string& what, double measured, double planned) {
    const double difference = measured - planned;
    line("  {:<18} {:>11} {:>11} {:>11}", what, seconds_text(measured), seconds_text(planned),
         fmt::format("{}{}", difference < 0 ? "-" : "+", seconds_text(std::abs(difference))));
  };
  times("step", d.step, d.plan.time.step);
  for (const DoctorRow& r : d.rows)
    if (std::max(r.measured, r.planned) > 0.0005 * d.step) times("  " + r.what, r.measured, r.planned);
  line("  {:<18} {:>11} {:>11}", "tokens/s", base::human_count(d.plan.time.tokens / d.step),
       base::human_count(d.plan.time.tokens_per_s));
  line("  {:<18} {:>11} {:>11} {:>11}", "memory", base::human_bytes(d.measured_bytes),
       base::human_bytes(d.planned_bytes), fmt::format("{:+} B", d.measured_bytes - d.planned_bytes));
  if (d.extra_bytes > 0) line("  {:<18} {:>11}", "  outside the plan", base::human_bytes(d.extra_bytes));
  line("  median of {} step{} ({} to {}); times of rank {}, which waited least; memory of rank {}", d.steps,
       d.steps == 1 ? "" : "s", seconds_text(d.fastest), seconds_text(d.slowest), d.rank, d.memory_rank);
  line("");
  line("bottleneck: {}", d.sentence());
  if (const std::string more = d.largest_excess(); !more.empty()) line("{}", more);
  return text;
}

std::string to_json(const Diagnosis& d) {
  nlohmann::ordered_json json = {{"recipe", d.plan.recipe.name},
                                 {"device", d.device},
                                 {"world", d.world},
                                 {"probed", d.probed},
                                 {"load_average", d.machine.load_average},
                                 {"cores", d.machine.machine_cores},
                                 {"steps", d.steps},
                                 {"step_s", d.step},
                                 {"fastest_step_s", d.fastest},
                                 {"slowest_step_s", d.slowest},
                                 {"planned_step_s", d.plan.time.step},
                                 {"rank", d.rank},
                                 {"memory_rank", d.memory_rank},
                                 {"planned_peak_bytes", d.planned_bytes},
                                 {"measured_peak_bytes", d.measured_bytes},
                                 {"extra_bytes", d.extra_bytes},
                                 {"bottleneck", to_string(d.bottleneck())},
                                 {"sentence", d.sentence()}};
  json["shares"] = nlohmann::ordered_json::array();
  for (const DoctorRow& r : d.rows)
    json["shares"].push_back({{"what", r.what},
                              {"part", to_string(r.part)},
                              {"measured_s", r.measured},
                              {"planned_s", r.planned}});
  json["traffic"] = nlohmann::ordered_json::array();
  for (const AxisTraffic& t : d.traffic)
    json["traffic"].push_back(
        {{"axes", t.axes}, {"bytes", t.bytes}, {"measured_s", t.measured}, {"planned_s", t.planned}});
  return json.dump(2) + "\n";
}

}  // namespace quintet::tools
