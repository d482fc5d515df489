#include "tools/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "comm/local.h"
#include "comm/mpi.h"
#include "config/environment.h"
#include "config/validate.h"
#include "machine/gpu_probe.h"
#include "machine/probe.h"
#include "sim/time_breakdown.h"
#include "tools/step_times.h"
#include "train/gather_texts.h"
#include "train/loop.h"
#include "train/loop_trace.h"
#include "train/memory_check.h"
#include "train/rank.h"
#include "train/run_data.h"

namespace quintet::tools {
namespace {

using nlohmann::json;

// Two steps measure memory, and a GPU captures its second.
constexpr int64_t kWarmup = 3;
// A GPU needs this long to reach its sustained clock.
constexpr double kGpuProbeSeconds = 0.3;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Runs the steps of one rank and measures the time that its batches take.
class Stepper {
 public:
  Stepper(train::Rank& rank, const data::Batches& batches) : rank_(rank), batches_(batches) {}

  struct Timed {
    double wall = 0;
    double load = 0;   // filling micro-batches, on any thread
    double count = 0;  // counting labels before the step
  };
  Timed step() {
    load_seconds_ = 0;
    const int64_t begin = base::now_ns();
    const int64_t labels = batches_.count_labels(step_, rank_.dp_index());
    Timed t;
    t.count = base::seconds_since(begin);
    rank_.start_step_from(
        step_, [this](int64_t step) { return load_of(step); }, labels);
    rank_.finish_step();
    t.wall = base::seconds_since(begin);
    t.load = load_seconds_;
    ++step_;
    return t;
  }
  int64_t next() const { return step_; }

 private:
  exec::LoadBatch load_of(int64_t step) {
    return
        [this, load = rank_.load_of(step, batches_)](int micro, const std::vector<exec::InputRows>& inputs) {
          const int64_t begin = base::now_ns();
          load(micro, inputs);
          load_seconds_ += base::seconds_since(begin);
        };
  }

  train::Rank& rank_;
  const data::Batches& batches_;
  int64_t step_ = 0;
  double load_seconds_ = 0;  // batches are filled by the stepping thread
};

// Findings of one rank, in seconds, scaled to the median step without tracing.
struct Found {
  StepTimes times;
  double step = 0, fastest = 0, slowest = 0;
  double input = 0, host = 0;
  int64_t planned = 0, measured = 0, extra = 0;
};

Found measure(train::Rank& rank, const data::Batches& batches, comm::World& world, bool on_cpu,
              int64_t steps) {
  Stepper stepper(rank, batches);
  for (int64_t i = 0; i < kWarmup; ++i) stepper.step();
  world.world().barrier();
  std::vector<double> walls, loads, counts;
  for (int64_t i = 0; i < steps; ++i) {
    const Stepper::Timed t = stepper.step();
    walls.push_back(t.wall);
    loads.push_back(t.load);
    counts.push_back(t.count);
  }
  observe::RankTrace trace = train::make_trace(rank, world.rank(), 1);
  rank.executor().trace_next(&trace, stepper.next());
  const Stepper::Timed traced = stepper.step();

  Found f;
  f.times = step_times(rank.compiled().program, rank.compiled().step, trace);
  f.step = median(walls);
  f.fastest = *std::min_element(walls.begin(), walls.end());
  f.slowest = *std::max_element(walls.begin(), walls.end());
  // On the CPU, tracing adds nothing, but a busy machine may slow down the traced step. On a GPU, a traced
  // step is launched kernel by kernel, which can only extend its span.
  StepTimes& t = f.times;
  const double scale = on_cpu ? f.step / traced.wall : t.span > f.step ? f.step / t.span : 1;
  for (double* s : {&t.matmul, &t.attention, &t.other, &t.optimizer, &t.load, &t.idle, &t.span}) *s *= scale;
  for (auto& calls : t.comms)
    for (StepTimes::Collective& c : calls) c.seconds *= scale, c.exposed *= scale;
  const double outside = std::max(0.0, f.step - t.span);
  if (on_cpu) {
    f.input = t.load + std::min(outside, median(counts));
    f.host = t.idle + outside - (f.input - t.load);
  } else {
    // The next batch is filled while the device computes; the program itself only copies it.
    t.other += t.load;
    f.input = std::min(outside, median(counts) + std::max(0.0, median(loads) - t.span));
    f.host = t.idle + outside - f.input;
  }
  f.planned = rank.planned_peak_bytes();
  f.measured = rank.measured_peak_bytes();
  f.extra = rank.executor().extra_bytes();
  return f;
}

std::string to_message(const Found& f, const program::Program& program) {
  const StepTimes& t = f.times;
  json out = {{"matmul", t.matmul},       {"attention", t.attention}, {"other", t.other},
              {"optimizer", t.optimizer}, {"input", f.input},         {"host", f.host},
              {"step", f.step},           {"fastest", f.fastest},     {"slowest", f.slowest},
              {"planned", f.planned},     {"measured", f.measured},   {"extra", f.extra}};
  out["comms"] = json::array();
  for (size_t c = 0; c < t.comms.size(); ++c) {
    json calls = json::array();
    for (const StepTimes::Collective& call : t.comms[c]) calls.push_back({call.seconds, call.exposed});
    std::string key = program.comms[c].name();
    for (const base::RankId m : program.comms[c].members) key += fmt::format(" {}", m.value);
    out["comms"].push_back({{"key", key},
                            {"axes", program::axes_text(program.comms[c])},
                            {"joins_stages", sim::joins_stages(program.comms[c])},
                            {"calls", std::move(calls)}});
  }
  return out.dump();
}

// For every communicator, the shortest duration of each call over all members.
using Shortest = std::map<std::string, std::vector<double>>;
Shortest shortest_calls(const std::vector<json>& ranks) {
  Shortest shortest;
  for (const json& rank : ranks)
    for (const json& comm : rank["comms"]) {
      std::vector<double>& list = shortest[comm["key"].get<std::string>()];
      const json& calls = comm["calls"];
      if (list.empty()) list.assign(calls.size(), 1e300);
      QUINTET_CHECK(list.size() == calls.size(), "members of '{}' made {} and {} calls",
                    comm["key"].get<std::string>(), list.size(), calls.size());
      for (size_t i = 0; i < list.size(); ++i) list[i] = std::min(list[i], calls[i][0].get<double>());
    }
  return shortest;
}

double waited(const json& rank) {
  double sum = 0;
  for (const json& comm : rank["comms"])
    for (const json& call : comm["calls"]) sum += call[1].get<double>();
  return sum;
}

Part part_of(plan::TimeKind kind) {
  switch (kind) {
    case plan::TimeKind::Kernels:
      return Part::Compute;
    case plan::TimeKind::Communication:
      return Part::Network;
    case plan::TimeKind::Bubble:
      return Part::Pipeline;
    case plan::TimeKind::Host:
      return Part::Host;
  }
  base::fail_internal("no such part of a step");
}

DoctorRow& row(Diagnosis& d, const std::string& what, Part part, const std::string& axes = {}) {
  for (DoctorRow& r : d.rows)
    if (r.what == what) return r;
  return d.rows.emplace_back(DoctorRow{.what = what, .part = part, .axes = axes});
}

Diagnosis combine(const std::vector<std::string>& messages, plan::Report plan) {
  std::vector<json> ranks;
  for (const std::string& m : messages) ranks.push_back(json::parse(m));
  Diagnosis d;
  d.plan = std::move(plan);
  d.world = static_cast<int>(ranks.size());
  for (size_t r = 1; r < ranks.size(); ++r) {
    if (waited(ranks[r]) < waited(ranks[static_cast<size_t>(d.rank)])) d.rank = static_cast<int>(r);
    if (ranks[r]["planned"] > ranks[static_cast<size_t>(d.memory_rank)]["planned"])
      d.memory_rank = static_cast<int>(r);
  }
  const json& own = ranks[static_cast<size_t>(d.rank)];
  const json& memory = ranks[static_cast<size_t>(d.memory_rank)];
  d.step = own["step"], d.fastest = own["fastest"], d.slowest = own["slowest"];
  d.planned_bytes = memory["planned"], d.measured_bytes = memory["measured"], d.extra_bytes = memory["extra"];

  for (const plan::TimeShare& s : d.plan.time.shares)
    row(d, s.what, part_of(s.kind), s.axes).planned += s.seconds;
  for (const plan::LinkBytes& l : d.plan.time.links) {
    auto it = std::find_if(d.traffic.begin(), d.traffic.end(),
                           [&](const AxisTraffic& t) { return t.axes == l.axes; });
    if (it == d.traffic.end()) it = d.traffic.insert(it, AxisTraffic{.axes = l.axes});
    it->bytes += l.bytes;
    it->planned += l.seconds;
  }
  for (const auto& [what, key] : {std::pair{"matmul", "matmul"},
                                  {"attention", "attention"},
                                  {"other kernels", "other"},
                                  {"optimizer", "optimizer"}})
    row(d, what, Part::Compute).measured += own[key].get<double>();
  const Shortest shortest = shortest_calls(ranks);
  for (const json& comm : own["comms"]) {
    const std::string axes = comm["axes"];
    const std::vector<double>& least = shortest.at(comm["key"].get<std::string>());
    double moved = 0, late = 0, in_all = 0;
    for (size_t i = 0; i < least.size(); ++i) {
      const StepTimes::Collective call{comm["calls"][i][0], comm["calls"][i][1]};
      const double m = transfer_seconds(call, least[i]);
      moved += m;
      late += call.exposed - m;
      in_all += least[i];
    }
    row(d, "wait " + axes, Part::Network, axes).measured += moved;
    if (late > 0)
      (comm["joins_stages"].get<bool>() ? row(d, "bubble", Part::Pipeline)
                                        : row(d, "late ranks", Part::LateRanks))
          .measured += late;
    for (AxisTraffic& t : d.traffic)
      if (t.axes == axes) t.measured += in_all;
  }
  row(d, "input", Part::Input).measured += own["input"].get<double>();
  row(d, "host", Part::Host).measured += own["host"].get<double>();
  std::stable_sort(d.rows.begin(), d.rows.end(),
                   [](const DoctorRow& a, const DoctorRow& b) { return a.part < b.part; });
  return d;
}

hardware::Cluster probe_here(const config::Recipe& recipe, comm::World& world, const Place& place,
                             int threads, const DoctorOptions& options, const machine::MachineFacts& facts) {
  machine::ProbeOptions p;
  p.seconds = options.probe_seconds;
  p.threads = threads;
  p.ranks_per_host = static_cast<int>(place.ranks_here);
  p.disk_bytes = 0;
  p.compute = recipe.precision.compute;
  p.deterministic = recipe.run.deterministic;
  if (train::device_of(recipe) == exec::Device::Cuda) {
    p.seconds = std::max(p.seconds, kGpuProbeSeconds);
    return machine::cluster_of(machine::probe_gpu(world, place.local_rank, p), facts, options.date);
  }
  p.memory_bytes = int64_t{64} << 20;
  p.message_bytes = int64_t{4} << 20;
  machine::Probe found = machine::probe(world, p);
  found.processes = place.processes;
  return machine::cluster_of(found, facts, options.date);
}

}  // namespace

std::optional<Diagnosis> diagnose_rank(const config::Recipe& recipe, const data::Batches& batches,
                                       comm::World& world, const Place& place, const DoctorOptions& options) {
  const bool first = world.rank().value == 0;
  const exec::Device device = train::device_of(recipe);
  const int threads = train::kernel_threads(recipe, place.ranks_here);
  const auto say = [&](const std::string& line) {
    if (first && options.log) options.log(line);
  };
  const machine::MachineFacts facts = machine::inspect_machine();
  plan::Assumptions assumptions;
  if (options.cluster) {
    assumptions.cluster = *options.cluster;
  } else {
    say("probing this machine ...");
    assumptions.cluster = probe_here(recipe, world, place, threads, options, facts);
  }
  assumptions.workspace_bytes = exec::workspace_of(device, threads);
  std::optional<plan::Report> report;  // before the steps, to report an unsuitable cluster early
  if (first) report = plan::make_plan(recipe, assumptions);
  world.world().barrier();

  say(fmt::format("running {} steps ...", kWarmup + options.steps + 1));
  std::string name;
  std::vector<std::string> messages;
  {
    train::Rank rank(recipe, world,
                     {.threads = threads,
                      .evaluate = recipe.eval.every > 0,
                      .local_rank = place.local_rank,
                      .tuned = train::tuned_file(),
                      .log = say,
                      .fit = train::find_fit(recipe, {}, threads)});
    const Found found =
        measure(rank, batches, world, device == exec::Device::Cpu, std::max<int64_t>(1, options.steps));
    name = rank.executor().device_name();
    messages = train::gather_texts(world, to_message(found, rank.compiled().program));
  }
  if (!first) return std::nullopt;
  Diagnosis d = combine(messages, std::move(*report));
  d.device = name;
  d.probed = !options.cluster;
  d.ranks_here = place.ranks_here;
  d.threads = device == exec::Device::Cpu ? threads : 0;
  d.steps = std::max<int64_t>(1, options.steps);
  d.machine = facts;
  d.cores = place.processes ? facts.machine_cores : facts.cores;
  return d;
}

std::optional<Diagnosis> diagnose(const std::function<config::Recipe()>& load, const DoctorOptions& options) {
  const std::optional<config::Launch> launch = config::detect_launch();
  std::optional<Diagnosis> diagnosis;
  const auto check = [](const config::Recipe& recipe, const Place& place) {
    const exec::Device device = train::device_of(recipe);
    exec::require_device(device);
    const int threads = train::kernel_threads(recipe, place.ranks_here);
    train::require_memory(recipe, {}, threads,
                          exec::shared_memory(device, place.local_rank, place.ranks_here),
                          train::find_fit(recipe, {}, threads));
  };
  if (launch && launch->world > 1) {
    comm::run_mpi_world([&](comm::World& world) {
      const config::Recipe recipe = load();
      config::check_world(recipe, world.size());
      const Place place{
          .ranks_here = launch->local_world, .local_rank = launch->local_rank, .processes = true};
      check(recipe, place);
      const train::RunData data = train::load_data(recipe);
      diagnosis = diagnose_rank(recipe, data.train, world, place, options);
    });
    return diagnosis;
  }
  const config::Recipe recipe = load();
  const int64_t ranks = recipe.parallel.world();
  check(recipe, {.ranks_here = ranks, .local_rank = 0});
  const train::RunData data = train::load_data(recipe);
  comm::run_local_world(static_cast<int>(ranks), [&](comm::World& world) {
    auto mine = diagnose_rank(recipe, data.train, world,
                              {.ranks_here = ranks, .local_rank = world.rank().value}, options);
    if (mine) diagnosis = std::move(mine);
  });
  return diagnosis;
}

}  // namespace quintet::tools
