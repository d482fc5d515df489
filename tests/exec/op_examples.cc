#include <cstring>

#include "exec/random_tensors.h"
#include "graph/cache_ops.h"
#include "graph/fp8_ops.h"

namespace quintet::tests {

using graph::Attrs;
using graph::Dim;
using graph::DimSize;
using graph::DType;
using graph::Type;

namespace {

constexpr int64_t kTokens = 12, kSeq = 3, kVocab = 10;
const DimSize T{Dim::Tokens, kTokens}, E{Dim::Embed, 8}, H{Dim::Heads, 4}, D{Dim::HeadDim, 4},
    F{Dim::Ffn, 12}, V{Dim::Vocab, kVocab};

class Maker : public RandomTensors {
 public:
  Maker() : RandomTensors(7) {}

  template <class Fn>
  HostTensor rows(Fn&& fn) {
    HostTensor t(Type{DType::I32, {T}});
    for (int64_t i = 0; i < kTokens; ++i) t.index()[i] = static_cast<int32_t>(fn(i));
    return t;
  }
  HostTensor key() {
    HostTensor t(Type{DType::I64, {}});
    const int64_t key = 12345;
    std::memcpy(t.bytes.data(), &key, sizeof key);
    return t;
  }
};

Attrs attention(int64_t seq_len, int64_t window, double dropout, int64_t cp) {
  return {{"seq_len", seq_len},    {"window", window},     {"scale", 0.5},
          {"dropout", dropout},    {"salt", int64_t{3}},   {"cp", int64_t{cp}},
          {"ulysses", int64_t{1}}, {"packed", int64_t{1}}, {"deterministic", int64_t{1}}};
}

// Attributes of quantize, added to others.
Attrs codes(Attrs attrs, int64_t transposed) {
  attrs.set("format", std::string("e4m3"));
  attrs.set("scale", int64_t{0});
  attrs.set("measures", int64_t{0});
  attrs.set("plain", int64_t{1});
  attrs.set("transposed", transposed);
  return attrs;
}
// Attributes of quantize_blocks.
Attrs blocks(int64_t rows, int64_t square) {
  return {{"format", std::string("e4m3")}, {"block", int64_t{2}}, {"square", square},        {"rows", rows},
          {"measures", int64_t{1}},        {"plain", int64_t{1}}, {"transposed", int64_t{1}}};
}
Attrs blocked(int64_t contracted, int64_t square) {
  return {{"block", int64_t{2}}, {"square", square}, {"contracted", contracted}, {"out", std::string("f64")}};
}
Attrs scaled(int64_t contracted) {
  return {{"a_scale", int64_t{0}},
          {"b_scale", int64_t{0}},
          {"contracted", contracted},
          {"out", std::string("f64")}};
}

// Index values for the rows of two ranks, given those of one.
HostTensor twice(const HostTensor& t) {
  Type type = t.type;
  type.dims[0].size *= 2;
  HostTensor out(type);
  std::memcpy(out.bytes.data(), t.bytes.data(), t.bytes.size());
  std::memcpy(out.bytes.data() + t.bytes.size(), t.bytes.data(), t.bytes.size());
  return out;
}

}  // namespace

std::vector<OpExample> op_examples() {
  Maker m, other;  // a second one, so that further examples leave these as they are
  const HostTensor scales = other.real({{Dim::Flat, graph::scales_size(1)}}, 4);
  const Attrs none, eps = {{"eps", 1e-5}}, out = {{"out", std::string("f64")}};
  const HostTensor ids = m.rows([](int64_t i) { return i * 7 % kVocab; });
  const HostTensor labels = m.rows([](int64_t i) { return i % 4 == 3 ? -1 : i * 3 % kVocab; });
  const HostTensor positions = m.rows([](int64_t i) { return i % kSeq; });
  const HostTensor documents = m.rows([](int64_t i) { return i / kSeq % 2 == 0 ? i % kSeq / 2 : 0; });
  const HostTensor samples = m.rows([](int64_t i) { return i / kSeq; });
  const HostTensor x = m.real({T, E}), q = m.real({T, H, D});
  const HostTensor hidden = m.real({T, F});
  const HostTensor stat = m.positive({T}), mean = m.real({T}), head_stat = m.positive({T, H});
  const Attrs rope = {{"inv_freq", std::vector<double>{1.0, 0.1}}, {"scale", 1.25}, {"inverse", int64_t{0}}};
  const Attrs drop = {{"p", 0.25}, {"salt", int64_t{5}}};
  HostTensor seed(Type{DType::F64, {}});
  *seed.real() = 0.125;

  const auto norm_backward = [&](int64_t again) {
    Attrs attrs = out;
    attrs.set("again", again);
    return attrs;
  };
  const Attrs norm_dw = norm_backward(0), norm_dw_y = norm_backward(1);
  const auto layer_backward = [&](int64_t bias, int64_t again) {
    Attrs attrs = out;
    attrs.set("bias", bias);
    attrs.set("again", again);
    return attrs;
  };

  const DimSize two{Dim::KvHeads, 2}, all_heads{Dim::Embed, H.size * D.size};
  const Attrs gelu_gate = {{"act", std::string("gelu")}};
  Attrs rope_first = rope, parts = out;
  rope_first.set("heads", int64_t{6});
  parts.set("parts", std::string("heads=4 kv_heads=2 kv_heads=2"));

  // Blocks of two.
  const DimSize T2{Dim::Tokens, T.size / 2}, E2{Dim::Embed, E.size / 2}, H2{Dim::Heads, H.size * D.size / 2};
  const HostTensor blocked_w = other.real({H, D, E});

  std::vector<OpExample> list = {
      {&graph::kEmbedding, none, {m.real({V, E}), ids}},
      {&graph::kEmbeddingDw,
       {{"rows", kVocab}, {"dim", std::string("vocab")}, {"out", std::string("f64")}},
       {ids, m.real({T, E})}},
      {&graph::kLinear, none, {x, m.real({H, D, E})}},
      {&graph::kLinear, none, {q, m.real({E, H, D})}},
      {&graph::kLinear, none, {x, m.real({V, E})}},
      {&graph::kLinearDx, none, {q, m.real({H, D, E})}},
      {&graph::kLinearDx, none, {m.real({T, V}), m.real({V, E})}},
      {&graph::kLinearDw, out, {q, x}},
      {&graph::kLinearDw, out, {x, q}},
      {&graph::kBiasAdd, none, {q, m.real({H, D})}},
      {&graph::kBiasAdd, none, {x, m.real({E})}},
      {&graph::kSumRows, out, {q}},
      {&graph::kRmsNorm, eps, {x, m.real({E}, 1)}},
      {&graph::kRmsNorm, eps, {q, m.real({D}, 1)}},
      {&graph::kAddRmsNorm, eps, {x, m.real({T, E}), m.real({E}, 1)}},
      {&graph::kRmsNormDx, none, {m.real({T, E}), x, m.real({E}, 1), stat}},
      {&graph::kRmsNormDx, none, {m.real({T, H, D}), q, m.real({D}, 1), head_stat}},
      {&graph::kRmsNormDw, out, {m.real({T, E}), x, stat}},
      {&graph::kRmsNormDw, out, {m.real({T, H, D}), q, head_stat}},
      {&graph::kRmsNormBackward, norm_dw, {m.real({T, E}), x, m.real({E}, 1), stat}},
      {&graph::kRmsNormBackward, norm_dw_y, {m.real({T, E}), x, m.real({E}, 1), stat}},
      {&graph::kRmsNormBackward, norm_dw_y, {m.real({T, H, D}), q, m.real({D}, 1), head_stat}},
      {&graph::kRmsNorm, {{"eps", 1e-5}, {"offset", 1.0}}, {x, m.real({E})}},
      {&graph::kRmsNorm, {{"eps", 1e-5}, {"whole", int64_t{2}}}, {q, m.real({all_heads}, 1)}},
      {&graph::kRmsNormDx, {{"offset", 1.0}}, {m.real({T, E}), x, m.real({E}), stat}},
      {&graph::kRmsNormDx, {{"whole", int64_t{2}}}, {m.real({T, H, D}), q, m.real({all_heads}, 1), stat}},
      {&graph::kRmsNormDw,
       {{"out", std::string("f64")}, {"whole", int64_t{2}}},
       {m.real({T, H, D}), q, stat}},
      {&graph::kRmsNormBackward,
       {{"out", std::string("f64")}, {"again", int64_t{1}}, {"offset", 1.0}},
       {m.real({T, E}), x, m.real({E}), stat}},
      {&graph::kLayerNorm, eps, {x, m.real({E}, 1), m.real({E})}},
      {&graph::kAddLayerNorm, eps, {x, m.real({T, E}), m.real({E}, 1), m.real({E})}},
      {&graph::kLayerNormDx, none, {m.real({T, E}), x, m.real({E}, 1), mean, stat}},
      {&graph::kLayerNormDw,
       {{"out", std::string("f64")}, {"bias", int64_t{1}}},
       {m.real({T, E}), x, mean, stat}},
      {&graph::kLayerNormDw,
       {{"out", std::string("f64")}, {"bias", int64_t{0}}},
       {m.real({T, E}), x, mean, stat}},
      {&graph::kLayerNormBackward,
       layer_backward(1, 0),
       {m.real({T, E}), x, m.real({E}, 1), m.real({E}), mean, stat}},
      {&graph::kLayerNormBackward,
       layer_backward(1, 1),
       {m.real({T, E}), x, m.real({E}, 1), m.real({E}), mean, stat}},
      {&graph::kLayerNormBackward,
       layer_backward(0, 1),
       {m.real({T, E}), x, m.real({E}, 1), m.real({E}), mean, stat}},
      {&graph::kRope, rope, {q, positions}},
      {&graph::kRope,
       {{"inv_freq", std::vector<double>{0.3}}, {"scale", 1.0}, {"inverse", int64_t{0}}},
       {q, positions}},
      {&graph::kRopeFirst, rope_first, {m.real({T, {Dim::Heads, 8}, D}), positions}},
      {&graph::kLinears, none, {x, m.real({H, D, E}), m.real({two, D, E}), m.real({two, D, E})}},
      {&graph::kLinears, none, {x, m.real({F, E}), m.real({F, E})}},
      {&graph::kLinearsDx,
       none,
       {m.real({T, {Dim::Heads, 8}, D}), m.real({H, D, E}), m.real({two, D, E}), m.real({two, D, E})}},
      {&graph::kLinearsDw, parts, {m.real({T, {Dim::Heads, 8}, D}), x}},
      {&graph::kSwiGlu, none, {hidden, m.real({T, F})}},
      {&graph::kSwiGluDx, none, {m.real({T, F}), hidden, m.real({T, F})}},
      {&graph::kSwiGluBackward, none, {m.real({T, F}), hidden, m.real({T, F})}},
      {&graph::kSwiGlu, none, {m.real({T, {Dim::Ffn, 2 * F.size}})}},
      {&graph::kSwiGluDx, none, {hidden, m.real({T, {Dim::Ffn, 2 * F.size}})}},
      {&graph::kSwiGluBackward, none, {hidden, m.real({T, {Dim::Ffn, 2 * F.size}})}},
      {&graph::kSwiGlu, gelu_gate, {hidden, m.real({T, F})}},
      {&graph::kSwiGluDx, gelu_gate, {m.real({T, F}), hidden, m.real({T, F})}},
      {&graph::kSwiGluBackward, gelu_gate, {m.real({T, F}), hidden, m.real({T, F})}},
      {&graph::kQuantize, codes({{"rows", int64_t{1}}}, 1), {x, scales}},
      {&graph::kQuantize, codes({{"rows", int64_t{1}}}, 1), {q, scales}},
      {&graph::kScaledLinear, scaled(1), {x, other.real({H, D, E}), scales}},
      {&graph::kScaledLinearDx, scaled(2), {other.real({T, H, D}), other.real({E, H, D}), scales}},
      {&graph::kScaledLinearDw, scaled(1), {other.real({H, D, T}), other.real({E, T}), scales}},
      {&graph::kQuantizeBlocks, blocks(1, 0), {x}},
      {&graph::kQuantizeBlocks, blocks(1, 1), {x}},
      {&graph::kQuantizeBlocks, blocks(1, 0), {q}},
      {&graph::kQuantizeBlocks, blocks(2, 0), {blocked_w}},
      {&graph::kQuantizeBlocks, blocks(2, 1), {blocked_w}},
      {&graph::kBlockLinear, blocked(1, 1), {x, blocked_w, other.real({E2, T}), other.real({H2, E2})}},
      {&graph::kBlockLinear, blocked(1, 0), {x, blocked_w, other.real({E2, T}), other.real({E2, H, D})}},
      {&graph::kBlockLinearDx,
       blocked(2, 1),
       {q, other.real({E, H, D}), other.real({H2, T}), other.real({E2, H2})}},
      {&graph::kBlockLinearDw,
       blocked(1, 0),
       {other.real({H, D, T}), other.real({E, T}), other.real({T2, H, D}), other.real({T2, E})}},
      {&graph::kRmsNormQuantize, codes(eps, 0), {x, other.real({E}, 1), scales}},
      {&graph::kAddRmsNormQuantize, codes(eps, 0), {x, other.real({T, E}), other.real({E}, 1), scales}},
      {&graph::kSwiGluQuantize, codes(none, 0), {hidden, other.real({T, F}), scales}},
      {&graph::kSwiGluQuantize, codes(none, 0), {other.real({T, {Dim::Ffn, 2 * F.size}}), scales}},
      {&graph::kSwiGluBackwardQuantize,
       codes({{"again", int64_t{1}}, {"again_scale", int64_t{0}}}, 1),
       {hidden, other.real({T, {Dim::Ffn, 2 * F.size}}), scales}},
      {&graph::kRmsNormAgainQuantize,
       {{"format", std::string("e4m3")}, {"scale", int64_t{0}}},
       {x, other.real({E}, 1), stat, scales}},
      {&graph::kGelu, none, {hidden}},
      {&graph::kGeluDx, none, {m.real({T, F}), hidden}},
      {&graph::kGelu, {{"form", std::string("erf")}}, {hidden}},
      {&graph::kGeluDx, {{"form", std::string("erf")}}, {m.real({T, F}), hidden}},
      {&graph::kScale, {{"factor", 3.0}}, {x}},
      {&graph::kSoftCap, {{"cap", 0.7}}, {m.real({T, V})}},
      {&graph::kSoftCap, {{"cap", 0.7}}, {x}},
      {&graph::kSoftCapDx, {{"cap", 0.7}}, {m.real({T, V}), m.real({T, V})}},
      {&graph::kAttentionSink, none, {q, m.real({H, T}), m.real({H})}, {0}, {0, 1}},
      {&graph::kAttentionSinkDw, out, {m.real({T, H, D}), q, m.real({H, T}), m.real({H})}},
      {&graph::kCenter, none, {x}},
      {&graph::kCenter, none, {q}},
      {&graph::kUnitNorm, eps, {q}},
      {&graph::kUnitNormDx, eps, {m.real({T, H, D}), q}},
      {&graph::kClip, {{"limit", 0.5}}, {q}},
      {&graph::kClipDx, {{"limit", 0.5}}, {m.real({T, H, D}), q}},
      {&graph::kPositionScale, {{"scale", 0.3}, {"floor", int64_t{2}}}, {q, positions}},
      {&graph::kSplitDocuments, {{"chunk", int64_t{2}}, {"seq_len", kSeq}}, {documents, positions}},
      {&graph::kAdd, none, {x, m.real({T, E})}},
      {&graph::kDropout, drop, {x, samples, positions, m.key()}},
      {&graph::kDropout, drop, {hidden, samples, positions, m.key()}},
      {&graph::kJitter, {{"eps", 0.25}, {"salt", int64_t{7}}}, {x, samples, positions, m.key()}},
      {&graph::kCast, out, {x}},
      {&graph::kRowMax, none, {m.real({T, V})}},
      {&graph::kRowSumExp, none, {m.real({T, V}), m.positive({T}), labels}},
      {&graph::kLossGrad,
       none,
       {m.real({T, V}), m.positive({T}), m.positive({T, {Dim::HeadDim, 2}}), labels, seed}},
      {&graph::kCrossEntropy, none, {m.real({T, V}), labels, seed}},
  };
  list.push_back({&graph::kLogProb, none, {m.real({T}), m.positive({T, {Dim::HeadDim, 2}}), labels}});
  // Rows of six sequences of two positions, in pages of four rows in reverse order.
  const DimSize all_pages{graph::pages_dim(), 6}, page{graph::page_rows_dim(), 4};
  HostTensor table(Type{DType::I32, {{graph::pages_dim(), 12}}});
  for (int64_t i = 0; i < 12; ++i) table.index()[i] = static_cast<int32_t>(i < 6 ? 5 - i : -1);
  const HostTensor sequences = m.rows([](int64_t i) { return i < 6 ? i : -1; });
  const HostTensor here = m.rows([](int64_t i) { return i % 4; });
  for (const int64_t kv : {4, 2, 1}) {
    const DimSize K{Dim::KvHeads, kv};
    const HostTensor k = m.real({T, K, D}), v = m.real({T, K, D});
    const HostTensor k_cache = m.real({all_pages, page, K, D}), v_cache = m.real({all_pages, page, K, D});
    list.push_back({&graph::kCacheAppend,
                    {{"pages_per_sequence", int64_t{1}}},
                    {table, sequences, here, k, k_cache, v, v_cache}});
    for (const int64_t window : {0, 2})
      list.push_back({&graph::kCachedAttention,
                      {{"window", window}, {"scale", 0.5}, {"pages_per_sequence", int64_t{1}}},
                      {k_cache, v_cache, table, sequences, here, q, k, v}});
    for (const int64_t lse : {0, 1}) {
      Attrs in_chunks{
          {"window", int64_t{0}}, {"scale", 0.5}, {"pages_per_sequence", int64_t{1}}, {"chunk", int64_t{2}}};
      if (lse == 1) in_chunks.set("lse", lse);
      list.push_back(
          {&graph::kCachedAttention, in_chunks, {k_cache, v_cache, table, sequences, here, q, k, v}});
    }
  }
  // Attention with as many KV heads as query heads, half as many (also with a soft cap), and one; over whole
  // sequences, and over sequences of 4 and 12 rows in the row order of two context ranks.
  // In place of a window of 0, a negative one: attention to both sides.
  for (const auto& [kv, soft_cap] : {std::pair{int64_t{4}, 0.0}, {2, 0.0}, {2, 0.3}, {1, 0.0}})
    for (const double dropout : {0.0, 0.25})
      for (const int64_t window : {0, 2, -1})
        for (const auto& [cp, seq] : {std::pair{1, kSeq}, std::pair{2, int64_t{4}}, std::pair{2, kTokens}}) {
          const DimSize K{Dim::KvHeads, kv};
          Attrs attrs = attention(seq, std::max<int64_t>(0, window), dropout, cp);
          if (window < 0) attrs.set("both_sides", int64_t{1});
          if (soft_cap > 0) attrs.set("soft_cap", soft_cap);
          std::vector<HostTensor> tail = {documents, documents};
          if (dropout > 0) tail.insert(tail.end(), {samples, positions, positions, m.key()});
          std::vector<HostTensor> in = {q, m.real({T, K, D}), m.real({T, K, D})};
          std::vector<HostTensor> back = {m.real({T, H, D}), in[0], in[1], in[2], m.real({T, H, D}),
                                          m.positive({H, T})};
          in.insert(in.end(), tail.begin(), tail.end());
          back.insert(back.end(), tail.begin(), tail.end());
          list.push_back({&graph::kAttention, attrs, in});
          list.push_back({&graph::kAttentionDx, attrs, back});
          if (cp == 1 && dropout == 0) {  // packed q, k and v
            Attrs joint = attrs;
            joint.set("heads", H.size);
            joint.set("kv_heads", kv);
            const DimSize all{Dim::Heads, H.size + 2 * kv};
            std::vector<HostTensor> packed = {m.real({T, all, D})},
                                    packed_back = {back[0], packed[0], back[4], back[5]};
            packed.insert(packed.end(), tail.begin(), tail.end());
            packed_back.insert(packed_back.end(), tail.begin(), tail.end());
            list.push_back({&graph::kQkvAttention, joint, packed});
            list.push_back({&graph::kQkvAttentionDx, joint, packed_back});
          }
          if (seq == kTokens) continue;
          // Hops: the last of a ring, with earlier results; on one rank the first and only one.
          Attrs hop = attrs;
          hop.set("hop", int64_t{cp - 1});
          if (cp == 2) {
            for (std::vector<HostTensor>* operands : {&in, &back}) {
              const size_t first = operands == &in ? 3 : 6;
              for (const size_t i : dropout > 0 ? std::vector<size_t>{1, 4} : std::vector<size_t>{1})
                (*operands)[first + i] = twice((*operands)[first + i]);
              hop.set("seq_len", int64_t{2 * seq});
            }
            in.insert(in.end(), {m.real({T, H, D}), m.positive({H, T})});
            back.push_back(m.real({T, H, D}));
          }
          list.push_back({&graph::kAttentionHop, hop, in});
          list.push_back({&graph::kAttentionHopDx, hop, back});
        }
  for (OpExample& e : expert_examples()) list.push_back(std::move(e));
  for (OpExample& e : router_examples()) list.push_back(std::move(e));
  return list;
}

}  // namespace quintet::tests
