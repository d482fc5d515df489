// What kernels share across the instructions of a rank: handles, plans and tuned choices of cuBLASLt and
// cuDNN, and constants in device memory.
#pragma once

#include <memory>
#include <set>
#include <span>
#include <string>

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/matmul/matmul.h"
#include "kernels/cuda/support/constants.h"

namespace quintet::exec::cuda {

struct LibraryOptions {
  bool tune = true;  // time the candidates of every product in prepare(); else the library's first guess runs
  bool tf32 = false;  // products of f32 round their operands to 10 bits of mantissa
};

// One per thread that launches, on the device that is current when it is made.
class Libraries {
 public:
  explicit Libraries(LibraryOptions options = {});

  kernels::cuda::Matmul& matmul() { return matmul_; }
  kernels::cuda::Attention& attention() { return attention_; }
  bool tunes() const { return options_.tune; }
  // What prepare() found that a user should know, told when all is prepared.
  std::set<std::string>& remarks() { return remarks_; }

  // A copy of host memory on the device that lives as long as this object. Equal bytes share one copy.
  // Allocates and waits: for prepare() only.
  const std::byte* upload(std::span<const std::byte> bytes) { return constants_.add(bytes); }

 private:
  LibraryOptions options_;
  kernels::cuda::Matmul matmul_;
  kernels::cuda::Attention attention_;
  kernels::cuda::Constants constants_;
  std::set<std::string> remarks_;
};

}  // namespace quintet::exec::cuda
