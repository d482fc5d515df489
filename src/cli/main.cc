#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"
#include "base/wrap.h"
#include "cli/verbs.h"
#include "cli/version.h"
#include "config/codes.h"
#include "config/environment.h"
#include "config/problem.h"
#include "observe/console.h"
#include "tools/recipe_report.h"

namespace quintet::cli {

namespace {

// The reader of standard output has closed the pipe, as in `quintet program RECIPE | head`.
class ReaderGone : public std::runtime_error {
 public:
  ReaderGone() : std::runtime_error("the reader of standard output has closed it") {}
};

// Does not throw when standard error is closed: it is called from exception handlers.
void complain(std::string_view message) {
  observe::Console& console = observe::Console::standard_error();
  const observe::LineFormat format{.style = observe::Style::Error, .styled = 8, .indent = 4};
  console.print_line(fmt::format("quintet: {}", message), format);
}

// The command that says more about the first problem.
void suggest_explain(std::string_view code) {
  if (!code.empty())
    observe::Console::standard_error().print_line(fmt::format("'quintet explain {}' says more", code));
}

// CLI11 reports an unknown verb only as an unexpected argument.
void require_known_verb(const std::vector<Verb>& verbs, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return;
  std::vector<std::string> names;
  for (const Verb& v : verbs) names.push_back(v.command->get_name());
  const std::string word = argv[1];
  if (std::find(names.begin(), names.end(), word) != names.end()) return;
  const auto nearest = base::nearest_word(word, names);
  config::fail_coded(config::kOptionsAreValid, "unknown verb '{}'{}; verbs: {}. See 'quintet --help'",
                     base::printable(word), nearest ? fmt::format(", did you mean '{}'?", *nearest) : "",
                     fmt::join(names, ", "));
}

// An empty value is never meant: it comes from an unset shell variable.
void refuse_empty_values(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (option->get_items_expected_max() == 0) continue;  // a flag
    CLI::Validator named;
    named.description("").operation(
        [](std::string& text) { return text.empty() ? std::string("must not be empty") : std::string(); });
    option->check(named);
  }
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) refuse_empty_values(*command);
}

// Runs the command. With --json, invalid input is described on standard output as `quintet check --json`
// does.
template <class Action>
int run_reporting(bool json, const Action& action) {
  if (!json) return action();
  try {
    return action();
  } catch (const config::RecipeError& e) {
    print(tools::problems_json(e));
  } catch (const base::UserError& e) {
    print(tools::problems_json(e));
  }
  return kExitUser;
}

int run(int argc, char** argv) {
  CLI::App app("Quintet trains language models across devices; the layout never changes the mathematics.",
               "quintet");
  app.set_version_flag("--version", version_text, "print the version, how it was built and what it can use");
  app.require_subcommand(1);
  app.failure_message(CLI::FailureMessage::simple);
  app.footer(
      "'quintet VERB --help' describes a verb. Exit codes: 0 success, 2 invalid input, 128 + n stopped by "
      "signal n, 1 any other failure.");
  const std::vector<Verb> verbs = {
      add_init(app),       add_train(app),    add_check(app),   add_verify(app),     add_program(app),
      add_plan(app),       add_schedule(app), add_report(app),  add_generate(app),   add_eval(app),
      add_tokenizer(app),  add_prepare(app),  add_data(app),    add_doctor(app),     add_bench(app),
      add_checkpoint(app), add_explain(app),  add_recipe(app),  add_completion(app), add_man(app),
      add_replay(app),     add_export(app),   add_convert(app), add_diff(app),       add_logits(app)};
  refuse_empty_values(app);
  if (argc < 2) {
    print_report(app.help());
    return kExitGood;
  }
  const bool json =
      std::any_of(argv + 1, argv + argc, [](std::string_view word) { return word == "--json"; });
  return run_reporting(json, [&] {
    require_known_verb(verbs, argc, argv);
    try {
      app.parse(argc, argv);
    } catch (const CLI::CallForHelp&) {
      print_report(app.help());
      return kExitGood;
    } catch (const CLI::CallForVersion& e) {
      print(fmt::format("{}\n", e.what()));
      return kExitGood;
    } catch (const CLI::ParseError& e) {
      config::fail_coded(config::kOptionsAreValid, "{}; see 'quintet {}--help'", base::printable(e.what()),
                         argv[1][0] == '-' ? "" : std::string(argv[1]) + " ");
    }
    for (const Verb& verb : verbs)
      if (verb.command->parsed()) return verb.action();
    return kExitUser;
  });
}

}  // namespace

void print_report(std::string_view text) {
  const observe::Console& console = observe::Console::standard_output();
  if (!console.is_terminal()) return print(text);
  const auto width = static_cast<size_t>(std::max(40, console.width() - 1));
  std::string out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    out += base::wrapped(line, width, base::hanging_indent(line, width)) + "\n";
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  print(out);
}

void print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return;
  if (errno == EPIPE) throw ReaderGone();
  throw std::runtime_error("cannot write to standard output");
}

}  // namespace quintet::cli

int main(int argc, char** argv) {
  // A closed pipe is a write error that ends the command that prints its result, but not a training run.
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // a file size limit is a write error, like a full disk
  quintet::observe::Console::allow_colours(quintet::config::wants_colours());
  quintet::observe::Console::allow_live(quintet::config::has_escapes());
  try {
    return quintet::cli::run(argc, argv);
  } catch (const quintet::cli::ReaderGone&) {
    return quintet::cli::kExitFailure;  // no message: the reader has closed the pipe
  } catch (const quintet::config::RecipeError& e) {
    quintet::cli::complain(e.what());
    quintet::cli::suggest_explain(quintet::config::code_of(e.problems().front().name));
    return quintet::cli::kExitUser;
  } catch (const quintet::config::CodedError& e) {
    quintet::cli::complain(e.what());
    quintet::cli::suggest_explain(e.code());
    return quintet::cli::kExitUser;
  } catch (const quintet::base::UserError& e) {
    quintet::cli::complain(e.what());
    return quintet::cli::kExitUser;
  } catch (const std::exception& e) {
    quintet::cli::complain(e.what());
    return quintet::cli::kExitFailure;
  }
}
