#include "cli/without_effect.h"

#include <fmt/ranges.h>

#include <vector>

#include "base/error.h"
#include "observe/console.h"

namespace quintet::cli {
namespace {

// Empty if none of the options was given.
std::string complaint(const CLI::App& command, std::initializer_list<const char*> options,
                      std::string_view why) {
  std::vector<std::string_view> given;
  for (const char* option : options)
    if (is_given(command, option)) given.emplace_back(option);
  if (given.empty()) return {};
  return fmt::format("{} {} no effect here: {}", fmt::join(given, ", "), given.size() == 1 ? "has" : "have",
                     why);
}

}  // namespace

bool is_given(const CLI::App& command, const char* option) { return command.get_option(option)->count() > 0; }

void refuse_without_effect(const CLI::App& command, std::initializer_list<const char*> options,
                           std::string_view why) {
  if (const std::string text = complaint(command, options, why); !text.empty()) base::fail_user("{}", text);
}

void note_without_effect(const CLI::App& command, std::initializer_list<const char*> options,
                         std::string_view why) {
  if (const std::string text = complaint(command, options, why); !text.empty())
    observe::Console::standard_error().print_line("note: " + text, {.style = observe::Style::Dim});
}

}  // namespace quintet::cli
