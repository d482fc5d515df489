#include "tokenizer/oniguruma.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/error.h"
#include "base/printable.h"
#include "tokenizer/unicode.h"

namespace quintet::tokenizer {
namespace {

constexpr int kMostRepeats = 65535;                   // PCRE2's limit
constexpr char32_t kLongS = 0x17F, kKelvin = 0x212A;  // fold to 's' and 'k'

bool is_letter(char32_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char32_t c) { return c >= '0' && c <= '9'; }
char32_t lower_ascii(char32_t c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; }

struct Mode {
  bool ignore_case = false, dot_all = false, extended = false;
};

// A class while it is read: code points, and categories that PCRE2 looks up itself, which is faster than a
// list of their runs.
struct ClassSet {
  CodeSet codes;
  std::vector<std::string> categories;
};

class Translator {
 public:
  Translator(std::string_view expression, CategoryGap gap) : text_(expression), gap_(gap) {}

  std::string translate() {
    std::string out = alternatives({});
    if (!at_end()) fail_invalid("an unmatched ')'");
    return out;
  }

 private:
  // Groups and classes within each other: reading them recurses.
  static constexpr int kMostNested = 250;
  struct Nested {
    explicit Nested(Translator& t) : translator(t) {
      if (++translator.nested_ > kMostNested)
        translator.fail(fmt::format("more than {} nested groups or classes", kMostNested));
    }
    ~Nested() { --translator.nested_; }
    Translator& translator;
  };

  [[noreturn]] void fail(std::string_view what) const {
    base::fail_user("the regular expression '{}' has {} at byte {}, which is not supported",
                    base::printable(text_), what, at_);
  }
  [[noreturn]] void fail_invalid(std::string_view what) const {
    base::fail_user("the regular expression '{}' is not valid: {} at byte {}", base::printable(text_), what,
                    at_);
  }
  bool at_end() const { return at_ >= text_.size(); }
  bool starts(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  bool take(std::string_view what) {
    if (!starts(what)) return false;
    at_ += what.size();
    return true;
  }
  char32_t next() {
    if (at_end()) fail_invalid("it ends in the middle of an escape or a class");
    const char* p = text_.data() + at_;
    const char32_t code = next_code(p);
    at_ = static_cast<size_t>(p - text_.data());
    return code;
  }

  // ---- sets

  static std::string spelled(char32_t code) {
    if (is_letter(code) || is_digit(code)) return std::string(1, static_cast<char>(code));
    return fmt::format("\\x{{{:x}}}", static_cast<uint32_t>(code));
  }

  // The longest runs first: an engine that tries them in order then finds most letters soon.
  static std::string runs_of(const CodeSet& set) {
    std::vector<CodeRun> runs = set.runs();
    std::ranges::stable_sort(
        runs, [](const CodeRun& a, const CodeRun& b) { return a.last - a.first > b.last - b.first; });
    std::string out;
    for (const CodeRun& run : runs)
      out += run.first == run.last ? spelled(run.first) : spelled(run.first) + "-" + spelled(run.last);
    return out;
  }

  CodeSet category_set(const std::string& name) const { return *property_set(name); }

  // All of the members as code points.
  CodeSet flat(const ClassSet& set) const {
    CodeSet codes = set.codes;
    for (const std::string& name : set.categories) codes.add(category_set(name));
    return codes;
  }

  std::string class_text(const ClassSet& set, bool negated) const {
    CodeSet codes = set.codes;
    std::string names;
    for (const std::string& name : set.categories) {
      if (const auto gap = gap_(name)) {
        names += "\\p{" + name + "}";
        codes.add(*gap);
      } else {
        codes.add(category_set(name));
      }
    }
    if (names.empty() && codes.empty()) return negated ? "[\\x{0}-\\x{10ffff}]" : "(?!)";
    if (names.empty() && codes == CodeSet::all()) return negated ? "(?!)" : "[\\x{0}-\\x{10ffff}]";
    return (negated ? "[^" : "[") + names + runs_of(codes) + "]";
  }

  static ClassSet of_codes(CodeSet codes) { return {std::move(codes), {}}; }
  static void add(const ClassSet& other, ClassSet& set) {
    set.codes.add(other.codes);
    set.categories.insert(set.categories.end(), other.categories.begin(), other.categories.end());
  }

  // Adds what members of the set fold to. Beyond ASCII only characters without case are known to fold to
  // nothing.
  ClassSet folded(ClassSet set) const {
    if (!set.categories.empty()) set = of_codes(flat(set));
    CodeSet more;
    for (const CodeRun& run : set.codes.runs())
      for (char32_t code = run.first; code <= run.last; ++code) {
        if (code < 0x80) {
          if (is_letter(code)) more.add(letter_set(code));
        } else if (has_case(code)) {
          fail("a class under (?i) with letters beyond ASCII");
        }
      }
    set.codes.add(more);
    return set;
  }
  static bool has_case(char32_t code) {
    switch (category(code)) {
      using enum Category;
      case Lo:
      case Mc:
      case Me:
      case Nd:
      case No:
      case Zs:
      case Zl:
      case Zp:
      case Cc:
      case Cf:
      case Co:
      case Cn:
      case Pc:
      case Pd:
      case Ps:
      case Pe:
      case Pi:
      case Pf:
      case Po:
      case Sm:
      case Sc:
        return false;
      default:
        return true;
    }
  }
  static CodeSet letter_set(char32_t letter) {
    const char32_t small = lower_ascii(letter);
    CodeSet set = CodeSet::of({{small, small}, {small - 32, small - 32}});
    if (small == 's') set.add(CodeSet::of(kLongS, kLongS));
    if (small == 'k') set.add(CodeSet::of(kKelvin, kKelvin));
    return set;
  }

  // ---- escapes

  char32_t hex(size_t most) {
    char32_t value = 0;
    size_t digits = 0;
    for (; digits < most && !at_end(); ++digits, ++at_) {
      const char c = text_[at_];
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) break;
      value = value * 16 + static_cast<char32_t>(digit);
    }
    if (digits == 0) fail_invalid("no digits after \\x or \\u");
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
      fail_invalid("no code point has this number");
    return value;
  }

  // A character after a backslash, that stands for one code point; nothing: for something else.
  std::optional<char32_t> escaped_code(char32_t c) {
    switch (c) {
      case 't':
        return 0x9;
      case 'n':
        return 0xA;
      case 'v':
        return 0xB;
      case 'f':
        return 0xC;
      case 'r':
        return 0xD;
      case 'a':
        return 0x7;
      case 'e':
        return 0x1B;
      case 'x': {
        if (take("{")) {
          const char32_t code = hex(8);
          if (!take("}")) fail_invalid("no } after \\x{");
          return code;
        }
        const char32_t code = hex(2);
        if (code >= 0x80) fail("\\x of a byte");
        return code;
      }
      case 'u': {
        const size_t begin = at_;
        const char32_t code = hex(4);
        if (at_ - begin != 4) fail_invalid("fewer than four digits after \\u");
        return code;
      }
      default:
        break;
    }
    if (c < 0x80 && !is_letter(c) && !is_digit(c)) return c;
    if (c >= 0x80) return c;
    return std::nullopt;
  }

  // What \w matches. Outside of brackets, Oniguruma counts the superscripts and fractions of Latin-1 as well.
  ClassSet word_set(bool within) const {
    ClassSet set{*property_set("word"), {"L", "M", "Nd", "Nl", "Pc"}};
    if (!within) set.codes.add(CodeSet::of({{0xB2, 0xB3}, {0xB9, 0xB9}, {0xBC, 0xBE}}));
    for (const std::string& name : set.categories) set.codes = set.codes.without(category_set(name));
    return set;
  }

  struct EscapedClass {
    ClassSet set;
    bool negated = false;
  };
  // \d, \p{..} and their like; nothing: another escape. `within` brackets.
  std::optional<EscapedClass> escaped_class(char32_t c, bool within) {
    switch (c) {
      case 'd':
      case 'D':
        return EscapedClass{{{}, {"Nd"}}, c == 'D'};
      case 's':
      case 'S':
        return EscapedClass{of_codes(*property_set("space")), c == 'S'};
      case 'w':
      case 'W':
        return EscapedClass{word_set(within), c == 'W'};
      case 'h':
      case 'H':
        return EscapedClass{of_codes(*property_set("xdigit")), c == 'H'};
      case 'p':
      case 'P': {
        if (!take("{")) fail_invalid("no { after \\p");
        const bool negated = take("^") != (c == 'P');
        const size_t end = text_.find('}', at_);
        if (end == std::string_view::npos) fail_invalid("no } after \\p{");
        const std::string_view name = text_.substr(at_, end - at_);
        auto set = property_set(name);
        if (!set) fail(fmt::format("the property '{}'", name));
        at_ = end + 1;
        if (const auto category = category_name(name); !category.empty() && category != "LC")
          return EscapedClass{{{}, {std::string(category)}}, negated};
        return EscapedClass{set == property_set("word") ? word_set(within) : of_codes(*std::move(set)),
                            negated};
      }
      default:
        return std::nullopt;
    }
  }

  // ---- bracket classes

  // After "[:": the class, if it is one.
  std::optional<ClassSet> posix() {
    const size_t end = text_.find(":]", at_);
    if (end == std::string_view::npos) return std::nullopt;
    std::string_view name = text_.substr(at_, end - at_);
    const bool negated = name.starts_with('^');
    if (negated) name.remove_prefix(1);
    static constexpr std::string_view kNames[] = {"alnum", "alpha", "ascii",  "blank", "cntrl",
                                                  "digit", "graph", "lower",  "print", "punct",
                                                  "space", "upper", "xdigit", "word"};
    if (std::ranges::count(kNames, name) == 0) return std::nullopt;
    CodeSet set = *property_set(name);
    if (name == "punct") set.add(*property_set("s"));
    at_ = end + 2;
    return of_codes(negated ? set.complement() : std::move(set));
  }

  // After "[".
  ClassSet bracket(const Mode& mode, bool& negated) {
    const Nested nested(*this);
    negated = take("^");
    if (starts("]")) fail("a class that begins with ']'");
    std::optional<CodeSet> left;  // of "&&"
    ClassSet set;
    bool any = false;
    const auto add_set = [&](const ClassSet& other) { add(other, set); };
    const auto intersect = [&] {
      CodeSet right = flat(set);
      left = left ? left->both(right) : std::move(right);
      set = {};
    };
    while (true) {
      if (take("]")) break;
      if (take("&&")) {
        if (!any) fail("'&&' without a class before it");
        any = false;
        intersect();
        continue;
      }
      any = true;
      if (take("[")) {
        if (take(":")) {
          if (const auto found = posix()) {
            add_set(*found);
            continue;
          }
          fail("'[:' that begins no known class");
        }
        bool not_in = false;
        const ClassSet inner = bracket(mode, not_in);
        add_set(not_in ? of_codes(flat(inner).complement()) : inner);
        continue;
      }
      bool is_class = false;
      const char32_t first = member(set, is_class);
      if (is_class) {
        if (starts("-") && !starts("-]")) fail("a range that begins with a class");
        continue;
      }
      if (!starts("-") || starts("-]") || starts("-&&")) {
        set.codes.add(CodeSet::of(first, first));
        continue;
      }
      take("-");
      if (starts("[")) fail("a range that ends with a class");
      const char32_t last = member(set, is_class);
      if (is_class) fail("a range that ends with a class");
      if (last < first) fail_invalid("a range that ends before it begins");
      set.codes.add(CodeSet::of(first, last));
      if (starts("-") && !starts("-]")) fail("a range with two hyphens");
    }
    if (!any) fail_invalid("an empty class");
    if (left) {
      intersect();
      set = of_codes(*std::move(left));
    }
    return mode.ignore_case ? folded(std::move(set)) : set;
  }

  // A character of a class; or a class, which is added.
  char32_t member(ClassSet& set, bool& is_class) {
    const char32_t c = next();
    if (c != '\\') return c;
    const char32_t escaped = next();
    if (escaped == 'b') return 0x8;
    if (const auto found = escaped_class(escaped, true)) {
      is_class = true;
      add(found->negated ? of_codes(flat(found->set).complement()) : found->set, set);
      return 0;
    }
    if (const auto code = escaped_code(escaped)) return *code;
    fail(fmt::format("\\{} in a class", static_cast<char>(escaped)));
  }

  // ---- the expression

  // Up to the end or an unmatched ')'.
  std::string alternatives(const Mode& mode) {
    const Nested nested(*this);
    std::string out;
    char32_t before = 0;  // under (?i): the letter before, if it stands for itself
    while (!at_end() && !starts(")")) {
      if (take("|")) {
        out += '|';
        before = 0;
        continue;
      }
      if (mode.extended) {
        const char c = text_[at_];
        if (c == ' ' || (c >= '\t' && c <= '\r')) {
          ++at_;
          continue;
        }
        if (c == '#') {
          at_ = std::min(text_.find('\n', at_), text_.size());
          continue;
        }
      }
      bool isolated = false;
      bool repeats = true;  // whether a quantifier may follow
      const char32_t was = std::exchange(before, 0);
      std::string one = atom(mode, was, before, isolated, repeats);
      if (isolated) return out + one;
      out += quantified(std::move(one), repeats, before);
    }
    return out;
  }

  std::string atom(const Mode& mode, char32_t was, char32_t& before, bool& isolated, bool& repeats) {
    if (take("(")) return group(mode, isolated, repeats);
    if (take("[")) {
      bool negated = false;
      const ClassSet set = bracket(mode, negated);
      return class_text(set, negated);
    }
    if (take(".")) return mode.dot_all ? "[\\x{0}-\\x{10ffff}]" : "[^\\x{a}]";
    if (take("^")) return repeats = false, "^";
    if (take("$")) return repeats = false, "$";
    for (const char* quantifier : {"*", "+", "?"})
      if (starts(quantifier)) fail_invalid("nothing to repeat");
    if (interval()) fail_invalid("nothing to repeat");
    if (take("\\")) return escape(mode, was, before, repeats);
    return literal(next(), mode, was, before);
  }

  std::string literal(char32_t code, const Mode& mode, char32_t was, char32_t& before) {
    if (!mode.ignore_case) return spelled(code);
    if (code >= 0x80) {
      if (has_case(code)) fail("a letter beyond ASCII under (?i)");
      return spelled(code);
    }
    if (!is_letter(code)) return spelled(code);
    before = lower_ascii(code);
    // One character folds to these two: sharp s, the ligatures of f, and of s and t.
    static constexpr std::string_view kPairs[] = {"ss", "ff", "fi", "fl", "st"};
    const char pair[] = {static_cast<char>(was), static_cast<char>(before)};
    if (std::ranges::count(kPairs, std::string_view(pair, 2)) > 0)
      fail(fmt::format("'{}' under (?i), which also matches one character", std::string_view(pair, 2)));
    return class_text(of_codes(letter_set(code)), false);
  }

  std::string escape(const Mode& mode, char32_t was, char32_t& before, bool& repeats) {
    const char32_t c = next();
    if (const auto found = escaped_class(c, false)) return class_text(found->set, found->negated);
    switch (c) {
      case 'A':
      case 'z':
      case 'Z':
      case 'G':
        repeats = false;
        return fmt::format("\\{}", static_cast<char>(c));
      case 'b':
      case 'B': {
        repeats = false;
        const std::string word = class_text(word_set(false), false);
        return c == 'b' ? fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", word)
                        : fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", word);
      }
      case 'R':
        return "(?:\\x{d}\\x{a}|(?!\\x{d}\\x{a})[\\x{a}-\\x{d}\\x{85}\\x{2028}-\\x{2029}])";
      case 'N':
        return "[^\\x{a}]";
      case 'O':
        return "[\\x{0}-\\x{10ffff}]";
      default:
        break;
    }
    if (is_digit(c) && c != '0') fail("a back-reference");
    if (c == '0') {
      if (!at_end() && is_digit(static_cast<uint8_t>(text_[at_]))) fail("an octal number");
      return spelled(0);
    }
    if (const auto code = escaped_code(c)) return literal(*code, mode, was, before);
    fail(fmt::format("\\{}", static_cast<char>(c)));
  }

  std::string group(const Mode& mode, bool& isolated, bool& repeats) {
    if (starts("*")) fail("'(*'");
    std::string open = "(?:";  // of a plain group too: nothing refers to it
    Mode inside = mode;
    if (take("?")) {
      if (take("#")) {
        at_ = std::min(text_.find(')', at_), text_.size());
        if (!take(")")) fail_invalid("no ')' after '(?#'");
        return repeats = false, "";
      }
      if (take("=") || take("!") || take("<=") || take("<!")) {
        repeats = false;
        open = "(?";
        for (size_t back = text_.rfind('?', at_) + 1; back < at_; ++back) open += text_[back];
      } else if (take(">")) {
        open = "(?>";
      } else if (!take(":")) {
        options(inside);
        if (take(")")) {  // to the end of the group around it
          isolated = true;
          return "(?:" + alternatives(inside) + ")";
        }
        if (!take(":")) fail("a group of this kind");
      }
    }
    std::string out = open + alternatives(inside) + ")";
    if (!take(")")) fail_invalid("no ')' for a '('");
    return out;
  }

  void options(Mode& mode) {
    bool on = true;
    for (const size_t begin = at_; !at_end(); ++at_) {
      switch (text_[at_]) {
        case '-':
          on = false;
          continue;
        case 'i':
          mode.ignore_case = on;
          continue;
        case 'm':
          mode.dot_all = on;
          continue;
        case 'x':
          mode.extended = on;
          continue;
        default:
          if (at_ == begin || (text_[at_] != ':' && text_[at_] != ')'))
            fail(fmt::format("'(?{}'", text_.substr(begin, at_ + 1 - begin)));
          return;
      }
    }
  }

  struct Repeat {
    int64_t least = 0, most = -1;  // -1: no limit
    bool interval = false;
  };
  // "{2,3}" and its like; anything else that begins with a brace stands for itself.
  std::optional<Repeat> interval() {
    if (!starts("{")) return std::nullopt;
    const size_t end = text_.find('}', at_);
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view inside = text_.substr(at_ + 1, end - at_ - 1);
    if (inside.empty() || inside == "," ||
        inside.find_first_not_of("0123456789,") != std::string_view::npos ||
        std::ranges::count(inside, ',') > 1)
      return std::nullopt;
    const size_t comma = inside.find(',');
    const auto number = [&](std::string_view digits, int64_t fallback) {
      if (digits.empty()) return fallback;
      int64_t value = 0;
      const auto [last, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
      if (error != std::errc() || value > kMostRepeats) fail("a repetition of more than 65,535 times");
      return value;
    };
    Repeat r{.interval = true};
    r.least = number(inside.substr(0, comma), 0);
    r.most = comma == std::string_view::npos ? r.least : number(inside.substr(comma + 1), -1);
    if (r.most >= 0 && r.most < r.least) fail("a repetition whose limits are in the wrong order");
    at_ = end + 1;
    return r;
  }

  std::string quantified(std::string one, bool repeats, char32_t& before) {
    for (bool first = true;; first = false) {
      std::optional<Repeat> r;
      if (take("*"))
        r = Repeat{};
      else if (take("+"))
        r = Repeat{.least = 1};
      else if (take("?"))
        r = Repeat{.most = 1};
      else
        r = interval();
      if (!r) return one;
      if (!repeats) fail("a repetition of an anchor or a look-around");
      before = 0;
      if (!first) one = "(?:" + one + ")";
      one += r->most < 0 ? fmt::format("{{{},}}", r->least) : fmt::format("{{{},{}}}", r->least, r->most);
      // X{2}? is (?:X{2})?, and X{1,3}+ is (?:X{1,3})+.
      const bool fixed = r->interval && r->least == r->most;
      if (!fixed && take("?"))
        one += "?";
      else if (!r->interval && take("+"))
        one += "+";
    }
  }

  std::string_view text_;
  int nested_ = 0;
  CategoryGap gap_;
  size_t at_ = 0;
};

}  // namespace

std::string pcre2_spelling(std::string_view expression, CategoryGap gap) {
  std::string storage;
  if (valid_utf8(expression, storage).data() != expression.data())
    base::fail_user("the regular expression '{}' is not valid UTF-8", base::printable(expression));
  return Translator(expression, gap).translate();
}

}  // namespace quintet::tokenizer
