#include <algorithm>
#include <array>

#include "exec/random_tensors.h"

namespace quintet::tests {

using graph::Attrs;
using graph::Dim;
using graph::DimSize;
using graph::DType;
using graph::Type;

bool is_dispatch(const graph::OpDef& op) {
  const graph::OpDef* const ops[] = {&graph::kRoute,       &graph::kPack,          &graph::kUnpack,
                                     &graph::kPackWeights, &graph::kUnpackWeights, &graph::kExchangeCounts,
                                     &graph::kToExperts,   &graph::kToTokens,      &graph::kRegroup,
                                     &graph::kSumCopies,   &graph::kSplitRows,     &graph::kNextPass};
  return std::find(std::begin(ops), std::end(ops), &op) != std::end(ops);
}

std::vector<OpExample> expert_examples() {
  constexpr int64_t kExperts = 4, kChoices = 2;
  const DimSize T{Dim::Tokens, 12}, E{Dim::Embed, 8}, C{Dim::Choices, kChoices}, one{Dim::Choices, 1},
      routed{Dim::Routed, 24}, counts{Dim::Counts, kExperts}, experts{Dim::Experts, kExperts},
      F{Dim::ExpertFfn, 12}, H{Dim::Heads, 4}, K{Dim::KvHeads, 4}, D1{Dim::HeadDim, 3}, D2{Dim::HeadDim, 2};
  RandomTensors random(11);
  const auto real = [&](std::vector<DimSize> dims) { return random.real(std::move(dims)); };
  const Attrs none, out = {{"out", std::string("f64")}};

  // Every seventh pair is dropped, and all pairs of one token.
  HostTensor kept(Type{DType::I32, {T, C}});
  for (int64_t i = 0; i < 24; ++i)
    kept.index()[i] = i % 7 == 0 ? -1 : static_cast<int32_t>(i * i % 5 % kExperts);
  kept.index()[8] = kept.index()[9] = -1;
  // Uneven, one expert empty, rows past the counts.
  HostTensor received(Type{DType::I32, {counts}});
  for (int64_t e = 0; e < kExperts; ++e) received.index()[e] = std::array{5, 0, 9, 3}[static_cast<size_t>(e)];

  std::vector<OpExample> list;
  for (const int64_t pad : {0, 12}) {
    const Attrs route = {{"experts", kExperts}, {"choices", kChoices}, {"pad", pad}, {"token_rows", T.size}},
                pack = {{"choices", kChoices}, {"pad", pad}},
                unpack = {{"choices", kChoices}, {"pad", pad}, {"token_rows", T.size}};
    const HostTensor order =
        run_op(graph::kRoute, route, {kept}, graph::kRoute.infer({kept.type}, route), {}).front();
    const DimSize slots = order.type.dims[0];
    list.push_back({&graph::kRoute, route, {kept}});
    list.push_back({&graph::kPack, pack, {real({T, E}), order}});
    list.push_back({&graph::kUnpack, unpack, {real({slots, E}), order}});
    list.push_back({&graph::kPackWeights, pack, {real({T, C}), order}});
    list.push_back({&graph::kUnpackWeights, unpack, {real({slots}), order}});
  }
  const auto add = [&](const graph::OpDef& op, const Attrs& attrs, std::vector<HostTensor> in) {
    list.push_back({&op, attrs, std::move(in)});
  };
  Attrs out_of_experts = out;
  out_of_experts.set("experts", experts.size);
  add(graph::kGroupedLinear, none, {real({routed, E}), real({experts, F, E}), received});
  add(graph::kGroupedLinear, none, {real({routed, F}), real({experts, E, F}), received});
  add(graph::kGroupedLinearDx, none, {real({routed, F}), real({experts, F, E}), received});
  add(graph::kGroupedLinearDx, none, {real({routed, E}), real({experts, E, F}), received});
  add(graph::kGroupedLinearDw, out_of_experts, {real({routed, F}), real({routed, E}), received});
  add(graph::kGroupedLinearDw, out_of_experts, {real({routed, E}), real({routed, F}), received});
  add(graph::kExpertAct, none, {real({routed, F}), real({routed, F}), real({routed}), received});
  add(graph::kExpertActDx, none,
      {real({routed, F}), real({routed, F}), real({routed, F}), real({routed}), received});
  const Attrs clamp = {{"alpha", 1.7}, {"limit", 0.8}};
  add(graph::kExpertAct, clamp, {real({routed, F}), real({routed, F}), real({routed}), received});
  add(graph::kExpertActDx, clamp,
      {real({routed, F}), real({routed, F}), real({routed, F}), real({routed}), received});
  // Every row is counted: the gradient of the rows is dy itself, also past the counts, where nothing reads
  // it.
  HostTensor all_rows(Type{DType::I32, {counts}});
  for (int64_t e = 0; e < kExperts; ++e)
    all_rows.index()[e] = std::array{8, 0, 11, 5}[static_cast<size_t>(e)];
  add(graph::kExpertBias, none, {real({routed, F}), real({experts, F}), all_rows});
  add(graph::kExpertBiasDw, out_of_experts, {real({routed, F}), received});
  HostTensor chosen(Type{DType::I32, {T, C}});  // two different experts, or a dropped one
  for (int64_t i = 0; i < 24; ++i)
    chosen.index()[i] = i % 7 == 0 ? -1 : static_cast<int32_t>((i / 2 + i % 2) % kExperts);
  const DimSize routes{Dim::Routes, kExperts};
  add(graph::kSpreadChoices, {{"experts", kExperts}}, {real({T, C}), chosen});
  add(graph::kGatherChoices, none, {real({T, routes}), chosen});
  add(graph::kScaleRows, none, {real({T, E}), real({T, one})});
  add(graph::kScaleRowsDx, none, {real({T, E}), real({T, E}), real({T, one})});
  const DimSize joined{Dim::HeadDim, D1.size + D2.size};
  for (const DimSize& heads : {H, K})
    for (const int64_t shared : {0, 1}) {
      add(graph::kJoinHeads, none, {real({T, heads, D1}), real({T, shared ? one : heads, D2})});
      add(graph::kJoinHeadsDx, {{"d1", D1.size}, {"shared", shared}}, {real({T, heads, joined})});
    }
  return list;
}

}  // namespace quintet::tests
