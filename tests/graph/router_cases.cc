#include "graph/support.h"

namespace quintet::graph::testing {

// 8 tokens in sequences of 4, embed 16, 6 experts of which 2 are chosen.
std::vector<OpCase> router_cases() {
  const DimSize tokens{Dim::Tokens, 8}, embed{Dim::Embed, 16}, routes{Dim::Routes, 6},
      choices{Dim::Choices, 2}, sequences{Dim::Tokens, 2}, sums_dim{Dim::Flat, 12};
  const auto f = [](std::vector<DimSize> dims) { return Type{DType::F32, std::move(dims)}; };
  const Type x = f({tokens, embed}), w = f({routes, embed}), logits = f({tokens, routes}), bias = f({routes}),
             chosen{DType::I32, {tokens, choices}}, weights = f({tokens, choices}), row = i32({Dim::Tokens}),
             sums = f({sums_dim}), by_sequence = f({sequences, sums_dim}), running{DType::F64, {sums_dim}};
  const auto select = [](int64_t biased, int64_t forced) {
    return Attrs{{"k", int64_t{2}},
                 {"score", std::string("softmax")},
                 {"order", std::string("score_first")},
                 {"normalise", int64_t{1}},
                 {"scale", 1.0},
                 {"groups", int64_t{3}},
                 {"groups_kept", int64_t{2}},
                 {"biased", biased},
                 {"force_balance", forced}};
  };
  const Type given{DType::I32, {tokens, {Dim::Choices, 6}}};
  Attrs replayed = select(1, 0);
  replayed.set("column", int64_t{2});
  const auto select_dx = [](int64_t weights, int64_t scores) {
    return Attrs{{"score", std::string("softmax")}, {"order", std::string("score_first")},
                 {"normalise", int64_t{1}},         {"scale", 1.0},
                 {"has_dweights", weights},         {"has_dscores", scores}};
  };
  const auto scope = [](const char* name) {
    return Attrs{{"scope", std::string(name)}, {"seq_len", int64_t{4}}, {"cp", int64_t{1}}};
  };
  const auto loss = [](const char* scope, int64_t tokens, int64_t groups) {
    return Attrs{{"coefficient", 0.01}, {"k", int64_t{2}},       {"tokens", tokens},
                 {"groups", groups},    {"experts", int64_t{6}}, {"scope", std::string(scope)}};
  };
  const auto dsums = [](const char* scope) { return Attrs{{"scope", std::string(scope)}}; };
  const Attrs limit = {{"seq_len", int64_t{4}},
                       {"capacity", int64_t{3}},
                       {"group", int64_t{1}},
                       {"policy", std::string("probability")},
                       {"cp", int64_t{1}}};
  const Attrs coefficient = {{"coefficient", 0.001}};
  return {{&kRouter, {x, w}, {}},
          {&kRouterDx, {logits, w}, {}},
          {&kRouterDw, {logits, x}, {{"out", std::string("f32")}}},
          {&kSelect, {logits, bias}, select(1, 0)},
          {&kSelect, {logits}, select(0, 0)},
          {&kSelect, {logits, bias, row}, select(1, 1)},
          {&kSelect, {logits, bias, given}, replayed},
          {&kJoinChoices, {chosen, given}, {}},
          {&kSelectDx, {logits, chosen, weights, logits}, select_dx(1, 1)},
          {&kSelectDx, {logits, chosen, weights}, select_dx(1, 0)},
          {&kSelectDx, {logits, chosen, logits}, select_dx(0, 1)},
          {&kLimit, {chosen, weights}, limit},
          {&kRandomWeights, {chosen, row, row, i64_scalar()}, {{"salt", int64_t{0}}}},
          {&kExpertLoad, {chosen, chosen, logits}, {}},
          {&kBalanceSums, {logits, chosen}, scope("micro")},
          {&kBalanceSums, {logits, chosen}, scope("sequence")},
          {&kBalanceDx, {sums, chosen}, scope("micro")},
          {&kBalanceDx, {by_sequence, chosen}, scope("sequence")},
          {&kRunningSum, {sums}, {}},
          {&kBalanceLoss, {by_sequence}, loss("sequence", 4, 2)},
          {&kBalanceLoss, {sums}, loss("micro", 8, 1)},
          {&kBalanceLoss, {sums, running}, loss("global", 8, 1)},
          {&kBalanceDsums, {by_sequence, f64_scalar()}, dsums("sequence")},
          {&kBalanceDsums, {sums, f64_scalar()}, dsums("global")},
          {&kZLoss, {logits}, coefficient},
          {&kZLossDx, {logits, f64_scalar()}, coefficient}};
}

}  // namespace quintet::graph::testing
