// Ops of linear layers on quantised operands, inserted by passes/quantize.h. Scales are powers of two, so
// that multiplying by them is exact.
//  - One scale per tensor, found from the magnitudes of earlier steps (delayed scaling): ops/quantize.cc,
//    ops/scaled_linear.cc. All scales of a model are one vector: the n scales, then their n reciprocals,
//    kScaleStride elements apart. Ops name a scale by its index.
//  - One scale per block of values, found from the block: ops/quantize_blocks.cc, ops/block_linear.cc. Its
//    reciprocals, the factors, are a value beside the codes.
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
// ops/quantize_blocks.cc, ops/block_linear.cc
extern const OpDef kQuantizeBlocks;
extern const OpDef kBlockLinear, kBlockLinearDx, kBlockLinearDw;

// Both kinds.
inline bool makes_codes(const OpDef& op) { return &op == &kQuantize || &op == &kQuantizeBlocks; }
inline bool is_code_linear(const OpDef& op) { return &op == &kScaledLinear || &op == &kBlockLinear; }

// cuBLASLt requires scales at multiples of 16 bytes. The elements between them are 0.
inline constexpr int64_t kScaleStride = 4;
// The elements of the vector of n scales, how many scales a vector has, and where one of n and its
// reciprocal are.
constexpr int64_t scales_size(int64_t n) { return 2 * n * kScaleStride; }
constexpr int64_t num_scales(int64_t size) { return size / (2 * kScaleStride); }
constexpr int64_t scale_at(int64_t index) { return index * kScaleStride; }
constexpr int64_t reciprocal_at(int64_t index, int64_t n) { return (n + index) * kScaleStride; }

// What a node [quantize] or [quantize_blocks] returns, in this order; -1: it does not.
struct QuantizeResults {
  int amax = -1, rounded = -1, codes = -1, factors = -1, transposed = -1, transposed_factors = -1;
};
QuantizeResults quantize_results(const Attrs& attrs);

// Whether it is a vector of scales for operands of this type, or for codes of it.
bool is_scales(const Type& t, DType operand);

// The type of codes of an operand: one byte for bf16; f32 and f64 keep their type and hold numbers of the
// format ("fake" storage), so that layouts can be compared exactly.
DType code_type(DType operand, DType format);
// The type of the factors of an operand's blocks, or of its codes'.
DType factor_type(DType operand);

// Elements of the result `rounded`: values, saturated values, values that became 0.
inline constexpr int64_t kRoundedCounts = 3;

// The state of the model's graph that holds the scales, and that of the step's graph with the magnitudes they
// follow from: [n x kAmaxHistory], one row per scale.
inline constexpr std::string_view kScaleState = "fp8/scale", kAmaxState = "fp8/amax";
inline constexpr int64_t kAmaxHistory = 16;

}  // namespace quintet::graph
