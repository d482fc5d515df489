// What an accelerator is to a plan: memory, bandwidth, dense peaks, power, and what of them real kernels
// reach. All figures are data (catalogue/*.toml), each with its source and date.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace quintet::hardware {

// The arithmetic of a matrix product; TF32 and below are the tensor cores'.
enum class Arithmetic : uint8_t { F64, F32, TF32, F16, BF16, FP8, FP4 };
inline constexpr int kNumArithmetics = 7;
std::string_view to_string(Arithmetic a);

// What kernels reach of the peaks, as measured on this accelerator (or on the nearest one that was measured).
// A matmul of m x n x k takes flops / (peak * matmul * size(m, n, k)), where size() falls off for shapes that
// fill the chip badly; see cost.h.
struct Efficiency {
  double matmul = 0.75;  // of the dense peak, large matrices, power limit included
  double matmul_fp8 = 0.65, matmul_fp4 = 0.5;
  double attention_forward = 0.5;  // of the bf16 peak, causal FLOPs counted as half
  double attention_backward = 0.4;
  double memory = 0.85;          // of the memory bandwidth, for kernels that stream
  double half_size = 0;          // FLOPs at which a matmul reaches half of its rate
  double launch_seconds = 3e-6;  // from the end of one kernel to the start of the next
};

struct Accelerator {
  std::string name;          // "h100-sxm"
  std::string title;         // "NVIDIA H100 SXM 80 GB"
  std::string vendor;        // "nvidia"
  int64_t memory_bytes = 0;  // usable, of one device
  double memory_bytes_per_s = 0;
  std::array<double, kNumArithmetics> dense_flops{};  // by Arithmetic; 0: not there
  double watts = 0;                                   // at full load
  int64_t runtime_bytes = 0;                          // context and libraries, outside of any plan
  std::string link;                                   // between the devices of a domain (links.toml)
  int domain = 8;                                     // devices that `link` joins
  std::string network;                                // the usual link between nodes
  Efficiency efficiency;
  double dense(Arithmetic a) const { return dense_flops[static_cast<size_t>(a)]; }
};

}  // namespace quintet::hardware
