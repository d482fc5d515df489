// The tool's verbs. Each adds itself to the command line and returns the action that runs when it was chosen;
// an action returns the exit code. Exit codes: 0 good, 2 the input is at fault, 1 anything else; a run that a
// signal ended cleanly gives 128 + the signal's number, as shells do.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "config/recipe.h"

namespace quintet::cli {

inline constexpr int kExitGood = 0, kExitFailure = 1, kExitUser = 2, kExitSignal = 128;

struct Verb {
  CLI::App* command;
  std::function<int()> action;
};

// The options of every verb that takes a recipe.
struct RecipeOptions {
  std::string path;
  std::vector<std::string> sets;
  std::string run_dir, dtype;
  int64_t steps = 0;  // 0: not given

  // With steps_is_run the option --steps means run.steps.
  void add_to(CLI::App& command, bool with_dtype, const std::string& steps_help);
  config::Recipe load(bool steps_is_run = true) const;
};

Verb add_train(CLI::App& app);
Verb add_check(CLI::App& app);
Verb add_verify(CLI::App& app);
Verb add_program(CLI::App& app);
Verb add_plan(CLI::App& app);
Verb add_generate(CLI::App& app);
Verb add_schedule(CLI::App& app);
Verb add_doctor(CLI::App& app);
Verb add_bench(CLI::App& app);

// Standard output, checked: a text that cannot be written whole is an error. Where its reader has gone away
// the tool ends with kExitFailure and without a message. What goes to standard error is for people to watch:
// write it through observe::Console, which drops what nobody reads.
void print(std::string_view text);

}  // namespace quintet::cli
