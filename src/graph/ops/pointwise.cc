// Elementwise ops: every dim can be sharded and all operands are sharded alike.
#include "graph/ops/support.h"

namespace quintet::graph {
namespace {

std::vector<OpDim> dims(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  return rowwise_dims(in, out, 0);
}

std::vector<Type> same_as_first(const std::vector<Type>& in, const Attrs&) { return {in[0]}; }

void require_equal_types(std::string_view op, const std::vector<Type>& in) {
  for (const Type& t : in)
    OP_REQUIRE(op, t == in[0], "operands differ: {} and {}", to_string(in[0]), to_string(t));
}

std::vector<Type> infer_add(const std::vector<Type>& in, const Attrs&) {
  return require_equal_types("add", in), same_as_first(in, {});
}

// swiglu: gate, up -> act(gate) * up, where act is silu, or the tanh form of gelu with act = "gelu". In local
// graphs gate and up may be packed in one operand
// [tokens, 2 * ffn], and likewise their gradients (passes/pack.h). Half of such a type.
Type half(std::string_view op, Type both) {
  OP_REQUIRE(op, has_tokens(both) && both.num_dims() == 2 && both.size(1) % 2 == 0,
             "expects packed gate and up [tokens, 2 * ffn], got {}", to_string(both));
  both.dims[1].size /= 2;
  return both;
}
std::vector<Type> infer_swiglu(const std::vector<Type>& in, const Attrs&) {
  if (in.size() == 1) return {half("swiglu", in[0])};
  return require_equal_types("swiglu", in), same_as_first(in, {});
}

Cost cost(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  return {.flops = 8.0 * static_cast<double>(in[0].count()), .bytes = total_bytes(in, out)};
}

void gradient_swiglu(GradContext& g, const Node& n) {
  std::vector<ValueId> in = {g.grad(n.outputs[0])};
  in.insert(in.end(), n.inputs.begin(), n.inputs.end());
  const auto out = g.emit(kSwiGluDx, std::move(in), n.attrs, Phase::B);
  for (size_t i = 0; i < out.size(); ++i) g.add(n.inputs[i], out[i]);
}
// dy, gate and up -> their gradients
std::vector<Type> infer_swiglu_gradients(std::string_view op, const std::vector<Type>& in) {
  if (in.size() == 2)
    OP_REQUIRE(op, half(op, in[1]) == in[0], "packed gate and up are {}, dy is {}", to_string(in[1]),
               to_string(in[0]));
  else
    require_equal_types(op, in);
  return {in.begin() + 1, in.end()};
}
std::vector<Type> infer_swiglu_dx(const std::vector<Type>& in, const Attrs&) {
  return infer_swiglu_gradients("swiglu_dx", in);
}

// swiglu_backward: swiglu_dx that also returns the forward result (see passes/fold.h)
std::vector<Type> infer_swiglu_backward(const std::vector<Type>& in, const Attrs&) {
  std::vector<Type> out = infer_swiglu_gradients("swiglu_backward", in);
  out.push_back(in[0]);
  return out;
}

// Packed: the graph is local, everything is sharded already.
std::vector<OpDim> dims_swiglu(const std::vector<Type>& in, const std::vector<Type>& out,
                               const Attrs& attrs) {
  return in.size() == 1 ? std::vector<OpDim>{tokens_dim(in, out)} : dims(in, out, attrs);
}
std::vector<OpDim> dims_swiglu_gradients(const std::vector<Type>& in, const std::vector<Type>& out,
                                         const Attrs& attrs) {
  return in.size() == 2 ? std::vector<OpDim>{tokens_dim(in, out)} : dims(in, out, attrs);
}
Cost cost_swiglu(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  return {.flops = 8.0 * static_cast<double>(out[0].count()), .bytes = total_bytes(in, out)};
}

// gelu, in its tanh form unless form = "erf"
void gradient_gelu(GradContext& g, const Node& n) {
  g.add(n.inputs[0], g.emit(kGeluDx, {g.grad(n.outputs[0]), n.inputs[0]}, n.attrs, Phase::B)[0]);
}

// scale: x -> factor * x
void gradient_scale(GradContext& g, const Node& n) {
  g.add(n.inputs[0], g.emit(kScale, {g.grad(n.outputs[0])}, n.attrs, Phase::B)[0]);
}

// soft_cap: x -> cap * tanh(x / cap); soft_cap_dx: dy, x -> dx. Not in place: of logits, the result becomes
// its own gradient (cross_entropy), and x is needed after that.
void gradient_soft_cap(GradContext& g, const Node& n) {
  g.add(n.inputs[0], g.emit(kSoftCapDx, {g.grad(n.outputs[0]), n.inputs[0]}, n.attrs, Phase::B)[0]);
}
// Padding of the vocabulary stays zero.
std::vector<OpDim> dims_soft_cap(const std::vector<Type>& in, const std::vector<Type>& out,
                                 const Attrs& attrs) {
  std::vector<OpDim> rule = dims(in, out, attrs);
  for (OpDim& d : rule) d.padded = d.key == Dim::Vocab;
  return rule;
}
std::vector<Type> infer_soft_cap_dx(const std::vector<Type>& in, const Attrs&) {
  return require_equal_types("soft_cap_dx", in), same_as_first(in, {});
}

std::vector<Type> infer_gelu_dx(const std::vector<Type>& in, const Attrs&) {
  return require_equal_types("gelu_dx", in), same_as_first(in, {});
}

void gradient_add(GradContext& g, const Node& n) {
  const ValueId dy = g.grad(n.outputs[0]);
  g.add(n.inputs[0], dy);
  g.add(n.inputs[1], dy);
}

// dropout: x, samples, positions, dropout_key -> y. The mask is a function of an element's global indices
// (sample, position, feature), so the same op on dy is its gradient and every layout draws the same mask.
void gradient_dropout(GradContext& g, const Node& n) {
  std::vector<ValueId> in = n.inputs;
  in[0] = g.grad(n.outputs[0]);
  g.add(n.inputs[0], g.emit(kDropout, std::move(in), n.attrs, Phase::B)[0]);
}
void require_drawn(std::string_view op, const std::vector<Type>& in) {
  OP_REQUIRE(op, has_tokens(in[0]) && in[0].num_dims() == 2, "expects x[tokens, d], got {}",
             to_string(in[0]));
  OP_REQUIRE(op, is_row_index(in[1], in[0]) && is_row_index(in[2], in[0]) && is_scalar(in[3], DType::I64),
             "expects samples and positions i32[tokens={}] and the key i64[], got {}, {}, {}", in[0].size(0),
             to_string(in[1]), to_string(in[2]), to_string(in[3]));
}
std::vector<Type> infer_dropout(const std::vector<Type>& in, const Attrs& attrs) {
  const double p = attrs.real("p");
  OP_REQUIRE("dropout", p >= 0 && p < 1, "expects 0 <= p < 1, got {}", p);
  require_drawn("dropout", in);
  return {in[0]};
}

// jitter: x, samples, positions, dropout_key -> y = x * (1 + eps * t), t random in (-1, 1). The numbers are a
// function of an element's global indices as dropout's are, so the same op on dy is its gradient.
void gradient_jitter(GradContext& g, const Node& n) {
  std::vector<ValueId> in = n.inputs;
  in[0] = g.grad(n.outputs[0]);
  g.add(n.inputs[0], g.emit(kJitter, std::move(in), n.attrs, Phase::B)[0]);
}
std::vector<Type> infer_jitter(const std::vector<Type>& in, const Attrs& attrs) {
  const double eps = attrs.real("eps");
  OP_REQUIRE("jitter", eps >= 0 && eps < 1, "expects 0 <= eps < 1, got {}", eps);
  require_drawn("jitter", in);
  return {in[0]};
}
// Rows are spread over the tensor ranks like those of the router that follows.
std::vector<OpDim> dims_jitter(const std::vector<Type>& in, const std::vector<Type>& out,
                               const Attrs& attrs) {
  std::vector<OpDim> rule = dims(in, out, attrs);
  for (OpDim& d : rule) d.spread = d.key == Dim::Tokens;
  return rule;
}

std::vector<Type> infer_cast(const std::vector<Type>& in, const Attrs& attrs) {
  return {{dtype_attr(attrs, "out"), in[0].dims}};
}
void gradient_cast(GradContext& g, const Node& n) {
  const DType back = g.graph().type(n.inputs[0]).dtype;
  g.add(n.inputs[0], g.emit(kCast, {g.grad(n.outputs[0])}, {{"out", text_of(back)}}, Phase::B)[0]);
}

const AttrSpec kAct{"act", AttrKind::Text, true}, kForm{"form", AttrKind::Text, true};

}  // namespace

const OpDef kSwiGlu = {.name = "swiglu",
                       .min_inputs = 1,
                       .max_inputs = 2,
                       .attrs = {kAct},
                       .infer = infer_swiglu,
                       .gradient = gradient_swiglu,
                       .cost = cost_swiglu,
                       .dims = dims_swiglu,
                       .op_class = OpClass::Activation};
const OpDef kSwiGluDx = {.name = "swiglu_dx",
                         .min_inputs = 2,
                         .max_inputs = 3,
                         .attrs = {kAct},
                         .infer = infer_swiglu_dx,
                         .cost = cost,
                         .dims = dims_swiglu_gradients,
                         .in_place = {{0, 1}, {1, 2}},
                         .op_class = OpClass::Activation,
                         .pass = OpPass::InputGradient};
const OpDef kSwiGluBackward = {.name = "swiglu_backward",
                               .min_inputs = 2,
                               .max_inputs = 3,
                               .attrs = {kAct},
                               .infer = infer_swiglu_backward,
                               .cost = cost,
                               .dims = dims_swiglu_gradients,
                               .in_place = {{0, 1}, {1, 2}, {2, 0}, {1, 0}},
                               .op_class = OpClass::Activation,
                               .pass = OpPass::InputGradient};
const OpDef kGelu = {.name = "gelu",
                     .min_inputs = 1,
                     .max_inputs = 1,
                     .attrs = {kForm},
                     .infer = same_as_first,
                     .gradient = gradient_gelu,
                     .cost = cost,
                     .dims = dims,
                     .op_class = OpClass::Activation};
const OpDef kGeluDx = {.name = "gelu_dx",
                       .min_inputs = 2,
                       .max_inputs = 2,
                       .attrs = {kForm},
                       .infer = infer_gelu_dx,
                       .cost = cost,
                       .dims = dims,
                       .in_place = {{0, 0}},
                       .op_class = OpClass::Activation,
                       .pass = OpPass::InputGradient};
const OpDef kScale = {.name = "scale",
                      .min_inputs = 1,
                      .max_inputs = 1,
                      .attrs = {{"factor", AttrKind::Real}},
                      .infer = same_as_first,
                      .gradient = gradient_scale,
                      .cost = cost_by_bytes,
                      .dims = dims,
                      .in_place = {{0, 0}},
                      .op_class = OpClass::Activation};
const OpDef kSoftCap = {.name = "soft_cap",
                        .min_inputs = 1,
                        .max_inputs = 1,
                        .attrs = {{"cap", AttrKind::Real}},
                        .infer = same_as_first,
                        .gradient = gradient_soft_cap,
                        .cost = cost,
                        .dims = dims_soft_cap,
                        .op_class = OpClass::Activation};
const OpDef kSoftCapDx = {.name = "soft_cap_dx",
                          .min_inputs = 2,
                          .max_inputs = 2,
                          .attrs = {{"cap", AttrKind::Real}},
                          .infer = infer_soft_cap_dx,
                          .cost = cost,
                          .dims = dims_soft_cap,
                          .in_place = {{0, 0}, {0, 1}},
                          .op_class = OpClass::Activation,
                          .pass = OpPass::InputGradient};
const OpDef kAdd = {.name = "add",
                    .min_inputs = 2,
                    .max_inputs = 2,
                    .attrs = {},
                    .infer = infer_add,
                    .gradient = gradient_add,
                    .cost = cost_by_bytes,
                    .dims = dims,
                    .in_place = {{0, 0}, {0, 1}},
                    .passes_partial = true,
                    .op_class = OpClass::Residual};
const OpDef kDropout = {.name = "dropout",
                        .min_inputs = 4,
                        .max_inputs = 4,
                        .attrs = {{"p", AttrKind::Real}, {"salt", AttrKind::Integer}},
                        .infer = infer_dropout,
                        .gradient = gradient_dropout,
                        .cost = cost_by_bytes,
                        .dims = dims,
                        .in_place = {{0, 0}},
                        .op_class = OpClass::Dropout};
const OpDef kJitter = {.name = "jitter",
                       .min_inputs = 4,
                       .max_inputs = 4,
                       .attrs = {{"eps", AttrKind::Real}, {"salt", AttrKind::Integer}},
                       .infer = infer_jitter,
                       .gradient = gradient_jitter,
                       .cost = cost_by_bytes,
                       .dims = dims_jitter,
                       .in_place = {{0, 0}},
                       .op_class = OpClass::Dropout};
const OpDef kCast = {"cast", 1, 1, {{"out", AttrKind::Text}}, infer_cast, gradient_cast, cost_by_bytes, dims};

}  // namespace quintet::graph
