// The cross-entropy over a vocabulary that may be sharded, in three ops: row_max, row_sum_exp, loss_grad.
// With the vocabulary over several ranks their rules exchange one maximum and one sum per row, never the
// logits.
#include "graph/ops/support.h"

namespace quintet::graph {
namespace {

// row_max: logits[tokens, vocab] -> max[tokens]
Type per_row(const Type& logits) { return {base::accumulator_of(logits.dtype), {logits.dims[0]}}; }

// Two sums per row; the second dim is called head_dim=2: a pair that is never sharded.
Type sums_per_row(const Type& logits) {
  return {base::accumulator_of(logits.dtype), {logits.dims[0], {Dim::HeadDim, 2}}};
}

void require_logits(std::string_view op, const Type& logits) {
  OP_REQUIRE(op, has_tokens(logits) && logits.num_dims() == 2, "expects logits[tokens, vocab], got {}",
             to_string(logits));
}

void require_max_and_labels(std::string_view op, const Type& logits, const Type& max, const Type& labels) {
  OP_REQUIRE(op, max == per_row(logits) && is_row_index(labels, logits),
             "expects the maximum {} and labels i32[tokens={}], got {} and {}", to_string(per_row(logits)),
             logits.size(0), to_string(max), to_string(labels));
}

std::vector<Type> infer_max(const std::vector<Type>& in, const Attrs&) {
  require_logits("row_max", in[0]);
  return {per_row(in[0])};
}

std::vector<OpDim> dims_max(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  return {{.key = Dim::Vocab, .in = {1}, .out = {kAbsent}, .reduction = Reduction::Max, .padded = true},
          tokens_dim(in, out)};
}

// row_sum_exp: logits, max, labels -> sums[tokens, 2]: sum of exp(logit - max), and the label's logit. Both
// are sums over shards, so they share one message.
std::vector<Type> infer_sum_exp(const std::vector<Type>& in, const Attrs&) {
  require_logits("row_sum_exp", in[0]);
  require_max_and_labels("row_sum_exp", in[0], in[1], in[2]);
  return {sums_per_row(in[0])};
}

std::vector<OpDim> dims_sum_exp(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  return {{.key = Dim::Vocab, .in = {1, kAbsent, kAbsent}, .out = {kAbsent}, .padded = true},
          tokens_dim(in, out)};
}

// loss_grad: logits, max, sums, labels, seed -> loss, dlogits. The loss is the sum over rows with label >= 0;
// dlogits is its gradient times the scalar `seed` (one over the number of valid tokens of the whole global
// batch). The loss is the same on all shards of the vocabulary (it needs no logits), so it is not a partial
// sum over them.
std::vector<Type> infer_loss_grad(const std::vector<Type>& in, const Attrs&) {
  require_logits("loss_grad", in[0]);
  require_max_and_labels("loss_grad", in[0], in[1], in[3]);
  OP_REQUIRE("loss_grad", in[2] == sums_per_row(in[0]) && is_scalar(in[4], DType::F64),
             "expects sums {} and the seed f64[], got {} and {}", to_string(sums_per_row(in[0])),
             to_string(in[2]), to_string(in[4]));
  return {{DType::F64, {}}, in[0]};
}

// cross_entropy: logits, labels, seed -> loss, dlogits: all three in one where the whole vocabulary is local
// (see passes/fold.h)
std::vector<Type> infer_cross_entropy(const std::vector<Type>& in, const Attrs&) {
  require_logits("cross_entropy", in[0]);
  OP_REQUIRE("cross_entropy", is_row_index(in[1], in[0]) && is_scalar(in[2], DType::F64),
             "expects labels i32[tokens={}] and the seed f64[], got {} and {}", in[0].size(0),
             to_string(in[1]), to_string(in[2]));
  return {{DType::F64, {}}, in[0]};
}

std::vector<OpDim> dims_loss_grad(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  return {{.key = Dim::Vocab,
           .in = {1, kAbsent, kAbsent, kAbsent, kAbsent},
           .out = {kReplicated, 1},
           .padded = true},
          tokens_dim(in, out)};
}

std::vector<OpDim> dims_cross_entropy(const std::vector<Type>& in, const std::vector<Type>& out,
                                      const Attrs&) {
  return {tokens_dim(in, out)};
}

Cost cost_rows(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  return {.flops = 4.0 * static_cast<double>(in[0].count()), .bytes = total_bytes(in, out)};
}

}  // namespace

const OpDef kRowMax = {.name = "row_max",
                       .min_inputs = 1,
                       .max_inputs = 1,
                       .attrs = {},
                       .infer = infer_max,
                       .cost = cost_rows,
                       .dims = dims_max,
                       .op_class = OpClass::Loss};
const OpDef kRowSumExp = {.name = "row_sum_exp",
                          .min_inputs = 3,
                          .max_inputs = 3,
                          .attrs = {},
                          .infer = infer_sum_exp,
                          .cost = cost_rows,
                          .dims = dims_sum_exp,
                          .op_class = OpClass::Loss};
const OpDef kLossGrad = {.name = "loss_grad",
                         .min_inputs = 5,
                         .max_inputs = 5,
                         .attrs = {},
                         .infer = infer_loss_grad,
                         .cost = cost_rows,
                         .dims = dims_loss_grad,
                         .in_place = {{1, 0}},
                         .op_class = OpClass::Loss};
const OpDef kCrossEntropy = {.name = "cross_entropy",
                             .min_inputs = 3,
                             .max_inputs = 3,
                             .attrs = {},
                             .infer = infer_cross_entropy,
                             .cost = cost_rows,
                             .dims = dims_cross_entropy,
                             .in_place = {{1, 0}},
                             .op_class = OpClass::Loss};

}  // namespace quintet::graph
