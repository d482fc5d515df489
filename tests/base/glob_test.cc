#include "base/glob.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace quintet::base {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

TEST(Glob, DescribesTheWholeText) {
  for (const auto& [pattern, text] : Pairs{{"", ""},
                                           {"*", ""},
                                           {"*", "abc"},
                                           {"a*c", "abbc"},
                                           {"a*c", "ac"},
                                           {"?b*", "abx"},
                                           {"*b*b", "abab"},
                                           {"**", "x"}})
    EXPECT_TRUE(glob_match(pattern, text)) << pattern << " " << text;
  for (const auto& [pattern, text] : Pairs{{"", "a"},
                                           {"?", ""},
                                           {"a*c", "abcd"},
                                           {"a*c", "a"},
                                           {"abc", "ab"},
                                           {"*b*b", "abac"},
                                           {"**x", "y"}})
    EXPECT_FALSE(glob_match(pattern, text)) << pattern << " " << text;
}

TEST(Glob, ManyStarsTakeNoExponentialTime) {
  EXPECT_FALSE(glob_match("*a*a*a*a*a*a*a*a*a*a*a*a*b", std::string(200, 'a')));
}

}  // namespace
}  // namespace quintet::base
