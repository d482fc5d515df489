// A whole recipe's precision in one word, as --dtype has it.
#pragma once

#include <string>
#include <vector>

#include "base/dtype.h"

namespace quintet::config {

// "precision.compute=bf16" and so on, as after --set: master weights, moments, gradients and reduction follow
// the type of computing.
std::vector<std::string> precision_overrides(base::DType compute);

}  // namespace quintet::config
