// What an accelerator is to a plan: memory, bandwidth, dense peaks, power, and what of them real kernels
// reach. All figures are data (catalogue/*.toml), each with its source and date.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quintet::hardware {

// The arithmetic of a matrix product; TF32 and below are the tensor cores'.
enum class Arithmetic : uint8_t { F64, F32, TF32, F16, BF16, FP8, FP4 };
inline constexpr int kNumArithmetics = 7;
std::string_view to_string(Arithmetic a);
std::optional<Arithmetic> arithmetic_from(std::string_view name);
double bytes_per_element(Arithmetic a);

// What kernels reach of the peaks, as measured on this accelerator (or on the nearest one that was measured);
// cost.h says how the terms make a time.
struct Efficiency {
  double matmul = 0.75;  // of the dense peak, large matrices, power limit included
  double matmul_fp8 = 0.65, matmul_fp4 = 0.5;
  double attention_forward = 0.5;  // of the bf16 peak at head size 128, causal FLOPs counted as half
  double attention_backward = 0.4;
  // What kernels written for the generation before reach of those two rates.
  double older_attention = 1;
  // Head sizes at which attention would reach half of its limit: how fast the rate falls below 128.
  double half_head_forward = 40, half_head_backward = 40;
  double memory = 0.85;     // of the memory bandwidth, for kernels that stream
  double cache_bytes = 0;   // operands up to here are still in the cache when the next kernel reads them,
  double cache_speed = 1;   // so much faster than from memory
  double half_flops = 1e9;  // FLOPs at which a kernel reaches half of its rate: filling, draining
  double half_k = 100;      // length of a bf16 inner product at which a matmul reaches half of its rate
  double launch_seconds = 3e-6;  // from the end of one kernel to the start of the next
  friend bool operator==(const Efficiency&, const Efficiency&) = default;
};

struct Accelerator {
  std::string name;          // "h100-sxm"
  std::string title;         // "NVIDIA H100 SXM 80 GB"
  std::string vendor;        // "nvidia"
  int64_t memory_bytes = 0;  // usable, of one device
  double memory_bytes_per_s = 0;
  std::array<double, kNumArithmetics> dense_flops{};  // by Arithmetic; 0: not there
  int units = 1;                                      // processors that a matmul's tiles are spread over
  int tile = 128;                                     // edge of a usual tile; the others are in proportion
  double watts = 0;                                   // of the device at full load
  double system_watts = 0;            // of its share of a server at full load, itself included
  int64_t runtime_bytes = 0;          // context and libraries, outside of any plan
  int per_node = 8;                   // devices of a usual node
  std::string link;                   // between the devices of a domain (links.toml)
  int domain = 0;                     // devices that `link` joins where that is more than a node; 0: the node
  std::string network;                // the usual link between nodes
  double ports_per_device = 1;        // of that network
  std::string host;                   // the usual link to the host
  int64_t host_bytes_per_device = 0;  // memory of a usual host over its devices
  Efficiency efficiency;
  std::string source, date, efficiency_source;
  double dense(Arithmetic a) const { return dense_flops[static_cast<size_t>(a)]; }
  friend bool operator==(const Accelerator&, const Accelerator&) = default;
};

}  // namespace quintet::hardware
