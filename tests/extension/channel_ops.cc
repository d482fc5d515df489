#include "extension/channel_ops.h"

#include <algorithm>

#include "base/error.h"
#include "exec/cpu/kernel.h"
#include "graph/autodiff.h"
#include "layout/rule.h"

namespace quintet::tests {

using base::DType;
using exec::cpu::Bound;
using graph::Attrs;
using graph::DimSize;
using graph::GradContext;
using graph::Node;
using graph::OpDef;
using graph::OpDim;
using graph::Phase;
using graph::Type;
using graph::ValueId;

extern const OpDef kChannelScale, kChannelScaleDx, kChannelScaleDw, kSquaredRelu, kSquaredReluDx;

base::Dim channels() {
  static const base::Dim dim = base::intern_dim("channels");
  return dim;
}

namespace {

void require(bool condition, std::string_view op, const Type& got) {
  if (!condition) base::fail_user("[{}] expects [tokens, channels], got {}", op, to_string(got));
}
bool is_channel_row(const Type& t) { return t.num_dims() == 2 && t.dims[1].name == channels(); }

// ---- channel_scale: x[tokens, channels], s[channels] -> y; the attribute is the number of channels

std::vector<Type> infer_scale(const std::vector<Type>& in, const Attrs& attrs) {
  require(is_channel_row(in[0]) && in[1].num_dims() == 1 && in[0].size(1) == attrs.integer("channels"),
          "channel_scale", in[0]);
  return {in[0]};
}
void gradient_scale(GradContext& g, const Node& n) {
  const ValueId x = n.inputs[0], s = n.inputs[1], dy = g.grad(n.outputs[0]);
  if (g.needs(x)) g.add(x, g.emit(kChannelScaleDx, {dy, s}, n.attrs, Phase::B)[0]);
  if (g.needs(s))
    g.add(s, g.emit(kChannelScaleDw, {dy, x}, {{"out", std::string(base::to_string(g.param_grad()))}},
                    Phase::W)[0]);
}
std::vector<OpDim> dims_scale(const std::vector<Type>&, const std::vector<Type>&, const Attrs&) {
  return {{.key = channels(), .in = {1, 0}, .out = {1}},
          {.key = base::Dim::Tokens, .in = {0, graph::kAbsent}, .out = {0}}};
}

// dw: dy, x -> ds[channels], a sum over the rows
std::vector<Type> infer_scale_dw(const std::vector<Type>& in, const Attrs& attrs) {
  require(is_channel_row(in[0]) && in[1] == in[0], "channel_scale_dw", in[0]);
  return {{*base::parse_dtype(attrs.text("out")), {in[0].dims[1]}}};
}
std::vector<OpDim> dims_scale_dw(const std::vector<Type>&, const std::vector<Type>&, const Attrs&) {
  return {{.key = channels(), .in = {1, 1}, .out = {0}},
          {.key = base::Dim::Tokens, .in = {0, 0}, .out = {graph::kAbsent}}};
}

// A rank holds only its part of the channels: the attribute is made local.
void rule_scale(layout::RuleContext& c, const Node& node) {
  const layout::Divided d = c.divide(node);
  Attrs attrs = node.attrs;
  attrs.set("channels", c.local_of(d.out[0], c.placement_of(d, 0, layout::Side::Output)).size(1));
  c.emit_by_dims(d, std::move(attrs));
}

void run_scale(const Bound& b, bool) {
  const Type& x = b.in_type(0);
  QUINTET_CHECK(b.instr->attrs.integer("channels") == x.size(1), "channels of the whole model on a rank");
  for (int64_t i = 0; i < x.count(); ++i)
    b.output<double>(0)[i] = b.input<double>(0)[i] * b.input<double>(1)[i % x.size(1)];
}
void run_scale_dw(const Bound& b, bool accumulate) {
  const Type& x = b.in_type(0);
  const int64_t width = x.size(1);
  double* const sum = b.output<double>(0);
  if (!accumulate) std::fill_n(sum, width, 0.0);
  for (int64_t i = 0; i < x.count(); ++i) sum[i % width] += b.input<double>(0)[i] * b.input<double>(1)[i];
}

// ---- squared_relu: x -> max(x, 0)^2

std::vector<Type> infer_same(const std::vector<Type>& in, const Attrs&) { return {in[0]}; }
void gradient_relu(GradContext& g, const Node& n) {
  if (g.needs(n.inputs[0]))
    g.add(n.inputs[0], g.emit(kSquaredReluDx, {g.grad(n.outputs[0]), n.inputs[0]}, {}, Phase::B)[0]);
}
std::vector<OpDim> dims_rows(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  return graph::rowwise_dims(in, out, 0);
}
void run_relu(const Bound& b, bool) {
  for (int64_t i = 0; i < b.in_type(0).count(); ++i) {
    const double x = std::max(b.input<double>(0)[i], 0.0);
    b.output<double>(0)[i] = x * x;
  }
}
void run_relu_dx(const Bound& b, bool) {
  for (int64_t i = 0; i < b.in_type(0).count(); ++i)
    b.output<double>(0)[i] = 2 * b.input<double>(0)[i] * std::max(b.input<double>(1)[i], 0.0);
}

const std::vector<graph::AttrSpec> kChannels = {{"channels", graph::AttrKind::Integer}};

}  // namespace

const OpDef kChannelScale = {.name = "channel_scale",
                             .min_inputs = 2,
                             .max_inputs = 2,
                             .attrs = kChannels,
                             .infer = infer_scale,
                             .gradient = gradient_scale,
                             .cost = graph::cost_by_bytes,
                             .dims = dims_scale};
const OpDef kChannelScaleDx = {.name = "channel_scale_dx",
                               .min_inputs = 2,
                               .max_inputs = 2,
                               .attrs = kChannels,
                               .infer = infer_scale,
                               .cost = graph::cost_by_bytes,
                               .dims = dims_scale};
const OpDef kChannelScaleDw = {.name = "channel_scale_dw",
                               .min_inputs = 2,
                               .max_inputs = 2,
                               .attrs = {{"out", graph::AttrKind::Text}},
                               .infer = infer_scale_dw,
                               .cost = graph::cost_by_bytes,
                               .dims = dims_scale_dw};
const OpDef kSquaredRelu = {.name = "squared_relu",
                            .min_inputs = 1,
                            .max_inputs = 1,
                            .attrs = {},
                            .infer = infer_same,
                            .gradient = gradient_relu,
                            .cost = graph::cost_by_bytes,
                            .dims = dims_rows};
const OpDef kSquaredReluDx = {.name = "squared_relu_dx",
                              .min_inputs = 2,
                              .max_inputs = 2,
                              .attrs = {},
                              .infer = infer_same,
                              .cost = graph::cost_by_bytes,
                              .dims = dims_rows};

const std::vector<compiler::OpPackage>& channel_packages() {
  static const exec::cpu::Kernel kKernels[] = {{&kChannelScale, run_scale, nullptr},
                                               {&kChannelScaleDx, run_scale, nullptr},
                                               {&kChannelScaleDw, run_scale_dw, nullptr},
                                               {&kSquaredRelu, run_relu, nullptr},
                                               {&kSquaredReluDx, run_relu_dx, nullptr}};
  static const std::vector<compiler::OpPackage> kPackages = {
      {.op = &kChannelScale, .rule = rule_scale, .cpu = &kKernels[0]},
      {.op = &kChannelScaleDx, .rule = rule_scale, .cpu = &kKernels[1]},
      {.op = &kChannelScaleDw, .cpu = &kKernels[2]},
      {.op = &kSquaredRelu, .cpu = &kKernels[3]},
      {.op = &kSquaredReluDx, .cpu = &kKernels[4]}};
  return kPackages;
}

graph::Graph channel_model(const graph::BuildOptions& options, int64_t width, int64_t layers) {
  const DimSize vocab = {base::Dim::Vocab, 61}, embed = {base::Dim::Embed, 12}, inner = {channels(), width};
  graph::Builder b(options);
  ValueId x = b.embedding(b.weight("embed.weight", {vocab, embed}, 1), b.ids());
  for (int64_t i = 0; i < layers; ++i) {
    b.next_block();
    const std::string name = "layers." + std::to_string(i) + ".";
    ValueId y = b.rms_norm(x, b.norm_weight(name + "norm.weight", embed), 1e-5);
    y = b.linear(y, b.weight(name + "up.weight", {inner, embed}, 0.5));
    y = b.emit(kSquaredRelu, {y});
    y = b.emit(kChannelScale, {y, b.norm_weight(name + "scale.weight", inner)}, {{"channels", width}});
    x = b.add(x, b.linear(y, b.weight(name + "down.weight", {embed, inner}, 0.5)));
  }
  b.next_block();
  b.head(x, b.weight("head.weight", {vocab, embed}, 0.5));
  return b.finish();
}

}  // namespace quintet::tests
