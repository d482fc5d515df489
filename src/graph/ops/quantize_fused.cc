// Ops that make codes of a result instead of storing it, in local graphs only (passes/fold_codes.h). Their
// last operand is the vector of scales; attributes of quantize (ops/quantize.cc) have the same names and
// meaning. The value is rounded to its own type first, so the codes are those of the separate ops.
//
// rms_norm_quantize: x, w, scales -> rstd, results of quantize
// add_rms_norm_quantize: x, residual, w, scales -> x + residual, rstd, results of quantize
// swiglu_quantize: gate, up (or both in one), scales -> results of quantize
// swiglu_backward_quantize: dy, gate and up in one [tokens, 2 * ffn], scales -> results of quantize for the
//   packed gradients of gate and up and, with `again`, the transposed codes of swiglu's result, E4M3 with
//   scale number `again_scale`
// rms_norm_again_quantize: x, w, rstd, scales -> transposed codes of rms_norm's result
#include "graph/fp8_ops.h"
#include "graph/ops/support.h"

namespace quintet::graph {
namespace {

Attrs with_rows(const Attrs& attrs) {
  Attrs all = attrs;
  all.set("rows", int64_t{1});
  return all;
}

void require_scales(const OpDef& op, const std::vector<Type>& in) {
  OP_REQUIRE(op.name, is_scales(in.back(), in[0].dtype), "expects scales last, got {}", to_string(in.back()));
}

// The results of `Producer` without result `Y`, then those of its quantisation.
template <const OpDef& Op, const OpDef& Producer, size_t Y>
std::vector<Type> infer(const std::vector<Type>& in, const Attrs& attrs) {
  require_scales(Op, in);
  std::vector<Type> out = Producer.infer({in.begin(), in.end() - 1}, attrs);
  const std::vector<Type> codes = kQuantize.infer({out[Y], in.back()}, with_rows(attrs));
  out.erase(out.begin() + static_cast<ptrdiff_t>(Y));
  out.insert(out.end(), codes.begin(), codes.end());
  return out;
}

std::vector<Type> infer_swiglu_backward(const std::vector<Type>& in, const Attrs& attrs) {
  require_scales(kSwiGluBackwardQuantize, in);
  const std::vector<Type> d = kSwiGluDx.infer({in.begin(), in.end() - 1}, attrs);
  OP_REQUIRE("swiglu_backward_quantize", d.size() == 1, "expects gate and up in one operand");
  std::vector<Type> out = kQuantize.infer({d[0], in.back()}, with_rows(attrs));
  if (attrs.integer("again") == 0) return out;
  out.push_back({code_type(in[0].dtype, DType::E4M3), {in[0].dims[1], in[0].dims[0]}});
  return out;
}

std::vector<Type> infer_again(const std::vector<Type>& in, const Attrs& attrs) {
  require_scales(kRmsNormAgainQuantize, in);
  const Type& x = in[0];
  Attrs norm = attrs;
  norm.set("eps", 0.0);
  const std::vector<Type> y = kRmsNorm.infer({x, in[1]}, norm);
  OP_REQUIRE("rms_norm_again_quantize", in[2] == y[1], "expects statistics {}, got {}", to_string(y[1]),
             to_string(in[2]));
  Attrs codes = with_rows(attrs);
  codes.set("measures", int64_t{0});
  codes.set("plain", int64_t{0});
  codes.set("transposed", int64_t{1});
  return kQuantize.infer({y[0], in[3]}, codes);
}

Cost cost(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  return {.flops = 8.0 * static_cast<double>(in[0].count()),
          .bytes = total_bytes({in.begin(), in.end() - 1}, out)};
}

// The graph is local: everything is sharded already.
std::vector<OpDim> dims(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  return {tokens_dim(in, out)};
}

std::vector<AttrSpec> with_codes(std::vector<AttrSpec> own) {
  own.insert(own.end(), {{"format", AttrKind::Text},
                         {"scale", AttrKind::Integer},
                         {"measures", AttrKind::Integer},
                         {"plain", AttrKind::Integer},
                         {"transposed", AttrKind::Integer}});
  return own;
}
const AttrSpec kOffset{"offset", AttrKind::Real, true}, kAct{"act", AttrKind::Text, true};

OpDef op(std::string_view name, int min_inputs, int max_inputs, std::vector<AttrSpec> attrs,
         decltype(OpDef::infer) infer, OpClass op_class, OpPass pass = OpPass::Forward) {
  return {.name = name,
          .min_inputs = min_inputs,
          .max_inputs = max_inputs,
          .attrs = std::move(attrs),
          .infer = infer,
          .cost = cost,
          .dims = dims,
          .op_class = op_class,
          .pass = pass};
}
OpDef add_rms_norm_op() {
  OpDef o = op("add_rms_norm_quantize", 4, 4, with_codes({{"eps", AttrKind::Real}, kOffset}),
               infer<kAddRmsNormQuantize, kAddRmsNorm, 1>, OpClass::Norm);
  o.in_place = {{0, 0}, {0, 1}};
  return o;
}
// amax, rounded, codes, transposed codes[, those of the result]: only the first two are sums.
OpDef swiglu_backward_op() {
  OpDef o = op("swiglu_backward_quantize", 3, 3,
               with_codes({kAct, {"again", AttrKind::Integer}, {"again_scale", AttrKind::Integer}}),
               infer_swiglu_backward, OpClass::Activation, OpPass::InputGradient);
  o.overwritten = {3, 4};
  return o;
}

}  // namespace

const OpDef kRmsNormQuantize = op("rms_norm_quantize", 3, 3, with_codes({{"eps", AttrKind::Real}, kOffset}),
                                  infer<kRmsNormQuantize, kRmsNorm, 0>, OpClass::Norm);
const OpDef kAddRmsNormQuantize = add_rms_norm_op();
const OpDef kSwiGluQuantize =
    op("swiglu_quantize", 2, 3, with_codes({kAct}), infer<kSwiGluQuantize, kSwiGlu, 0>, OpClass::Activation);
const OpDef kSwiGluBackwardQuantize = swiglu_backward_op();
const OpDef kRmsNormAgainQuantize =
    op("rms_norm_again_quantize", 4, 4, {kOffset, {"format", AttrKind::Text}, {"scale", AttrKind::Integer}},
       infer_again, OpClass::Norm);

}  // namespace quintet::graph
