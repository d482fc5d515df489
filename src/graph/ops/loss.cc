// head_loss: x[tokens, embed], w[vocab, embed], labels[tokens], seed -> loss, dx, dw. The output projection and the
// cross-entropy in one op: loss is the sum over rows with label >= 0; dx and dw are its gradients times the scalar
// `seed` (one over the number of valid tokens of the whole global batch, known before the step begins). Being last,
// it computes them in the forward phase, so whole logits need never exist.
//
// It is expanded before partitioning into linear, row_max, row_sum_exp, loss_grad, linear_dx and linear_dw (see
// passes/expand_head_loss.h); the vocabulary-parallel loss then follows from the rules of those ops: a maximum and
// two sums over the vocabulary's shards, never the logits.
#include "graph/ops/support.h"

namespace quintet::graph {
namespace {

std::vector<Type> infer(const std::vector<Type>& in, const Attrs& attrs) {
  const Type &x = in[0], &w = in[1];
  OP_REQUIRE("head_loss", has_tokens(x) && x.num_dims() == 2 && w.num_dims() == 2 && w.dims[1] == x.dims[1] && w.dtype == x.dtype,
             "expects x[tokens, embed] and w[vocab, embed], got {} and {}", to_string(x), to_string(w));
  OP_REQUIRE("head_loss", in[2].dtype == DType::I32 && in[2].num_dims() == 1, "expects labels i32[tokens], got {}",
             to_string(in[2]));
  std::vector<Type> out = {{DType::F64, {}}};
  if (attrs.integer("dx")) out.push_back(x);
  if (attrs.integer("dw")) out.push_back({dtype_attr(attrs, "out"), w.dims});
  return out;
}

void gradient(GradContext& g, const Node& n) {
  size_t next = 1;
  if (n.attrs.integer("dx")) g.add(n.inputs[0], n.outputs[next++]);
  if (n.attrs.integer("dw")) g.add(n.inputs[1], n.outputs[next++]);
}

Cost cost(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs& attrs) {
  const double gemm = 2.0 * static_cast<double>(in[0].size(0)) * static_cast<double>(in[1].count());
  return {.flops = gemm * static_cast<double>(1 + attrs.integer("dx") + attrs.integer("dw")), .bytes = total_bytes(in, out)};
}

// row_max: logits[tokens, vocab] -> max[tokens]
Type per_row(const Type& logits) { return {base::accumulator_of(logits.dtype), {logits.dims[0]}}; }

std::vector<Type> infer_max(const std::vector<Type>& in, const Attrs&) { return {per_row(in[0])}; }

std::vector<OpDim> dims_max(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  return {{.key = Dim::Vocab, .in = {1}, .out = {kAbsent}, .reduction = Reduction::Max, .padded = true}, tokens_dim(in, out)};
}

// row_sum_exp: logits, max, labels -> sums[tokens, 2]: sum of exp(logit - max), and the label's logit. Both are sums
// over shards, so they travel in one message. (The second dim is written as head_dim=2: an unshardable pair.)
std::vector<Type> infer_sum_exp(const std::vector<Type>& in, const Attrs&) {
  return {{base::accumulator_of(in[0].dtype), {in[0].dims[0], {Dim::HeadDim, 2}}}};
}

std::vector<OpDim> dims_sum_exp(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  return {{.key = Dim::Vocab, .in = {1, kAbsent, kAbsent}, .out = {kAbsent}, .padded = true}, tokens_dim(in, out)};
}

// loss_grad: logits, max, sums, labels, seed -> loss, dlogits. The loss is the same on all shards of the vocabulary
// (it needs no logits), so it is not a partial sum over them.
std::vector<Type> infer_loss_grad(const std::vector<Type>& in, const Attrs&) { return {{DType::F64, {}}, in[0]}; }

std::vector<OpDim> dims_loss_grad(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  return {{.key = Dim::Vocab, .in = {1, kAbsent, kAbsent, kAbsent, kAbsent}, .out = {kReplicated, 1}, .padded = true},
          tokens_dim(in, out)};
}

Cost cost_rows(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  return {.flops = 4.0 * static_cast<double>(in[0].count()), .bytes = total_bytes(in, out)};
}

}  // namespace

const OpDef kHeadLoss = {"head_loss", 4, 4,
                         {{"dx", AttrKind::Integer}, {"dw", AttrKind::Integer}, {"out", AttrKind::Text}},
                         infer, gradient, cost, nullptr};
const OpDef kRowMax = {"row_max", 1, 1, {}, infer_max, nullptr, cost_rows, dims_max};
const OpDef kRowSumExp = {"row_sum_exp", 3, 3, {}, infer_sum_exp, nullptr, cost_rows, dims_sum_exp};
const OpDef kLossGrad = {"loss_grad", 5, 5, {}, infer_loss_grad, nullptr, cost_rows, dims_loss_grad};

}  // namespace quintet::graph
