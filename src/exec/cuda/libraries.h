// Shared by the kernels of a rank's instructions: handles, plans and tuned algorithms of cuBLASLt and cuDNN,
// and constants in device memory.
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
  bool tune = true;   // time the candidates of every GEMM in prepare(); else use cuBLASLt's first choice
  bool tf32 = false;  // GEMMs of f32 round their operands to 10 bits of mantissa
};

// One per launching thread, on the device that is current when it is constructed.
class Libraries {
 public:
  explicit Libraries(LibraryOptions options = {});

  kernels::cuda::Matmul& matmul() { return matmul_; }
  kernels::cuda::Attention& attention() { return attention_; }
  bool tunes() const { return options_.tune; }
  // Remarks of prepare() for the user, reported when everything is prepared.
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
