#include "tokenizer/code_set.h"

#include <algorithm>
#include <string>

#include "tokenizer/unicode.h"

namespace quintet::tokenizer {
namespace {

constexpr char32_t kLastCode = 0x10FFFF;

struct Property {
  std::string_view name;
  int first, count;
};
#include "tokenizer/unicode_properties.inc"

struct CategoryName {
  std::string_view name, long_name;  // without capitals and underscores
  std::string_view spelled;
  Category first, last;  // the categories it joins, in the order of Category
};
using enum Category;
constexpr CategoryName kCategoryNames[] = {
    {"lu", "uppercaseletter", "Lu", Lu, Lu},
    {"ll", "lowercaseletter", "Ll", Ll, Ll},
    {"lt", "titlecaseletter", "Lt", Lt, Lt},
    {"lc", "casedletter", "LC", Lu, Lt},
    {"lm", "modifierletter", "Lm", Lm, Lm},
    {"lo", "otherletter", "Lo", Lo, Lo},
    {"l", "letter", "L", Lu, Lo},
    {"mn", "nonspacingmark", "Mn", Mn, Mn},
    {"mc", "spacingmark", "Mc", Mc, Mc},
    {"me", "enclosingmark", "Me", Me, Me},
    {"m", "mark", "M", Mn, Me},
    {"nd", "decimalnumber", "Nd", Nd, Nd},
    {"nl", "letternumber", "Nl", Nl, Nl},
    {"no", "othernumber", "No", No, No},
    {"n", "number", "N", Nd, No},
    {"pc", "connectorpunctuation", "Pc", Pc, Pc},
    {"pd", "dashpunctuation", "Pd", Pd, Pd},
    {"ps", "openpunctuation", "Ps", Ps, Ps},
    {"pe", "closepunctuation", "Pe", Pe, Pe},
    {"pi", "initialpunctuation", "Pi", Pi, Pi},
    {"pf", "finalpunctuation", "Pf", Pf, Pf},
    {"po", "otherpunctuation", "Po", Po, Po},
    {"p", "punctuation", "P", Pc, Po},
    {"sm", "mathsymbol", "Sm", Sm, Sm},
    {"sc", "currencysymbol", "Sc", Sc, Sc},
    {"sk", "modifiersymbol", "Sk", Sk, Sk},
    {"so", "othersymbol", "So", So, So},
    {"s", "symbol", "S", Sm, So},
    {"zs", "spaceseparator", "Zs", Zs, Zs},
    {"zl", "lineseparator", "Zl", Zl, Zl},
    {"zp", "paragraphseparator", "Zp", Zp, Zp},
    {"z", "separator", "Z", Zs, Zp},
    {"cc", "control", "Cc", Cc, Cc},
    {"cf", "format", "Cf", Cf, Cf},
    {"co", "privateuse", "Co", Co, Co},
    {"cn", "unassigned", "Cn", Cn, Cn},
    {"c", "other", "C", Cc, Cn},
};

const CategoryName* find_category(std::string_view plain) {
  for (const CategoryName& each : kCategoryNames)
    if (plain == each.name || plain == each.long_name) return &each;
  return nullptr;
}

CodeSet set_of(const CategoryName& name) {
  std::vector<CodeRun> runs;
  const auto all = category_runs();
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i].category >= name.first && all[i].category <= name.last)
      runs.push_back({all[i].begin, i + 1 < all.size() ? all[i + 1].begin - 1 : kLastCode});
  return CodeSet::of(std::move(runs));
}

CodeSet named(std::string_view plain) { return *property_set(plain); }

CodeSet white_space() {
  return CodeSet::of({{0x9, 0xD},
                      {0x20, 0x20},
                      {0x85, 0x85},
                      {0xA0, 0xA0},
                      {0x1680, 0x1680},
                      {0x2000, 0x200A},
                      {0x2028, 0x2029},
                      {0x202F, 0x202F},
                      {0x205F, 0x205F},
                      {0x3000, 0x3000}});
}

std::string plain_name(std::string_view name) {
  std::string plain;
  for (const char c : name)
    if (c != ' ' && c != '-' && c != '_')
      plain.push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c);
  return plain;
}

}  // namespace

CodeSet CodeSet::of(char32_t first, char32_t last) { return of({{first, last}}); }

CodeSet CodeSet::all() { return of(0, kLastCode); }

CodeSet CodeSet::of(std::vector<CodeRun> runs) {
  constexpr CodeRun kSurrogates = {0xD800, 0xDFFF};
  for (size_t i = 0, n = runs.size(); i < n; ++i) {
    CodeRun& run = runs[i];
    if (run.last < kSurrogates.first || run.first > kSurrogates.last) continue;
    const CodeRun after = {kSurrogates.last + 1, run.last};
    run.last = kSurrogates.first - 1;  // before run.first: nothing is left
    if (after.first <= after.last) runs.push_back(after);
  }
  std::erase_if(runs, [](const CodeRun& run) { return run.first > run.last; });
  std::ranges::sort(runs, {}, &CodeRun::first);
  CodeSet set;
  for (const CodeRun& run : runs) {
    if (!set.runs_.empty() && run.first <= set.runs_.back().last + 1)
      set.runs_.back().last = std::max(set.runs_.back().last, run.last);
    else
      set.runs_.push_back(run);
  }
  return set;
}

CodeSet& CodeSet::add(const CodeSet& other) {
  std::vector<CodeRun> runs = runs_;
  runs.insert(runs.end(), other.runs_.begin(), other.runs_.end());
  return *this = of(std::move(runs));
}

CodeSet CodeSet::without(const CodeSet& other) const {
  CodeSet left;
  size_t i = 0;
  for (CodeRun run : runs_) {
    while (i < other.runs_.size() && other.runs_[i].last < run.first) ++i;
    for (size_t k = i; k < other.runs_.size() && other.runs_[k].first <= run.last; ++k) {
      if (other.runs_[k].first > run.first) left.runs_.push_back({run.first, other.runs_[k].first - 1});
      run.first = other.runs_[k].last + 1;
    }
    if (run.first <= run.last) left.runs_.push_back(run);
  }
  return left;
}

CodeSet CodeSet::both(const CodeSet& other) const { return without(without(other)); }

bool CodeSet::contains(char32_t code) const {
  const auto after = std::ranges::upper_bound(runs_, code, {}, &CodeRun::first);
  return after != runs_.begin() && code <= (after - 1)->last;
}

std::string_view category_name(std::string_view name) {
  const CategoryName* found = find_category(plain_name(name));
  return found == nullptr ? std::string_view() : found->spelled;
}

std::optional<CodeSet> property_set(std::string_view name) {
  const std::string plain = plain_name(name);
  if (const CategoryName* found = find_category(plain)) return set_of(*found);
  for (const Property& each : kProperties)
    if (plain == each.name) {
      const CodeRun* const first = kPropertyRuns + each.first;
      return CodeSet::of(std::vector<CodeRun>(first, first + each.count));
    }
  if (plain == "any") return CodeSet::all();
  if (plain == "ascii") return CodeSet::of(0, 0x7F);
  if (plain == "assigned") return named("cn").complement();
  if (plain == "alphabetic") return named("alpha");
  if (plain == "lowercase") return named("lower");
  if (plain == "uppercase") return named("upper");
  if (plain == "space" || plain == "whitespace") return white_space();
  if (plain == "digit") return named("nd");
  if (plain == "cntrl") return named("cc");
  if (plain == "punct") return named("p");
  if (plain == "xdigit") return CodeSet::of({{'0', '9'}, {'A', 'F'}, {'a', 'f'}});
  if (plain == "blank") return named("zs").add(CodeSet::of(0x9, 0x9));
  if (plain == "alnum") return named("alpha").add(named("nd"));
  if (plain == "graph") return white_space().add(named("cc")).add(named("cn")).complement();
  if (plain == "print") return named("graph").add(named("zs"));
  if (plain == "word") return named("alpha").add(named("m")).add(named("nd")).add(named("pc"));
  return std::nullopt;
}

}  // namespace quintet::tokenizer
