// What the words of precision.linear say about sizes.
#pragma once

#include <cstdint>

#include "config/recipe.h"

namespace quintet::config {

// Neighbours that share a scale; 0: no blocks.
constexpr int64_t code_block(LinearKind kind) {
  switch (kind) {
    case LinearKind::Fp8Block:
      return 128;
    case LinearKind::Mxfp8:
      return 32;
    case LinearKind::Nvfp4:
      return 16;
    case LinearKind::Compute:
    case LinearKind::Fp8Delayed:
      return 0;
  }
  return 0;
}

}  // namespace quintet::config
