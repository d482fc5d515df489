// The activation of a gated feed-forward network, on every backend: act(gate) * up.
#pragma once

#include <cstdint>

namespace quintet::kernels {

enum class Gate : uint8_t {
  Silu,      // SwiGLU
  GeluTanh,  // GeGLU, with the tanh form of GELU
};

// The forms of GELU: with tanh, as in GPT-2, or with the error function.
enum class GeluForm : uint8_t { Tanh, Erf };

}  // namespace quintet::kernels
