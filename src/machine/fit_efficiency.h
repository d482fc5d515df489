// Fits efficiencies of an accelerator so that hardware/cost.h reproduces a measured kernel time.
#pragma once

#include <algorithm>

#include "hardware/cost.h"

namespace quintet::machine {

// The smallest fraction of a peak that is plausible.
inline constexpr double kMinShare = 1e-3;
inline double share_of(double part, double whole) {
  return whole > 0 ? std::clamp(part / whole, kMinShare, 1.0) : 1.0;
}

// `seconds` is the kernel time without launch; all other terms of the accelerator must be set.
inline double fit_matmul(hardware::Accelerator a, const hardware::Matmul& matmul, double seconds) {
  a.efficiency.matmul = 1;
  a.efficiency.launch_seconds = 0;
  return share_of(hardware::matmul_seconds(matmul, a, {}), seconds);
}

inline double fit_attention(hardware::Accelerator a, const hardware::Attention& attention, double seconds) {
  a.efficiency.attention_forward = a.efficiency.attention_backward = kMinShare;  // below every other limit
  a.efficiency.launch_seconds = 0;
  return share_of(kMinShare * hardware::attention_seconds(attention, a, {}), seconds);
}

}  // namespace quintet::machine
