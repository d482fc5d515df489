#include "plan/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "config/axis_order.h"
#include "config/batch_ramp.h"
#include "config/byte_size.h"
#include "config/context_parallel.h"
#include "config/names.h"
#include "plan/confidence.h"

namespace quintet::plan {

using base::human_bytes;
using base::thousands;

std::string axes_text(const config::Parallel& p) {
  std::string out;
  for (const auto& [axis, n] : {std::pair{"pp", p.pp},
                                {"dp_replicate", p.dp_replicate},
                                {"dp_shard", p.dp_shard},
                                {"cp", p.cp},
                                {"tp", p.tp}})
    if (n > 1) out += fmt::format("{}{} {}", out.empty() ? "" : " x ", axis, n);
  return out.empty() ? "one rank" : out;
}

namespace {

std::string counted(int64_t n, const char* what, const char* plural = "s") {
  return fmt::format("{} {}{}", thousands(n), what, n == 1 ? "" : plural);
}

}  // namespace

std::string layout_text(const config::Recipe& r) {
  const config::Parallel& p = r.parallel;
  std::string out = axes_text(p);
  if (p.ep > 1 || p.etp > 1) out += fmt::format(", ep {} etp {}", p.ep, p.etp);
  if (p.dp_shard * p.cp > 1) out += fmt::format(", zero {}", p.zero);
  if (p.zero_replicas > 0) out += ", optimizer state over replicas too";
  if (p.group.kind == config::Grouping::Kind::Blocks)
    out += fmt::format(", up to {} per group", counted(p.group.size, "block"));
  if (p.group.kind == config::Grouping::Kind::Bytes)
    out += fmt::format(", groups of {}", config::byte_size_text(p.group.size));
  if (p.sequence_parallel) out += ", sequence parallelism";
  if (p.cp > 1) out += fmt::format(", cp by {}", config::name_of(p.cp_method));
  if (config::windowed_method(p) != p.cp_method)
    out += fmt::format(" ({} in windowed blocks)", config::name_of(config::windowed_method(p)));
  if (p.order != config::Parallel{}.order) out += ", order " + config::axis_order_words(p.order);
  if (r.memory.recompute != config::RecomputeKind::None)
    out += fmt::format(", recompute {}", config::name_of(r.memory.recompute));
  return out;
}

std::string number_text(double x) {
  return std::abs(x) < 9999.5 ? fmt::format("{:.4g}", x) : thousands(std::llround(x));
}

std::string seconds_text(double s) {
  if (s >= 0.9995) return number_text(s) + " s";
  if (s >= 0.9995e-3) return fmt::format("{:.4g} ms", s * 1e3);
  return fmt::format("{:.4g} us", s * 1e6);
}

namespace {

class Page {
 public:
  explicit Page(const Report& r) : r_(r) {}

  std::string text() {
    head();
    memory();
    checkpoint();
    time();
    links();
    for (const std::string& warning : r_.warnings) line("warning: {}", warning);
    for (const std::string& note : r_.notes) line("note: {}", note);
    return std::move(out_);
  }

 private:
  template <class... Args>
  void line(fmt::format_string<Args...> form, Args&&... args) {
    out_ += fmt::format(form, std::forward<Args>(args)...) + "\n";
  }

  void head() {
    const config::Recipe& r = r_.recipe;
    const config::Parallel& p = r.parallel;
    const hardware::Cluster& c = r_.assumptions.cluster;
    const std::string active =
        r_.active_parameters == r_.parameters
            ? ""
            : fmt::format(" ({} active)", base::human_count(static_cast<double>(r_.active_parameters)));
    line("{}: {} parameters{} on {} x {}", r.model.preset.empty() ? r.name : r.model.preset,
         base::human_count(static_cast<double>(r_.parameters)), active, thousands(c.world()),
         c.accelerator.title.empty() ? c.accelerator.name : c.accelerator.title);
    line("  cluster   {} of {}, {} inside, {} between", counted(c.nodes, "node"), c.per_node,
         c.inner.title.empty() ? "nothing" : c.inner.title, c.nodes == 1 ? "nothing" : c.outer.title);
    line("  layout    {}", layout_text(r));
    line("  step      {} of {} tokens; {} of size {}{}", counted(r.batch.global, "sequence"),
         thousands(r.data.seq_len), counted(r.batch.accumulation, "micro-batch", "es"), r.batch.micro,
         p.pp > 1 ? fmt::format(", schedule {}{}", p.schedule,
                                p.chunks > 1 ? fmt::format(" with {} chunks", p.chunks) : "")
                  : "");
    if (!r.batch.ramp.empty())
      line("  ramp      {}; memory and times apply to the full batch", config::ramp_text(r));
  }

  void checkpoint() {
    const CheckpointPlan& c = r_.checkpoint;
    line("");
    line("checkpoint: {} in {} files, {}", human_bytes(c.bytes), base::thousands(c.files),
         r_.recipe.checkpoint.every.is_on()
             ? fmt::format("{} of disk with the {} that are kept", human_bytes(c.disk_bytes),
                           r_.recipe.checkpoint.keep)
             : "one at the end of the run");
    const auto time = [](double seconds) {
      return base::human_duration(static_cast<int64_t>(seconds * 1e9));
    };
    const double rate = r_.assumptions.storage.metadata;
    line("  {} metadata operations per save ({}), {} per load ({}), at {} per second of all ranks together",
         base::thousands(c.metadata_operations), time(static_cast<double>(c.metadata_operations) / rate),
         base::thousands(c.load_operations), time(static_cast<double>(c.load_operations) / rate),
         base::thousands(static_cast<int64_t>(rate)));
    const auto bytes = [](double per_second) { return human_bytes(static_cast<int64_t>(per_second)); };
    if (c.save_seconds > 0) line("  saved in {} at {}/s", time(c.save_seconds), bytes(c.write_rate));
    if (c.load_seconds > 0)
      line("  loaded in {} at {}/s", time(c.load_seconds), bytes(r_.assumptions.storage.read));
  }

  void memory() {
    const Memory& m = r_.memory;
    const RankMemory& most = m.ranks[m.most_loaded];
    line("");
    line("memory per device: {} of {}, {}", human_bytes(most.total()), human_bytes(m.limit),
         m.fits_device() ? fmt::format("fits with {} free", human_bytes(m.limit - most.total()))
                         : fmt::format("DOES NOT FIT by {}", human_bytes(most.total() - m.limit)));
    if (m.ranks.size() > 1)
      line("  most loaded: rank {}, stage {} of {}", most.rank, most.stage, m.ranks.size());
    const auto row = [&](std::string_view what, int64_t bytes) {
      if (bytes != 0) line("  {:<16} {:>10}", what, human_bytes(bytes));
    };
    for (size_t i = 0; i < most.by_class.size(); ++i)
      row(program::to_string(static_cast<program::MemoryClass>(i)), most.by_class[i]);
    row("gaps", most.gaps());
    row("runtime", most.runtime_bytes);
    row("copies of state", most.device_copies);
    if (most.routed_bytes > most.expected_routed_bytes)
      line("  of which expert rows: {} reserved{}; {} in use if rows arrive {}",
           human_bytes(most.routed_bytes), r_.recipe.model.moe.receive_bound > 0 ? "" : " for the worst case",
           human_bytes(most.expected_routed_bytes),
           r_.assumptions.imbalance == 1
               ? std::string("evenly")
               : fmt::format("at {:.3g} times the even share", r_.assumptions.imbalance));
    line("  peak at {}{}", most.peak_at, moments());
    const program::SavingMemory& host = r_.checkpoint.host;
    if (host.staging > 0)
      line("  host             {} per rank for the copy that a checkpoint is written from",
           human_bytes(host.staging));
    if (host.peers > 0)
      line("  host             {} per rank for copies of its state and of another rank's",
           human_bytes(host.peers));
    if (host.total() == 0) line("  host             unused: all state stays on the device");
    if (m.host_copies > 0)
      line("host memory per node: {}{}", human_bytes(m.host_copies),
           m.host_limit == 0 ? std::string(" for these copies")
           : m.fits_host()   ? fmt::format(" of {}, fits", human_bytes(m.host_limit))
                             : fmt::format(" of {}, DOES NOT FIT by {}", human_bytes(m.host_limit),
                                           human_bytes(m.host_copies - m.host_limit)));
    if (m.ranks.size() > 1) {
      std::string stages;
      for (const RankMemory& s : m.ranks)
        stages += fmt::format(" {:.1f}", static_cast<double>(s.total()) / (1 << 30));
      line("  GiB per stage:{}", stages);
    }
  }

  // What the timeline shows besides its peak.
  std::string moments() const {
    std::vector<int64_t> bytes;
    for (const MemoryPoint& p : r_.memory.timeline) bytes.push_back(p.bytes());
    if (bytes.empty()) return "";
    std::sort(bytes.begin(), bytes.end());
    return fmt::format("; live over the step: {} to {}, median {}", human_bytes(bytes.front()),
                       human_bytes(bytes.back()), human_bytes(bytes[bytes.size() / 2]));
  }

  void time() {
    const Time& t = r_.time;
    line("");
    line("time per step: {}, {} tokens/s, {} tokens/s per device", seconds_text(t.step),
         base::human_count(t.tokens_per_s), number_text(t.tokens_per_s_per_device));
    const Confidence& c = confidence(r_.recipe, r_.assumptions.stack);
    const Band band = band_of(r_);
    const double each = t.tokens_per_s_per_device;
    line(
        "  band: {} to {} tokens/s per device, the error of nine in ten plans of {} published runs that the "
        "terms were not fitted on ({})",
        number_text(band.least * each), number_text(band.most * each), c.rows, c.basis);
    if (r_.memory.ranks.size() > 1) line("  on stage {}, the busiest:", t.busiest);
    for (const TimeShare& s : t.shares)
      if (s.seconds > 0.00005 * t.step)
        line("  {:<16} {:>10} {:>6.1f} %", s.what, seconds_text(s.seconds), 100 * s.seconds / t.step);
    if (t.stage_seconds.size() > 1) {
      std::string stages;
      for (const double s : t.stage_seconds) stages += " " + seconds_text(s);
      line("  compute per stage:{}; standard deviation {:.1f} % of the mean", stages,
           100 * t.stage_variation());
    }
    line("  {} model TFLOP/s per device: MFU {:.1f} %, HFU {:.1f} %",
         number_text(t.model_flops_per_device() / 1e12), 100 * t.mfu, 100 * t.hfu);
    line("  MFU = {} model TFLOP / ({} x {} devices x {} TFLOP/s dense); HFU also counts recompute",
         number_text(t.model_flops / 1e12), seconds_text(t.step), thousands(t.devices),
         number_text(t.peak_flops / 1e12));
  }

  void links() {
    if (r_.time.links.empty()) return;
    line("");
    line("sent per device per step");
    line("  {:<16} {:>12} {:>12} {:>12}  {}", "axes", "bytes", "duration", "exposed", "link");
    for (const LinkBytes& l : r_.time.links)
      line("  {:<16} {:>12} {:>12} {:>12}  {}", l.axes, human_bytes(std::llround(l.bytes)),
           seconds_text(l.seconds), seconds_text(l.exposed), l.link);
  }

  const Report& r_;
  std::string out_;
};

}  // namespace

std::string to_text(const Report& report) { return Page(report).text(); }

}  // namespace quintet::plan
