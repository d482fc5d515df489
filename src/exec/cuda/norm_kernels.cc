// Norms.
#include "exec/cuda/gradients.h"
#include "exec/decode/norm.h"
#include "kernels/cuda/norm/norm.h"

namespace quintet::exec::cuda {
namespace {

namespace k = kernels::cuda;

}  // namespace

#include "exec/bind/norm.inc"

}  // namespace quintet::exec::cuda
