// Bytes of model state per parameter as a function of its storage format: the arithmetic that decides whether
// a model fits before activations are considered. Plans read bytes from programs; this serves explanations
// and formats that the engine does not support yet.
#pragma once

#include <cstdint>
#include <string>

#include "config/recipe.h"
#include "hardware/cluster.h"

namespace quintet::plan {

struct StateFormat {
  double weight = 2;         // read by matmuls
  double gradient = 4;       // accumulated over micro-batches
  double gradient_copy = 0;  // a second copy in another dtype
  double master = 4;         // updated by the optimizer, in addition to the weight; 0: the weight itself
  double moments = 8;        // all moments together
  double total() const { return weight + gradient + gradient_copy + master + moments; }
};

// The format in which this engine stores the recipe's state.
StateFormat format_of(const config::Precision& precision, const config::Optimizer& optimizer);

// Common formats; the comments give their terms.
StateFormat pure_f32();              // 4 + 4 + 8
StateFormat mixed_bf16_gradients();  // 2 + 2 + 4 + 8
StateFormat mixed_f32_gradients();   // 2 + 4 + 4 + 8
StateFormat mixed_two_gradients();   // 2 + 2 + 4 + 4 + 8
StateFormat pure_bf16();             // 2 + 2 + 4
StateFormat eight_bit_moments();     // 2 + 2 + 4 + 2: master in f32, moments of one byte each

// Bytes per parameter and device when ZeRO stage `zero` shards over `ranks`.
double sharded_bytes(const StateFormat& format, int zero, double ranks);

// Bytes sent per rank and step, in multiples of the model size, for many ranks: 2 for an all-reduce; the same
// for zero 1, in two halves; zero 2 reduces for every micro-batch; zero 3 gathers twice and reduces.
double traffic(int zero, int64_t micro_batches);

// Optimizer state in host memory: gradients are copied down, updated weights are copied up, and the CPU runs
// the update. On disk, the state is read and written back as well.
struct OffloadCost {
  double down_bytes = 4, up_bytes = 2;  // per parameter, over the host link
  double touched_bytes = 0;             // per parameter, in host memory
  double disk_bytes = 0;                // per parameter, read and written on disk
  double seconds = 0;                   // per step for one device's share, with no overlap
};
// `parameters` counts one device's share. host_bytes_per_s is the bandwidth of the node, shared by its
// devices.
OffloadCost optimizer_offload(double parameters, const hardware::Cluster& cluster, double host_bytes_per_s);
OffloadCost disk_offload(double parameters, const hardware::Cluster& cluster);
// Rule of thumb: a slower disk leaves devices idle for most of a step.
inline constexpr double kLeastDiskBytesPerS = 7e9;
inline constexpr double kHostBytesPerS = 300e9;  // of a node's memory; a two-socket server with DDR5

// Rank-r adapters next to every matrix: frozen weights of `weight_bytes`, full training state for the
// adapters.
double lora_parameters(const config::Model& model, int64_t rank);
double lora_bytes(const config::Model& model, double parameters, int64_t rank, double weight_bytes);

}  // namespace quintet::plan
