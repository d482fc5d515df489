// Shared by the kernels of a rank's instructions: handles, plans and tuned algorithms of cuBLASLt and cuDNN,
// and constants in device memory.
#pragma once

#include <memory>
#include <set>
#include <span>
#include <string>

#include "exec/cuda/attention_choices.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/matmul/matmul.h"
#include "kernels/cuda/support/constants.h"

namespace quintet::exec::cuda {

struct LibraryOptions {
  // Time the candidates of every GEMM and attention in prepare(); else use cuBLASLt's first choice, and the
  // attention that was faster on an H200.
  bool tune = true;
  bool tf32 = false;              // GEMMs of f32 round their operands to 10 bits of mantissa
  bool constant_weights = false;  // no kernel of the program writes them
};

// One per launching thread, on the device that is current when it is constructed.
class Libraries {
 public:
  explicit Libraries(LibraryOptions options = {});

  kernels::cuda::Matmul& matmul() { return matmul_; }
  kernels::cuda::Attention& attention() { return attention_; }
  AttentionChoices& attention_choices() { return attention_choices_; }
  bool tunes() const { return options_.tune; }
  bool weights_are_constant() const { return options_.constant_weights; }
  // What tuning has found, as text (exec/cuda/gemm_algorithms.h), and how many problems it covers.
  std::string tuned() const { return matmul_.tuned() + attention_choices_.tuned(); }
  void read_tuned(const std::string& text);
  int64_t tuned_count() const { return matmul_.tuned_count() + attention_choices_.count(); }
  // Remarks of prepare() for the user, reported when everything is prepared.
  std::set<std::string>& remarks() { return remarks_; }

  // A copy of host memory on the device that lives as long as this object. Equal bytes share one copy.
  // Allocates and waits: for prepare() only.
  const std::byte* upload(std::span<const std::byte> bytes) { return constants_.add(bytes); }

 private:
  LibraryOptions options_;
  kernels::cuda::Matmul matmul_;
  kernels::cuda::Attention attention_;
  AttentionChoices attention_choices_;
  kernels::cuda::Constants constants_;
  std::set<std::string> remarks_;
};

}  // namespace quintet::exec::cuda
