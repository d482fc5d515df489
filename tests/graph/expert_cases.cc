#include "graph/support.h"

namespace quintet::graph::testing {

// 8 tokens with 2 choices, hence 16 slots and routed rows; 4 experts of width 10, one source.
std::vector<OpCase> expert_cases() {
  const DimSize tokens{Dim::Tokens, 8}, embed{Dim::Embed, 16}, choices{Dim::Choices, 2}, one{Dim::Choices, 1},
      slots{Dim::Slots, 16}, routed{Dim::Routed, 16}, counts{Dim::Counts, 4}, experts{Dim::Experts, 4},
      ffn{Dim::ExpertFfn, 10}, heads{Dim::Heads, 4}, kv_heads{Dim::KvHeads, 2}, d1{Dim::HeadDim, 6},
      d2{Dim::HeadDim, 3}, joined{Dim::HeadDim, 9};
  const auto f = [](std::vector<DimSize> dims) { return Type{DType::F32, std::move(dims)}; };
  const auto i = [](std::vector<DimSize> dims) { return Type{DType::I32, std::move(dims)}; };
  const Type kept = i({tokens, choices}), order = i({slots}), send = i({counts}), x = f({tokens, embed}),
             packed = f({slots, embed}), there = f({routed, embed}), inner = f({routed, ffn}),
             weight = f({routed}), w = f({experts, ffn, embed});
  const auto packing = [](int64_t pad) { return Attrs{{"choices", int64_t{2}}, {"pad", pad}}; };
  const auto unpacking = [](int64_t pad) {
    return Attrs{{"choices", int64_t{2}}, {"pad", pad}, {"token_rows", int64_t{8}}};
  };
  const Type padded{DType::I32, {{Dim::Slots, 20}}};
  const auto routing = [&](int64_t pad) {
    Attrs attrs = unpacking(pad);
    attrs.set("experts", int64_t{4});
    return attrs;
  };
  return {
      {&kRoute, {kept}, routing(0)},
      {&kRoute, {kept}, routing(5)},
      {&kPack, {x, order}, packing(0)},
      {&kPack, {x, padded}, packing(5)},
      {&kUnpack, {packed, order}, unpacking(0)},
      {&kUnpack, {f({padded.dims[0], embed}), padded}, unpacking(5)},
      {&kPackWeights, {f({tokens, choices}), order}, packing(0)},
      {&kUnpackWeights, {f({slots}), order}, unpacking(0)},
      {&kExchangeCounts, {send}, {}},
      {&kToExperts, {packed, send, send}, {}},
      {&kToExperts, {f({slots}), send, send}, {}},
      {&kToTokens, {there, send, send}, {}},
      {&kSplitRows,
       {order, i({{Dim::Counts, 16}})},
       {{"rows", int64_t{5}}, {"experts", int64_t{1}}, {"all_experts", int64_t{4}}, {"copies", int64_t{1}}}},
      {&kNextPass, {i({{Dim::Counts, 1}})}, {}},
      {&kRegroup, {there, send}, {{"experts", int64_t{2}}, {"inverse", int64_t{0}}}},
      {&kSumCopies, {packed}, {{"copies", int64_t{2}}}},
      {&kGroupedLinear, {there, w, send}, {}},
      {&kGroupedLinear, {inner, f({experts, embed, ffn}), send}, {}},
      {&kGroupedLinearDx, {inner, w, send}, {}},
      {&kGroupedLinearDw, {inner, there, send}, {{"out", std::string("f32")}, {"experts", int64_t{4}}}},
      {&kExpertAct, {inner, inner, weight, send}, {}},
      {&kExpertActDx, {inner, inner, inner, weight, send}, {}},
      {&kExpertAct, {inner, inner, weight, send}, {{"alpha", 1.7}, {"limit", 7.0}}},
      {&kExpertBias, {inner, f({experts, ffn}), send}, {}},
      {&kExpertBiasDw, {inner, send}, {{"out", std::string("f32")}, {"experts", int64_t{4}}}},
      {&kSpreadChoices, {f({tokens, choices}), {DType::I32, {tokens, choices}}}, {{"experts", int64_t{4}}}},
      {&kGatherChoices, {f({tokens, {Dim::Routes, 4}}), {DType::I32, {tokens, choices}}}, {}},
      {&kScaleRows, {x, f({tokens, one})}, {}},
      {&kScaleRowsDx, {x, x, f({tokens, one})}, {}},
      {&kJoinHeads, {f({tokens, heads, d1}), f({tokens, one, d2})}, {}},
      {&kJoinHeads, {f({tokens, kv_heads, d1}), f({tokens, kv_heads, d2})}, {}},
      {&kJoinHeadsDx, {f({tokens, heads, joined})}, {{"d1", int64_t{6}}, {"shared", int64_t{1}}}},
      {&kJoinHeadsDx, {f({tokens, kv_heads, joined})}, {{"d1", int64_t{6}}, {"shared", int64_t{0}}}}};
}

}  // namespace quintet::graph::testing
