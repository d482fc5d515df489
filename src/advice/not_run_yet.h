// Features that the engine does not run yet, priced from bytes alone: optimizer state in host memory or on
// disk, and low-rank adapters.
#pragma once

#include "config/recipe.h"
#include "hardware/cluster.h"
#include "plan/model_state.h"

namespace quintet::advice {

// Optimizer state in host memory: gradients are copied down, updated weights are copied up, and the CPU runs
// the update. On disk, the state is read and written back as well.
struct OffloadCost {
  double down_bytes = 0, up_bytes = 0;  // over the host link
  double touched_bytes = 0;             // in host memory
  double disk_bytes = 0;                // read and written on disk
  double seconds = 0;                   // per step, with no overlap
};
// For one device, which holds `share` of the model's state. host_bytes_per_s is the bandwidth of the node,
// shared by its devices.
OffloadCost optimizer_offload(const plan::ModelState& state, double share, const hardware::Cluster& cluster,
                              double host_bytes_per_s);
OffloadCost disk_offload(const plan::ModelState& state, double share, const hardware::Cluster& cluster);
// Rule of thumb: a slower disk leaves devices idle for most of a step.
inline constexpr double kMinDiskBytesPerS = 7e9;
inline constexpr double kHostBytesPerS = 300e9;  // of a node's memory; a two-socket server with DDR5

// Bytes saved by moments of one byte per element.
int64_t saved_by_8bit_moments(const plan::ModelState& state);

// Rank-r adapters next to every matrix: frozen weights of `weight_bytes`, and for the adapters the state that
// the recipe keeps for a trained parameter.
double lora_parameters(const config::Model& model, int64_t rank);
double lora_bytes(const config::Model& model, const plan::ModelState& state, int64_t rank,
                  double weight_bytes);

}  // namespace quintet::advice
