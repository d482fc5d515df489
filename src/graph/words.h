// Options of ops that attributes hold as a word, as types: written with word(), read with choice(). Nothing
// else compares the words.
#pragma once

#include <optional>

#include "base/error.h"
#include "graph/builder.h"
#include "graph/op.h"

namespace quintet::graph {

enum class ChoiceOrder : uint8_t { ScoreFirst, TopKFirst };  // select: what is chosen by
enum class KeepPolicy : uint8_t { Probability, Position };   // limit: which rows an expert keeps

template <class E>
struct Words;  // kAttr: the attribute; kList: its words, in the order of E
template <>
struct Words<Score> {
  static constexpr std::string_view kAttr = "score", kList[] = {"softmax", "sigmoid", "sqrt_softplus"};
};
template <>
struct Words<ChoiceOrder> {
  static constexpr std::string_view kAttr = "order", kList[] = {"score_first", "top_k_first"};
};
template <>
struct Words<KeepPolicy> {
  static constexpr std::string_view kAttr = "policy", kList[] = {"probability", "position"};
};
template <>
struct Words<Scope> {
  static constexpr std::string_view kAttr = "scope", kList[] = {"micro", "sequence", "global"};
};
template <>
struct Words<Reduction> {
  static constexpr std::string_view kAttr = "reduce", kList[] = {"sum", "max"};
};

// An attribute with its value.
template <class E>
std::pair<std::string, AttrValue> word(E value) {
  return {std::string(Words<E>::kAttr), std::string(Words<E>::kList[static_cast<size_t>(value)])};
}
// Empty for any other word.
template <class E>
std::optional<E> find_choice(const Attrs& attrs) {
  const std::string& text = attrs.text(Words<E>::kAttr);
  for (size_t i = 0; i < std::size(Words<E>::kList); ++i)
    if (Words<E>::kList[i] == text) return static_cast<E>(i);
  return std::nullopt;
}
// Of an op that has been inferred, and so has a legal one.
template <class E>
E choice(const Attrs& attrs) {
  const std::optional<E> found = find_choice<E>(attrs);
  QUINTET_CHECK(found, "\"{}\" is not a value of attribute {}", attrs.text(Words<E>::kAttr), Words<E>::kAttr);
  return *found;
}

}  // namespace quintet::graph
