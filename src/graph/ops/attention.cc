// attention: q[tokens, heads, d], k[tokens, kv_heads, d], v[tokens, kv_heads, dv], documents[tokens],
// key_documents[tokens] -> o[tokens, heads, dv], lse[heads, tokens]. Causal inside sequences of seq_len
// rows, unless both_sides = 1 (encoders); a query sees keys of its own document only, at most `window`
// back (0: all). With soft_cap = c the scores are c tanh(scale q.k / c). Query heads share KV heads in
// groups of heads / kv_heads. packed = 0 promises one document in every sequence. deterministic = 0 allows
// a backend to sum gradients in a random order. With dropout > 0 samples, positions (of the queries),
// key_positions and dropout_key follow.
//
// Heads can be sharded in two ways: by KV head (with the queries of its group), and by query head inside a
// group (then K and V are needed whole and their gradients are partial sums). The second is used where tp >
// kv_heads.
//
// Context shards the rows of the queries inside their sequences; K and V are then needed whole, or ring rank
// by ring rank (attention_hop). Rows are in the order of base/row_order.h with ranks = cp. Each ring rank
// holds `ulysses` neighbouring ones of these ranks: ring = cp / ulysses, and ring rank g (the part of
// Dim::Context) has queries of the ranks from g * ulysses on. Everything about keys except K and V of a hop
// covers whole sequences.
//
// attention_hop: the result over the keys of ring rank g - hop merged with that of earlier hops, which
// follow as o_before and lse_before when hop > 0. o stays in the dtype of statistics. attention_hop_dx adds
// the hop's contribution of dq to dq_before (dtype of statistics), which follows when hop > 0, and returns
// the hop's contributions to dk and dv; its o and lse are the results over all keys, o in the dtype of q.
// Hops exist in local graphs only.
//
// qkv_attention: q, k and v packed in one value [tokens, heads + 2 kv_heads, d] with d = dv, and likewise
// their gradients in qkv_attention_dx; without dropout. In local graphs only, inserted by passes/pack.h.
#include "graph/ops/attention.h"

#include <algorithm>

#include "graph/ops/support.h"

namespace quintet::graph {
namespace {

bool drops(const Attrs& attrs) { return attrs.real("dropout") > 0; }
int64_t hop_of(const Attrs& attrs) {
  return attrs.find("hop") != nullptr ? attrs.integer("hop") : -1;  // -1: not a hop
}
int64_t ring_of(const Attrs& attrs) { return attrs.integer("cp") / attrs.integer("ulysses"); }

// Trailing operands: documents, key_documents and, with dropout, samples, positions, key_positions and the
// key.
size_t num_indices(const Attrs& attrs) { return drops(attrs) ? 6 : 2; }

enum class Role : uint8_t { Query, Key, Lse, QueryIndex, KeyIndex, Scalar };

// The roles of these operands, in order.
std::vector<Role> index_roles(const Attrs& attrs) {
  if (!drops(attrs)) return {Role::QueryIndex, Role::KeyIndex};
  return {Role::QueryIndex, Role::KeyIndex, Role::QueryIndex, Role::QueryIndex, Role::KeyIndex, Role::Scalar};
}

void require_count(std::string_view op, size_t count, size_t wanted, const Attrs& attrs) {
  OP_REQUIRE(op, count == wanted, "expects {} operands with dropout = {}{}, got {}", wanted,
             attrs.real("dropout"),
             hop_of(attrs) >= 0 ? fmt::format(" and hop = {}", hop_of(attrs)) : std::string(), count);
}

void require_cut(std::string_view op, const Attrs& attrs) {
  const int64_t cp = attrs.integer("cp"), ulysses = attrs.integer("ulysses"),
                seq_len = attrs.integer("seq_len"), hop = hop_of(attrs);
  OP_REQUIRE(op, cp >= 1 && ulysses >= 1 && cp % ulysses == 0,
             "expects ulysses to divide cp, got cp = {}, ulysses = {}", cp, ulysses);
  OP_REQUIRE(op, cp == 1 || seq_len % (2 * cp) == 0, "sequences of {} rows are not 2 * cp = {} equal chunks",
             seq_len, 2 * cp);
  OP_REQUIRE(op, hop < ring_of(attrs), "hop {} is outside the ring of {}", hop, ring_of(attrs));
  OP_REQUIRE(op, !sees_both_sides(attrs) || attrs.integer("window") == 0,
             "a window of {} keys needs both_sides = 0", attrs.integer("window"));
}

void require_indices(std::string_view op, const std::vector<Type>& in, size_t first, const Type& q,
                     const Attrs& attrs) {
  const std::vector<Role> roles = index_roles(attrs);
  const Type& whole = in[first + 1];  // key_documents
  for (size_t i = 0; i < roles.size(); ++i) {
    const Type& t = in[first + i];
    if (roles[i] == Role::Scalar)
      OP_REQUIRE(op, is_scalar(t, DType::I64), "expects the dropout key i64[] for operand {}, got {}",
                 first + i, to_string(t));
    else
      OP_REQUIRE(op, is_row_index(t, roles[i] == Role::QueryIndex ? q : whole),
                 "expects i32[tokens={}] for operand {}, got {}",
                 (roles[i] == Role::QueryIndex ? q : whole).size(0), first + i, to_string(t));
  }
}

// q, k and v start at `first`, the index operands at `indices`. Returns o (in q's dtype) and lse.
std::vector<Type> infer_results(std::string_view op, const std::vector<Type>& in, size_t first,
                                size_t indices, const Attrs& attrs) {
  const Type &q = in[first], &k = in[first + 1], &v = in[first + 2];
  OP_REQUIRE(op, q.num_dims() == 3 && k.num_dims() == 3 && v.num_dims() == 3 && has_tokens(q),
             "expects q[tokens, heads, d], k[tokens, kv_heads, d], v[tokens, kv_heads, dv], got {}, {}, {}",
             to_string(q), to_string(k), to_string(v));
  OP_REQUIRE(op,
             q.size(2) == k.size(2) && k.size(1) == v.size(1) && k.dims[0] == v.dims[0] &&
                 q.dims[0].name == k.dims[0].name,
             "the shapes of q, k and v do not match: {}, {}, {}", to_string(q), to_string(k), to_string(v));
  OP_REQUIRE(op,
             q.dtype == k.dtype && q.dtype == v.dtype && q.dims[1].name == Dim::Heads &&
                 k.dims[1].name == Dim::KvHeads && v.dims[1].name == Dim::KvHeads,
             "expects one dtype, heads in q and kv_heads in k and v, got {}, {}, {}", to_string(q),
             to_string(k), to_string(v));
  OP_REQUIRE(op, q.size(1) % k.size(1) == 0, "{} query heads do not share {} KV heads evenly", q.size(1),
             k.size(1));
  require_cut(op, attrs);
  require_indices(op, in, indices, q, attrs);
  const int64_t whole = in[indices + 1].size(0), ring = ring_of(attrs), seq_len = attrs.integer("seq_len");
  const bool is_hop = hop_of(attrs) >= 0;
  OP_REQUIRE(op, whole % seq_len == 0, "{} rows are not whole sequences of {}", whole, seq_len);
  OP_REQUIRE(op, k.size(0) == (is_hop ? whole / ring : whole), "{} rows of k and v, but {} key documents{}",
             k.size(0), whole, is_hop ? fmt::format(" over a ring of {}", ring) : std::string());
  OP_REQUIRE(op, q.size(0) == whole / ring || (q.size(0) == whole && !is_hop),
             "{} rows of q are neither all {} rows nor those of one of {} ring ranks", q.size(0), whole,
             ring);
  Type o = q;
  o.dims[2] = v.dims[2];
  return {o, {base::accumulator_of(q.dtype), {q.dims[1], q.dims[0]}}};
}

Type in_stat(Type t) {
  t.dtype = base::accumulator_of(t.dtype);
  return t;
}

// Results of earlier hops, from operand `first` on, with the types of the results.
void require_running(std::string_view op, const std::vector<Type>& in, size_t first,
                     const std::vector<Type>& out) {
  for (size_t i = first; i < in.size(); ++i)
    OP_REQUIRE(op, in[i] == out[i - first], "expects {} for operand {}, got {}", to_string(out[i - first]), i,
               to_string(in[i]));
}

std::vector<Type> infer(const std::vector<Type>& in, const Attrs& attrs) {
  require_count("attention", in.size(), 3 + num_indices(attrs), attrs);
  return infer_results("attention", in, 0, 3, attrs);
}

std::vector<Type> infer_hop(const std::vector<Type>& in, const Attrs& attrs) {
  const size_t before = 3 + num_indices(attrs);
  require_count("attention_hop", in.size(), before + (hop_of(attrs) > 0 ? 2 : 0), attrs);
  std::vector<Type> out = infer_results("attention_hop", in, 0, 3, attrs);
  out[0] = in_stat(out[0]);
  require_running("attention_hop", in, before, out);
  return out;
}

void gradient(GradContext& g, const Node& n) {
  attention_gradient(g, n, g.grad(n.outputs[0]), n.outputs[0], n.outputs[1]);
}

// Query-key pairs actually computed for `tokens` query rows: on average half of the sequence (all of it
// with both_sides), or the band of the window; a hop sees its share of the keys (the row order balances
// all ranks).
double pairs(int64_t tokens, const Attrs& attrs) {
  const double s = static_cast<double>(attrs.integer("seq_len"));
  const double hops = hop_of(attrs) >= 0 ? static_cast<double>(ring_of(attrs)) : 1;
  if (sees_both_sides(attrs)) return static_cast<double>(tokens) * s / hops;
  const double w =
      attrs.integer("window") > 0 ? std::min(s, static_cast<double>(attrs.integer("window"))) : s;
  const double per_sequence = w * (w + 1) / 2 + (s - w) * w;
  return static_cast<double>(tokens) / s * per_sequence / hops;
}

Cost cost(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs& attrs) {
  const double heads = static_cast<double>(in[0].size(1)),
               d = static_cast<double>(in[0].size(2) + in[2].size(2));
  return {.flops = 2.0 * heads * d * pairs(in[0].size(0), attrs), .bytes = total_bytes(in, out)};
}

Cost cost_dx(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs& attrs) {
  const double heads = static_cast<double>(in[1].size(1));
  const double d = 3.0 * static_cast<double>(in[1].size(2)) + 2.0 * static_cast<double>(in[3].size(2));
  return {.flops = 2.0 * heads * d * pairs(in[1].size(0), attrs), .bytes = total_bytes(in, out)};
}

std::vector<OpDim> rule(const std::vector<Role>& in, const std::vector<Role>& out) {
  OpDim groups{.key = Dim::KvHeads}, heads{.key = Dim::Heads}, tokens{.key = Dim::Tokens, .any_row = false},
      context{.key = Dim::Context};
  const auto visit = [](const std::vector<Role>& roles, auto&& at) {
    for (const Role r : roles) {
      const bool query = r == Role::Query || r == Role::Lse || r == Role::QueryIndex;
      const int head_dim = r == Role::Query || r == Role::Key ? 1 : r == Role::Lse ? 0 : kAbsent;
      const int row_dim = r == Role::Scalar ? kAbsent : r == Role::Lse ? 1 : 0;
      at(head_dim, r == Role::Key ? kAbsent : head_dim, row_dim, query ? row_dim : kAbsent);
    }
  };
  visit(in, [&](int group, int head, int row, int part) {
    groups.in.push_back(group);
    heads.in.push_back(head);
    tokens.in.push_back(row);
    context.in.push_back(part);
  });
  visit(out, [&](int group, int head, int row, int part) {
    groups.out.push_back(group);
    heads.out.push_back(head);
    tokens.out.push_back(row);
    context.out.push_back(part);
  });
  return {groups, heads, tokens, context};
}

std::vector<OpDim> dims(const std::vector<Type>&, const std::vector<Type>&, const Attrs& attrs) {
  std::vector<Role> in = {Role::Query, Role::Key, Role::Key};
  for (const Role r : index_roles(attrs)) in.push_back(r);
  if (hop_of(attrs) > 0) in.insert(in.end(), {Role::Query, Role::Lse});
  return rule(in, {Role::Query, Role::Lse});
}

// attention_dx: do, q, k, v, o, lse, documents, key_documents, ... -> dq, dk, dv
std::vector<Type> infer_backward(std::string_view op, const std::vector<Type>& in, const Attrs& attrs) {
  const std::vector<Type> results = infer_results(op, in, 1, 6, attrs);
  OP_REQUIRE(op, in[0] == results[0] && in[4] == results[0] && in[5] == results[1],
             "expects do and o {}, lse {}; got {}, {}, {}", to_string(results[0]), to_string(results[1]),
             to_string(in[0]), to_string(in[4]), to_string(in[5]));
  return {in[1], in[2], in[3]};
}

std::vector<Type> infer_dx(const std::vector<Type>& in, const Attrs& attrs) {
  require_count("attention_dx", in.size(), 6 + num_indices(attrs), attrs);
  return infer_backward("attention_dx", in, attrs);
}

std::vector<Type> infer_hop_dx(const std::vector<Type>& in, const Attrs& attrs) {
  const size_t before = 6 + num_indices(attrs);
  require_count("attention_hop_dx", in.size(), before + (hop_of(attrs) > 0 ? 1 : 0), attrs);
  std::vector<Type> out = infer_backward("attention_hop_dx", in, attrs);
  out[0] = in_stat(out[0]);
  require_running("attention_hop_dx", in, before, out);
  return out;
}

std::vector<OpDim> dims_dx(const std::vector<Type>&, const std::vector<Type>&, const Attrs& attrs) {
  std::vector<Role> in = {Role::Query, Role::Query, Role::Key, Role::Key, Role::Query, Role::Lse};
  for (const Role r : index_roles(attrs)) in.push_back(r);
  if (hop_of(attrs) > 0) in.push_back(Role::Query);
  return rule(in, {Role::Query, Role::Key, Role::Key});
}

// The operands of an op with packed q, k and v at `first`, as the plain op has them.
std::vector<Type> unpacked(std::string_view op, const std::vector<Type>& in, size_t first,
                           const Attrs& attrs) {
  const Type& p = in[first];
  const int64_t heads = attrs.integer("heads"), kv_heads = attrs.integer("kv_heads");
  OP_REQUIRE(op, !drops(attrs), "does not support dropout, got {}", attrs.real("dropout"));
  OP_REQUIRE(op, p.num_dims() == 3 && p.size(1) == heads + 2 * kv_heads,
             "expects [tokens, {} + 2 * {} heads, d], got {}", heads, kv_heads, to_string(p));
  std::vector<Type> out = in;
  out[first].dims[1] = {Dim::Heads, heads};
  Type key = p;
  key.dims[1] = {Dim::KvHeads, kv_heads};
  out.insert(out.begin() + static_cast<ptrdiff_t>(first) + 1, {key, key});
  return out;
}

std::vector<Type> infer_packed(const std::vector<Type>& in, const Attrs& attrs) {
  return infer_results("qkv_attention", unpacked("qkv_attention", in, 0, attrs), 0, 3, attrs);
}
std::vector<Type> infer_packed_dx(const std::vector<Type>& in, const Attrs& attrs) {
  infer_backward("qkv_attention_dx", unpacked("qkv_attention_dx", in, 1, attrs), attrs);
  return {in[1]};
}
Cost cost_packed(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs& attrs) {
  return cost(unpacked("qkv_attention", in, 0, attrs), out, attrs);
}
Cost cost_packed_dx(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs& attrs) {
  return cost_dx(unpacked("qkv_attention_dx", in, 1, attrs), out, attrs);
}
std::vector<OpDim> dims_packed(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  return {tokens_dim(in, out, /*any_row=*/false)};
}

const std::vector<AttrSpec> kAttrs = {{"seq_len", AttrKind::Integer},
                                      {"window", AttrKind::Integer},
                                      {"scale", AttrKind::Real},
                                      {"dropout", AttrKind::Real},
                                      {"salt", AttrKind::Integer},
                                      {"cp", AttrKind::Integer},
                                      {"ulysses", AttrKind::Integer},
                                      {"packed", AttrKind::Integer},
                                      {"deterministic", AttrKind::Integer},
                                      {"soft_cap", AttrKind::Real, true},
                                      {"both_sides", AttrKind::Integer, true}};

std::vector<AttrSpec> hop_attrs() {
  std::vector<AttrSpec> attrs = kAttrs;
  attrs.push_back({"hop", AttrKind::Integer});
  return attrs;
}

std::vector<AttrSpec> qkv_attrs() {
  std::vector<AttrSpec> attrs = kAttrs;
  attrs.insert(attrs.end(), {{"heads", AttrKind::Integer}, {"kv_heads", AttrKind::Integer}});
  return attrs;
}

}  // namespace

void attention_gradient(GradContext& g, const Node& n, ValueId dout, ValueId o, ValueId lse) {
  std::vector<ValueId> in = {dout, n.inputs[0], n.inputs[1], n.inputs[2], o, lse};
  in.insert(in.end(), n.inputs.begin() + 3, n.inputs.end());
  const auto out = g.emit(kAttentionDx, std::move(in), n.attrs, Phase::B);
  for (size_t i = 0; i < 3; ++i) g.add(n.inputs[i], out[i]);
}

const OpDef kAttention = {.name = "attention",
                          .min_inputs = 5,
                          .max_inputs = 9,
                          .attrs = kAttrs,
                          .infer = infer,
                          .gradient = gradient,
                          .cost = cost,
                          .dims = dims,
                          .op_class = OpClass::Attention};
const OpDef kAttentionDx = {.name = "attention_dx",
                            .min_inputs = 8,
                            .max_inputs = 12,
                            .attrs = kAttrs,
                            .infer = infer_dx,
                            .cost = cost_dx,
                            .dims = dims_dx,
                            .op_class = OpClass::Attention,
                            .pass = OpPass::InputGradient};

// Operands updated in place are last: after two index operands without dropout, after six with it. Where the
// pairs of one case point at index operands of the other, types differ, and memory is shared by equal types
// only.
const OpDef kAttentionHop = {.name = "attention_hop",
                             .min_inputs = 5,
                             .max_inputs = 11,
                             .attrs = hop_attrs(),
                             .infer = infer_hop,
                             .cost = cost,
                             .dims = dims,
                             .in_place = {{0, 5}, {1, 6}, {0, 9}, {1, 10}},
                             .op_class = OpClass::Attention};
const OpDef kAttentionHopDx = {.name = "attention_hop_dx",
                               .min_inputs = 8,
                               .max_inputs = 13,
                               .attrs = hop_attrs(),
                               .infer = infer_hop_dx,
                               .cost = cost_dx,
                               .dims = dims_dx,
                               .in_place = {{0, 8}, {0, 12}},
                               .op_class = OpClass::Attention,
                               .pass = OpPass::InputGradient};
const OpDef kQkvAttention = {.name = "qkv_attention",
                             .min_inputs = 3,
                             .max_inputs = 3,
                             .attrs = qkv_attrs(),
                             .infer = infer_packed,
                             .cost = cost_packed,
                             .dims = dims_packed,
                             .op_class = OpClass::Attention};
const OpDef kQkvAttentionDx = {.name = "qkv_attention_dx",
                               .min_inputs = 6,
                               .max_inputs = 6,
                               .attrs = qkv_attrs(),
                               .infer = infer_packed_dx,
                               .cost = cost_packed_dx,
                               .dims = dims_packed,
                               .op_class = OpClass::Attention,
                               .pass = OpPass::InputGradient};

}  // namespace quintet::graph
