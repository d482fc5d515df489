// What is wrong with the options of a command line, in plain words.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace quintet::cli {

// "unknown option '--rundir', did you mean '--run-dir'?", or nothing: CLI11 only lists what it did not
// expect. An option named as a recipe key, here or in another system, leads to --set.
std::string unknown_option(const CLI::App& command, int argc, char** argv);

// CLI11's reason.
std::string plain_words(const CLI::ParseError& error);

}  // namespace quintet::cli
