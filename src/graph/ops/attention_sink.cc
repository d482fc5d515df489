// attention_sink: o[tokens, heads, dv], lse[heads, tokens], sink[heads] -> o, lse like the inputs, as if
// every query had one more key of score sink[head] and value 0:
//   lse' = log(exp(lse) + exp(sink)),  o' = o exp(lse - lse').
// o and lse must be the results of one attention that nothing else reads.
//
// attention_dx of o' and lse' is the gradient with respect to q, k and v: it reads probabilities as exp(score
// - lse') and their mean gradient as do'.o'. So the gradient of this op is that of both ops together.
//
// attention_sink_dw: do, o', lse', sink -> dsink = - the sum over tokens of exp(sink - lse') do.o'
#include "graph/ops/attention.h"
#include "graph/ops/support.h"

namespace quintet::graph {
namespace {

void require(std::string_view op, const Type& o, const Type& lse, const Type& sink) {
  OP_REQUIRE(op,
             has_tokens(o) && o.num_dims() == 3 && o.dims[1].name == Dim::Heads &&
                 lse == Type(base::accumulator_of(o.dtype), {o.dims[1], o.dims[0]}) &&
                 sink == Type(o.dtype, {o.dims[1]}),
             "expects o[tokens, heads, d], lse[heads, tokens] and sink[heads], got {}, {} and {}",
             to_string(o), to_string(lse), to_string(sink));
}

std::vector<Type> infer(const std::vector<Type>& in, const Attrs&) {
  require("attention_sink", in[0], in[1], in[2]);
  return {in[0], in[1]};
}

std::vector<Type> infer_dw(const std::vector<Type>& in, const Attrs& attrs) {
  require("attention_sink_dw", in[1], in[2], in[3]);
  OP_REQUIRE("attention_sink_dw", in[0] == in[1], "expects do like o {}, got {}", to_string(in[1]),
             to_string(in[0]));
  return {{dtype_attr(attrs, "out"), in[3].dims}};
}

void gradient(GradContext& g, const Node& n) {
  const ValueId sink = n.inputs[2], o = n.outputs[0], lse = n.outputs[1], dout = g.grad(o);
  if (g.needs(sink))
    g.add(sink,
          g.emit(kAttentionSinkDw, {dout, o, lse, sink}, {{"out", text_of(g.param_grad())}}, Phase::W)[0]);
  if (!g.needs(n.inputs[0])) return;
  const NodeId producer = g.graph().value(n.inputs[0]).producer;
  QUINTET_CHECK(producer.valid() && g.graph().nodes()[producer.index()].op == &kAttention &&
                    g.graph().nodes()[producer.index()].outputs[1] == n.inputs[1],
                "the operands of [attention_sink] are not the results of one [attention]");
  const Node attention = g.graph().nodes()[producer.index()];
  attention_gradient(g, attention, dout, o, lse);
}

std::vector<OpDim> dims(const std::vector<Type>&, const std::vector<Type>&, const Attrs&) {
  return {{.key = Dim::Tokens, .in = {0, 1, kAbsent}, .out = {0, 1}},
          {.key = Dim::Heads, .in = {1, 0, 0}, .out = {1, 0}}};
}
std::vector<OpDim> dims_dw(const std::vector<Type>&, const std::vector<Type>&, const Attrs&) {
  return {{.key = Dim::Tokens, .in = {0, 0, 1, kAbsent}, .out = {kAbsent}},
          {.key = Dim::Heads, .in = {1, 1, 0, 0}, .out = {0}}};
}

}  // namespace

const OpDef kAttentionSink = {.name = "attention_sink",
                              .min_inputs = 3,
                              .max_inputs = 3,
                              .attrs = {},
                              .infer = infer,
                              .gradient = gradient,
                              .cost = cost_by_bytes,
                              .dims = dims,
                              .in_place = {{0, 0}, {1, 1}},
                              .op_class = OpClass::Bias};
const OpDef kAttentionSinkDw = {.name = "attention_sink_dw",
                                .min_inputs = 4,
                                .max_inputs = 4,
                                .attrs = {{"out", AttrKind::Text}},
                                .infer = infer_dw,
                                .cost = cost_by_bytes,
                                .dims = dims_dw,
                                .op_class = OpClass::Bias,
                                .pass = OpPass::WeightGradient};

}  // namespace quintet::graph
