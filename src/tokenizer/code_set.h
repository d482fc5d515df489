// Sets of code points, for the classes of regular expressions: of Unicode 16, on every machine. Surrogates,
// which valid text does not have, are in no set.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace quintet::tokenizer {

struct CodeRun {
  char32_t first, last;
  friend bool operator==(const CodeRun&, const CodeRun&) = default;
};

class CodeSet {
 public:
  CodeSet() = default;
  static CodeSet of(char32_t first, char32_t last);
  static CodeSet of(std::vector<CodeRun> runs);  // in any order, which may overlap
  static CodeSet all();

  CodeSet& add(const CodeSet& other);
  CodeSet without(const CodeSet& other) const;
  CodeSet both(const CodeSet& other) const;
  CodeSet complement() const { return all().without(*this); }

  bool contains(char32_t code) const;
  bool empty() const { return runs_.empty(); }
  const std::vector<CodeRun>& runs() const { return runs_; }  // ascending, not adjacent
  friend bool operator==(const CodeSet&, const CodeSet&) = default;

 private:
  std::vector<CodeRun> runs_;
};

// What \p{name} matches in the regular expressions of `tokenizers`: a general category by its short or long
// name, a class as [:alpha:], a script, or one of a few properties. Case, spaces, '-' and '_' do not matter.
// Nothing: not known here.
std::optional<CodeSet> property_set(std::string_view name);

// The general category that the name means, in its short spelling ("Lu", "L"); empty: none.
std::string_view category_name(std::string_view name);

}  // namespace quintet::tokenizer
