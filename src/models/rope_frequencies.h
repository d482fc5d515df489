// Rotary position frequencies: plain, or extended to longer contexts as in Llama 3, YaRN and LongRoPE. The
// formulas match Hugging Face transformers, in double precision.
#pragma once

#include <vector>

#include "config/recipe.h"

namespace quintet::models {

struct RopeFrequencies {
  // head_dim / 2 values: radians per position of the pair (i, i + head_dim / 2).
  std::vector<double> inv_freq;
  double scale = 1.0;  // factor on cos and sin: YaRN's or LongRoPE's attention factor, otherwise 1
};

// UserError unless `theta` > 1 and `head_dim` is even.
RopeFrequencies rope_frequencies(double theta, int64_t head_dim, const config::RopeScaling& scaling);

}  // namespace quintet::models
