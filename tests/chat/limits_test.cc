// Templates come from outside: none may take the process down or run forever.
#include <gtest/gtest.h>
#include <malloc.h>

#include "base/error.h"
#include "chat/jinja/template.h"

namespace quintet::chat::jinja {
namespace {

std::string repeat(const std::string& text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

TEST(TemplateLimits, EndWithAMessage) {
  const std::pair<std::string, const char*> cases[] = {
      {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "nested more than"},
      {"{% for i in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}", "nested more than"},
      {"{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "steps"},
      {"{{ 'a' * 999999999999 }}", "a string of"},
      {"{{ [0] * 999999999 }}", "a list of"},
      {"{{ 'a'.ljust(999999999999) }}", "a string of"},
      {"{{ '%999999999999d' % 1 }}", "a string of"},
      {"{{ '{:999999999999}'.format(1) }}", "a string of"},
      {"{{ ('a' * 9999999).replace('a', 'b' * 9999999) }}", "at most"},
      {"{{ 2 ** 9999 }}", "64 bits"},
      {"{{ 9223372036854775807 + 1 }}", "64 bits"},
      {"{{ -9223372036854775807 - 9 }}", "64 bits"},
      {repeat("{{ (", 1) + repeat("(", 9999) + repeat(")", 9999) + ") }}", "levels deep"},
      {"{{ " + repeat("1 + ", 9999) + "1 }}", "levels"},
      {"{{ x" + repeat("[0]", 9999) + " }}", "levels"},
      {"{{ x" + repeat("|list", 9999) + " }}", "levels"},
      {"{{ " + repeat("not ", 9999) + "1 }}", "levels deep"},
      {"{{ " + repeat("- ", 9999) + "1 }}", "levels deep"},
      {repeat("{% if 1 %}", 9999), "levels deep"},
      {"{% set ns = namespace(x=0) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}",
       "nested more than"},
      {"{% set ns = namespace(x=0) %}{% for i in range(9999) %}{% set ns.x = {'a': ns.x}.items() %}{% endfor "
       "%}",
       "nested more than"},
      {"{% set ns = namespace(x='a') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
       "at most"},
      {"{{ range(99999) | list | join('x' * 99999) }}", "at most"},
  };
  for (const auto& [source, message] : cases) {
    try {
      Template(source).render({}, 0);
      ADD_FAILURE() << source.substr(0, 100);
    } catch (const base::UserError& error) {
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << source.substr(0, 100) << "\n"
                                                                            << error.what();
      EXPECT_NE(std::string(error.what()).find("line 1, column "), std::string::npos) << error.what();
    }
  }
}

TEST(TemplateLimits, ObjectsThatHoldEachOtherAreFreed) {
  const Template made(
      "{% set a = namespace() %}{% set a.self = a %}{% macro m() %}{{ m }}{% endmacro %}{% set a.m = m %}{% "
      "for i in range(2000) %}{% set p = a.p %}{% macro q() %}{{ p }}{% endmacro %}{% set a.p = q %}{% "
      "endfor %}{% set b = namespace(a=a) %}{% set a.b = b %}");
  made.render({}, 0);  // what the allocator keeps from now on
  // Sanitizers have allocators of their own, which report nothing here, and a leak checker.
  constexpr int kTimes = 50;
  const size_t before = mallinfo2().uordblks;
  for (int i = 0; i < kTimes; ++i) made.render({}, 0);
  EXPECT_LT(mallinfo2().uordblks, before + kTimes * 100) << "a namespace with its attributes is larger";
}

TEST(TemplateErrors, NameTheConstructTheLineAndTheColumn) {
  const std::pair<const char*, const char*> cases[] = {
      {"a\n  {% include 'x' %}", "chat template, line 2, column 6: 'include' needs other templates"},
      {"{{ x | urlize }}", "line 1, column 8: Jinja's filter 'urlize' is not supported"},
      {"{{ x | uper }}", "there is no filter named 'uper'; did you mean 'upper'?"},
      {"{{ x is definde }}", "there is no test named 'definde'; did you mean 'defined'?"},
      {"{% if x %}\nfoo", "expected '{% endif %}'"},
      {"é{{ x.y.z }}", "line 1, column 7: 'x' is undefined"},
      {"{{ lipsum() }}", "'lipsum' gives random text"},
      {"{{ [1] | random }}", "Jinja's filter 'random' is not supported"},
      {"{{ {}.items }}", "printing an object of type 'builtin_function_or_method' is not supported"},
      {"{% endfor %}", "unknown statement 'endfor'"},
      {"{{ raise_exception('no ' ~ 'way') }}", "the template refuses the conversation: no way"},
      {"{% for i in [1] %}{{ i.append(2) }}{% endfor %}", "'int object' has no attribute 'append'"},
  };
  for (const auto& [source, message] : cases) {
    try {
      Template(source).render({}, 0);
      ADD_FAILURE() << source;
    } catch (const base::UserError& error) {
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << source << "\n" << error.what();
    }
  }
}

TEST(TemplateTime, ComesFromOutside) {
  EXPECT_EQ(Template("{{ strftime_now('%Y') }}").render({}, 86400 * 200).text, "1970");
}

}  // namespace
}  // namespace quintet::chat::jinja
