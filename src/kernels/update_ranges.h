// Ranges of elements that an optimizer updates: the start of a range in every buffer of its group.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace quintet::kernels {

// The position of a range in its parameter: its j-th element is element
//   base + (first + j) / run x stride + (first + j) % run
// of the whole. `key` selects the parameter's random numbers.
struct Origin {
  uint64_t key = 0;
  int64_t first = 0, run = 0, stride = 0, base = 0;  // run 0: moments are rounded to nearest

  bool random() const { return run > 0; }
  int64_t element(int64_t j) const { return base + (first + j) / run * stride + (first + j) % run; }
};

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
  Origin origin = {};
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
  Origin origin = {};
};

// With moments as 8-bit codes and a scale for every block (kernels/dynamic_map.h). The first element of a
// range is the first of a block.
template <class Master, class Gradient, class Copy>
struct BlockUpdateRange {
  Master* master;
  uint8_t *m, *v;
  Master *m_scale, *v_scale;
  const Gradient* gradient;
  Copy* copy;  // null: none
  int64_t count = 0;
  double lr_factor = 1;
  double weight_decay = 0;
};
template <class Gradient>
struct SplitBlockUpdateRange {
  base::Bf16* weight;
  int16_t* remainder;
  uint8_t *m, *v;
  float *m_scale, *v_scale;
  const Gradient* gradient;
  int64_t count = 0;
  double lr_factor = 1;
  double weight_decay = 0;
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
