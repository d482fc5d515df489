// embedding: table[vocab, embed], ids[tokens] -> y[tokens, embed]. When the rows of the table are sharded,
// each shard returns zero for ids that it does not hold, and the sum over shards is the result.
#include "graph/ops/support.h"

namespace quintet::graph {
namespace {

std::vector<Type> infer(const std::vector<Type>& in, const Attrs&) {
  OP_REQUIRE("embedding", in[0].num_dims() == 2, "expects a table [rows, embed], got {}", to_string(in[0]));
  OP_REQUIRE("embedding", in[1].num_dims() == 1 && in[1].dtype == DType::I32 && has_tokens(in[1]),
             "expects ids i32[tokens], got {}", to_string(in[1]));
  return {{in[0].dtype, {in[1].dims[0], in[0].dims[1]}}};
}

void gradient(GradContext& g, const Node& n) {
  const ValueId table = n.inputs[0], ids = n.inputs[1], dy = g.grad(n.outputs[0]);
  if (!g.needs(table)) return;
  const DimSize rows = g.graph().type(table).dims[0];
  g.add(table, g.emit(kEmbeddingDw, {ids, dy},
                      {{"rows", rows.size},
                       {"dim", std::string(to_string(rows.name))},
                       {"out", text_of(g.param_grad())}},
                      Phase::W)[0]);
}

std::vector<OpDim> dims(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  return {{.key = in[0].dims[0].name, .in = {0, kAbsent}, .out = {kAbsent}, .padded = true},
          {.key = in[0].dims[1].name, .in = {1, kAbsent}, .out = {1}},
          tokens_dim(in, out)};
}

std::vector<Type> infer_dw(const std::vector<Type>& in, const Attrs& attrs) {
  OP_REQUIRE("embedding_dw", is_row_index(in[0], in[1]) && in[1].num_dims() == 2,
             "expects ids i32[tokens] and dy[tokens, embed], got {} and {}", to_string(in[0]),
             to_string(in[1]));
  const auto rows = parse_dim(attrs.text("dim"));
  OP_REQUIRE("embedding_dw", rows.has_value(), "expects the name of a dim, got \"{}\"", attrs.text("dim"));
  return {{dtype_attr(attrs, "out"), {{*rows, attrs.integer("rows")}, in[1].dims[1]}}};
}

std::vector<OpDim> dims_dw(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  return {{.key = out[0].dims[0].name, .in = {kAbsent, kAbsent}, .out = {0}, .padded = true},
          {.key = in[1].dims[1].name, .in = {kAbsent, 1}, .out = {1}},
          tokens_dim(in, out)};
}

Cost cost(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  return {.flops = 0, .bytes = static_cast<double>(in[1].bytes() + 2 * out[0].bytes())};
}

}  // namespace

const OpDef kEmbedding = {.name = "embedding",
                          .min_inputs = 2,
                          .max_inputs = 2,
                          .attrs = {},
                          .infer = infer,
                          .gradient = gradient,
                          .cost = cost,
                          .dims = dims,
                          .op_class = OpClass::Embedding};
const OpDef kEmbeddingDw = {
    .name = "embedding_dw",
    .min_inputs = 2,
    .max_inputs = 2,
    .attrs = {{"rows", AttrKind::Integer}, {"dim", AttrKind::Text}, {"out", AttrKind::Text}},
    .infer = infer_dw,
    .cost = cost_by_bytes,
    .dims = dims_dw,
    .op_class = OpClass::Embedding,
    .pass = OpPass::WeightGradient};

}  // namespace quintet::graph
