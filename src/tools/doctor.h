// What holds a recipe up on this machine: a few real steps, one of them traced, beside the plan of the same
// recipe; the difference, and the bottleneck in one sentence. What `quintet doctor RECIPE` does.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "config/recipe.h"
#include "data/batch.h"
#include "plan/plan.h"
#include "tools/machine_facts.h"

namespace quintet::tools {

struct DoctorOptions {
  int64_t steps = 5;                                 // timed, after the warm-up
  std::optional<hardware::Cluster> cluster;          // what to plan on; empty: this machine, probed
  double probe_seconds = 0.05;                       // for each thing that the probe measures
  std::string date = {};                             // of the probe
  std::function<void(const std::string&)> log = {};  // told on rank 0 what is done
};

// What a step can be held up by.
enum class Part : uint8_t { Compute, Network, Pipeline, LateRanks, Input, Host };
std::string_view to_string(Part part);

struct DoctorRow {
  std::string what;  // as plan::TimeShare names it, and "late ranks", "input"
  Part part = Part::Compute;
  double planned = 0, measured = 0;  // seconds
};

// Of the collectives over some axes in a step, hidden or not.
struct AxisTraffic {
  std::string axes;
  double bytes = 0;                  // sent by a rank, by the plan
  double planned = 0, measured = 0;  // seconds in which data moved
};

struct Diagnosis {
  plan::Report plan;
  std::string device;
  bool probed = false;  // the plan's cluster was measured here and now
  int world = 1;
  int64_t ranks_here = 1;  // on the host of rank 0, ...
  int threads = 1;         // ... each with so many that compute on it; 0: none, they use GPUs
  int64_t steps = 0;
  double step = 0, fastest = 0, slowest = 0;  // seconds; the middle one counts
  int rank = 0;  // whose time the rows are: the one that waited least. They add up to the step.
  std::vector<DoctorRow> rows;
  std::vector<AxisTraffic> traffic;
  // Of the rank with the largest plan: the arena, what of it was touched, and what lies beside it.
  int memory_rank = 0;
  int64_t planned_bytes = 0, measured_bytes = 0, beside_bytes = 0;
  MachineFacts machine;  // before the steps
  int cores = 1;         // of it that the ranks there share

  double planned_of(Part part) const;
  double measured_of(Part part) const;
  // Ranks take turns on the cores: a wait for another rank is then a wait for its turn.
  bool crowded() const { return ranks_here * threads > cores; }
  // The part that takes most of the step.
  Part bottleneck() const;
  // It in one sentence with its numbers, and what follows from it.
  std::string sentence() const;
  // The part that exceeds its plan by most, where that is another one and more than a tenth of the step.
  std::string beyond_plan() const;
};

// Runs the recipe as train would, without writing anything: ranks are threads of this process, or this
// process is one of an MPI job; empty on its ranks other than 0. `load` gives the resolved recipe.
std::optional<Diagnosis> diagnose(const std::function<config::Recipe()>& load, const DoctorOptions& options);

// One rank's part: collective over the world, whose size is the recipe's. Empty on ranks other than 0.
struct Place {
  int64_t ranks_here = 1, local_rank = 0;
  bool processes = false;  // ranks are processes, which may be bound to cores of their own
};
std::optional<Diagnosis> diagnose_rank(const config::Recipe& recipe, const data::Batches& batches,
                                       comm::World& world, const Place& place, const DoctorOptions& options);

std::string to_text(const Diagnosis& diagnosis);
std::string to_json(const Diagnosis& diagnosis);

}  // namespace quintet::tools
