// f64 operands for examples of ops; the same numbers for the same seed and order of calls.
#pragma once

#include <cmath>
#include <random>

#include "support/op_runner.h"

namespace quintet::tests {

class RandomTensors {
 public:
  explicit RandomTensors(uint64_t seed) : random_(seed) {}

  HostTensor real(std::vector<graph::DimSize> dims, double shift = 0) {
    HostTensor t(graph::Type{graph::DType::F64, std::move(dims)});
    for (int64_t i = 0; i < t.type.count(); ++i) t.real()[i] = shift + normal_(random_);
    return t;
  }
  // Away from zero, where logarithms and quotients are steep.
  HostTensor positive(std::vector<graph::DimSize> dims, double lowest = 0.5) {
    HostTensor t = real(std::move(dims));
    for (int64_t i = 0; i < t.type.count(); ++i) t.real()[i] = lowest + std::abs(t.real()[i]);
    return t;
  }

 private:
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
};

}  // namespace quintet::tests
