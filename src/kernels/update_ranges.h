// Ranges of elements that an optimizer updates: the start of a range in every buffer of its group.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace quintet::kernels {

template <class Master, class Moment, class Gradient, class Copy>
struct UpdateRange {
  Master* master;
  Moment *moment1, *moment2;  // null: the optimizer has none
  const Gradient* gradient;
  Copy* copy;  // null: none
  int64_t count = 0;
  double lr_factor = 1;  // of the step's learning rate
  double weight_decay = 0;
  const double* norms = nullptr;  // two squared norms of the whole parameter; null: no ratio applies
};

// With a split master (base/split_float.h).
template <class Moment, class Gradient>
struct SplitUpdateRange {
  base::Bf16* weight;
  int16_t* remainder;
  Moment *moment1, *moment2;
  const Gradient* gradient;
  int64_t count = 0;
  double lr_factor = 1;
  double weight_decay = 0;
  const double* norms = nullptr;
};

// Averages of weights.
template <class Master>
struct EmaRange {
  const Master* weight;
  Master* average;
  int64_t count = 0;
  double lr_factor = 1, weight_decay = 0;  // as of the other ranges; averages have neither
};
struct SplitEmaRange {
  const base::Bf16* weight;
  const int16_t* remainder;
  float* average;
  int64_t count = 0;
  double lr_factor = 1, weight_decay = 0;
};

}  // namespace quintet::kernels
