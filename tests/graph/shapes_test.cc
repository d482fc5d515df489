// The types that each op infers, and its refusals, which name the op and show the types.
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "graph/cache_ops.h"
#include "graph/fp8_ops.h"
#include "graph/refusals.h"

namespace quintet::graph {
namespace {

using testing::f32;
using testing::i32;
using testing::inferred;
using testing::op_case;
using testing::OpCase;
using testing::Refusal;

constexpr Dim T = Dim::Tokens, E = Dim::Embed, H = Dim::Heads, K = Dim::KvHeads, D = Dim::HeadDim,
              F = Dim::Ffn, V = Dim::Vocab;

TEST(Shapes, Inferred) {
  EXPECT_EQ(inferred(kEmbedding), "f32[tokens=8, embed=16]");
  EXPECT_EQ(inferred(kEmbeddingDw), "f32[vocab=37, embed=16]");
  EXPECT_EQ(inferred(kLinear), "f32[tokens=8, heads=4, head_dim=6]");
  EXPECT_EQ(inferred(kLinearDx), "f32[tokens=8, embed=16]");
  EXPECT_EQ(inferred(kLinearDw), "f32[heads=4, head_dim=6, embed=16]");
  EXPECT_EQ(inferred(kBiasAdd), "f32[tokens=8, heads=4, head_dim=6]");
  EXPECT_EQ(inferred(kSumRows), "f32[heads=4, head_dim=6]");
  EXPECT_EQ(inferred(kRmsNorm), "f32[tokens=8, embed=16], f32[tokens=8]");
  EXPECT_EQ(inferred(kAddRmsNorm), "f32[tokens=8, embed=16], f32[tokens=8, embed=16], f32[tokens=8]");
  EXPECT_EQ(inferred(kRmsNormDx), "f32[tokens=8, embed=16]");
  EXPECT_EQ(inferred(kRmsNormDw), "f32[embed=16]");
  EXPECT_EQ(inferred(kRmsNormBackward), "f32[tokens=8, embed=16], f32[embed=16], f32[tokens=8, embed=16]");
  EXPECT_EQ(inferred(kLayerNorm), "f32[tokens=8, embed=16], f32[tokens=8], f32[tokens=8]");
  EXPECT_EQ(inferred(kAddLayerNorm),
            "f32[tokens=8, embed=16], f32[tokens=8, embed=16], f32[tokens=8], f32[tokens=8]");
  EXPECT_EQ(inferred(kLayerNormDx), "f32[tokens=8, embed=16]");
  EXPECT_EQ(inferred(kLayerNormDw), "f32[embed=16], f32[embed=16]");
  EXPECT_EQ(inferred(kLayerNormBackward),
            "f32[tokens=8, embed=16], f32[embed=16], f32[embed=16], f32[tokens=8, embed=16]");
  EXPECT_EQ(inferred(kRope), "f32[tokens=8, heads=4, head_dim=6]");
  EXPECT_EQ(inferred(kAttention), "f32[tokens=8, heads=4, head_dim=6], f32[heads=4, tokens=8]");
  EXPECT_EQ(
      inferred(kAttentionDx),
      "f32[tokens=8, heads=4, head_dim=6], f32[tokens=8, kv_heads=2, head_dim=6], f32[tokens=8, kv_heads=2, "
      "head_dim=6]");
  EXPECT_EQ(inferred(kQkvAttention), inferred(kAttention));
  EXPECT_EQ(inferred(kQkvAttentionDx), "f32[tokens=8, heads=8, head_dim=6]");
  EXPECT_EQ(inferred(kLinears), "f32[tokens=8, heads=8, head_dim=6]");
  EXPECT_EQ(inferred(kLinearsDx), "f32[tokens=8, embed=16]");
  EXPECT_EQ(inferred(kLinearsDw),
            "f32[heads=4, head_dim=6, embed=16], f32[kv_heads=2, head_dim=6, embed=16], f32[kv_heads=2, "
            "head_dim=6, embed=16]");
  EXPECT_EQ(inferred(kRopeFirst), "f32[tokens=8, heads=8, head_dim=6]");
  EXPECT_EQ(inferred(kAttentionHop), inferred(kAttention));
  EXPECT_EQ(inferred(kAttentionHopDx), inferred(kAttentionDx));
  EXPECT_EQ(inferred(kSwiGluDx), "f32[tokens=8, ffn=24], f32[tokens=8, ffn=24]");
  EXPECT_EQ(inferred(kCast), "bf16[tokens=8, embed=16]");
  EXPECT_EQ(inferred(kRowMax), "f32[tokens=8]");
  EXPECT_EQ(inferred(kRowSumExp), "f32[tokens=8, head_dim=2]");
  EXPECT_EQ(inferred(kSwiGluBackward), "f32[tokens=8, ffn=24], f32[tokens=8, ffn=24], f32[tokens=8, ffn=24]");
  EXPECT_EQ(inferred(kLossGrad), "f64[], f32[tokens=8, vocab=37]");
  EXPECT_EQ(inferred(kCrossEntropy), "f64[], f32[tokens=8, vocab=37]");
}

TEST(Shapes, HopsRunInTheDtypeOfStatistics) {
  OpCase forward = op_case(kAttentionHop), backward = op_case(kAttentionHopDx);
  for (const size_t i : {0, 1, 2}) forward.in[i].dtype = DType::BF16;
  EXPECT_EQ(forward.out()[0].dtype, DType::F32);
  for (const size_t i : {0, 1, 2, 3, 4}) backward.in[i].dtype = DType::BF16;
  EXPECT_EQ(backward.out()[0].dtype, DType::F32);
  EXPECT_EQ(backward.out()[1].dtype, DType::BF16);
}

TEST(Shapes, StatisticsAreWide) {
  OpCase c = op_case(kRmsNorm);
  for (Type& t : c.in) t.dtype = DType::BF16;
  EXPECT_EQ(c.out()[1].dtype, DType::F32);
  for (Type& t : c.in) t.dtype = DType::F64;
  EXPECT_EQ(c.out()[1].dtype, DType::F64);
}

// Replaces the type of operand i.
testing::Spoil operand(size_t i, Type type) {
  return [i, type](OpCase& c) { c.in[i] = type; };
}

Type resized(Type t, size_t dim, int64_t size) {
  t.dims[dim].size = size;
  return t;
}

Type as(DType dtype, Type t) {
  t.dtype = dtype;
  return t;
}

std::vector<Refusal> refusals() {
  const Type x = f32({T, E}), q = f32({T, H, D}), k = f32({T, K, D}), row = i32({T}), logits = f32({T, V}),
             hidden = f32({T, F});
  return {
      {&kEmbedding, "a table of one dim", operand(0, f32({V}))},
      {&kEmbedding, "real ids", operand(1, f32({T}))},
      {&kEmbedding, "ids of two dims", operand(1, i32({T, E}))},
      {&kEmbedding, "ids that are no rows", operand(1, i32({V}))},
      {&kEmbeddingDw, "ids of other rows", operand(0, resized(row, 0, 9))},
      {&kEmbeddingDw, "dy of three dims", operand(1, q)},
      {&kEmbeddingDw, "an unknown dim", [](OpCase& c) { c.attrs.set("dim", std::string("words")); }},
      {&kLinear, "x without rows", operand(0, f32({E}))},
      {&kLinear, "x not by tokens", operand(0, f32({V, E}))},
      {&kLinear, "another inner size", operand(0, resized(x, 1, 17))},
      {&kLinear, "another inner dim", operand(0, Type{DType::F32, {{T, 8}, {F, 16}}})},
      {&kLinear, "w with nothing to give", operand(1, f32({E}))},
      {&kLinear, "two dtypes", operand(1, as(DType::BF16, f32({H, D, E})))},
      {&kLinearDx, "dy of another size", operand(0, resized(q, 1, 3))},
      {&kLinearDx, "dy with more dims than w", operand(1, f32({H}))},
      {&kLinearDx, "dy without rows", operand(0, f32({H, D}))},
      {&kLinearDx, "two dtypes", operand(0, as(DType::F64, q))},
      {&kLinearDw, "other rows", operand(1, resized(x, 0, 9))},
      {&kLinearDw, "x of rows only", operand(1, f32({T}))},
      {&kLinearDw, "two dtypes", operand(0, as(DType::F64, q))},
      {&kBiasAdd, "a bias of another shape", operand(1, f32({H}))},
      {&kBiasAdd, "a bias of another dtype", operand(1, as(DType::BF16, f32({H, D})))},
      {&kBiasAdd, "x without rows", operand(0, f32({H, D}))},
      {&kSumRows, "no rows", operand(0, f32({H, D}))},
      {&kSumRows, "a scalar", operand(0, f32({}))},
      {&kRmsNorm, "a weight of another size", operand(1, resized(f32({E}), 0, 15))},
      {&kRmsNorm, "a weight of another dim", operand(1, Type{DType::F32, {{F, 16}}})},
      {&kRmsNorm, "a weight of another dtype", operand(1, as(DType::BF16, f32({E})))},
      {&kRmsNorm, "x of rows only", operand(0, f32({T}))},
      {&kRmsNormDx, "dy unlike x", operand(0, resized(x, 0, 9))},
      {&kRmsNormDx, "a weight of another size", operand(2, resized(f32({E}), 0, 15))},
      {&kRmsNormDx, "statistics of other rows", operand(3, resized(f32({T}), 0, 9))},
      {&kRmsNormDw, "dy unlike x", operand(0, hidden)},
      {&kRmsNormBackward, "dy unlike x", operand(0, hidden)},
      {&kRmsNormBackward, "statistics of other rows", operand(3, resized(f32({T}), 0, 9))},
      {&kRmsNormDw, "narrow statistics", operand(2, as(DType::BF16, f32({T})))},
      {&kLayerNorm, "a weight of another size", operand(1, resized(f32({E}), 0, 15))},
      {&kLayerNorm, "a bias of another size", operand(2, resized(f32({E}), 0, 15))},
      {&kLayerNormDx, "dy unlike x", operand(0, hidden)},
      {&kLayerNormDx, "a weight of another size", operand(2, resized(f32({E}), 0, 15))},
      {&kLayerNormDx, "a mean of other rows", operand(3, resized(f32({T}), 0, 9))},
      {&kLayerNormDw, "dy unlike x", operand(0, hidden)},
      {&kLayerNormDw, "statistics of other rows", operand(3, resized(f32({T}), 0, 9))},
      {&kAddRmsNorm, "terms unlike each other", operand(1, resized(x, 0, 9))},
      {&kAddRmsNorm, "a weight of another size", operand(2, resized(f32({E}), 0, 15))},
      {&kAddLayerNorm, "terms unlike each other", operand(0, as(DType::BF16, x))},
      {&kAddLayerNorm, "a weight of another size", operand(2, resized(f32({E}), 0, 15))},
      {&kAddLayerNorm, "a bias of another size", operand(3, resized(f32({E}), 0, 15))},
      {&kLayerNormBackward, "dy unlike x", operand(0, hidden)},
      {&kLayerNormBackward, "a weight of another size", operand(2, resized(f32({E}), 0, 15))},
      {&kLayerNormBackward, "a bias of another size", operand(3, resized(f32({E}), 0, 15))},
      {&kLayerNormBackward, "a mean of other rows", operand(4, resized(f32({T}), 0, 9))},
      {&kLayerNormBackward, "statistics of other rows", operand(5, resized(f32({T}), 0, 9))},
      {&kRope, "x of two dims", operand(0, x)},
      {&kRope, "an odd head_dim", operand(0, resized(q, 2, 5))},
      {&kRope, "real positions", operand(1, f32({T}))},
      {&kRope, "positions of other rows", operand(1, resized(row, 0, 9))},
      {&kRope, "too many frequencies",
       [](OpCase& c) { c.attrs.set("inv_freq", std::vector<double>(9, 0.1)); }},
      {&kAttention, "q of two dims", operand(0, x)},
      {&kAttention, "another head_dim in k", operand(1, resized(k, 2, 4))},
      {&kAttention, "other KV heads in v", operand(2, resized(k, 1, 4))},
      {&kAttention, "other rows in k", operand(1, resized(k, 0, 4))},
      {&kAttention, "other rows in v", operand(2, resized(k, 0, 4))},
      {&kAttention, "KV heads called heads", operand(1, Type{DType::F32, {{T, 8}, {H, 2}, {D, 6}}})},
      {&kAttention, "two dtypes", operand(1, as(DType::BF16, k))},
      {&kAttention, "uneven groups", [=](OpCase& c) { c.in[1] = c.in[2] = resized(k, 1, 3); }},
      {&kAttention, "half a sequence", [](OpCase& c) { c.attrs.set("seq_len", int64_t{5}); }},
      {&kAttention, "real documents", operand(3, f32({T}))},
      {&kAttention, "documents of other rows", operand(3, resized(row, 0, 9))},
      {&kAttention, "real key documents", operand(4, f32({T}))},
      {&kAttention, "key documents of other rows", operand(4, resized(row, 0, 12))},
      {&kAttention, "queries of a part of the rows, not cut",
       [=](OpCase& c) {
         c.in[0] = resized(q, 0, 4);
         c.in[3] = resized(row, 0, 4);
       }},
      {&kAttention, "ulysses beyond cp", [](OpCase& c) { c.attrs.set("ulysses", int64_t{2}); }},
      {&kAttention, "a sequence that is not 2 * cp chunks", [](OpCase& c) { c.attrs.set("cp", int64_t{4}); }},
      {&kAttention, "dropout without samples", [](OpCase& c) { c.attrs.set("dropout", 0.1); }},
      {&kAttentionHop, "a narrow running sum",
       [](OpCase& c) {
         for (const size_t i : {0, 1, 2, 5}) c.in[i].dtype = DType::BF16;
       }},
      {&kAttentionHop, "no running sum", [](OpCase& c) { c.in.resize(5); }},
      {&kAttentionHop, "a running sum at the first hop", [](OpCase& c) { c.attrs.set("hop", int64_t{0}); }},
      {&kAttentionHop, "a hop beyond the ring", [](OpCase& c) { c.attrs.set("hop", int64_t{2}); }},
      {&kAttentionHop, "whole keys", [=](OpCase& c) { c.in[1] = c.in[2] = resized(k, 0, 16); }},
      {&kAttentionHop, "whole queries",
       [=](OpCase& c) {
         c.in[0] = c.in[5] = resized(q, 0, 16);
         c.in[3] = resized(row, 0, 16);
         c.in[6].dims[1].size = 16;
       }},
      {&kAttentionHopDx, "dq_before unlike dq", operand(8, resized(q, 2, 4))},
      {&kAttentionHopDx, "gradients at the first hop", [](OpCase& c) { c.attrs.set("hop", int64_t{0}); }},
      {&kAttentionDx, "do unlike o", operand(0, resized(q, 2, 4))},
      {&kAttentionDx, "o unlike q", operand(4, k)},
      {&kAttentionDx, "lse turned round", operand(5, f32({T, H}))},
      {&kAttentionDx, "documents of other rows", operand(6, resized(row, 0, 9))},
      {&kAttentionDx, "dropout without samples", [](OpCase& c) { c.attrs.set("dropout", 0.1); }},
      {&kQkvAttention, "too few heads", operand(0, q)},
      {&kQkvAttention, "dropout", [](OpCase& c) { c.attrs.set("dropout", 0.1); }},
      {&kQkvAttention, "documents of other rows", operand(1, resized(row, 0, 9))},
      {&kQkvAttention, "heads in no groups",
       [](OpCase& c) {
         c.attrs.set("heads", int64_t{2});
         c.attrs.set("kv_heads", int64_t{3});
       }},
      {&kQkvAttentionDx, "do unlike o", operand(0, k)},
      {&kQkvAttentionDx, "too few heads", operand(1, q)},
      {&kLinears, "x without rows", operand(0, f32({E}))},
      {&kLinears, "another inner size", operand(0, resized(x, 1, 17))},
      {&kLinears, "parts of other widths", operand(2, resized(f32({K, D, E}), 1, 5))},
      {&kLinears, "two dtypes", operand(3, as(DType::BF16, f32({K, D, E})))},
      {&kLinearsDx, "dy of another size", operand(0, q)},
      {&kLinearsDx, "dy without rows", operand(0, f32({H, D}))},
      {&kLinearsDw, "other rows", operand(1, resized(x, 0, 9))},
      {&kLinearsDw, "parts that are not all",
       [](OpCase& c) { c.attrs.set("parts", std::string("heads=4 kv_heads=2")); }},
      {&kLinearsDw, "parts without sizes", [](OpCase& c) { c.attrs.set("parts", std::string("heads")); }},
      {&kRopeFirst, "more heads than there are", [](OpCase& c) { c.attrs.set("heads", int64_t{9}); }},
      {&kRopeFirst, "positions of other rows", operand(1, resized(row, 0, 9))},
      {&kSwiGlu, "operands that differ", operand(1, x)},
      {&kSwiGlu, "an odd number of columns",
       [](OpCase& c) {
         c.in = {Type{DType::F32, {{T, 8}, {F, 47}}}};
       }},
      {&kSwiGluDx, "dy unlike half", [](OpCase& c) { c.in.pop_back(); }},
      {&kSwiGluDx, "dy unlike gate", operand(0, x)},
      {&kSwiGluBackward, "dy unlike gate", operand(0, x)},
      {&kSwiGluDx, "up unlike gate", operand(2, as(DType::F64, hidden))},
      {&kGeluDx, "dy unlike x", operand(0, x)},
      {&kAdd, "operands of two dtypes", operand(1, as(DType::BF16, x))},
      {&kAdd, "operands of two sizes", operand(0, resized(x, 0, 9))},
      {&kDropout, "p = 1", [](OpCase& c) { c.attrs.set("p", 1.0); }},
      {&kDropout, "negative p", [](OpCase& c) { c.attrs.set("p", -0.1); }},
      {&kDropout, "x of three dims", operand(0, q)},
      {&kDropout, "samples of other rows", operand(1, resized(row, 0, 9))},
      {&kDropout, "a key of 32 bits", operand(3, Type{DType::I32, {}})},
      {&kJitter, "eps = 1", [](OpCase& c) { c.attrs.set("eps", 1.0); }},
      {&kJitter, "negative eps", [](OpCase& c) { c.attrs.set("eps", -0.1); }},
      {&kJitter, "x of three dims", operand(0, q)},
      {&kJitter, "positions of other rows", operand(2, resized(row, 0, 9))},
      {&kJitter, "a key of 32 bits", operand(3, Type{DType::I32, {}})},
      {&kRowMax, "logits of one dim", operand(0, f32({T}))},
      {&kRowSumExp, "logits of one dim", operand(0, f32({V}))},
      {&kRowSumExp, "a maximum of other rows", operand(1, resized(f32({T}), 0, 9))},
      {&kRowSumExp, "real labels", operand(2, f32({T}))},
      {&kLossGrad, "logits of three dims", operand(0, q)},
      {&kLossGrad, "a maximum of other rows", operand(1, resized(f32({T}), 0, 9))},
      {&kLossGrad, "three sums", operand(2, Type{DType::F32, {{T, 8}, {D, 3}}})},
      {&kLossGrad, "labels of other rows", operand(3, resized(row, 0, 9))},
      {&kLossGrad, "a narrow seed", operand(4, Type{DType::F32, {}})},
      {&kCrossEntropy, "labels of other rows", operand(1, resized(row, 0, 9))},
      {&kCrossEntropy, "a narrow seed", operand(2, Type{DType::F32, {}})},
      {&kSoftCapDx, "operands that differ", operand(1, x)},
      {&kAttentionSink, "o without heads", operand(0, x)},
      {&kAttentionSink, "a transposed lse", operand(1, f32({T, H}))},
      {&kAttentionSink, "a sink per KV head", operand(2, f32({K}))},
      {&kAttentionSinkDw, "do unlike o", operand(0, k)},
      {&kAttentionSinkDw, "a sink of another dtype", operand(3, as(DType::BF16, f32({H})))},
      {&kUnitNormDx, "operands that differ", operand(1, x)},
      {&kClipDx, "operands that differ", operand(1, x)},
      {&kPositionScale, "positions of other rows", operand(1, resized(row, 0, 9))},
      {&kPositionScale, "a floor of 0", [](OpCase& c) { c.attrs.set("floor", int64_t{0}); }},
      {&kSplitDocuments, "real documents", operand(0, f32({T}))},
      {&kSplitDocuments, "chunks of nothing", [](OpCase& c) { c.attrs.set("chunk", int64_t{0}); }},
      {&kCacheAppend, "a real page table", operand(0, f32({T}))},
      {&kCacheAppend, "positions of other rows", operand(2, resized(row, 0, 9))},
      {&kCacheAppend, "rows without their cache", [](OpCase& c) { c.in.pop_back(); }},
      {&kCachedAttention, "a cache without pages", operand(0, k)},
      {&kCachedAttention, "sequences of other rows", operand(3, resized(row, 0, 9))},
      {&kTakeRows, "real rows", operand(1, f32({T}))},
      {&kSample, "logits of three dims", operand(0, q)},
      {&kSample, "positions of other rows", operand(2, resized(row, 0, 9))},
      {&kLogProb, "sums of other rows", operand(1, resized(f32({T}), 0, 9))},
      {&kLogProb, "labels of other rows", operand(2, resized(row, 0, 9))},
      {&kQuantize, "integers", operand(0, row)},
      {&kQuantize, "no columns", [](OpCase& c) { c.attrs.set("rows", int64_t{2}); }},
      {&kQuantize, "a wide format", [](OpCase& c) { c.attrs.set("format", std::string("f32")); }},
      {&kQuantize, "a scale that does not exist", [](OpCase& c) { c.attrs.set("scale", int64_t{2}); }},
      {&kQuantize, "scales of another type", operand(1, as(DType::F64, f32({E})))},
      {&kQuantize, "parts of other columns",
       [](OpCase& c) {
         c.in.insert(c.in.begin() + 1, f32({T, F}));
       }},
      {&kQuantize, "no results",
       [](OpCase& c) {
         for (const char* name : {"measures", "plain", "transposed"}) c.attrs.set(name, int64_t{0});
       }},
      {&kScaledLinear, "other inner dims", operand(1, f32({F, T}))},
      {&kScaledLinear, "types that are no codes", operand(0, as(DType::BF16, x))},
      {&kScaledLinear, "a scale that does not exist", [](OpCase& c) { c.attrs.set("b_scale", int64_t{2}); }},
      {&kScaledLinear, "an addend unlike y",
       [](OpCase& c) {
         c.in.push_back(f32({T, E}));
       }},
      {&kScaledLinearDx, "weights that are not transposed", operand(1, f32({H, D, E}))},
      {&kScaledLinearDw, "rows first", operand(1, x)},
      {&kScaledLinearDw, "parts that are not all",
       [](OpCase& c) { c.attrs.set("parts", std::string("heads=1 kv_heads=2")); }},
      {&kQuantizeBlocks, "integers", operand(0, row)},
      {&kQuantizeBlocks, "no columns", [](OpCase& c) { c.attrs.set("rows", int64_t{2}); }},
      {&kQuantizeBlocks, "a wide format", [](OpCase& c) { c.attrs.set("format", std::string("f32")); }},
      {&kQuantizeBlocks, "blocks that do not divide", [](OpCase& c) { c.attrs.set("block", int64_t{3}); }},
      {&kQuantizeBlocks, "rows that blocks do not divide", operand(0, resized(x, 0, 9))},
      {&kQuantizeBlocks, "parts of other columns",
       [](OpCase& c) {
         c.in.push_back(f32({T, F}));
       }},
      {&kQuantizeBlocks, "no codes",
       [](OpCase& c) {
         for (const char* name : {"plain", "transposed"}) c.attrs.set(name, int64_t{0});
       }},
      {&kBlockLinear, "other inner dims", operand(1, f32({F, T}))},
      {&kBlockLinear, "types that are no codes", operand(0, as(DType::BF16, x))},
      {&kBlockLinear, "blocks that do not divide", [](OpCase& c) { c.attrs.set("block", int64_t{3}); }},
      {&kBlockLinear, "factors of rows for squares", [](OpCase& c) { c.attrs.set("square", int64_t{0}); }},
      {&kBlockLinear, "factors of another type", [](OpCase& c) { c.in[2].dtype = DType::F64; }},
      {&kBlockLinear, "an addend unlike y",
       [](OpCase& c) {
         c.in.push_back(f32({T, E}));
       }},
      {&kBlockLinearDx, "weights that are not transposed", operand(1, f32({H, D, E}))},
      {&kBlockLinearDx, "factors of fewer rows", [](OpCase& c) { c.in[2].dims[1].size = 4; }},
      {&kBlockLinearDw, "rows first", operand(1, x)},
      {&kBlockLinearDw, "parts that are not all",
       [](OpCase& c) { c.attrs.set("parts", std::string("heads=1 kv_heads=2")); }},
      {&kRmsNormQuantize, "no scales", operand(2, row)},
      {&kAddRmsNormQuantize, "no scales", operand(3, row)},
      {&kSwiGluQuantize, "no scales", operand(2, row)},
      {&kSwiGluBackwardQuantize, "no scales", operand(2, row)},
      {&kSwiGluBackwardQuantize, "separate gate and up",
       [](OpCase& c) {
         c.in = {f32({T, F}), f32({T, F}), f32({T, F}), c.in[2]};
       }},
      {&kRmsNormAgainQuantize, "no scales", operand(3, row)},
      {&kRmsNormAgainQuantize, "statistics of other rows", operand(2, resized(f32({T}), 0, 9))},
  };
}

TEST(Shapes, Refused) { testing::expect_refusals(refusals(), {}); }

TEST(Shapes, EveryOpWithSomethingToRefuseIsTested) {
  std::set<const OpDef*> tested = {&kGelu,   &kCast,     &kScale, &kSoftCap,
                                   &kCenter, &kUnitNorm, &kClip};  // accept any type
  for (const Refusal& r : refusals()) tested.insert(r.op);
  for (const OpCase& c : testing::expert_cases()) tested.insert(c.op);  // in expert_ops_test.cc
  for (const OpCase& c : testing::router_cases()) tested.insert(c.op);  // in router_ops_test.cc
  for (const OpCase& c : testing::op_cases()) EXPECT_TRUE(tested.contains(c.op)) << c.op->name;
}

TEST(Shapes, OperandCounts) {
  Graph g;
  const ValueId x = g.add_value({.name = "x", .type = f32({T, E}), .kind = ValueKind::Input});
  EXPECT_THROW(g.add_node(kAdd, {x}, {}, Phase::F, 0), base::UserError);
  EXPECT_THROW(g.add_node(kAdd, {x, x, x}, {}, Phase::F, 0), base::UserError);
  EXPECT_THROW(g.add_node(kAdd, {x, ValueId()}, {}, Phase::F, 0), base::InternalError);
  EXPECT_THROW(g.add_node(kAdd, {x, ValueId(7)}, {}, Phase::F, 0), base::InternalError);
  EXPECT_TRUE(g.nodes().empty());
}

}  // namespace
}  // namespace quintet::graph
