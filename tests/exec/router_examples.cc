#include <cstring>

#include "exec/random_tensors.h"

namespace quintet::tests {

using graph::Attrs;
using graph::Dim;
using graph::DimSize;
using graph::DType;
using graph::Type;

namespace {

constexpr int64_t kTokens = 12, kSeq = 3, kExperts = 8, kChoices = 2;
constexpr double kLowest = 0.1;  // of scores, weights and sums
const DimSize T{Dim::Tokens, kTokens}, E{Dim::Embed, 8}, R{Dim::Routes, kExperts}, C{Dim::Choices, kChoices},
    kSums{Dim::Flat, 2 * kExperts};

// Distinct experts per row, expert 1 more often than others.
HostTensor choices() {
  HostTensor t(Type{DType::I32, {T, C}});
  for (int32_t r = 0; r < kTokens; ++r) {
    t.index()[r * kChoices] = r % 3 == 0 ? r * 5 % static_cast<int32_t>(kExperts) : 1;
    t.index()[r * kChoices + 1] = 2 + (r + 2) % 5;
  }
  return t;
}

Attrs select(const char* score, const char* order, int64_t normalise, int64_t groups, int64_t biased,
             int64_t forced) {
  return {{"k", kChoices},
          {"score", std::string(score)},
          {"order", std::string(order)},
          {"normalise", normalise},
          {"scale", 1.5},
          {"groups", groups},
          {"groups_kept", int64_t{groups == 1 ? 1 : 2}},
          {"biased", biased},
          {"force_balance", forced}};
}

Attrs sums(const char* scope, int64_t seq_len, int64_t cp) {
  return {{"scope", std::string(scope)}, {"seq_len", seq_len}, {"cp", cp}};
}

Attrs loss(const char* scope, int64_t tokens, int64_t groups) {
  return {{"coefficient", 0.5}, {"k", kChoices},       {"tokens", tokens},
          {"groups", groups},   {"experts", kExperts}, {"scope", std::string(scope)}};
}

}  // namespace

std::vector<OpExample> router_examples() {
  RandomTensors m(11);
  const HostTensor logits = m.real({T, R}), chosen = choices(), weights = m.positive({T, C}, kLowest);
  HostTensor positions(Type{DType::I32, {T}}), kept = chosen, dloss(Type{DType::F64, {}});
  for (int32_t i = 0; i < kTokens; ++i) positions.index()[i] = i % static_cast<int32_t>(kSeq);
  for (int64_t i = 0; i < kTokens * kChoices; i += 5) kept.index()[i] = -1;
  *dloss.real() = 0.7;
  const HostTensor by_sequence = m.positive({{Dim::Tokens, kTokens / kSeq}, kSums}, kLowest),
                   whole = m.positive({kSums}, kLowest);
  const Attrs coefficient = {{"coefficient", 0.1}};

  std::vector<OpExample> list = {
      {&graph::kRouter, {}, {m.real({T, E}), m.real({R, E})}},
      {&graph::kRouter, {}, {m.real({T, E}), m.real({R, E}), m.real({R})}},
      {&graph::kRouterDx, {}, {m.real({T, R}), m.real({R, E})}},
      {&graph::kRouterDw, {{"out", std::string("f64")}}, {m.real({T, R}), m.real({T, E})}},
      {&graph::kExpertLoad, {}, {chosen, kept, m.positive({T, R}, kLowest)}},
      {&graph::kBalanceSums, sums("micro", kSeq, 1), {m.positive({T, R}, kLowest), chosen}},
      {&graph::kBalanceSums, sums("sequence", kSeq, 1), {m.positive({T, R}, kLowest), chosen}},
      {&graph::kBalanceSums, sums("sequence", 4, 2), {m.positive({T, R}, kLowest), chosen}},
      {&graph::kBalanceDx, sums("global", kSeq, 1), {m.real({kSums}), chosen}},
      {&graph::kBalanceDx,
       sums("sequence", kSeq, 1),
       {m.real({{Dim::Tokens, kTokens / kSeq}, kSums}), chosen}},
      {&graph::kRunningSum, {}, {whole}},
      // Assignments are counts, so a loss is not differentiated with respect to them; gradient_test.cc uses
      // the scores instead.
      {&graph::kBalanceLoss, loss("sequence", kSeq, 4), {by_sequence}, {0}, {0}},
      {&graph::kBalanceLoss, loss("micro", kTokens, 1), {whole}, {0}, {0}},
      {&graph::kBalanceLoss, loss("global", kTokens, 1), {whole, m.positive({kSums}, kLowest)}, {0}, {1}},
      {&graph::kBalanceDsums, {{"scope", std::string("sequence")}}, {by_sequence, dloss}},
      {&graph::kBalanceDsums, {{"scope", std::string("micro")}}, {whole, dloss}},
      {&graph::kZLoss, coefficient, {logits}},
      {&graph::kZLossDx, coefficient, {logits, dloss}},
  };
  // Choices plus 1 of three routers, of which this one's are in the middle; every fourth row has none.
  HostTensor routes(Type{DType::I32, {T, {Dim::Choices, 3 * kChoices}}});
  for (int32_t r = 0; r < kTokens; ++r)
    for (int32_t c = 0; c < 3 * kChoices; ++c)
      routes.index()[r * 3 * kChoices + c] =
          r % 4 == 0 ? 0 : 1 + (r * 3 + c) % static_cast<int32_t>(kExperts);
  list.push_back({&graph::kJoinChoices, {}, {chosen, routes, kept}});
  for (const auto& [score, order] :
       {std::pair{"softmax", "score_first"}, std::pair{"sigmoid", "score_first"},
        std::pair{"sqrt_softplus", "score_first"}, std::pair{"softmax", "top_k_first"}})
    for (const int64_t normalise : {0, 1}) {
      const std::vector<std::vector<size_t>> outputs = {{0}, {2}, {0, 2}};
      for (const auto& back : outputs) {
        list.push_back({&graph::kSelect, select(score, order, normalise, 1, 0, 0), {logits}, back});
        Attrs replayed = select(score, order, normalise, 1, 0, 0);
        replayed.set("column", kChoices);
        list.push_back({&graph::kSelect, replayed, {logits, routes}, back, /*constants=*/{1}});
        list.push_back({&graph::kSelect,
                        select(score, order, normalise, 4, 1, 0),
                        {logits, m.real({R})},
                        back,
                        /*constants=*/{1}});
        list.push_back(
            {&graph::kSelect, select(score, order, normalise, 1, 0, 1), {logits, positions}, back});
        const bool scores = back[0] == 0, weighted = back.back() == 2;
        std::vector<HostTensor> in = {logits, chosen};
        if (weighted) in.push_back(m.real({T, C}));
        if (scores) in.push_back(m.real({T, R}));
        list.push_back({&graph::kSelectDx,
                        {{"score", std::string(score)},
                         {"order", std::string(order)},
                         {"normalise", normalise},
                         {"scale", 1.5},
                         {"has_dweights", int64_t{weighted}},
                         {"has_dscores", int64_t{scores}}},
                        in});
      }
    }
  for (const char* policy : {"probability", "position"})
    for (const int64_t group : {1, 2})
      list.push_back({&graph::kLimit,
                      {{"seq_len", kSeq},
                       {"capacity", int64_t{1}},
                       {"group", group},
                       {"policy", std::string(policy)},
                       {"cp", int64_t{1}}},
                      {chosen, weights}});
  HostTensor samples(Type{DType::I32, {T}});
  for (int32_t i = 0; i < kTokens; ++i) samples.index()[i] = 100 + i / static_cast<int32_t>(kSeq);
  HostTensor key(Type{DType::I64, {}});
  const int64_t seed = 0x123456789abcdef;
  std::memcpy(key.bytes.data(), &seed, sizeof(seed));
  list.push_back({&graph::kRandomWeights, {{"salt", int64_t{5}}}, {chosen, samples, positions, key}});
  return list;
}

}  // namespace quintet::tests
