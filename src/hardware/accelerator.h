// An accelerator as a plan sees it: memory, bandwidth, dense peaks, power, and the fraction of them that real
// kernels reach. All figures are data (catalogue/*.toml), each with source and date.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quintet::hardware {

// The arithmetic of a matmul; TF32 and below run on tensor cores.
enum class Arithmetic : uint8_t { F64, F32, TF32, F16, BF16, FP8, FP4 };
inline constexpr int kNumArithmetics = 7;
std::string_view to_string(Arithmetic a);
std::optional<Arithmetic> arithmetic_from(std::string_view name);
double bytes_per_element(Arithmetic a);

// Quintet runs on Cpu and Nvidia; the others can be planned for.
enum class Vendor : uint8_t { Unknown, Nvidia, Amd, Intel, Google, Aws, Cpu };
inline constexpr int kNumVendors = 7;
std::string_view to_string(Vendor vendor);  // "nvidia"; empty: Unknown
std::optional<Vendor> vendor_from(std::string_view name);

// The fraction of the peaks that kernels reach, measured on this accelerator or on the closest one measured.
// cost.h defines how these terms make up a time.
struct Efficiency {
  double matmul = 0.75;  // of the dense peak, large matrices, power limit included
  double matmul_fp8 = 0.65, matmul_fp4 = 0.5;
  double attention_forward = 0.5;  // of the bf16 peak at head size 128, causal FLOPs counted at half
  double attention_backward = 0.4;
  // Fraction of those two rates reached by kernels written for the previous generation.
  double older_attention = 1;
  // Head size at which attention reaches half of its limit: how fast the rate drops below 128.
  double half_head_forward = 40, half_head_backward = 40;
  double memory = 0.85;          // of the memory bandwidth, for streaming kernels
  double cache_bytes = 0;        // operands up to this size are still cached when the next kernel reads them,
  double cache_speed = 1;        // this many times faster than from memory
  double half_flops = 1e9;       // FLOPs at which a kernel reaches half of its rate: fill and drain
  double half_k = 100;           // k at which a bf16 matmul reaches half of its rate
  double launch_seconds = 3e-6;  // from the end of one kernel to the start of the next
  friend bool operator==(const Efficiency&, const Efficiency&) = default;
};

struct Accelerator {
  std::string name;   // "h100-sxm"
  std::string title;  // "NVIDIA H100 SXM 80 GB"
  Vendor vendor = Vendor::Unknown;
  int64_t memory_bytes = 0;  // usable, per device
  double memory_bytes_per_s = 0;
  std::array<double, kNumArithmetics> dense_flops{};  // by Arithmetic; 0: not supported
  int units = 1;                                      // processors over which a matmul's tiles are spread
  int tile = 128;                                     // edge of a typical tile; others are in proportion
  double watts = 0;                                   // of the device at full load
  double system_watts = 0;            // of its share of a server at full load, itself included
  int64_t runtime_bytes = 0;          // context and libraries, outside of any plan
  int per_node = 8;                   // devices in a typical node
  std::string link;                   // between the devices of a domain (links.toml)
  int domain = 0;                     // devices joined by `link` if more than a node; 0: the node
  std::string network;                // the default link between nodes
  double ports_per_device = 1;        // of that network
  std::string host;                   // the default link to the host
  int64_t host_bytes_per_device = 0;  // memory of a typical host divided by its devices
  Efficiency efficiency;
  std::string source, date, efficiency_source;
  bool is_cpu() const { return vendor == Vendor::Cpu; }
  bool is_nvidia() const { return vendor == Vendor::Nvidia; }
  double dense(Arithmetic a) const { return dense_flops[static_cast<size_t>(a)]; }
  friend bool operator==(const Accelerator&, const Accelerator&) = default;
};

}  // namespace quintet::hardware
