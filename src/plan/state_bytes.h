// Bytes of a model's state for every parameter, as a function of how it is kept: the arithmetic that decides
// whether something fits before activations are spoken of. Plans themselves read bytes off programs; this is
// for words, and for ways of keeping state that the engine has not got yet.
#pragma once

#include <cstdint>
#include <string>

#include "config/recipe.h"
#include "hardware/cluster.h"

namespace quintet::plan {

struct StateFormat {
  double weight = 2;         // that products read
  double gradient = 4;       // that adds up over micro-batches
  double gradient_copy = 0;  // a second one, in another type
  double master = 4;         // that the optimizer updates, beside the weight; 0: the weight itself
  double moments = 8;        // all of them together
  double total() const { return weight + gradient + gradient_copy + master + moments; }
};

// How this engine keeps the recipe's state.
StateFormat format_of(const config::Precision& precision, const config::Optimizer& optimizer);

// Known ways, by what they keep.
StateFormat pure_f32();              // 4 + 4 + 8
StateFormat mixed_bf16_gradients();  // 2 + 2 + 4 + 8
StateFormat mixed_f32_gradients();   // 2 + 4 + 4 + 8
StateFormat mixed_two_gradients();   // 2 + 2 + 4 + 4 + 8
StateFormat pure_bf16();             // 2 + 2 + 4
StateFormat eight_bit_moments();     // 2 + 2 + 4 + 2: master in f32, moments of one byte each

// Bytes for a parameter on a device when ZeRO stage `zero` shards over `ranks`.
double sharded_bytes(const StateFormat& format, int zero, double ranks);

// What a rank sends in a step, in sizes of the model, for so many micro-batches, over many ranks: all-reduce
// 2; zero 1 the same in two halves; zero 2 reduces every micro-batch; zero 3 gathers twice and reduces.
double traffic(int zero, int64_t micro_batches);

// Optimizer state in host memory: gradients go down, new weights come up, the CPU does the update. On disk,
// state comes up and goes down again as well.
struct OffloadCost {
  double down_bytes = 4, up_bytes = 2;  // for a parameter, over the link to the host
  double touched_bytes = 0;             // for a parameter, in host memory
  double disk_bytes = 0;                // for a parameter, to and from disk
  double seconds = 0;                   // of a step, for a device's share, nothing hidden
};
// `parameters` are a device's own. The host's memory is shared by its devices; host_bytes_per_s is the
// node's.
OffloadCost optimizer_offload(double parameters, const hardware::Cluster& cluster, double host_bytes_per_s);
OffloadCost disk_offload(double parameters, const hardware::Cluster& cluster);
// Rule: below this, a disk keeps devices idle for most of a step.
inline constexpr double kLeastDiskBytesPerS = 7e9;
inline constexpr double kHostBytesPerS = 300e9;  // of a node's memory; a two-socket server with DDR5

// Adapters of rank r beside every matrix: frozen weights of `weight_bytes`, and whole state for the adapters.
double lora_parameters(const config::Model& model, int64_t rank);
double lora_bytes(const config::Model& model, double parameters, int64_t rank, double weight_bytes);

}  // namespace quintet::plan
