#include "graph/support.h"

#include "base/error.h"
#include "graph/cache_ops.h"
#include "graph/fp8_ops.h"

namespace quintet::graph::testing {
namespace {

int64_t size_of_dim(Dim d) {
  switch (d) {
    case Dim::Tokens:
      return 8;
    case Dim::Embed:
      return 16;
    case Dim::Heads:
      return 4;
    case Dim::KvHeads:
      return 2;
    case Dim::HeadDim:
      return 6;
    case Dim::Ffn:
      return 24;
    case Dim::Vocab:
      return 37;
    case Dim::Positions:
      return 10;
    case Dim::Flat:
      return 100;
    default:
      base::fail_internal("no common size of {}: cases that have it say it themselves", to_string(d));
  }
}

Type typed(DType dtype, const std::vector<Dim>& dims) {
  Type t{dtype, {}};
  for (const Dim d : dims) t.dims.push_back({d, size_of_dim(d)});
  return t;
}

constexpr Dim T = Dim::Tokens, E = Dim::Embed, H = Dim::Heads, K = Dim::KvHeads, D = Dim::HeadDim,
              F = Dim::Ffn, V = Dim::Vocab;

Attrs attention_attrs(double dropout) {
  return {{"seq_len", int64_t{4}}, {"window", int64_t{0}}, {"scale", 0.5},
          {"dropout", dropout},    {"salt", int64_t{0}},   {"cp", int64_t{1}},
          {"ulysses", int64_t{1}}, {"packed", int64_t{1}}, {"deterministic", int64_t{1}}};
}

Attrs qkv_attrs() {
  Attrs attrs = attention_attrs(0);
  attrs.set("heads", int64_t{4});
  attrs.set("kv_heads", int64_t{2});
  return attrs;
}

// A hop of a ring of two. q, k and v have half the rows of the key indices.
Attrs hop_attrs(double dropout, int64_t hop) {
  Attrs attrs = attention_attrs(dropout);
  attrs.set("cp", int64_t{2});
  attrs.set("hop", hop);
  return attrs;
}

// Attributes of quantize, added to others.
Attrs codes_attrs(Attrs attrs, int64_t measures, int64_t transposed) {
  attrs.set("format", std::string("e4m3"));
  attrs.set("scale", int64_t{1});
  attrs.set("measures", measures);
  attrs.set("plain", int64_t{1});
  attrs.set("transposed", transposed);
  return attrs;
}
// Blocks of two.
Attrs blocks_attrs(int64_t rows, int64_t square) {
  return {{"format", std::string("e4m3")}, {"block", int64_t{2}}, {"square", square},        {"rows", rows},
          {"measures", int64_t{1}},        {"plain", int64_t{1}}, {"transposed", int64_t{1}}};
}
Attrs blocked_attrs(int64_t contracted, int64_t square) {
  return {
      {"block", int64_t{2}}, {"square", square}, {"contracted", contracted}, {"out", std::string("bf16")}};
}
Type factors(const std::vector<DimSize>& dims) { return {DType::F32, dims}; }
Attrs scaled_attrs(int64_t contracted) {
  return {{"a_scale", int64_t{0}},
          {"b_scale", int64_t{1}},
          {"contracted", contracted},
          {"out", std::string("f32")}};
}

std::vector<OpCase> make_cases() {
  const Type x = f32({T, E}), row = i32({T}), stat = f32({T}), hidden = f32({T, F});
  const Type q = f32({T, H, D}), k = f32({T, K, D}), head_stat = f32({T, H}), lse = f32({H, T});
  const Type keys{DType::I32, {{T, 16}}};
  const Type norm = f32({E}), logits = f32({T, V}), sums{DType::F32, {{T, 8}, {D, 2}}};
  const Attrs none, eps = {{"eps", 1e-5}}, out = {{"out", std::string("f32")}};
  const Attrs rope = {
      {"inv_freq", std::vector<double>{1, 0.1, 0.01}}, {"scale", 1.0}, {"inverse", int64_t{0}}};
  Attrs rope_first = rope;
  rope_first.set("heads", int64_t{6});
  Type gate_up = hidden, qkv = q;  // packed gate and up; packed q, k and v
  gate_up.dims[1].size *= 2;
  qkv.dims[1].size = q.size(1) + 2 * k.size(1);
  const Type scales{DType::F32, {{Dim::Flat, scales_size(2)}}};
  const DimSize all_pages{pages_dim(), 6}, page{page_rows_dim(), 4};
  const Type table{DType::I32, {{pages_dim(), 16}}}, ids{DType::I32, {all_pages, page}};
  const Type cache{DType::F32, {all_pages, page, k.dims[1], k.dims[2]}};
  const Attrs pages = {{"pages_per_sequence", int64_t{2}}};
  const Attrs cached = {{"window", int64_t{0}}, {"scale", 0.5}, {"pages_per_sequence", int64_t{2}}};
  Attrs cached_qkv = cached;
  cached_qkv.set("heads", q.size(1));
  cached_qkv.set("kv_heads", k.size(1));
  const Attrs sample = {{"temperature", 1.0},
                        {"top_k", int64_t{0}},
                        {"top_p", 1.0},
                        {"min_p", 0.0},
                        {"repetition_penalty", 1.0},
                        {"key", int64_t{1}},
                        {"vocab", int64_t{30}},
                        {"pages_per_sequence", int64_t{2}}};
  return {
      {&kEmbedding, {f32({V, E}), row}, none},
      {&kEmbeddingDw,
       {row, x},
       {{"rows", int64_t{37}}, {"dim", std::string("vocab")}, {"out", std::string("f32")}}},
      {&kLinear, {x, f32({H, D, E})}, none},
      {&kLinear, {q, f32({E, H, D})}, none},
      {&kLinearDx, {q, f32({H, D, E})}, none},
      {&kLinearDw, {q, x}, out},
      {&kBiasAdd, {q, f32({H, D})}, none},
      {&kSumRows, {q}, out},
      {&kRmsNorm, {x, norm}, eps},
      {&kRmsNorm, {q, f32({D})}, eps},
      {&kAddRmsNorm, {x, x, norm}, eps},
      {&kRmsNormDx, {x, x, norm, stat}, none},
      {&kRmsNormDx, {q, q, f32({D}), head_stat}, none},
      {&kRmsNormDw, {x, x, stat}, out},
      {&kRmsNormBackward, {x, x, norm, stat}, {{"out", std::string("f32")}, {"again", int64_t{1}}}},
      {&kRmsNormBackward, {x, x, norm, stat}, {{"out", std::string("f32")}, {"again", int64_t{0}}}},
      {&kLayerNorm, {x, norm, norm}, eps},
      {&kAddLayerNorm, {x, x, norm, norm}, eps},
      {&kLayerNormDx, {x, x, norm, stat, stat}, none},
      {&kLayerNormDw, {x, x, stat, stat}, {{"out", std::string("f32")}, {"bias", int64_t{1}}}},
      {&kLayerNormBackward,
       {x, x, norm, norm, stat, stat},
       {{"out", std::string("f32")}, {"bias", int64_t{1}}, {"again", int64_t{1}}}},
      {&kLayerNormBackward,
       {x, x, norm, norm, stat, stat},
       {{"out", std::string("f32")}, {"bias", int64_t{0}}, {"again", int64_t{0}}}},
      {&kRope, {q, row}, rope},
      {&kAttention, {q, k, k, row, row}, attention_attrs(0)},
      {&kAttention, {q, k, k, row, row, row, row, row, i64_scalar()}, attention_attrs(0.1)},
      {&kAttentionDx, {q, q, k, k, q, lse, row, row}, attention_attrs(0)},
      {&kAttentionDx, {q, q, k, k, q, lse, row, row, row, row, row, i64_scalar()}, attention_attrs(0.1)},
      {&kAttentionHop, {q, k, k, row, keys, q, lse}, hop_attrs(0, 1)},
      {&kAttentionHop, {q, k, k, row, keys}, hop_attrs(0, 0)},
      {&kAttentionHop, {q, k, k, row, keys, row, row, keys, i64_scalar(), q, lse}, hop_attrs(0.1, 1)},
      {&kAttentionHopDx, {q, q, k, k, q, lse, row, keys, q}, hop_attrs(0, 1)},
      {&kAttentionHopDx, {q, q, k, k, q, lse, row, keys}, hop_attrs(0, 0)},
      {&kAttentionHopDx, {q, q, k, k, q, lse, row, keys, row, row, keys, i64_scalar(), q}, hop_attrs(0.1, 1)},
      {&kQkvAttention, {qkv, row, row}, qkv_attrs()},
      {&kQkvAttentionDx, {q, qkv, q, lse, row, row}, qkv_attrs()},
      {&kLinears, {x, f32({H, D, E}), f32({K, D, E}), f32({K, D, E})}, none},
      {&kLinears, {x, f32({F, E}), f32({F, E})}, none},
      {&kLinearsDx, {qkv, f32({H, D, E}), f32({K, D, E}), f32({K, D, E})}, none},
      {&kLinearsDw,
       {qkv, x},
       {{"out", std::string("f32")}, {"parts", std::string("heads=4 kv_heads=2 kv_heads=2")}}},
      {&kRopeFirst, {qkv, row}, rope_first},
      {&kSwiGlu, {hidden, hidden}, none},
      {&kSwiGluDx, {hidden, hidden, hidden}, none},
      {&kSwiGluBackward, {hidden, hidden, hidden}, none},
      {&kSwiGlu, {gate_up}, none},
      {&kSwiGluDx, {hidden, gate_up}, none},
      {&kSwiGluBackward, {hidden, gate_up}, none},
      {&kGelu, {hidden}, none},
      {&kGeluDx, {hidden, hidden}, none},
      {&kScale, {x}, {{"factor", 2.0}}},
      {&kSoftCap, {logits}, {{"cap", 30.0}}},
      {&kSoftCapDx, {logits, logits}, {{"cap", 30.0}}},
      {&kAttentionSink, {q, lse, f32({H})}, none},
      {&kAttentionSinkDw, {q, q, lse, f32({H})}, out},
      {&kCenter, {x}, none},
      {&kUnitNorm, {q}, eps},
      {&kUnitNormDx, {q, q}, eps},
      {&kClip, {q}, {{"limit", 2.0}}},
      {&kClipDx, {q, q}, {{"limit", 2.0}}},
      {&kPositionScale, {q, row}, {{"scale", 0.1}, {"floor", int64_t{4}}}},
      {&kSplitDocuments, {row, row}, {{"chunk", int64_t{4}}, {"seq_len", int64_t{8}}}},
      {&kAdd, {x, x}, none},
      {&kDropout, {x, row, row, i64_scalar()}, {{"p", 0.1}, {"salt", int64_t{0}}}},
      {&kJitter, {x, row, row, i64_scalar()}, {{"eps", 0.1}, {"salt", int64_t{0}}}},
      {&kCast, {x}, {{"out", std::string("bf16")}}},
      {&kRowMax, {logits}, none},
      {&kRowSumExp, {logits, stat, row}, none},
      {&kLossGrad, {logits, stat, sums, row, f64_scalar()}, none},
      {&kCrossEntropy, {logits, row, f64_scalar()}, none},
      {&kCacheAppend, {table, row, row, k, cache, k, cache}, pages},
      {&kCacheAppend, {table, row, row, row, ids}, pages},
      {&kCachedAttention, {cache, cache, table, row, row, q, k, k}, cached},
      {&kCachedAttention, {cache, cache, table, row, row, qkv}, cached_qkv},
      {&kTakeRows, {x, Type{DType::I32, {{T, 2}}}}, none},
      {&kSample, {logits, row, row}, sample},
      {&kLogProb, {stat, sums, row}, none},
      {&kQuantize, {x, scales}, codes_attrs({{"rows", int64_t{1}}}, 1, 1)},
      {&kQuantize, {q, scales}, codes_attrs({{"rows", int64_t{1}}}, 0, 1)},
      {&kScaledLinear, {x, f32({H, D, E}), scales}, scaled_attrs(1)},
      {&kScaledLinearDx, {q, f32({E, H, D}), scales}, scaled_attrs(2)},
      {&kScaledLinearDw, {f32({H, D, T}), f32({E, T}), scales}, scaled_attrs(1)},
      {&kQuantizeBlocks, {x}, blocks_attrs(1, 0)},
      {&kQuantizeBlocks, {x}, blocks_attrs(1, 1)},
      {&kBlockLinear,
       {x, f32({H, D, E}), factors({{E, 8}, {T, 8}}), factors({{H, 12}, {E, 8}})},
       blocked_attrs(1, 1)},
      {&kBlockLinearDx,
       {q, f32({E, H, D}), factors({{H, 12}, {T, 8}}), factors({{E, 8}, {H, 12}})},
       blocked_attrs(2, 1)},
      {&kBlockLinearDw,
       {f32({H, D, T}), f32({E, T}), factors({{T, 4}, {H, 4}, {D, 6}}), factors({{T, 4}, {E, 16}})},
       blocked_attrs(1, 0)},
      {&kRmsNormQuantize, {x, norm, scales}, codes_attrs(eps, 0, 0)},
      {&kAddRmsNormQuantize, {x, x, norm, scales}, codes_attrs(eps, 0, 0)},
      {&kSwiGluQuantize, {hidden, hidden, scales}, codes_attrs(none, 0, 0)},
      {&kSwiGluQuantize, {gate_up, scales}, codes_attrs(none, 0, 0)},
      {&kSwiGluBackwardQuantize,
       {hidden, gate_up, scales},
       codes_attrs({{"again", int64_t{1}}, {"again_scale", int64_t{1}}}, 0, 1)},
      {&kRmsNormAgainQuantize,
       {x, norm, stat, scales},
       {{"format", std::string("e4m3")}, {"scale", int64_t{1}}}},
  };
}

}  // namespace

Type f32(const std::vector<Dim>& dims) { return typed(DType::F32, dims); }
Type i32(const std::vector<Dim>& dims) { return typed(DType::I32, dims); }
Type f64_scalar() { return {DType::F64, {}}; }
Type i64_scalar() { return {DType::I64, {}}; }

const std::vector<OpCase>& op_cases() {
  static const std::vector<OpCase> cases = [] {
    std::vector<OpCase> all = make_cases();
    for (OpCase& c : expert_cases()) all.push_back(std::move(c));
    for (OpCase& c : router_cases()) all.push_back(std::move(c));
    return all;
  }();
  return cases;
}

const OpCase& op_case(const OpDef& op) {
  for (const OpCase& c : op_cases())
    if (c.op == &op) return c;
  base::fail_internal("no case of {}", op.name);
}

BuildOptions train_options() { return {.mode = Mode::Train, .tokens = 8, .seq_len = 4}; }

Graph tiny_llama(const TinyOptions& options) {
  BuildOptions build = train_options();
  build.mode = options.mode;
  Builder b(build);
  const DimSize vocab{V, 37}, embed{E, 16}, heads{H, 4}, kv_heads{K, 2}, head_dim{D, 6}, ffn{F, 24};
  const std::vector<double> inv_freq = {1.0, 0.1, 0.01};
  const ValueId table = b.weight("embed.weight", {vocab, embed}, 0.02);
  ValueId x = b.embedding(table, b.ids());
  b.next_block();
  ValueId y = b.rms_norm(x, b.norm_weight("attn_norm.weight", embed), 1e-5);
  const ValueId q = b.rope(b.linear(y, b.weight("wq.weight", {heads, head_dim, embed}, 0.02)), inv_freq);
  const ValueId k = b.rope(b.linear(y, b.weight("wk.weight", {kv_heads, head_dim, embed}, 0.02)), inv_freq);
  const ValueId v = b.linear(y, b.weight("wv.weight", {kv_heads, head_dim, embed}, 0.02));
  y = b.linear(b.attention(q, k, v, {.scale = 0.5}), b.weight("wo.weight", {embed, heads, head_dim}, 0.01));
  x = b.add(x, y);
  y = b.rms_norm(x, b.norm_weight("ffn_norm.weight", embed), 1e-5);
  const ValueId gate = b.linear(y, b.weight("gate.weight", {ffn, embed}, 0.02));
  const ValueId up = b.linear(y, b.weight("up.weight", {ffn, embed}, 0.02));
  x = b.add(x, b.linear(b.swiglu(gate, up), b.weight("down.weight", {embed, ffn}, 0.01)));
  b.next_block();
  x = b.rms_norm(x, b.norm_weight("final_norm.weight", embed), 1e-5);
  b.head(x, options.tied ? table : b.weight("head.weight", {vocab, embed}, 0.02));
  b.freeze(options.freeze);
  return b.finish();
}

const Param& param(const Graph& graph, std::string_view name) {
  const Param* p = graph.find_param(graph.find(name));
  if (p == nullptr) base::fail_internal("no parameter {}", name);
  return *p;
}

}  // namespace quintet::graph::testing
