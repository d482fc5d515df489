// Norms.
#include "exec/cpu/gradients.h"
#include "exec/decode/norm.h"
#include "kernels/cpu/norm/norm.h"

namespace quintet::exec::cpu {
namespace {

namespace k = kernels::cpu;

}  // namespace

#include "exec/bind/norm.inc"

}  // namespace quintet::exec::cpu
