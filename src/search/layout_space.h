// The layouts that a search considers: for a recipe's model, sequence length, global batch, precision and
// optimizer, every mesh that fills the cluster, with every schedule, ZeRO stage, recompute policy and
// micro-batch. Only config's rules decide whether a layout is legal.
#pragma once

#include <string>
#include <vector>

#include "config/recipe.h"
#include "hardware/cluster.h"

namespace quintet::search {

// Values to try for every axis. dp is what the other axes leave of the world; every factorization into
// dp_replicate x dp_shard is tried (zero 0: all of it is dp_replicate, since there is nothing to shard).
struct LayoutSpace {
  std::vector<int64_t> pp, cp, tp, ep, etp;
  std::vector<int64_t> dp_replicate;       // with sharded state; empty: every divisor of dp
  std::vector<int64_t> sequence_parallel;  // 0 and 1; only 0 is tried where tp is 1
  std::vector<config::ContextMethod> methods;
  std::vector<int64_t> micro, zero;
  std::vector<config::RecomputeKind> recompute;
  std::vector<std::string> schedules;  // used with a pipeline
  std::vector<int64_t> chunks;         // for "interleaved"
};

// The values worth trying on the cluster:
// - tp and etp stay within the devices joined by the inner link, because every block waits for their traffic;
// - cp leaves each rank chunks of at least 512 rows, because shorter ones hide no transfers;
// - gpipe is left out: it takes as long as 1f1b and keeps more activations.
LayoutSpace usual_space(const config::Recipe& recipe, const hardware::Cluster& cluster);

// Whether "key=value" (a --set argument) sets something that a search chooses.
bool sets_layout(const std::string& set);
// The space restricted to the layout values in `sets`; other keys are ignored. Throws UserError for a layout
// key that a search cannot fix.
LayoutSpace fixed(LayoutSpace space, const std::vector<std::string>& sets);

// The recipe with a padded expert capacity: row counts are known in advance, and tokens past the capacity are
// dropped. Throws UserError if the model has no experts.
config::Recipe with_capacity(const config::Recipe& recipe, double factor);

// One mesh with micro-batch, ZeRO stage and recompute policy; its schedules share most of the work.
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

// Ways of laying out values on the ranks of a pipeline stage (tp, sequence parallelism, cp, ep, etp):
// families of the same way have identical blocks. In a fixed order; all other fields keep their defaults.
std::vector<Family> ways(const LayoutSpace& space, int64_t world);
// The families of a way with its micro-batch and recompute policy: every pipeline, ZeRO stage and split of
// dp, legal or not. Leaves out only what does not multiply to `world` or divide the global batch.
std::vector<Family> families_of(const Family& way, const config::Recipe& recipe, const LayoutSpace& space,
                                int64_t world);
// All families, in the order of the above.
std::vector<Family> families(const config::Recipe& recipe, const LayoutSpace& space, int64_t world);
std::vector<Schedule> schedules(const Family& family, const LayoutSpace& space);

// The recipe with that layout; derived values are left unresolved.
config::Recipe with_layout(const config::Recipe& recipe, const Family& family, const Schedule& schedule);

// Every legal recipe of the space, resolved, in the order of the above.
std::vector<config::Recipe> legal_recipes(const config::Recipe& recipe, const LayoutSpace& space,
                                          int64_t world);

// "tp 8 with sequence parallelism, pp 4 (1f1b), dp 16 (zero 1), micro 1 x 32, recompute selective".
std::string layout_words(const config::Recipe& recipe);

}  // namespace quintet::search
