#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <new>

#include "base/error.h"
#include "base/error_codes.h"
#include "base/machine.h"
#include "base/printable.h"
#include "base/text.h"
#include "base/wrap.h"
#include "cli/help_formatter.h"
#include "cli/option_errors.h"
#include "cli/verbs.h"
#include "cli/version.h"
#include "comm/errors.h"
#include "comm/mpi.h"
#include "config/codes.h"
#include "config/environment.h"
#include "config/place_paths.h"
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

// The code of an error that is not the input's fault.
std::string_view code_of_failure(const std::exception& e) {
  if (dynamic_cast<const base::InternalError*>(&e) != nullptr) return "Q9001";
  if (dynamic_cast<const comm::CommError*>(&e) != nullptr) return "Q9002";
  if (dynamic_cast<const std::bad_alloc*>(&e) != nullptr) return "Q9003";
  return "Q9006";
}

// What the system refused, and the limit that it may have hit.
std::string out_of_memory() {
  const auto limit = base::address_space_limit();
  return fmt::format(
      "out of memory: the system refused an allocation; {}",
      limit ? fmt::format("this process may use {} of address space (ulimit -v): raise that limit",
                          base::human_bytes(*limit))
            : fmt::format("{} of memory is available: use a smaller recipe, or a larger machine",
                          base::human_bytes(base::available_memory_bytes())));
}

std::string failure_message(const std::exception& e) {
  const bool no_memory = dynamic_cast<const std::bad_alloc*>(&e) != nullptr;
  return base::with_code(no_memory ? out_of_memory() : e.what(), code_of_failure(e));
}

void complain_of_failure(const std::exception& e) {
  const std::string message = failure_message(e);
  complain(message);
  suggest_explain(base::code_in(message));
}

struct Selected {
  const CLI::App* command;
  std::string words;  // "bench step " with a space at the end, or empty
};

// The verb that the command line names, as far as its words are known. CLI11 reports an unknown one only as
// an unexpected argument, or says that one is missing.
Selected require_known_verb(const CLI::App& app, int argc, char** argv) {
  const CLI::App* command = &app;
  std::string known;
  for (int i = 1; i <= argc; ++i) {
    std::vector<std::string> names;
    for (const CLI::App* sub : command->get_subcommands([](const CLI::App*) { return true; }))
      names.push_back(sub->get_name());
    const std::string word = i < argc ? argv[i] : "";
    if (names.empty() || word.starts_with('-')) break;
    if (i == argc)
      config::fail_coded(config::kOptionsAreValid, "'quintet {}' needs one of: {}; see 'quintet {}--help'",
                         known.substr(0, known.size() - 1), fmt::join(names, ", "), known);
    if (std::find(names.begin(), names.end(), word) == names.end()) {
      const auto nearest = base::nearest_word(word, names);
      config::fail_coded(config::kOptionsAreValid, "unknown verb '{}{}'{}; verbs: {}. See 'quintet {}--help'",
                         known, base::printable(word),
                         nearest ? fmt::format(", did you mean '{}'?", *nearest) : "", fmt::join(names, ", "),
                         known);
    }
    command = command->get_subcommand(word);
    known += word + " ";
  }
  return {command, known};
}

// `quintet help VERB` is `quintet VERB --help`.
std::vector<char*> without_help_verb(int argc, char** argv) {
  static char option[] = "--help";
  std::vector<char*> words(argv, argv + argc);
  if (argc < 2 || std::string_view(argv[1]) != "help") return words;
  words.erase(words.begin() + 1);
  words.push_back(option);
  return words;
}

// Values that are never meant: an empty one comes from an unset shell variable, and "s3://bucket/x" would
// be the folder "s3:" of the working directory.
void refuse_odd_values(CLI::App& app) {
  constexpr const char* kTexts[] = {"--prompt", "--delimiter", "--special", "--end"};  // not paths
  for (CLI::Option* option : app.get_options()) {
    if (option->get_items_expected_max() == 0) continue;  // a flag
    const bool is_text = std::ranges::any_of(kTexts, [&](const char* n) { return option->check_name(n); });
    CLI::Validator named;
    named.description("").operation([is_text](std::string& text) -> std::string {
      if (text.empty()) return "must not be empty";
      if (is_text || config::scheme_of(text).empty()) return {};
      return fmt::format("'{}' is an address; remote file systems are not supported yet, only mounted ones",
                         text);
    });
    option->check(named);
  }
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) refuse_odd_values(*command);
}

// With --json, what ends the command is described on standard output as `quintet check --json` does; under
// mpirun by the rank that ends the job. A failure that is not the input's is reported on standard error too.
std::string as_json(const std::exception& e) {
  if (const auto* recipe = dynamic_cast<const config::RecipeError*>(&e)) return tools::problems_json(*recipe);
  if (const auto* user = dynamic_cast<const base::UserError*>(&e)) return tools::problems_json(*user);
  const std::string message = failure_message(e);
  return tools::problems_json(base::UserError(message, base::code_in(message)));
}

// A path that the system does not take: too long, in a folder that may not be read, or relative to a working
// directory that is gone.
template <class Action>
int refuse_paths(const Action& action) {
  try {
    return action();
  } catch (const std::filesystem::filesystem_error& e) {
    throw base::UserError(fmt::format("cannot use '{}': {}", e.path1().string(), e.code().message()),
                          base::code_of_origin("base/file"));
  }
}

template <class Action>
int run_reporting(bool json, const Action& action) {
  if (!json) return refuse_paths(action);
  comm::report_mpi_failures([](const std::exception& e) { print(as_json(e)); });
  try {
    return refuse_paths(action);
  } catch (const base::UserError& e) {
    print(as_json(e));
    return kExitUser;
  } catch (const ReaderGone&) {
    throw;
  } catch (const std::exception& e) {
    print(as_json(e));
    complain_of_failure(e);
    return kExitFailure;
  }
}

// In the order in which a newcomer needs them; the titles are those of the help.
std::vector<Verb> add_verbs(CLI::App& app) {
  const std::pair<const char*, std::vector<Verb>> groups[] = {
      {"Train", {add_init(app), add_check(app), add_plan(app), add_train(app), add_report(app)}},
      {"Use a model", {add_generate(app), add_eval(app), add_export(app)}},
      {"Data", {add_tokenizer(app), add_prepare(app), add_data(app)}},
      {"Layouts", {add_verify(app), add_program(app), add_schedule(app)}},
      {"Checkpoints and weights",
       {add_checkpoint(app), add_replay(app), add_convert(app), add_diff(app), add_logits(app),
        add_routes(app)}},
      {"Machines", {add_doctor(app), add_bench(app)}},
      {"Reference", {add_explain(app), add_recipe(app), add_man(app), add_completion(app)}}};
  std::vector<Verb> all;
  for (const auto& [title, verbs] : groups)
    for (const Verb& verb : verbs) {
      verb.command->group(title);
      all.push_back(verb);
    }
  return all;
}

// Descriptions continue below their column, paragraphs at the margin.
void print_help(const std::string& text) {
  constexpr int kPageWidth = 100;  // of a file or a pager
  const observe::Console& console = observe::Console::standard_output();
  const auto width =
      static_cast<size_t>(std::max(40, console.is_terminal() ? console.width() - 1 : kPageWidth));
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    const size_t margin = std::min(line.find_first_not_of(' '), line.size());
    const bool continues = margin >= 20;  // the description of an option whose name takes the line above
    out += base::wrapped(line, width, margin == 0 || continues ? margin : base::hanging_indent(line, width)) +
           "\n";
    at = end + 1;
  }
  print(out);
}

int run(int argc, char** argv) {
  CLI::App app("Quintet trains language models across devices; the layout never changes the mathematics.",
               "quintet");
  app.set_version_flag("-V,--version", version_text,
                       "print the version, how it was built and what it can use");
  app.set_help_flag("-h,--help", "print this help");
  app.require_subcommand(1);
  app.failure_message(CLI::FailureMessage::simple);
  app.formatter(std::make_shared<HelpFormatter>());
  app.footer(
      "'quintet VERB --help' describes a verb. Exit codes: 0 success, 2 invalid input, 128 + n stopped by "
      "signal n, 1 any other failure.");
  const std::vector<Verb> verbs = add_verbs(app);
  refuse_odd_values(app);
  if (argc < 2) {
    print_help(app.help());
    return kExitGood;
  }
  std::vector<char*> words = without_help_verb(argc, argv);
  argc = static_cast<int>(words.size()), argv = words.data();
  const bool json =
      std::any_of(argv + 1, argv + argc, [](std::string_view word) { return word == "--json"; });
  return run_reporting(json, [&] {
    const auto [command, verb_words] = require_known_verb(app, argc, argv);
    try {
      app.parse(argc, argv);
    } catch (const CLI::CallForHelp&) {
      print_help(app.help());
      return kExitGood;
    } catch (const CLI::CallForVersion& e) {
      print(fmt::format("{}\n", e.what()));
      return kExitGood;
    } catch (const CLI::ParseError& e) {
      const std::string unknown = unknown_option(*command, argc, argv);
      config::fail_coded(config::kOptionsAreValid, "{}; see 'quintet {}--help'",
                         unknown.empty() ? plain_words(e) : unknown, verb_words);
    }
    for (const Verb& verb : verbs)
      if (verb.command->parsed()) return verb.action();
    return kExitUser;
  });
}

}  // namespace

namespace {

// Where the rest of a line goes: below its last column, or further left where its longest word needs it.
size_t indent_of_rest(std::string_view line, size_t width) {
  size_t longest = 0;
  for (size_t at = 0; at < line.size();) {
    const size_t end = std::min(line.find(' ', at), line.size());
    longest = std::max(longest, base::columns_of(line.substr(at, end - at)));
    at = end + 1;
  }
  const size_t indent = base::hanging_indent(line, width);
  return indent + longest <= width ? indent
                                   : std::min(indent, std::max<size_t>(4, width - std::min(width, longest)));
}

void write_out(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return;
  if (errno == EPIPE) throw ReaderGone();
  throw std::runtime_error("cannot write to standard output [Q9004]");
}

}  // namespace

size_t report_columns() {
  const observe::Console& console = observe::Console::standard_output();
  return console.is_terminal() ? static_cast<size_t>(std::max(40, console.width() - 1)) : 0;
}

void print_report(std::string_view text) {
  const size_t width = report_columns();
  // Quotes what recipes, manifests and files say, and may reach a terminal through a pipe.
  if (width == 0) return write_out(base::printable(text));
  std::string out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    out += base::wrapped(line, width, indent_of_rest(line, width)) + "\n";
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  print(out);
}

void print(std::string_view text) {
  write_out(observe::Console::standard_output().is_terminal() ? base::printable(text) : std::string(text));
}

void print_highlighted(std::string_view text) {
  const bool colours = observe::Console::standard_output().is_terminal() && config::wants_colours();
  if (!colours) return print(fmt::format("{{+{}+}}", text));
  write_out(fmt::format("\x1b[32m{}\x1b[0m", base::printable(text)));
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
  } catch (const quintet::base::UserError& e) {
    quintet::cli::complain(e.what());
    quintet::cli::suggest_explain(e.code());
    return quintet::cli::kExitUser;
  } catch (const std::exception& e) {
    quintet::cli::complain_of_failure(e);
    return quintet::cli::kExitFailure;
  }
}
