// attention: q[tokens, heads, d], k[tokens, kv_heads, d], v[tokens, kv_heads, dv], documents[tokens]
// -> o[tokens, heads, dv], lse[heads, tokens]. Causal inside sequences of seq_len rows; a query sees keys of
// its own document only, at most `window` back (0: all). Query heads share KV heads in groups of heads /
// kv_heads.
//
// Two ways to divide heads: by KV head (then the queries of that group come along), and by query head inside
// a group (then K and V are needed whole and their gradients are partial sums). The second is what tp >
// kv_heads uses.
#include "graph/ops/support.h"

namespace quintet::graph {
namespace {

// From `first` on: documents and, with dropout, samples, positions and the key.
void require_indices(std::string_view op, const std::vector<Type>& in, size_t first, const Attrs& attrs) {
  const bool dropout = attrs.real("dropout") > 0;
  OP_REQUIRE(op, in.size() == first + (dropout ? 4 : 1), "expects {} operands with dropout = {}, got {}",
             first + (dropout ? 4 : 1), attrs.real("dropout"), in.size());
  const Type& q = in[first == 3 ? 0 : 1];
  for (size_t i = first; i < in.size() && i < first + 3; ++i)
    OP_REQUIRE(op, is_row_index(in[i], q), "expects i32[tokens={}] for operand {}, got {}", q.size(0), i,
               to_string(in[i]));
  if (dropout)
    OP_REQUIRE(op, is_scalar(in.back(), DType::I64), "expects the dropout key i64[] last, got {}",
               to_string(in.back()));
}

std::vector<Type> infer(const std::vector<Type>& in, const Attrs& attrs) {
  const Type &q = in[0], &k = in[1], &v = in[2];
  OP_REQUIRE("attention", q.num_dims() == 3 && k.num_dims() == 3 && v.num_dims() == 3 && has_tokens(q),
             "expects q[tokens, heads, d], k[tokens, kv_heads, d], v[tokens, kv_heads, dv], got {}, {}, {}",
             to_string(q), to_string(k), to_string(v));
  OP_REQUIRE(
      "attention",
      q.size(2) == k.size(2) && k.size(1) == v.size(1) && k.size(0) == q.size(0) && q.dims[0] == v.dims[0],
      "q, k and v do not fit together: {}, {}, {}", to_string(q), to_string(k), to_string(v));
  OP_REQUIRE("attention",
             q.dtype == k.dtype && q.dtype == v.dtype && q.dims[1].name == Dim::Heads &&
                 k.dims[1].name == Dim::KvHeads && v.dims[1].name == Dim::KvHeads,
             "expects one dtype, heads in q and kv_heads in k and v, got {}, {}, {}", to_string(q),
             to_string(k), to_string(v));
  OP_REQUIRE("attention", q.size(1) % k.size(1) == 0, "{} query heads do not share {} KV heads evenly",
             q.size(1), k.size(1));
  OP_REQUIRE("attention", q.size(0) % attrs.integer("seq_len") == 0, "{} rows are not whole sequences of {}",
             q.size(0), attrs.integer("seq_len"));
  require_indices("attention", in, 3, attrs);
  Type o = q;
  o.dims[2] = v.dims[2];
  return {o, {base::accumulator_of(q.dtype), {q.dims[1], q.dims[0]}}};
}

void gradient(GradContext& g, const Node& n) {
  std::vector<ValueId> in = {g.grad(n.outputs[0])};
  in.insert(in.end(), n.inputs.begin(), n.inputs.begin() + 3);
  in.push_back(n.outputs[0]);
  in.push_back(n.outputs[1]);
  in.insert(in.end(), n.inputs.begin() + 3, n.inputs.end());
  const auto out = g.emit(kAttentionDx, std::move(in), n.attrs, Phase::B);
  for (size_t i = 0; i < 3; ++i) g.add(n.inputs[i], out[i]);
}

// Query-key pairs that are really computed: half of the square, or the band of the window.
double pairs(int64_t tokens, const Attrs& attrs) {
  const double s = static_cast<double>(attrs.integer("seq_len"));
  const double w =
      attrs.integer("window") > 0 ? std::min(s, static_cast<double>(attrs.integer("window"))) : s;
  const double per_sequence = w * (w + 1) / 2 + (s - w) * w;
  return static_cast<double>(tokens) / s * per_sequence;
}

Cost cost(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs& attrs) {
  const double heads = static_cast<double>(in[0].size(1)),
               d = static_cast<double>(in[0].size(2) + in[2].size(2));
  return {.flops = 2.0 * heads * d * pairs(in[0].size(0), attrs), .bytes = total_bytes(in, out)};
}

std::vector<OpDim> dims(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  std::vector<int> heads_in(in.size(), kAbsent), groups_in(in.size(), kAbsent);
  heads_in[0] = groups_in[0] = groups_in[1] = groups_in[2] = 1;
  return {{.key = Dim::KvHeads, .in = groups_in, .out = {1, 0}},
          {.key = Dim::Heads, .in = heads_in, .out = {1, 0}},
          tokens_dim(in, out, /*any_row=*/false)};
}

// attention_dx: do, q, k, v, o, lse, documents -> dq, dk, dv
std::vector<Type> infer_dx(const std::vector<Type>& in, const Attrs& attrs) {
  require_indices("attention_dx", in, 6, attrs);
  std::vector<Type> forward_in = {in[1], in[2], in[3]};
  forward_in.insert(forward_in.end(), in.begin() + 6, in.end());
  const std::vector<Type> forward_out = infer(forward_in, attrs);
  OP_REQUIRE("attention_dx", in[0] == forward_out[0] && in[4] == forward_out[0] && in[5] == forward_out[1],
             "expects do and o {}, lse {}; got {}, {}, {}", to_string(forward_out[0]),
             to_string(forward_out[1]), to_string(in[0]), to_string(in[4]), to_string(in[5]));
  return {in[1], in[2], in[3]};
}

Cost cost_dx(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs& attrs) {
  const double heads = static_cast<double>(in[1].size(1));
  const double d = 3.0 * static_cast<double>(in[1].size(2)) + 2.0 * static_cast<double>(in[3].size(2));
  return {.flops = 2.0 * heads * d * pairs(in[1].size(0), attrs), .bytes = total_bytes(in, out)};
}

std::vector<OpDim> dims_dx(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  std::vector<int> groups_in(in.size(), kAbsent), heads_in(in.size(), kAbsent);
  groups_in[0] = groups_in[1] = groups_in[2] = groups_in[3] = groups_in[4] = 1;
  heads_in[0] = heads_in[1] = heads_in[4] = 1;
  groups_in[5] = heads_in[5] = 0;  // lse[heads, tokens]
  return {{.key = Dim::KvHeads, .in = groups_in, .out = {1, 1, 1}},
          {.key = Dim::Heads, .in = heads_in, .out = {1, kAbsent, kAbsent}},
          tokens_dim(in, out, /*any_row=*/false)};
}

const std::vector<AttrSpec> kAttrs = {{"seq_len", AttrKind::Integer},
                                      {"window", AttrKind::Integer},
                                      {"scale", AttrKind::Real},
                                      {"dropout", AttrKind::Real},
                                      {"salt", AttrKind::Integer}};

}  // namespace

// With dropout > 0 three more operands follow documents: samples, positions, dropout_key.
const OpDef kAttention = {"attention", 4, 7, kAttrs, infer, gradient, cost, dims};
const OpDef kAttentionDx = {"attention_dx", 7, 10, kAttrs, infer_dx, nullptr, cost_dx, dims_dx};

}  // namespace quintet::graph
