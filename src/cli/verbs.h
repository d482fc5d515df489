// The verbs of the tool. Each registers its subcommand and returns the action to run when it is selected; the
// action returns the exit code: 0 success, 2 invalid input, 1 any other failure. A run that was stopped
// cleanly by a signal returns 128 + the signal number, as shells do.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "compiler/optional_passes.h"
#include "config/parse.h"
#include "config/recipe.h"

namespace quintet::cli {

inline constexpr int kExitGood = 0, kExitFailure = 1, kExitUser = 2, kExitSignal = 128;

struct Verb {
  CLI::App* command;
  std::function<int()> action;
};

// The options common to all verbs that take a recipe.
struct RecipeOptions {
  std::string path;
  std::vector<std::string> sets, disabled;
  std::string run_dir, dtype;
  int64_t steps = 0;  // 0: not given

  // --steps exists unless its help is empty; with steps_is_run it sets run.steps. --run-dir is left to verbs
  // that write a run folder.
  void add_to(CLI::App& command, bool with_dtype, const std::string& steps_help);
  // An axis of -1 takes the rest of use.ranks; 0: of those that a launcher started.
  config::Recipe load(bool steps_is_run = true, config::Use use = {}) const;
  // --disable-pass, for verbs that compile a program to run or to read it.
  CLI::Option* add_passes_to(CLI::App& command);
  compiler::DisabledPasses disabled_passes() const;
};

// --cluster of verbs that only warn about it.
void add_cluster_option(CLI::App& command, std::string& cluster);

Verb add_train(CLI::App& app);
Verb add_check(CLI::App& app);
Verb add_verify(CLI::App& app);
Verb add_program(CLI::App& app);
Verb add_plan(CLI::App& app);
Verb add_report(CLI::App& app);
Verb add_generate(CLI::App& app);
Verb add_eval(CLI::App& app);
Verb add_export(CLI::App& app);
Verb add_convert(CLI::App& app);
Verb add_diff(CLI::App& app);
Verb add_logits(CLI::App& app);
Verb add_routes(CLI::App& app);
Verb add_schedule(CLI::App& app);
Verb add_tokenizer(CLI::App& app);
Verb add_prepare(CLI::App& app);
Verb add_data(CLI::App& app);
Verb add_doctor(CLI::App& app);
Verb add_bench(CLI::App& app);
Verb add_checkpoint(CLI::App& app);
Verb add_replay(CLI::App& app);
Verb add_explain(CLI::App& app);
Verb add_init(CLI::App& app);
Verb add_recipe(CLI::App& app);
Verb add_completion(CLI::App& app);
Verb add_man(CLI::App& app);

// Writes to standard output; an incomplete write is an error. If the reader has closed the pipe, the tool
// exits with kExitFailure and no message. Progress and diagnostics go to standard error through
// observe::Console, which drops what cannot be written. On a terminal, control characters but line breaks and
// tabs appear as escapes (base/printable.h); a file or pipe gets the bytes as they are.
void print(std::string_view text);

// The same in colour, or between {+ and +} where there are no colours.
void print_highlighted(std::string_view text);

// The same for a report of labelled lines and tables: on a terminal, lines that are wider than it are broken
// at spaces and continued below their last column. A pipe gets whole lines, with the same escapes.
void print_report(std::string_view text);
// The columns of lines on standard output; 0 when it is no terminal.
size_t report_columns();

}  // namespace quintet::cli
