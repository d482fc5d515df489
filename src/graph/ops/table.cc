// The explicit list of ops: nothing registers itself, so nothing can be dropped by the linker.
#include <algorithm>
#include <array>

#include "graph/adafactor_ops.h"
#include "graph/cache_ops.h"
#include "graph/fp8_ops.h"

namespace quintet::graph {

const std::vector<const OpDef*>& all_ops() {
  static const std::vector<const OpDef*> table = {&kEmbedding,
                                                  &kEmbeddingDw,
                                                  &kLinear,
                                                  &kLinearDx,
                                                  &kLinearDw,
                                                  &kBiasAdd,
                                                  &kSumRows,
                                                  &kRmsNorm,
                                                  &kAddRmsNorm,
                                                  &kRmsNormDx,
                                                  &kRmsNormDw,
                                                  &kRmsNormBackward,
                                                  &kLayerNorm,
                                                  &kAddLayerNorm,
                                                  &kLayerNormDx,
                                                  &kLayerNormDw,
                                                  &kLayerNormBackward,
                                                  &kRope,
                                                  &kAttention,
                                                  &kAttentionDx,
                                                  &kAttentionHop,
                                                  &kAttentionHopDx,
                                                  &kQkvAttention,
                                                  &kQkvAttentionDx,
                                                  &kAttentionSink,
                                                  &kAttentionSinkDw,
                                                  &kCenter,
                                                  &kUnitNorm,
                                                  &kUnitNormDx,
                                                  &kClip,
                                                  &kClipDx,
                                                  &kPositionScale,
                                                  &kSplitDocuments,
                                                  &kExpertBias,
                                                  &kExpertBiasDw,
                                                  &kSpreadChoices,
                                                  &kGatherChoices,
                                                  &kCacheAppend,
                                                  &kCachedAttention,
                                                  &kTakeRows,
                                                  &kSample,
                                                  &kLogProb,
                                                  &kLinears,
                                                  &kLinearsDx,
                                                  &kLinearsDw,
                                                  &kRopeFirst,
                                                  &kSwiGlu,
                                                  &kSwiGluDx,
                                                  &kSwiGluBackward,
                                                  &kGelu,
                                                  &kGeluDx,
                                                  &kScale,
                                                  &kSoftCap,
                                                  &kSoftCapDx,
                                                  &kAdd,
                                                  &kDropout,
                                                  &kJitter,
                                                  &kCast,
                                                  &kRowMax,
                                                  &kRowSumExp,
                                                  &kLossGrad,
                                                  &kCrossEntropy,
                                                  &kAllReduce,
                                                  &kAllGather,
                                                  &kReduceScatter,
                                                  &kAllToAll,
                                                  &kSlice,
                                                  &kZeroUnlessFirst,
                                                  &kRingShift,
                                                  &kAllToAllV,
                                                  &kCountToSeed,
                                                  &kAccumulate,
                                                  &kSumSquares,
                                                  &kMaxAbs,
                                                  &kClipScale,
                                                  &kAdamW,
                                                  &kAdam,
                                                  &kSgd,
                                                  &kLion,
                                                  &kEma,
                                                  &kLamb,
                                                  &kLambNorms,
                                                  &kLars,
                                                  &kLarsNorms,
                                                  &kAdamW8bit,
                                                  &kFactorSums,
                                                  &kUpdateFactors,
                                                  &kFactorNorms,
                                                  &kFactorSizes,
                                                  &kAdafactor,
                                                  &kCopy,
                                                  &kSwapBlocks,
                                                  &kStepSums,
                                                  &kView,
                                                  &kUpdateBias,
                                                  &kMuon,
                                                  &kMuonMomentum,
                                                  &kGatherDirections,
                                                  &kNewtonSchulz,
                                                  &kApplyDirections,
                                                  &kRouter,
                                                  &kRouterDx,
                                                  &kRouterDw,
                                                  &kSelect,
                                                  &kSelectDx,
                                                  &kLimit,
                                                  &kRandomWeights,
                                                  &kJoinChoices,
                                                  &kExpertLoad,
                                                  &kRunningSum,
                                                  &kBalanceSums,
                                                  &kBalanceDx,
                                                  &kBalanceLoss,
                                                  &kBalanceDsums,
                                                  &kZLoss,
                                                  &kZLossDx,
                                                  &kJoinHeads,
                                                  &kJoinHeadsDx,
                                                  &kRoute,
                                                  &kPack,
                                                  &kUnpack,
                                                  &kPackWeights,
                                                  &kUnpackWeights,
                                                  &kExchangeCounts,
                                                  &kToExperts,
                                                  &kToTokens,
                                                  &kSplitRows,
                                                  &kNextPass,
                                                  &kRegroup,
                                                  &kSumCopies,
                                                  &kGroupedLinear,
                                                  &kGroupedLinearDx,
                                                  &kGroupedLinearDw,
                                                  &kExpertAct,
                                                  &kExpertActDx,
                                                  &kScaleRows,
                                                  &kScaleRowsDx,
                                                  &kQuantize,
                                                  &kScaledLinear,
                                                  &kScaledLinearDx,
                                                  &kScaledLinearDw,
                                                  &kQuantizeBlocks,
                                                  &kBlockLinear,
                                                  &kBlockLinearDx,
                                                  &kBlockLinearDw,
                                                  &kDelayedScales,
                                                  &kRecordAmax,
                                                  &kStepMaxima,
                                                  &kRmsNormQuantize,
                                                  &kAddRmsNormQuantize,
                                                  &kSwiGluQuantize,
                                                  &kSwiGluBackwardQuantize,
                                                  &kRmsNormAgainQuantize};
  return table;
}

const OpDef* find_op(std::string_view name) {
  for (const OpDef* op : all_ops())
    if (op->name == name) return op;
  return nullptr;
}

std::string_view to_string(OpClass c) {
  static constexpr std::array<std::string_view, 19> kNames = {
      "other",   "matmul",    "expert matmul", "attention", "norm",    "activation", "rope",
      "bias",    "dropout",   "residual",      "embedding", "loss",    "router",     "dispatch",
      "balance", "placement", "gradient norm", "optimizer", "quantize"};
  return kNames[static_cast<size_t>(c)];
}

double row_width(const Type& t) {
  return static_cast<double>(t.count()) / static_cast<double>(std::max<int64_t>(t.size(0), 1));
}

Gemm gemm(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  return {.m = static_cast<double>(in[0].size(0)), .n = row_width(out[0]), .k = row_width(in[0])};
}

Gemm gemm_dw(const std::vector<Type>& in, const std::vector<Type>&, const Attrs&) {
  return {.m = row_width(in[0]), .n = row_width(in[1]), .k = static_cast<double>(in[0].size(0))};
}

double total_bytes(const std::vector<Type>& in, const std::vector<Type>& out) {
  double bytes = 0;
  for (const Type& t : in) bytes += static_cast<double>(t.bytes());
  for (const Type& t : out) bytes += static_cast<double>(t.bytes());
  return bytes;
}

Cost cost_by_bytes(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  return {.flops = 0, .bytes = total_bytes(in, out)};
}

std::vector<OpDim> rowwise_dims(const std::vector<Type>& in, const std::vector<Type>& out, int whole) {
  std::vector<OpDim> rule;
  const auto index = [](const Type& t, Dim name) {
    for (int i = 0; i < t.num_dims(); ++i)
      if (t.dims[static_cast<size_t>(i)].name == name) return i;
    return kAbsent;
  };
  const Type& first = in[0];
  // Inner dims claim mesh axes before the token rows do.
  for (int i = first.num_dims() - whole; i-- > 0;) {
    const Dim name = first.dims[static_cast<size_t>(i)].name;
    OpDim d{.key = name, .in = {}, .out = {}};
    for (const Type& t : in) d.in.push_back(index(t, name));
    for (const Type& t : out) d.out.push_back(index(t, name));
    rule.push_back(d);
    d.key = Dim::Experts;  // rows of experts are placed with their experts
    if (name == Dim::Routed) rule.push_back(std::move(d));
  }
  return rule;
}

}  // namespace quintet::graph
