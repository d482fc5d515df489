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

}  // namespace
}  // namespace quintet::base
