// Small ops on rows, of which families need one or another.
//   center:          x[..., d] -> x - its mean over d; rms_norm of that is a LayerNorm without bias
//   unit_norm:       x[..., d] -> x / sqrt(mean of x^2 over d + eps), an RMSNorm without weights
//   clip:            x -> x, limited to [-limit, limit]
//   position_scale:  x[tokens, ...], positions -> x (1 + scale log(1 + floor((position + 1) / floor)))
//   split_documents: documents, positions -> documents that end after every `chunk` positions; padding stays
// so
#include "graph/ops/support.h"

namespace quintet::graph {
namespace {

std::vector<Type> like_first(const std::vector<Type>& in, const Attrs&) { return {in[0]}; }
std::vector<OpDim> dims_whole_rows(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  return rowwise_dims(in, out, 1);
}
std::vector<OpDim> dims_any(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  return rowwise_dims(in, out, 0);
}
std::vector<Type> infer_dx(std::string_view op, const std::vector<Type>& in) {
  OP_REQUIRE(op, in[0] == in[1], "operands differ: {} and {}", to_string(in[0]), to_string(in[1]));
  return {in[0]};
}
std::vector<Type> infer_unit_norm_dx(const std::vector<Type>& in, const Attrs&) {
  return infer_dx("unit_norm_dx", in);
}
std::vector<Type> infer_clip_dx(const std::vector<Type>& in, const Attrs&) { return infer_dx("clip_dx", in); }

void gradient_center(GradContext& g, const Node& n) {
  g.add(n.inputs[0], g.emit(kCenter, {g.grad(n.outputs[0])}, {}, Phase::B)[0]);
}
void gradient_unit_norm(GradContext& g, const Node& n) {
  g.add(n.inputs[0], g.emit(kUnitNormDx, {g.grad(n.outputs[0]), n.inputs[0]}, n.attrs, Phase::B)[0]);
}
void gradient_clip(GradContext& g, const Node& n) {
  g.add(n.inputs[0], g.emit(kClipDx, {g.grad(n.outputs[0]), n.inputs[0]}, n.attrs, Phase::B)[0]);
}
void gradient_position_scale(GradContext& g, const Node& n) {
  g.add(n.inputs[0], g.emit(kPositionScale, {g.grad(n.outputs[0]), n.inputs[1]}, n.attrs, Phase::B)[0]);
}

std::vector<Type> infer_position_scale(const std::vector<Type>& in, const Attrs& attrs) {
  OP_REQUIRE("position_scale", is_row_index(in[1], in[0]),
             "expects x[tokens, ...] and positions, got {} and {}", to_string(in[0]), to_string(in[1]));
  OP_REQUIRE("position_scale", attrs.integer("floor") >= 1, "floor must be at least 1, got {}",
             attrs.integer("floor"));
  return {in[0]};
}

std::vector<Type> infer_split_documents(const std::vector<Type>& in, const Attrs& attrs) {
  OP_REQUIRE("split_documents", is_row_index(in[0], in[0]) && in[1] == in[0],
             "expects documents and positions i32[tokens], got {} and {}", to_string(in[0]),
             to_string(in[1]));
  OP_REQUIRE("split_documents", attrs.integer("chunk") >= 1, "chunk must be at least 1, got {}",
             attrs.integer("chunk"));
  return {in[0]};
}

const AttrSpec kEps{"eps", AttrKind::Real}, kLimitAttr{"limit", AttrKind::Real};

}  // namespace

const OpDef kCenter = {.name = "center",
                       .min_inputs = 1,
                       .max_inputs = 1,
                       .attrs = {},
                       .infer = like_first,
                       .gradient = gradient_center,
                       .cost = cost_by_bytes,
                       .dims = dims_whole_rows,
                       .op_class = OpClass::Norm};
const OpDef kUnitNorm = {.name = "unit_norm",
                         .min_inputs = 1,
                         .max_inputs = 1,
                         .attrs = {kEps},
                         .infer = like_first,
                         .gradient = gradient_unit_norm,
                         .cost = cost_by_bytes,
                         .dims = dims_whole_rows,
                         .op_class = OpClass::Norm};
const OpDef kUnitNormDx = {.name = "unit_norm_dx",
                           .min_inputs = 2,
                           .max_inputs = 2,
                           .attrs = {kEps},
                           .infer = infer_unit_norm_dx,
                           .cost = cost_by_bytes,
                           .dims = dims_whole_rows,
                           .op_class = OpClass::Norm,
                           .pass = OpPass::InputGradient};
const OpDef kClip = {.name = "clip",
                     .min_inputs = 1,
                     .max_inputs = 1,
                     .attrs = {kLimitAttr},
                     .infer = like_first,
                     .gradient = gradient_clip,
                     .cost = cost_by_bytes,
                     .dims = dims_any,
                     .op_class = OpClass::Activation};
const OpDef kClipDx = {.name = "clip_dx",
                       .min_inputs = 2,
                       .max_inputs = 2,
                       .attrs = {kLimitAttr},
                       .infer = infer_clip_dx,
                       .cost = cost_by_bytes,
                       .dims = dims_any,
                       .op_class = OpClass::Activation,
                       .pass = OpPass::InputGradient};
const OpDef kPositionScale = {.name = "position_scale",
                              .min_inputs = 2,
                              .max_inputs = 2,
                              .attrs = {{"scale", AttrKind::Real}, {"floor", AttrKind::Integer}},
                              .infer = infer_position_scale,
                              .gradient = gradient_position_scale,
                              .cost = cost_by_bytes,
                              .dims = dims_any,
                              .op_class = OpClass::Rope};
const OpDef kSplitDocuments = {.name = "split_documents",
                               .min_inputs = 2,
                               .max_inputs = 2,
                               .attrs = {{"chunk", AttrKind::Integer}, {"seq_len", AttrKind::Integer}},
                               .infer = infer_split_documents,
                               .cost = cost_by_bytes,
                               .dims = dims_any,
                               .op_class = OpClass::Rope};

}  // namespace quintet::graph
