#include "tokenizer/oniguruma.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/temp_folder.h"
#include "support/folders.h"
#include "tokenizer/regex.h"
#include "tokenizer/unicode.h"

namespace quintet::tokenizer {
namespace {

using test::user_error;

std::vector<std::string> pieces(std::string_view expression, std::string_view text) {
  const Regex regex(expression);
  std::vector<std::string> out;
  for (size_t from = 0; from <= text.size();) {
    const auto match = regex.find(text, from);
    if (!match) break;
    out.emplace_back(text.substr(match.begin, match.end - match.begin));
    from = match.end == match.begin ? match.end + 1 : match.end;
  }
  return out;
}

using Pieces = std::vector<std::string>;

// The code points that a class of one character matches.
CodeSet matched_by(std::string_view one) {
  static const std::string text = [] {
    std::string all;
    for (char32_t c = 0; c <= 0x10FFFF; ++c)
      if (c < 0xD800 || c > 0xDFFF) append_utf8(c, all);
    return all;
  }();
  const Regex regex(fmt::format("(?:{})+", one));
  std::vector<CodeRun> runs;
  for (size_t from = 0; from < text.size();) {
    const auto match = regex.find(text, from);
    if (!match) break;
    const char *first = text.data() + match.begin, *last = text.data() + last_char({text.data(), match.end});
    runs.push_back({next_code(first), next_code(last)});
    from = match.end;
  }
  return CodeSet::of(std::move(runs));
}

TEST(Oniguruma, TheCategoryOfEveryCodePointIsThatOfUnicode16) {
  constexpr std::pair<const char*, Category> kAll[] = {
      {"Lu", Category::Lu}, {"Ll", Category::Ll}, {"Lt", Category::Lt}, {"Lm", Category::Lm},
      {"Lo", Category::Lo}, {"Mn", Category::Mn}, {"Mc", Category::Mc}, {"Me", Category::Me},
      {"Nd", Category::Nd}, {"Nl", Category::Nl}, {"No", Category::No}, {"Pc", Category::Pc},
      {"Pd", Category::Pd}, {"Ps", Category::Ps}, {"Pe", Category::Pe}, {"Pi", Category::Pi},
      {"Pf", Category::Pf}, {"Po", Category::Po}, {"Sm", Category::Sm}, {"Sc", Category::Sc},
      {"Sk", Category::Sk}, {"So", Category::So}, {"Zs", Category::Zs}, {"Zl", Category::Zl},
      {"Zp", Category::Zp}, {"Cc", Category::Cc}, {"Cf", Category::Cf}, {"Co", Category::Co},
      {"Cn", Category::Cn}};
  std::vector<std::string> of_code(0x110000);
  for (const auto& [name, kind] : kAll) {
    const CodeSet found = matched_by(fmt::format("\\p{{{}}}", name));
    for (const CodeRun& run : found.runs())
      for (char32_t code = run.first; code <= run.last; ++code) {
        ASSERT_EQ(category(code), kind) << name << " " << static_cast<uint32_t>(code);
        ASSERT_EQ(of_code[code], "") << "two categories";
        of_code[code] = name;
      }
  }
  for (char32_t code = 0; code <= 0x10FFFF; ++code) {
    if (code < 0xD800 || code > 0xDFFF) {
      ASSERT_NE(of_code[code], "") << static_cast<uint32_t>(code);
    }
  }
  for (const char* group : {"L", "M", "N", "P", "S", "Z", "C"}) {
    const CodeSet found = matched_by(fmt::format("\\p{{{}}}", group));
    for (char32_t code = 0; code <= 0x10FFFF; ++code)
      ASSERT_EQ(found.contains(code), of_code[code].starts_with(group)) << static_cast<uint32_t>(code);
  }
}

// What the package matches of all code points: tests/hf/tokenizers_test.py compares every property.
TEST(Oniguruma, ClassesHaveTheSizesOfThePackage) {
  const auto size = [](std::string_view one) {
    int64_t n = 0;
    const CodeSet found = matched_by(one);
    for (const CodeRun& run : found.runs()) n += run.last - run.first + 1;
    return n;
  };
  EXPECT_EQ(size("\\w"), 144671);
  EXPECT_EQ(size("[\\w]"), 144665);
  EXPECT_EQ(size("\\W"), 1112064 - 144671);
  EXPECT_EQ(size("\\s"), 25);
  EXPECT_EQ(size("\\d"), 760);
  EXPECT_EQ(size("\\h"), 22);
  EXPECT_EQ(size("\\p{Han}"), 99030);
  EXPECT_EQ(size("\\p{^Han}"), 1013034);
  EXPECT_EQ(size("\\p{Punct}"), 855);
  EXPECT_EQ(size("[[:punct:]]"), 9369);
  EXPECT_EQ(size("[[:alpha:]]"), 142759);
  EXPECT_EQ(size("\\p{Emoji}"), 1431);
  EXPECT_EQ(size("(?i:[a-z])"), 54);
  EXPECT_EQ(size("(?i:k)"), 3);
  EXPECT_EQ(size("\\N"), 1112063);
  EXPECT_EQ(size("(?m:.)"), 1112064);
  EXPECT_EQ(size("\\p{Cased_Letter}"), 4147);
}

TEST(Oniguruma, MeansWhatThePackageMeans) {
  EXPECT_EQ(pieces("[a-z&&[^b]]+", "cba"), (Pieces{"c", "a"}));
  EXPECT_EQ(pieces("[\\p{L}&&[^\\p{Han}]]+|\\p{Han}+", "ab\u6f22\u5b57c"),
            (Pieces{"ab", "\u6f22\u5b57", "c"}));
  EXPECT_EQ(pieces("\\h+", "xdeadg"), (Pieces{"dead"}));
  EXPECT_EQ(pieces("(?m:.+)", "a\nb"), (Pieces{"a\nb"})) << "(?m): a dot is any character";
  EXPECT_EQ(pieces(".+", "a\rb\nc"), (Pieces{"a\rb", "c"}));
  EXPECT_EQ(pieces("^.|.$", "ab\ncd"), (Pieces{"a", "b", "c", "d"})) << "lines always";
  EXPECT_EQ(pieces("(?:ab){1,2}+", "ababab"), (Pieces{"ababab"})) << "repeats the repetition";
  EXPECT_EQ(pieces("a{2}?", "aaa"), (Pieces{"aa", "", ""})) << "perhaps twice, not lazily";
  EXPECT_EQ(pieces("a{,2}b", "aaab"), (Pieces{"aab"}));
  EXPECT_EQ(pieces("a++b|a{x}", "aab a{x}"), (Pieces{"aab", "a{x}"}));
  EXPECT_EQ(pieces("a(?i)b|c", "aBCc"), (Pieces{"aB"})) << "the option holds to the end, around the bar";
  EXPECT_EQ(pieces("\\v|\\t", "\v\n\t"), (Pieces{"\v", "\t"})) << "one character, not a class";
  EXPECT_EQ(pieces("\\bx", "x ax x\u00b2"), (Pieces{"x", "x"}));
  EXPECT_EQ(pieces("(?>a+|a){2}", "aaa"), Pieces()) << "an atomic group gives nothing back";
  EXPECT_EQ(pieces("\\Ra|.", "\r\na\nb"), (Pieces{"\r\na", "b"}));
  EXPECT_EQ(pieces("(?:a|b)+", std::string(1 << 20, 'a')).size(), 1u) << "a long match";
  EXPECT_EQ(pieces("\\R", "\r\n\n"), (Pieces{"\r\n", "\n"}));
  EXPECT_EQ(pieces("[[:^space:]a\\]]+", "x] y"), (Pieces{"x]", "y"}));
  EXPECT_EQ(pieces("(?x) a b # c\n | \\ ", "ab "), (Pieces{"ab", " "}));
  EXPECT_EQ(pieces("(?i:'s|'ll)", "'S'\u017f'LL"), (Pieces{"'S", "'\u017f", "'LL"}));
  EXPECT_EQ(pieces("x(?#note)y|(?<=a)b(?!c)", "xy abc ab"), (Pieces{"xy", "b"}));
  EXPECT_EQ(pieces("[\\x{4e00}-\\x{9fff}]+|\\u0041", "\u6f22A"), (Pieces{"\u6f22", "A"}));
  EXPECT_EQ(pieces("[^\\s\\S]|b", "ab"), (Pieces{"b"})) << "an empty class";
}

TEST(Oniguruma, WhatIsNotTranslatedIsRefusedByName) {
  for (const auto& [expression, what] : std::vector<std::pair<std::string, std::string>>{
           {"(a)\\1", "a back-reference"},
           {"(?<n>a)", "'(?<'"},
           {"(?~ab)", "'(?~'"},
           {"(?s:.)", "'(?s'"},
           {"a\\X", "\\X at byte 3"},
           {"a\\K", "\\K"},
           {"\\k<n>", "\\k"},
           {"(?i)stra\u00dfe", "'st' under (?i)"},
           {"(?i)\u00e9", "a letter beyond ASCII under (?i)"},
           {"(?i)[\\p{L}]", "a class under (?i) with letters beyond ASCII"},
           {"(?i:ss)", "'ss' under (?i)"},
           {"\\p{Klingon}", "the property 'Klingon'"},
           {"\\pL", "no { after \\p"},
           {"[]a]", "a class that begins with ']'"},
           {"[a-c-e]", "a range with two hyphens"},
           {"[z-a]", "a range that ends before it begins"},
           {"[a", "it ends in the middle"},
           {"(a", "no ')' for a '('"},
           {"a)", "an unmatched ')'"},
           {"*a", "nothing to repeat at byte 0"},
           {"a|{2}", "nothing to repeat"},
           {"\\b+", "a repetition of an anchor"},
           {"a{3,1}", "wrong order"},
           {"(*FAIL)", "'(*'"},
           {"\\xff", "\\x of a byte"}})
    EXPECT_CONTAINS(user_error([&] { Regex regex(expression); }), what) << expression;
  EXPECT_CONTAINS(user_error([&] { Regex regex("(?<=a+)b"); }), "is not supported: ");
  // Reading nested groups and classes recurses: hostile files must not exhaust the stack.
  for (const char* open : {"(", "[", "(?i)", "(?:(?i)"}) {
    std::string expression;
    for (int i = 0; i < 100'000; ++i) expression += open;
    EXPECT_CONTAINS(user_error([&] { Regex regex(expression); }), "more than 250 nested") << open;
  }
}

// Found by asking the package: tests/golden/make_expressions.py.
TEST(Oniguruma, CutsTextAsThePackageDoes) {
  const auto golden = nlohmann::json::parse(
      base::read_file(base::Path(test::source_dir()) / "tests/golden/tokenizers/expressions.json"));
  const auto text = golden.at("text").get<std::string>();
  ASSERT_GT(golden.at("expressions").size(), 200u);
  for (const auto& each : golden.at("expressions")) {
    const auto expression = each.at("expression").get<std::string>();
    std::vector<int64_t> ends;  // of all matches
    const Regex regex(expression);
    for (size_t from = 0; from <= text.size();) {
      const auto match = regex.find(text, from);
      if (!match) break;
      if (match.end > match.begin)
        ends.insert(ends.end(), {static_cast<int64_t>(match.begin), static_cast<int64_t>(match.end)});
      from = match.end;
      if (match.end == match.begin)
        from += match.end < text.size() ? static_cast<size_t>(utf8_length(text[match.end])) : 1;
    }
    EXPECT_EQ(ends, each.at("matches").get<std::vector<int64_t>>()) << expression;
  }
}

}  // namespace
}  // namespace quintet::tokenizer
