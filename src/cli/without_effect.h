// Options that a mode of a verb does not read: a setting without effect hides a mistake.
#pragma once

#include <CLI/CLI.hpp>
#include <initializer_list>
#include <string_view>

namespace quintet::cli {

bool is_given(const CLI::App& command, const char* option);

// UserError that names those of `options` that were given, and `why` they do nothing here.
void refuse_without_effect(const CLI::App& command, std::initializer_list<const char*> options,
                           std::string_view why);

// The same as a note on standard error, for options that lose their effect only at a value of another one:
// a script that varies that one must go on.
void note_without_effect(const CLI::App& command, std::initializer_list<const char*> options,
                         std::string_view why);

}  // namespace quintet::cli
