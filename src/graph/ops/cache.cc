// Text generation. A cache holds rows of earlier positions in pages: [pages, page_rows, ...]. Row p of
// sequence s is row p % page_rows of page table[s * pages_per_sequence + p / page_rows]; a contiguous cache
// has the identity table. Every token row belongs to a sequence; rows of sequence -1 are neither stored nor
// attended to.
//
// cache_append: table, sequences, positions, then pairs of rows[tokens, ...] and their cache -> the caches
// with the rows stored. The results are the states themselves: they always share their bytes.
//
// cached_attention: k_cache, v_cache, table, sequences, positions, q[tokens, heads, d], k[tokens, kv_heads,
// d], v[tokens, kv_heads, dv] -> o[tokens, heads, dv] and the caches, in which k and v are stored first.
// The query of a row sees positions up to its own, at most `window` back (0: all), or with `chunk` those of
// its own chunk of positions. With lse = 1 there is a fourth result, lse[heads, tokens], as in
// ops/attention.cc, for ops/attention_sink.cc. Heads are sharded as in ops/attention.cc. In local graphs q,
// k and v may be packed in one value [tokens, heads + 2 kv_heads, d] with d = dv (passes/pack.h);
// attributes heads and kv_heads are then given. No two rows may have the same sequence.
//
// take_rows: x[tokens, ...], rows[tokens=n] -> the rows of x, in order.
//
// sample: logits[tokens, vocab], samples, positions and, with a repetition penalty, the cached ids, table and
// sequences -> ids[tokens]. With temperature 0 the first of the largest logits. Otherwise, in this order:
// logits of ids in the sequence are divided by the penalty (multiplied where negative); divided by the
// temperature; those below the top_k-th are dropped; then those outside the smallest set of largest ones with
// probability >= top_p; then those less likely than min_p times the most likely one. Equal logits are kept or
// dropped together. The token is drawn with the random number (sample, position + 1) of stream `key`, the
// position being that of the new token.
//
// log_prob: max, sums (ops/loss.cc), labels -> the label's log-probability in each row; 0 where the label is
// negative.
#include <algorithm>

#include "graph/cache_ops.h"
#include "graph/ops/support.h"

namespace quintet::graph {
namespace {

bool is_table(const Type& t) {
  return t.dtype == DType::I32 && t.num_dims() == 1 && t.dims[0].name == pages_dim();
}

void require_cache(std::string_view op, const Type& rows, const Type& cache) {
  Type wanted = rows;
  if (!wanted.dims.empty()) wanted.dims.erase(wanted.dims.begin());
  const bool pages =
      cache.num_dims() >= 2 && cache.dims[0].name == pages_dim() && cache.dims[1].name == page_rows_dim();
  OP_REQUIRE(op,
             pages && cache.dtype == rows.dtype && has_tokens(rows) &&
                 std::equal(wanted.dims.begin(), wanted.dims.end(), cache.dims.begin() + 2, cache.dims.end()),
             "expects a cache [pages, page_rows, ...] of rows {}, got {}", to_string(rows), to_string(cache));
}

std::vector<Type> infer_append(const std::vector<Type>& in, const Attrs&) {
  OP_REQUIRE("cache_append", in.size() % 2 == 1, "expects pairs of rows and cache, got {} operands",
             in.size());
  OP_REQUIRE("cache_append", is_table(in[0]) && is_row_index(in[1], in[3]) && is_row_index(in[2], in[3]),
             "expects a page table i32[pages], sequences and positions i32[tokens], got {}, {}, {}",
             to_string(in[0]), to_string(in[1]), to_string(in[2]));
  std::vector<Type> out;
  for (size_t i = 3; i < in.size(); i += 2) {
    require_cache("cache_append", in[i], in[i + 1]);
    out.push_back(in[i + 1]);
  }
  return out;
}

std::vector<OpDim> dims_append(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  OpDim heads{.key = Dim::KvHeads};
  const bool divided = in[3].num_dims() == 3;
  for (size_t i = 0; i < in.size(); ++i) heads.in.push_back(!divided || i < 3 ? kAbsent : i % 2 == 1 ? 1 : 2);
  heads.out.assign(out.size(), divided ? 2 : kAbsent);
  if (!divided) return {};
  return {heads};
}

Cost cost_append(const std::vector<Type>& in, const std::vector<Type>&, const Attrs&) {
  double bytes = 0;
  for (size_t i = 3; i < in.size(); i += 2) bytes += 2.0 * static_cast<double>(in[i].bytes());
  return {.flops = 0, .bytes = bytes};
}

bool returns_lse(const Attrs& attrs) { return attrs.find("lse") != nullptr && attrs.integer("lse") != 0; }

constexpr size_t kQuery = 5;  // the first operand of cached_attention after the caches and indices

// q, k and v, unpacked.
std::vector<Type> queries_of(const std::vector<Type>& in, const Attrs& attrs) {
  if (attrs.find("heads") == nullptr) return {in.begin() + kQuery, in.end()};
  const int64_t heads = attrs.integer("heads"), kv_heads = attrs.integer("kv_heads");
  Type q = in[kQuery];
  OP_REQUIRE("cached_attention",
             in.size() == kQuery + 1 && q.num_dims() == 3 && q.size(1) == heads + 2 * kv_heads,
             "expects [tokens, {} + 2 * {} heads, d], got {}", heads, kv_heads, to_string(q));
  Type k = q;
  q.dims[1] = {Dim::Heads, heads};
  k.dims[1] = {Dim::KvHeads, kv_heads};
  return {q, k, k};
}

std::vector<Type> infer_attention(const std::vector<Type>& in, const Attrs& attrs) {
  const std::vector<Type> rows = queries_of(in, attrs);
  OP_REQUIRE("cached_attention", rows.size() == 3, "expects q, k and v, got {} operands", in.size());
  const Type &q = rows[0], &k = rows[1], &v = rows[2];
  require_cache("cached_attention", k, in[0]);
  require_cache("cached_attention", v, in[1]);
  OP_REQUIRE(
      "cached_attention",
      q.num_dims() == 3 && k.num_dims() == 3 && v.num_dims() == 3 && q.dims[0] == k.dims[0] &&
          k.dims[0] == v.dims[0] && q.dims[1].name == Dim::Heads && k.dims[1].name == Dim::KvHeads &&
          k.dims[1] == v.dims[1] && q.size(2) == k.size(2) && q.dtype == k.dtype && q.dtype == v.dtype &&
          q.size(1) % k.size(1) == 0,
      "expects q[tokens, heads, d], k[tokens, kv_heads, d] and v[tokens, kv_heads, dv], got {}, {}, {}",
      to_string(q), to_string(k), to_string(v));
  OP_REQUIRE("cached_attention", is_table(in[2]) && is_row_index(in[3], q) && is_row_index(in[4], q),
             "expects a page table i32[pages], sequences and positions i32[tokens], got {}, {}, {}",
             to_string(in[2]), to_string(in[3]), to_string(in[4]));
  Type o = q;
  o.dims[2] = v.dims[2];
  if (!returns_lse(attrs)) return {o, in[0], in[1]};
  return {o, in[0], in[1], Type(base::accumulator_of(q.dtype), {q.dims[1], q.dims[0]})};
}

// The caches are the same on all ranks that share their KV heads.
std::vector<OpDim> dims_attention(const std::vector<Type>& in, const std::vector<Type>&, const Attrs& attrs) {
  if (in.size() == kQuery + 1) return {};  // packed: local already
  std::vector<OpDim> dims = {
      {.key = Dim::KvHeads, .in = {2, 2, kAbsent, kAbsent, kAbsent, 1, 1, 1}, .out = {1, 2, 2}},
      {.key = Dim::Heads,
       .in = {kAbsent, kAbsent, kAbsent, kAbsent, kAbsent, 1, kAbsent, kAbsent},
       .out = {1, kReplicated, kReplicated}}};
  if (returns_lse(attrs))
    for (OpDim& d : dims) d.out.push_back(0);
  return dims;
}

// As if all pages were full: how many rows a sequence has is known in the step only.
Cost cost_attention(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs& attrs) {
  const Type q = queries_of(in, attrs)[0], &k = in[0], &v = in[1];
  const double rows = static_cast<double>(k.size(0) * k.size(1));
  const double group = static_cast<double>(q.size(1)) / static_cast<double>(k.size(2));
  const double width = static_cast<double>(k.size(2) * (k.size(3) + v.size(3)));
  return {.flops = 2.0 * rows * group * width,
          .bytes = static_cast<double>(k.bytes() + v.bytes() + q.bytes() + out[0].bytes())};
}

std::vector<Type> infer_take(const std::vector<Type>& in, const Attrs&) {
  OP_REQUIRE("take_rows", has_tokens(in[0]) && in[1].num_dims() == 1 && in[1].dtype == DType::I32,
             "expects x[tokens, ...] and rows i32[tokens], got {} and {}", to_string(in[0]),
             to_string(in[1]));
  Type out = in[0];
  out.dims[0] = in[1].dims[0];
  return {out};
}

std::vector<OpDim> whole(const std::vector<Type>&, const std::vector<Type>&, const Attrs&) { return {}; }

Cost cost_take(const std::vector<Type>&, const std::vector<Type>& out, const Attrs&) {
  return {.flops = 0, .bytes = 2.0 * static_cast<double>(out[0].bytes())};
}

std::vector<Type> infer_sample(const std::vector<Type>& in, const Attrs& attrs) {
  const Type& logits = in[0];
  OP_REQUIRE("sample",
             has_tokens(logits) && logits.num_dims() == 2 && is_row_index(in[1], logits) &&
                 is_row_index(in[2], logits),
             "expects logits[tokens, vocab], samples and positions i32[tokens], got {}, {}, {}",
             to_string(logits), to_string(in[1]), to_string(in[2]));
  const bool penalty = attrs.real("repetition_penalty") != 1;
  OP_REQUIRE("sample", in.size() == (penalty ? 6 : 3),
             "expects {} operands with repetition_penalty = {}, got {}", penalty ? 6 : 3,
             attrs.real("repetition_penalty"), in.size());
  return {{DType::I32, {logits.dims[0]}}};
}

std::vector<Type> infer_log_prob(const std::vector<Type>& in, const Attrs&) {
  OP_REQUIRE("log_prob",
             has_tokens(in[0]) && in[0].num_dims() == 1 && in[1].num_dims() == 2 &&
                 in[1].dtype == in[0].dtype && in[1].dims[0] == in[0].dims[0] && in[1].size(1) == 2 &&
                 is_row_index(in[2], in[0]),
             "expects max[tokens], sums[tokens, 2] and labels i32[tokens], got {}, {}, {}", to_string(in[0]),
             to_string(in[1]), to_string(in[2]));
  return {in[0]};
}

std::vector<OpDim> dims_log_prob(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs&) {
  return {tokens_dim(in, out)};
}

}  // namespace

Dim pages_dim() {
  static const Dim dim = base::intern_dim("pages");
  return dim;
}
Dim page_rows_dim() {
  static const Dim dim = base::intern_dim("page_rows");
  return dim;
}
bool is_cache(const Value& v) {
  return v.kind == ValueKind::State && !v.type.dims.empty() && v.type.dims[0].name == pages_dim();
}

InputSpec sequences_input() { return {.kind = InputKind::User, .user_name = "sequences"}; }
InputSpec page_table_input() { return {.kind = InputKind::User, .user_name = "page_table"}; }
InputSpec last_rows_input() { return {.kind = InputKind::User, .user_name = "last_rows"}; }

const OpDef kCacheAppend = {.name = "cache_append",
                            .min_inputs = 5,
                            .max_inputs = 7,
                            .attrs = {{"pages_per_sequence", AttrKind::Integer}},
                            .infer = infer_append,
                            .cost = cost_append,
                            .dims = dims_append,
                            .in_place = {{0, 4}, {1, 6}},  // always: see program/lower.cc
                            .op_class = OpClass::Attention};
const OpDef kCachedAttention = {.name = "cached_attention",
                                .min_inputs = 6,
                                .max_inputs = 8,
                                .attrs = {{"window", AttrKind::Integer},
                                          {"scale", AttrKind::Real},
                                          {"pages_per_sequence", AttrKind::Integer},
                                          {"soft_cap", AttrKind::Real, true},
                                          {"chunk", AttrKind::Integer, true},
                                          {"lse", AttrKind::Integer, true},
                                          {"heads", AttrKind::Integer, true},
                                          {"kv_heads", AttrKind::Integer, true}},
                                .infer = infer_attention,
                                .cost = cost_attention,
                                .dims = dims_attention,
                                .in_place = {{1, 0}, {2, 1}},  // always
                                .op_class = OpClass::Attention};
const OpDef kTakeRows = {.name = "take_rows",
                         .min_inputs = 2,
                         .max_inputs = 2,
                         .attrs = {},
                         .infer = infer_take,
                         .cost = cost_take,
                         .dims = whole,
                         .op_class = OpClass::Embedding};
const OpDef kSample = {.name = "sample",
                       .min_inputs = 3,
                       .max_inputs = 6,
                       .attrs = {{"temperature", AttrKind::Real},
                                 {"top_k", AttrKind::Integer},
                                 {"top_p", AttrKind::Real},
                                 {"min_p", AttrKind::Real},
                                 {"repetition_penalty", AttrKind::Real},
                                 {"key", AttrKind::Integer},
                                 {"vocab", AttrKind::Integer},
                                 {"pages_per_sequence", AttrKind::Integer}},
                       .infer = infer_sample,
                       .cost = cost_by_bytes,
                       .dims = whole,
                       .op_class = OpClass::Loss};
const OpDef kLogProb = {.name = "log_prob",
                        .min_inputs = 3,
                        .max_inputs = 3,
                        .attrs = {},
                        .infer = infer_log_prob,
                        .cost = cost_by_bytes,
                        .dims = dims_log_prob,
                        .op_class = OpClass::Loss};

}  // namespace quintet::graph
