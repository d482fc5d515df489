#include "cli/help_formatter.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

namespace quintet::cli {
namespace {

// " (needs --out)"; CLI11 keeps options in the order of their addresses.
std::string with_names(const char* what, const std::set<CLI::Option*>& options) {
  std::vector<std::string> names;
  for (const CLI::Option* o : options) names.push_back(o->get_name());
  std::sort(names.begin(), names.end());
  return names.empty() ? "" : fmt::format(" ({} {})", what, fmt::join(names, ", "));
}

}  // namespace

std::string HelpFormatter::make_option_opts(const CLI::Option* option) const {
  const std::string all = CLI::Formatter::make_option_opts(option);
  return all.substr(0, std::min(all.find(" Needs:"), all.find(" Excludes:")));
}

std::string HelpFormatter::make_option_desc(const CLI::Option* option) const {
  return option->get_description() + with_names("needs", option->get_needs()) +
         with_names("not with", option->get_excludes());
}

std::string HelpFormatter::make_option_usage(const CLI::Option* option) const {
  const std::string name = make_option_name(option, true) + (option->get_expected_max() > 1 ? "..." : "");
  return option->get_required() ? name : "[" + name + "]";
}

}  // namespace quintet::cli
