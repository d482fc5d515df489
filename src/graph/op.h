// Everything known about an op, in one place: its operands' types, its gradient, its cost and how it may be
// sharded. Kernels are in room kernels and are bound by name in room exec. The table of all ops is
// graph/ops/table.cc.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace quintet::graph {

class GradContext;  // graph/autodiff.h

struct Cost {
  double flops = 0;  // multiply and add count as two
  double bytes = 0;  // each operand read or written once
};

// The kind of work: for the words of memory.recompute_ops, for simulation and for reports.
enum class OpClass : uint8_t {
  Other,
  Matmul,
  ExpertMatmul,  // grouped GEMMs
  Attention,
  Norm,
  Activation,
  Rope,  // and the concatenation of its heads
  Bias,
  Dropout,
  Residual,
  Embedding,
  Loss,
  Router,
  Dispatch,   // rows to experts and back
  Balance,    // load statistics and balance losses of experts
  Placement,  // changes placements: local graphs only, inserted by the partitioner
  GradientNorm,
  Optimizer,  // updates of parameters and what they need
  Quantize,   // to codes of 8 bits, and the scales of codes
};
std::string_view to_string(OpClass c);  // "expert matmul"

enum class OpPass : uint8_t { Forward, InputGradient, WeightGradient };

// The GEMM that an op performs: m x k by k x n, `groups` times.
struct Gemm {
  double m = 0, n = 0, k = 0, groups = 1;
};

inline constexpr int kAbsent = -1;
inline constexpr int kReplicated = -2;  // outputs only: equal on all shards, although it lacks the dim

enum class Reduction : uint8_t { Sum, Max };

// One direction in which an op's work can be sharded, independent of the mesh: the index of the dim in each
// operand. An input that lacks the dim is needed whole; an output that lacks it is then a partial result, to
// be combined by `reduction`.
struct OpDim {
  Dim key;                   // the layout maps this name to mesh axes
  std::vector<int> in, out;  // per operand: index of the dim, or kAbsent
  Reduction reduction = Reduction::Sum;
  bool any_row = true;  // Tokens only: may be split between any two rows; false: whole sequences
  bool spread = false;  // Tokens only: split over the tensor ranks too, with or without sequence parallel
  bool padded = false;  // the size need not divide: the last shards hold padding (zero, masked by the op)
};

// What an op of the step graph does with parameters. The partitioner, flattening, lowering, the verifier and
// the executors go by this: none of them names an optimizer.
enum class StepKind : uint8_t {
  None,        // not an op on parameters
  Replicated,  // scalars and vectors that are equal on all ranks
  // One sum, or maximum, over all gradients. A row of the attribute "ranges" for each of them.
  GradientNorm,
  // A vector of sums over each whole parameter, for all parameters at once. Operands: those of each
  // parameter, then the scalars of an update. A row of "ranges" says which parameter it is.
  ParameterNorms,
  // Elementwise on stored values, so that they may be split anywhere. Operand 0 is the gradient, results are
  // the new values of the operands after it, in order and in place; then come the scalars.
  Update,
  Average,  // the same with the updated weight in place of the gradient
  // Operands of an update whose elements depend on whole matrices: a program deals matrices to owners.
  Matrices,
  // Programs only: pieces of matrices in flat buffers, and whole matrices made of pieces.
  FlatPieces,
  MatrixPieces,
};

struct StepTraits {
  StepKind kind = StepKind::None;
  Reduction reduction = Reduction::Sum;  // GradientNorm: how the terms of ranks combine
  // ParameterNorms: the operands of a parameter are its gradient, then its weight, then this many moments.
  bool reads_weight = true;
  int moments = 0;
  bool reads_norms = false;  // the last operand is a vector that ParameterNorms, or an op after it, computed
  // Update: bound on the change of state and weights (in units of lr) per change of the gradients; null: 1.
  double (*gain)(const Attrs& attrs) = nullptr;
};

struct OpDef {
  std::string_view name;
  int min_inputs, max_inputs;
  std::vector<AttrSpec> attrs;
  std::vector<Type> (*infer)(const std::vector<Type>& in, const Attrs& attrs);
  // Emits the nodes that compute input gradients from output gradients; null for ops that occur only in
  // backward.
  void (*gradient)(GradContext& g, const Node& node) = nullptr;
  Cost (*cost)(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs& attrs) = nullptr;
  std::vector<OpDim> (*dims)(const std::vector<Type>& in, const std::vector<Type>& out,
                             const Attrs& attrs) = nullptr;
  // Pairs (output, input) that may share memory when the input is not used again.
  std::vector<std::pair<int, int>> in_place = {};
  // Linear in all inputs together: partial inputs over the same axes give a partial output.
  bool passes_partial = false;
  // A decision (routing, dropping) or a running sum: its results are kept, never recomputed.
  bool keep = false;
  // Results that are overwritten even if the op adds to its sums (see program::Accumulate).
  std::vector<int> overwritten = {};
  StepTraits step = {};
  // Writes state that outlives the step, and writes nothing when its operand `ok` is 0.
  bool gated = false;
  OpClass op_class = OpClass::Other;
  OpPass pass = OpPass::Forward;
  // Null for ops that are not a GEMM.
  Gemm (*gemm)(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs& attrs) = nullptr;
  // In programs a last operand may be added to the first result (graph/fuse_adds.h).
  bool takes_addend = false;

  // Updates the operands after the first elementwise, whatever it reads.
  bool elementwise() const { return step.kind == StepKind::Update || step.kind == StepKind::Average; }
  bool has_attribute(std::string_view attribute) const {
    return std::any_of(attrs.begin(), attrs.end(), [&](const AttrSpec& a) { return a.name == attribute; });
  }
};

const std::vector<const OpDef*>& all_ops();
const OpDef* find_op(std::string_view name);  // null when unknown

// Elements per row of a value whose first dim is rows.
double row_width(const Type& type);
// The GEMM of an op whose first operand is [rows, k] and whose first result is [rows, n], and of one that
// contracts the rows of its two operands.
Gemm gemm(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs& attrs);
Gemm gemm_dw(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs& attrs);

// The number of last dims that a norm covers together.
int norm_dims(const Attrs& attrs);

// Cost by operand bytes alone: for ops whose arithmetic is negligible.
Cost cost_by_bytes(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs& attrs);
double total_bytes(const std::vector<Type>& in, const std::vector<Type>& out);

// Rule of ops that treat all positions of the first operand alike: every dim except the last `whole` ones can
// be sharded, and other operands follow by dim name.
std::vector<OpDim> rowwise_dims(const std::vector<Type>& in, const std::vector<Type>& out, int whole);

// The op declarations, by file.
extern const OpDef kEmbedding, kEmbeddingDw;                                         // ops/embedding.cc
extern const OpDef kLinear, kLinearDx, kLinearDw, kBiasAdd, kSumRows;                // ops/linear.cc
extern const OpDef kRmsNorm, kAddRmsNorm, kRmsNormDx, kRmsNormDw, kRmsNormBackward;  // ops/norm.cc
extern const OpDef kLayerNorm, kAddLayerNorm, kLayerNormDx, kLayerNormDw, kLayerNormBackward;  // ops/norm.cc
extern const OpDef kRope, kRopeFirst;                                                          // ops/rope.cc
extern const OpDef kAttention, kAttentionDx;          // ops/attention.cc
extern const OpDef kAttentionHop, kAttentionHopDx;    // ops/attention.cc
extern const OpDef kQkvAttention, kQkvAttentionDx;    // ops/attention.cc
extern const OpDef kAttentionSink, kAttentionSinkDw;  // ops/attention_sink.cc
extern const OpDef kCenter, kUnitNorm, kUnitNormDx, kClip, kClipDx, kPositionScale,
    kSplitDocuments;                                                            // ops/rows.cc
extern const OpDef kExpertBias, kExpertBiasDw, kSpreadChoices, kGatherChoices;  // ops/expert_bias.cc
extern const OpDef kLinears, kLinearsDx, kLinearsDw;                            // ops/packed.cc
extern const OpDef kJoinHeads, kJoinHeadsDx;                                    // ops/heads.cc
extern const OpDef kRouter, kRouterDx, kRouterDw, kSelect, kSelectDx, kLimit, kRandomWeights,
    kJoinChoices;  // ops/router.cc
extern const OpDef kExpertLoad, kRunningSum, kBalanceSums, kBalanceDx, kBalanceLoss, kBalanceDsums, kZLoss,
    kZLossDx;                                                                     // ops/balance.cc
extern const OpDef kRoute, kPack, kUnpack, kPackWeights, kUnpackWeights;          // ops/dispatch.cc
extern const OpDef kExchangeCounts, kToExperts, kToTokens, kRegroup, kSumCopies;  // ops/dispatch.cc
extern const OpDef kSplitRows, kNextPass;                                         // ops/dispatch.cc
extern const OpDef kGroupedLinear, kGroupedLinearDx, kGroupedLinearDw;            // ops/experts.cc
extern const OpDef kExpertAct, kExpertActDx, kScaleRows, kScaleRowsDx;            // ops/experts.cc
extern const OpDef kSwiGlu, kSwiGluDx, kSwiGluBackward, kGelu, kGeluDx, kScale, kSoftCap, kSoftCapDx, kAdd,
    kDropout, kJitter, kCast;                                      // ops/pointwise.cc
extern const OpDef kRowMax, kRowSumExp, kLossGrad, kCrossEntropy;  // ops/loss.cc
extern const OpDef kAllReduce, kAllGather, kReduceScatter, kAllToAll, kSlice, kZeroUnlessFirst, kRingShift,
    kAllToAllV;  // ops/placement.cc
extern const OpDef kCountToSeed, kAccumulate, kSumSquares, kMaxAbs, kClipScale, kAdamW, kAdam, kSgd, kLion,
    kEma, kAdamW8bit, kLamb, kLambNorms, kLars, kLarsNorms, kCopy, kUpdateBias, kSwapBlocks, kStepSums,
    kView;  // ops/update.cc
extern const OpDef kMuon, kMuonMomentum, kGatherDirections, kNewtonSchulz,
    kApplyDirections;  // ops/muon.cc

// Iterations of Newton-Schulz, and the coefficients of its polynomial a X + b (X X^T) X + c (X X^T)^2 X.
inline constexpr int kNewtonSchulzSteps = 5;
inline constexpr double kNewtonSchulzCoefficients[] = {3.4445, -4.7750, 2.0315};
// The norm that a matrix is divided by is at least this.
inline constexpr double kNewtonSchulzEps = 1e-7;

}  // namespace quintet::graph
