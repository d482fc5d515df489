// Quantisation and linear layers on codes.
#include "exec/cuda/kernel.h"

namespace quintet::exec::cuda {

const std::vector<Kernel>& quantize_kernels() {
  static const std::vector<Kernel> table;
  return table;
}

}  // namespace quintet::exec::cuda
