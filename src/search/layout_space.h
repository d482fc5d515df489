// The layouts that a search considers: for a recipe's model, sequence, global batch, precision and optimizer,
// every mesh that fills a cluster, with schedule, ZeRO stage, recompute and micro-batch. Whether one is legal
// is for config's rules alone to say.
#pragma once

#include <string>
#include <vector>

#include "config/recipe.h"
#include "hardware/cluster.h"

namespace quintet::search {

// Values to try of every axis. dp is what the others leave of the world; it is shared out as dp_replicate x
// dp_shard in every way (zero 0: all of it dp_replicate, for there is nothing to shard).
struct LayoutSpace {
  std::vector<int64_t> pp, cp, tp, ep, etp;
  std::vector<int64_t> dp_replicate;       // of sharded state; empty: every divisor of dp
  std::vector<int64_t> sequence_parallel;  // 0 and 1; where tp is 1 only 0 is tried
  std::vector<config::ContextMethod> methods;
  std::vector<int64_t> micro, zero;
  std::vector<config::RecomputeKind> recompute;
  std::vector<std::string> schedules;  // with a pipeline
  std::vector<int64_t> chunks;         // of "interleaved"
};

// What is worth trying on the cluster:
// - tp and etp stay within the devices that the inner link joins: every block waits for their messages;
// - cp leaves a rank chunks of at least 512 rows: shorter ones hide no transfers;
// - gpipe is left out, which takes as long as 1f1b and holds more.
LayoutSpace usual_space(const config::Recipe& recipe, const hardware::Cluster& cluster);

// Whether "key=value", as after --set, speaks of what a search chooses.
bool is_of_layout(const std::string& set);
// The space with what `sets` say of the layout held at that; those that speak of other things are passed
// over. A UserError for what a search cannot hold.
LayoutSpace fixed(LayoutSpace space, const std::vector<std::string>& sets);

// The recipe with a capacity for every expert, padded: sizes are known beforehand, tokens beyond it are
// dropped. A UserError where the model has no experts.
config::Recipe with_capacity(const config::Recipe& recipe, double factor);

// One mesh with a micro-batch, ZeRO stage and recompute: all schedules of it have much in common.
struct Family {
  int64_t pp = 1, dp_replicate = 1, dp_shard = 1, cp = 1, tp = 1, ep = 1, etp = 1, micro = 1, zero = 0;
  bool sequence_parallel = false;
  config::ContextMethod method = config::ContextMethod::Auto;
  config::RecomputeKind recompute = config::RecomputeKind::None;
};

struct Schedule {
  std::string name;  // empty without a pipeline
  int64_t chunks = 1;
};

// How values lie on the ranks of a pipeline stage (tp, sequence parallel, cp, ep, etp): families that differ
// in nothing else have the same blocks. In a fixed order; the other fields are left as they are by default.
std::vector<Family> ways(const LayoutSpace& space, int64_t world);
// The families of a way with its micro-batch and recompute: every pipeline, ZeRO stage and split of dp. Legal
// ones and others; only what does not multiply to `world` or divide the global batch is left out.
std::vector<Family> families_of(const Family& way, const config::Recipe& recipe, const LayoutSpace& space,
                                int64_t world);
// All of them, in the order of the above.
std::vector<Family> families(const config::Recipe& recipe, const LayoutSpace& space, int64_t world);
std::vector<Schedule> schedules(const Family& family, const LayoutSpace& space);

// The recipe with that layout, unresolved where config works things out.
config::Recipe with_layout(const config::Recipe& recipe, const Family& family, const Schedule& schedule);

// Every legal recipe of the space, resolved, in the order of the above.
std::vector<config::Recipe> legal_recipes(const config::Recipe& recipe, const LayoutSpace& space,
                                          int64_t world);

// "tp 8 with sequence parallel, pp 4 (1f1b), dp 16 (zero 1), micro 1 x 32, recompute selective".
std::string layout_words(const config::Recipe& recipe);

}  // namespace quintet::search
