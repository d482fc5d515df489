// Stable codes of problems and errors, such as Q1302, with what `quintet explain` says about them. One row
// per rule of recipes (codes_table.cc) and per class of other errors (error_codes_table.cc).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/error.h"

namespace quintet::config {

struct ProblemCode {
  std::string_view code;   // never given to another rule, also after this one is gone
  std::string_view rule;   // Problem::name
  std::string_view cause;  // why the rule exists
  // Overrides of example_recipe(), one per line: what violates the rule, and what then repairs it. Empty when
  // no recipe file can violate it.
  std::string_view bad = {}, fix = {};
  std::string_view remedy = {};  // what to do about it, for errors that no recipe shows
};

std::span<const ProblemCode> problem_codes();

// "Q1302", "q1302" or "1302"; null when there is none.
const ProblemCode* find_code(std::string_view code);
// The code of a rule; empty for names without one.
std::string_view code_of(std::string_view rule);

// The recipe that the examples change.
std::string_view example_recipe();

// docs/errors.md: every code with its cause and what to do.
std::string codes_markdown();

// Cause, refused example with its message, and repaired example.
std::string explain(const ProblemCode& code);

// An invalid input that no single recipe key causes, with the code of a rule below.
template <class... Args>
[[noreturn]] void fail_coded(std::string_view rule, fmt::format_string<Args...> text, Args&&... args) {
  throw base::UserError(fmt::format(text, std::forward<Args>(args)...), code_of(rule));
}

// Rules of inputs other than recipe keys.
inline constexpr std::string_view kIsToml = "the recipe is valid TOML";
inline constexpr std::string_view kOverridesAreKeyValue = "--set takes key=value";
inline constexpr std::string_view kDataExists = "data.path exists";
inline constexpr std::string_view kDataHasLabels = "the data has something to learn from";
inline constexpr std::string_view kDataIsSound = "the data files are sound";
inline constexpr std::string_view kDataLasts = "sets of data.blend last as long as the run";
inline constexpr std::string_view kFolderIsFree = "the run folder is free";
inline constexpr std::string_view kFolderIsNotInUse = "no other run writes to the run folder";
inline constexpr std::string_view kDiskHasRoom = "the disk has room for the run";
inline constexpr std::string_view kFitsInMemory = "the run fits in memory";
inline constexpr std::string_view kOptionsAreValid = "options and verbs are valid";
inline constexpr std::string_view kOptionsFit = "options fit together";
inline constexpr std::string_view kRanksAgree = "all ranks run the same recipe";

}  // namespace quintet::config
