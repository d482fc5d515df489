// The difference between two sets of tensors.
#pragma once

#include "hf/tensor_source.h"

namespace quintet::hf {

struct TensorDifference {
  std::string name;
  std::string what;      // "shape [2, 3] and [3, 2]", or empty: the values differ
  int64_t elements = 0;  // that differ
  double largest = 0;    // absolute difference; NaN and infinities on one side only count as infinite
  int64_t at = 0;        // its index in row-major order
  double a = 0, b = 0;   // the values there
};

struct Difference {
  std::vector<std::string> only_a, only_b;
  std::vector<TensorDifference> tensors;  // by name, those that differ
  int64_t compared = 0, elements = 0;
  std::vector<std::string> types;  // of tensors with equal values and another type: "x: bf16 and f32"
  bool is_equal() const { return only_a.empty() && only_b.empty() && tensors.empty(); }
};

// Compares values; two NaN are equal, types may differ. `a` is streamed, `b` read in parts.
Difference compare(TensorSource& a, TensorSource& b);

}  // namespace quintet::hf
