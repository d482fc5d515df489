// An optimizer that Quintet does not contain: what a user's project would define, in one file.
#pragma once

#include "compiler/op_package.h"
#include "optim/step_builder.h"

namespace quintet::tests {

inline constexpr double kSoftness = 0.05, kSoftSignBeta = 0.8;

// A smooth sign of a momentum, with decoupled weight decay. With g = clip scale x gradient:
//   m = beta m + (1 - beta) g;  w = (1 - lr weight_decay) w - lr m / (|m| + softness)
void soft_sign(optim::StepBuilder& builder, optim::Trained& t);
const std::vector<compiler::OpPackage>& soft_sign_packages();

}  // namespace quintet::tests
