// `quintet doctor RECIPE`: runs a few real steps, traces one, compares it with the plan of the same recipe
// and names the bottleneck.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "config/recipe.h"
#include "data/batch.h"
#include "machine/facts.h"
#include "plan/plan.h"

namespace quintet::tools {

struct DoctorOptions {
  int64_t steps = 5;                                 // timed, after the warm-up
  std::optional<hardware::Cluster> cluster;          // to plan for; empty: this machine, probed
  double probe_seconds = 0.05;                       // per measurement of the probe
  std::string date = {};                             // of the probe
  std::function<void(const std::string&)> log = {};  // progress messages, on rank 0
};

// What can limit a step.
enum class Part : uint8_t { Compute, Network, Pipeline, LateRanks, Input, Host };
std::string_view to_string(Part part);

struct DoctorRow {
  std::string what;  // a name of plan::TimeShare, or "late ranks", "input"
  Part part = Part::Compute;
  double planned = 0, measured = 0;  // seconds
  std::string axes = {};             // Network: of the communicators
};

// The collectives of a step over one set of axes, overlapped or not.
struct AxisTraffic {
  std::string axes;
  double bytes = 0;                  // sent per rank, from the plan
  double planned = 0, measured = 0;  // seconds of data transfer
};

struct Diagnosis {
  plan::Report plan;
  std::string device;
  bool probed = false;  // the plan's cluster was measured in this run
  int world = 1;
  int64_t ranks_here = 1;  // on the host of rank 0
  int threads = 1;         // compute threads per rank; 0: ranks use GPUs
  int64_t steps = 0;
  double step = 0, fastest = 0, slowest = 0;  // seconds; step is the median
  int rank = 0;  // the rank of the rows: the one that waited least. The rows add up to the step.
  std::vector<DoctorRow> rows;
  std::vector<AxisTraffic> traffic;
  // Of the rank with the largest plan: the arena, its touched bytes, and bytes outside of it.
  int memory_rank = 0;
  int64_t planned_bytes = 0, measured_bytes = 0, extra_bytes = 0;
  machine::MachineFacts machine;  // before the steps
  int cores = 1;                  // cores that the ranks on that host share

  double planned_of(Part part) const;
  double measured_of(Part part) const;
  // More compute threads than cores: a wait for another rank is then mostly a wait for a core.
  bool oversubscribed() const { return ranks_here * threads > cores; }
  // The part with the largest share of the step.
  Part bottleneck() const;
  // One sentence about the bottleneck, with numbers and advice.
  std::string sentence() const;
  // The part that exceeds its plan by most, if it is not the bottleneck and exceeds it by a tenth of the
  // step.
  std::string largest_excess() const;
};

// Runs the recipe as train would, without writing anything. Ranks are threads of this process, or this
// process is one rank of an MPI job; empty on ranks other than 0. `load` returns the resolved recipe.
std::optional<Diagnosis> diagnose(const std::function<config::Recipe()>& load, const DoctorOptions& options);

// One rank's part; collective over the world, whose size must match the recipe. Empty on ranks other than 0.
struct Place {
  int64_t ranks_here = 1, local_rank = 0;
  bool processes = false;  // ranks are processes, which may be pinned to cores
};
std::optional<Diagnosis> diagnose_rank(const config::Recipe& recipe, const data::Batches& batches,
                                       comm::World& world, const Place& place, const DoctorOptions& options);

std::string to_text(const Diagnosis& diagnosis);
std::string to_json(const Diagnosis& diagnosis);

}  // namespace quintet::tools
