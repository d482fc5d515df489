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

// The activation of experts: with a limit, gate is at most limit, up within +-limit, and the result (up + 1)
// * gate * sigmoid(alpha gate) (GPT-OSS); without, silu(gate) * up.
struct ExpertGate {
  double alpha = 1, limit = 0;
};

}  // namespace quintet::kernels
