// Ops of linear layers on quantised operands with one scale per tensor, found from the magnitudes of earlier
// steps (delayed scaling): ops/quantize.cc, ops/scaled_linear.cc. Inserted by passes/quantize.h.
//
// All scales of a model are one vector: the n scales, then their n reciprocals, kScaleStride elements apart.
// Scales are powers of two, so that multiplying by them is exact. Ops name a scale by its index.
#pragma once

#include "graph/op.h"

namespace quintet::graph {

// ops/quantize.cc
extern const OpDef kQuantize;
extern const OpDef kDelayedScales, kRecordAmax, kStepMaxima;
// ops/quantize_fused.cc: ops that make codes of their result instead of storing it (passes/fold_codes.h)
extern const OpDef kRmsNormQuantize, kAddRmsNormQuantize, kSwiGluQuantize, kSwiGluBackwardQuantize,
    kRmsNormAgainQuantize;
// ops/scaled_linear.cc
extern const OpDef kScaledLinear, kScaledLinearDx, kScaledLinearDw;

// cuBLASLt requires scales at multiples of 16 bytes. The elements between them are 0.
inline constexpr int64_t kScaleStride = 4;
// The elements of the vector of n scales, how many scales a vector has, and where one of n and its
// reciprocal are.
constexpr int64_t scales_size(int64_t n) { return 2 * n * kScaleStride; }
constexpr int64_t num_scales(int64_t size) { return size / (2 * kScaleStride); }
constexpr int64_t scale_at(int64_t index) { return index * kScaleStride; }
constexpr int64_t reciprocal_at(int64_t index, int64_t n) { return (n + index) * kScaleStride; }

// What a node [quantize] returns, in this order; -1: it does not.
struct QuantizeResults {
  int amax = -1, rounded = -1, codes = -1, transposed = -1;
};
QuantizeResults quantize_results(const Attrs& attrs);

// Whether it is a vector of scales for operands of this type, or for codes of it.
bool is_scales(const Type& t, DType operand);

// The type of codes of an operand: one byte for bf16; f32 and f64 keep their type and hold numbers of the
// format ("fake" storage), so that layouts can be compared exactly.
DType code_type(DType operand, DType format);

// Elements of the result `rounded`: values, saturated values, values that became 0.
inline constexpr int64_t kRoundedCounts = 3;

// The state of the model's graph that holds the scales, and that of the step's graph with the magnitudes they
// follow from: [n x kAmaxHistory], one row per scale.
inline constexpr std::string_view kScaleState = "fp8/scale", kAmaxState = "fp8/amax";
inline constexpr int64_t kAmaxHistory = 16;

}  // namespace quintet::graph
