// Frequencies of rotary positions: plain, and stretched to longer contexts as Llama 3 and YaRN do. The
// formulas are those of Hugging Face transformers, in double precision.
#pragma once

#include <vector>

#include "config/recipe.h"

namespace quintet::models {

struct RopeFrequencies {
  std::vector<double>
      inv_freq;        // head_dim / 2 of them: radians per position of the pair (i, i + head_dim / 2)
  double scale = 1.0;  // factor on cos and sin: YaRN's attention factor, else 1
};

// `theta` > 1 and an even `head_dim` are required (UserError).
RopeFrequencies rope_frequencies(double theta, int64_t head_dim, const config::RopeScaling& scaling);

}  // namespace quintet::models
