// Renderings against those of transformers and Jinja (tests/golden/make_chat.py).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "chat/jinja/builtins.h"
#include "chat/jinja/template.h"
#include "chat/template.h"
#include "support/folders.h"

namespace quintet::chat {
namespace {

using Json = nlohmann::ordered_json;

const std::string kFolder = test::source_dir() + "/tests/golden/chat/";

Json read(const std::string& name) { return Json::parse(base::read_file(kFolder + name)); }

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

// Jinja accepts these; Quintet refuses them by name.
const char* const kRefused[] = {
    "'autoescape' is supported", "is not supported",  "names in templates have ASCII",
    "does not fit 64 bits",      "gives random text", "too large or too small"};

TEST(JinjaExpressions, GiveWhatJinjaGives) {
  const auto sources = lines_of(base::read_file(kFolder + "expressions.txt"));
  const Json expected = read("expected.json")["expressions"];
  ASSERT_EQ(sources.size(), expected.size());
  const std::vector<std::pair<std::string, jinja::Value>> variables = {
      {"x", jinja::Value::integer(3)},
      {"s", jinja::Value::string("Hello World")},
      {"l", jinja::Value::from_json(Json::parse("[3, 1, 2]"))},
      {"d", jinja::Value::from_json(
                Json::parse(R"({"a": 1, "b": {"c": [1, 2]}, "items": "an item", "e": null})"))},
      {"f", jinja::Value::number(2.5)}};
  int refusals = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    std::string text, error;
    try {
      text = jinja::Template(sources[i]).render(variables, 0).text;
    } catch (const base::UserError& problem) {
      error = problem.what();
    }
    const bool refused = std::any_of(std::begin(kRefused), std::end(kRefused),
                                     [&](const char* part) { return error.find(part) != std::string::npos; });
    refusals += refused && !expected[i].contains("error");
    if (refused) continue;
    if (expected[i].contains("error")) {
      EXPECT_FALSE(error.empty()) << "line " << i + 1 << ": " << sources[i]
                                  << "\n  Jinja: " << expected[i]["error"] << "\n  Quintet renders: " << text;
      EXPECT_NE(error.find("line 1, column "), std::string::npos) << error;
    } else {
      EXPECT_EQ(error, "") << "line " << i + 1 << ": " << sources[i];
      EXPECT_EQ(text, expected[i]["text"].get<std::string>()) << "line " << i + 1 << ": " << sources[i];
    }
  }
  EXPECT_EQ(refusals, 5) << "lines that Jinja renders and Quintet refuses by name";
}

// What no golden text uses is compared with nothing.
TEST(JinjaExpressions, UseEveryFilterTestAndGlobal) {
  std::string all = base::read_file(kFolder + "expressions.txt");
  for (const base::Path& file : base::list_files(kFolder + "templates")) all += base::read_file(file);
  const auto uses = [&](const std::string& before, std::string_view name) {
    const std::string word = before + std::string(name);
    for (size_t at = all.find(word); at != std::string::npos; at = all.find(word, at + 1))
      if (at + word.size() == all.size() || !std::isalnum(static_cast<unsigned char>(all[at + word.size()])))
        return true;
    return false;
  };
  size_t names = 0;
  for (const auto table : {jinja::text_filters(), jinja::list_filters(), jinja::layout_filters()})
    for (const jinja::Builtin& filter : table) {
      EXPECT_TRUE(uses("| ", filter.name) || uses("|", filter.name)) << filter.name;
      ++names;
    }
  for (const jinja::Builtin& test : jinja::all_tests()) {
    EXPECT_TRUE(uses("is ", test.name) || uses("is not ", test.name) || uses("'", test.name)) << test.name;
    ++names;
  }
  EXPECT_GT(names, 80U);
  for (const char* word : {"{% for",        "{% if",
                           "{% elif",       "{% else",
                           "{% set",        "{% macro",
                           "{% call",       "{% filter",
                           "{% with",       "{% block",
                           "{% raw",        "{% break",
                           "{% continue",   "{% do",
                           "{% generation", "{% autoescape",
                           "recursive",     "loop.index",
                           "loop.index0",   "loop.first",
                           "loop.last",     "loop.length",
                           "loop.revindex", "loop.revindex0",
                           "loop.depth",    "loop.depth0",
                           "loop.previtem", "loop.nextitem",
                           "loop.cycle",    "loop.changed",
                           "cycler(",       "joiner(",
                           "namespace(",    "raise_exception(",
                           "range(",        "dict(",
                           "self.",         "varargs",
                           "kwargs",        "caller"})
    EXPECT_TRUE(all.find(word) != std::string::npos ||
                all.find("{%-" + std::string(word).substr(2)) != std::string::npos)
        << word;
}

class ChatTemplates : public testing::TestWithParam<std::string> {};

std::vector<std::string> template_names() {
  std::vector<std::string> names;
  for (const base::Path& path : base::list_files(kFolder + "templates"))
    names.push_back(path.stem().string());
  return names;
}

TEST_P(ChatTemplates, RenderAsTransformersDoes) {
  const Json cases = read("cases.json"), expected = read("expected.json")["templates"][GetParam()];
  const std::string source = base::read_file(kFolder + "templates/" + GetParam() + ".jinja");
  const ChatTemplate chat_template(source, {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  ASSERT_EQ(expected.size(), cases.size());
  for (const auto& [name, conversation] : cases.items()) {
    const Json& theirs = expected[name];
    RenderOptions options;
    options.add_generation_prompt = conversation.value("add_generation_prompt", false);
    options.variables = conversation.value("kwargs", Json::object());
    if (conversation.contains("documents")) options.variables["documents"] = conversation["documents"];
    Rendering ours;
    std::string error;
    try {
      ours = chat_template.render(conversation["messages"], conversation.value("tools", Json()), options);
    } catch (const base::UserError& problem) {
      error = problem.what();
    }
    if (theirs.contains("error")) {
      EXPECT_FALSE(error.empty()) << name << ": transformers refuses: " << theirs["error"];
      continue;
    }
    EXPECT_EQ(error, "") << name;
    EXPECT_EQ(ours.text, theirs["text"].get<std::string>()) << name;
    std::vector<std::array<size_t, 2>> spans;
    for (const Span& span : ours.generations) spans.push_back({span.begin, span.end});
    EXPECT_EQ(Json(spans), theirs["generations"]) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Templates, ChatTemplates, testing::ValuesIn(template_names()),
                         [](const auto& info) { return info.param; });

TEST(ChatTemplatesGolden, AreAtLeast25) { EXPECT_GE(template_names().size(), 25u); }

}  // namespace
}  // namespace quintet::chat
