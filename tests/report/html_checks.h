// Checks that hold for every HTML page.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

namespace quintet::test {

// Text between the end of `open` and `close`, wherever `open` occurs, is left out: scripts and styles.
inline std::string without(std::string html, const std::string& open, const std::string& close) {
  for (size_t at = html.find(open); at != std::string::npos; at = html.find(open, at + 1)) {
    const size_t begin = html.find('>', at) + 1, end = html.find(close, begin);
    html.erase(begin, end - begin);
  }
  return html;
}

// Every opened tag is closed, in order.
inline void expect_balanced(const std::string& page) {
  const std::string html = without(without(page, "<script", "</script>"), "<style", "</style>");
  static const std::regex tag("<(/?)([a-z0-9]+)((?:[^<>\"]|\"[^\"]*\")*?)(/?)>");
  std::vector<std::string> open;
  for (std::sregex_iterator it(html.begin(), html.end(), tag), end; it != end; ++it) {
    const std::string name = (*it)[2];
    if ((*it)[4] == "/" || name == "meta") continue;
    if ((*it)[1] != "/") {
      open.push_back(name);
      continue;
    }
    ASSERT_FALSE(open.empty()) << name;
    ASSERT_EQ(open.back(), name);
    open.pop_back();
  }
  EXPECT_TRUE(open.empty());
}

inline size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

// Nothing that a browser would fetch.
inline void expect_self_contained(const std::string& html) {
  for (const char* link :
       {"http:", "https:", " src=", " href=", "url(", "@import", "<link", "<iframe", "<img"})
    EXPECT_EQ(count(html, link), 0u) << link;
  EXPECT_EQ(count(html, "name=\"viewport\""), 1u);
  EXPECT_EQ(count(html, "default-src 'none'"), 1u);
}

}  // namespace quintet::test
