#include "base/json.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace quintet::base {
namespace {

using Json = nlohmann::ordered_json;

TEST(Json, OneLineKeepsTheOrderOfKeys) {
  const Json value = {{"b", 1}, {"a", {1, 2.0, -0.0}}, {"none", Json::array()}, {"text", "x \"y\"\n"}};
  EXPECT_EQ(json_text(value), R"({"b": 1, "a": [1, 2.0, -0.0], "none": [], "text": "x \"y\"\n"})");
}

TEST(Json, OuterLevelsAreSpreadOverLines) {
  const Json value = {{"list", {{{"x", 1}, {"y", 2}}, {{"x", 3}}}}, {"empty", Json::object()}};
  EXPECT_EQ(json_text(value, 1), "{\n  \"list\": [{\"x\": 1, \"y\": 2}, {\"x\": 3}],\n  \"empty\": {}\n}");
  EXPECT_EQ(json_text(value, 2),
            "{\n  \"list\": [\n    {\"x\": 1, \"y\": 2},\n    {\"x\": 3}\n  ],\n  \"empty\": {}\n}");
}

TEST(Json, WritesWhatJsonCannotExpress) {
  EXPECT_EQ(json_text(std::numeric_limits<double>::infinity()), "null");
  EXPECT_EQ(json_text("a\xff z"), "\"a\xEF\xBF\xBD z\"");
}

// Brackets in texts do not nest, escaped quotes do not end texts, and neighbours are not in one another.
TEST(Json, WhatNestsTooDeepIsDiscarded) {
  const auto nested = [](int levels, const std::string& inside) {
    return std::string(static_cast<size_t>(levels), '[') + inside +
           std::string(static_cast<size_t>(levels), ']');
  };
  const std::string quoted = R"("\\\"[[[{{{)" + std::string(1000, '[') + R"(\\")";
  EXPECT_EQ(parse_json(nested(kJsonDepth, "1")).is_discarded(), false);
  EXPECT_EQ(parse_json(nested(kJsonDepth, quoted)).is_discarded(), false);
  EXPECT_TRUE(parse_json(nested(kJsonDepth + 1, "1")).is_discarded());
  EXPECT_TRUE(parse_ordered_json(nested(1000000, "")).is_discarded());
  EXPECT_TRUE(nests_too_deep("[" + quoted + "," + nested(kJsonDepth, "") + "]"));
  std::string flat = "[";
  for (int i = 0; i < 1000; ++i) flat += "[{}],";
  EXPECT_FALSE(parse_ordered_json(flat + "0]").is_discarded());
  EXPECT_EQ(json_fault(nested(kJsonDepth + 1, "")), "JSON that nests deeper than 256 levels");
  EXPECT_EQ(json_fault("{"), "not valid JSON (byte 2: unexpected end of input; expected string literal)");
  EXPECT_EQ(json_fault(R"({"text": x})"), "not valid JSON (byte 10: invalid literal)");
  EXPECT_NE(json_fault(R"({"text": "\ud800 lone"})").find("surrogate"), std::string::npos);
  EXPECT_LT(json_fault("[\"" + std::string(100'000, 'a') + "\x01\"]").size(), 200U);
}

}  // namespace
}  // namespace quintet::base
