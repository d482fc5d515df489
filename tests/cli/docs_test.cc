// The commands that README.md and docs/ show are run, page by page and in order, on small recipes. Those that
// need a GPU (build-cuda/quintet), Slurm or minutes are compared with the options that the tool has.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "cli/support.h"
#include "support/folders.h"

namespace quintet {
namespace {

using test::Outcome;
using test::quintet;
using test::shell;

// Lines of fenced blocks of the given kind, without comments, continued lines joined.
std::vector<std::string> lines_of_blocks(const std::string& text, const std::string& kind) {
  std::vector<std::string> lines;
  bool inside = false, joined = false;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    at = end + 1;
    if (line.starts_with("```")) {
      inside = !inside && line == "```" + kind;
      continue;
    }
    if (!inside) continue;
    if (kind == "sh")
      if (const size_t comment = line.find(" #"); comment != std::string::npos) line.resize(comment);
    while (!line.empty() && line.back() == ' ') line.pop_back();
    const bool continues = line.ends_with('\\');
    if (continues) line.pop_back();
    if (joined)
      lines.back() += line;
    else
      lines.push_back(line);
    joined = continues;
  }
  return lines;
}

// The arguments of a command of the tool in a line; empty when there is none.
std::string arguments_in(const std::string& line) {
  static const std::regex kCommand(
      R"(^\s*(?:mpirun [^|]*?|srun [^|]*?)?(?:build(?:-cuda)?/)?quintet ((?!--)\S.*)$)");
  std::smatch found;
  return std::regex_match(line, found, kCommand) ? found[1].str() : std::string();
}

// Commands between backquotes outside of blocks: `quintet plan RECIPE --search`.
std::vector<std::string> commands_in_prose(const std::string& text) {
  std::string prose;
  bool inside = false;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```"))
      inside = !inside;
    else if (!inside)
      prose += line + " ";
  }
  static const std::regex kQuoted("`((?:build(?:-cuda)?/)?quintet [a-z][^`]*)`");
  std::vector<std::string> commands;
  for (std::sregex_iterator it(prose.begin(), prose.end(), kQuoted), end; it != end; ++it)
    commands.push_back((*it)[1]);
  return commands;
}

std::string readme() { return base::read_file(test::source_dir() + "/README.md"); }

TEST(Docs, CommandsOfTheReadmeRun) {
  const test::TempFolder folder;
  std::string recipe;
  for (const std::string& line : lines_of_blocks(readme(), "toml")) recipe += line + "\n";
  for (const auto& [from, to] : {std::pair{"seq_len = 256", "seq_len = 32"},
                                 {"global = 32", "global = 8"},
                                 {"steps = 200", "steps = 2"}}) {
    ASSERT_NE(recipe.find(from), std::string::npos) << recipe;
    recipe.replace(recipe.find(from), std::string(from).size(), to);
  }
  base::write_file_atomically(folder / "small.toml", recipe);
  for (const char* name : {"docs", "src"}) {
    base::make_directories(folder / name);
    base::write_file_atomically(folder / name / "text.md", readme());
  }
  int ran = 0;
  for (const std::string& line : lines_of_blocks(readme(), "sh")) {
    if (arguments_in(line).empty()) continue;
    if (line.starts_with("mpirun") && !test::has_mpirun()) continue;
    std::string command = std::regex_replace(line, std::regex("build/quintet"), test::kTool);
    if (line.starts_with("mpirun")) command = test::kMpiSettings + command;
    const Outcome o = shell("cd " + folder.path().string() + " && " + command);
    EXPECT_EQ(o.code, 0) << line << "\n" << o.out << o.err;
    ++ran;
  }
  EXPECT_GE(ran, 8);
}

struct Block {
  std::string kind;
  std::vector<std::string> lines;  // continued ones joined
};

std::vector<Block> blocks_of(const std::string& page) {
  std::vector<Block> blocks;
  bool inside = false, joined = false;
  std::istringstream text(page);
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("```")) {
      inside = !inside;
      if (inside) blocks.push_back({line.substr(3), {}});
      continue;
    }
    if (!inside) continue;
    std::vector<std::string>& lines = blocks.back().lines;
    const bool continues = line.ends_with('\\');
    if (continues) line.pop_back();
    if (joined)
      lines.back() += line;
    else
      lines.push_back(line);
    joined = continues;
  }
  return blocks;
}

std::string replaced(const std::string& text, const std::string& pattern, const std::string& by) {
  return std::regex_replace(text, std::regex(pattern), by);
}

// Compared with the tool's options only, as are commands of build-cuda/quintet (a GPU) and srun (Slurm).
// QUINTET_DOCS_ALL=1 runs them too, which takes minutes.
constexpr const char* kSlow[] = {"--model llama3-405b", "--model llama3-70b --cluster \"64x8 h100\" --search",
                                 "bench reference docs/reference/published_runs.csv"};
// Need a GPU, whatever the path of the tool.
constexpr const char* kOnGpu[] = {"build-cuda/", "bench step bench/gpu/", "--floors"};

bool is_run(const std::string& line) {
  const auto contains = [&](const char* part) { return line.find(part) != std::string::npos; };
  if (std::any_of(std::begin(kOnGpu), std::end(kOnGpu), contains) || line.starts_with("srun")) return false;
  if (line.starts_with("mpirun") && !test::has_mpirun()) return false;
  if (::getenv("QUINTET_DOCS_ALL") != nullptr) return true;
  return std::none_of(std::begin(kSlow), std::end(kSlow), contains);
}

// A line of a sh block as it is run, empty when it has no command of the tool. Words in capitals stand for a
// path, and what is in brackets may be left out.
std::string runnable(const std::string& line, int number) {
  std::string command = line.substr(0, line.find(" #"));
  if (arguments_in(command).empty()) return {};
  command = replaced(command, " \\[--[^\\]]*\\]", "");
  for (const auto& [word, path] : std::initializer_list<std::pair<const char*, std::string>>{
           {"RECIPE", "recipe.toml"},
           {"FOLDER", fmt::format("folder-{}", number)},
           {"SOURCE", "Llama-3.2-1B"},
           {"OUT", fmt::format("out-{}", number)},
           {"A", "Llama-3.2-1B"},
           {"B", "Llama-tuned"}})
    command = replaced(command, fmt::format(" {}(?= |$)", word), " " + path);
  command = replaced(command, "^(mpirun .*? )?(build/)?quintet ", "$1" + test::kTool + " ");
  return command.starts_with("mpirun") ? test::kMpiSettings + command : command;
}

// Commands in the prose of a page that say what they work on: a file or run that the folder has, with RECIPE
// for one, a code, a schedule. Others name a verb or an option, or a file of the reader's. Returns how many
// were run.
int run_prose(const std::string& page, const std::string& folder) {
  static const std::regex kPlaceholder(R"( (\.\.\.|[A-Z]+)( |$))"),
      kComplete("quintet (explain Q|schedule --name )");
  int ran = 0;
  for (const std::string& quoted : commands_in_prose(page)) {
    const std::string command = runnable(quoted, 100 + ran);
    if (command.empty() || !is_run(quoted) || std::regex_search(command, kPlaceholder)) continue;
    std::istringstream words(command.substr(command.find(test::kTool) + test::kTool.size()));
    bool has_file = false;
    for (std::string word; words >> word;)
      if (word.ends_with(".toml") || word.ends_with(".csv") || word.find('/') != std::string::npos)
        has_file |= base::file_exists(folder + "/" + word) || base::directory_exists(folder + "/" + word);
    if (!has_file && !std::regex_search(quoted, kComplete)) continue;
    const Outcome o = shell("cd " + folder + " && " + command);
    EXPECT_EQ(o.code, 0) << quoted << "\n" << o.out << o.err;
    ++ran;
  }
  return ran;
}

// Copies of recipes/ whose runs are short, some text, and bench/.
void fill_folder(const test::TempFolder& folder) {
  for (const base::Path& file : base::list_files(test::source_dir() + "/recipes")) {
    const base::Path copy = folder.path() / file.lexically_relative(test::source_dir());
    base::make_directories(copy.parent_path());
    std::string recipe = replaced(base::read_file(file), "\\nsteps = \\d+", "\nsteps = 2");
    base::write_file_atomically(copy, replaced(recipe, "\\nseq_len = 256", "\nseq_len = 32"));
  }
  for (const char* name : {"docs", "src"}) {
    base::make_directories(folder / name);
    base::write_file_atomically(folder / name / "text.md", readme());
  }
  base::write_file_atomically(folder / "README.md", readme());
  std::filesystem::create_directory_symlink(test::source_dir() + "/bench", folder / "bench");
}

// The commands of one page, in order, in a folder with a copy of recipes/ whose runs are short and what
// docs_fixture.sh adds. Returns how many were run.
//   toml   written as a file if the first line is a comment with its name: # mine.toml
//   sh     commands of the tool; "# exit code 1" states a code other than 0
//   text   every line but "..." occurs in the output of the sh block before it
// Those of its prose follow (run_prose).
int run_page(const base::Path& page) {
  SCOPED_TRACE(page.string());
  const std::string text = base::read_file(page);
  const std::vector<Block> blocks = blocks_of(text);
  const bool has_commands = std::any_of(blocks.begin(), blocks.end(), [](const Block& block) {
    return block.kind == "sh" &&
           std::any_of(block.lines.begin(), block.lines.end(),
                       [](const std::string& line) { return is_run(line) && !runnable(line, 0).empty(); });
  });
  if (!has_commands && commands_in_prose(text).empty()) return 0;
  const test::TempFolder folder;
  fill_folder(folder);
  const std::string in_folder = "cd " + folder.path().string() + " && ";
  const Outcome fixture = shell(in_folder + "QUINTET=" + test::kTool +
                                " PAGE=" + page.lexically_relative(test::source_dir() + "/docs").string() +
                                " && set -e && . " + test::source_dir() + "/tests/cli/docs_fixture.sh");
  EXPECT_EQ(fixture.code, 0) << fixture.out << fixture.err;
  std::string output;
  int ran = 0;
  for (const Block& block : blocks) {
    static const std::regex kFile(R"(# ([\w-]+\.toml))"), kCode("exit code (\\d+)");
    std::smatch found;
    if (block.kind == "toml" && !block.lines.empty() && std::regex_match(block.lines[0], found, kFile)) {
      std::string recipe;
      for (const std::string& line : block.lines) recipe += line + "\n";
      base::write_file_atomically(folder / found[1].str(), recipe);
    } else if (block.kind == "sh") {
      output.clear();
      for (const std::string& line : block.lines) {
        const std::string command = runnable(line, ran);
        if (command.empty() || !is_run(line)) continue;
        const Outcome o = shell(in_folder + command);
        const int expected = std::regex_search(line, found, kCode) ? std::stoi(found[1]) : 0;
        EXPECT_EQ(o.code, expected) << line << "\n" << o.out << o.err;
        output += o.out + o.err;
        ++ran;
      }
    } else if (block.kind == "text") {
      for (const std::string& line : block.lines)
        EXPECT_TRUE(line == "..." || output.find(line) != std::string::npos)
            << "'" << line << "' is not in the output:\n"
            << output;
    }
  }
  return ran + run_prose(text, folder.path().string());
}

int run_pages(const std::string& folder) {
  int ran = 0;
  for (const base::Path& page : base::list_files(test::source_dir() + "/docs/" + folder)) {
    const base::Path inside = page.lexically_relative(test::source_dir() + "/docs/" + folder);
    if (page.extension() == ".md" && inside.has_filename() && !inside.has_parent_path())
      ran += run_page(page);
  }
  return ran;
}

TEST(Docs, CommandsInTheProseOfTheReadmeRun) {
  const test::TempFolder folder;
  fill_folder(folder);
  EXPECT_GE(run_prose(readme(), folder.path().string()), 1);
}

TEST(Docs, CommandsOfTutorialsRun) { EXPECT_GE(run_pages("tutorials"), 20); }

TEST(Docs, CommandsOfGuidesRun) { EXPECT_GE(run_pages(""), 50); }

TEST(Docs, CommandsOfFormatsAndBenchmarksRun) {
  EXPECT_GE(run_pages("formats") + run_pages("benchmarks") + run_pages("reference"), 6);
}

TEST(Docs, ConvertedRecipesArePlannedAsShown) { EXPECT_GE(run_pages("coming-from"), 5); }

// docs/recipe.md is generated; `make recipe-docs` writes it.
TEST(Docs, RecipeReferenceIsUpToDate) {
  EXPECT_EQ(base::read_file(test::source_dir() + "/docs/recipe.md"), quintet("recipe --markdown").out)
      << "run: make recipe-docs";
}

TEST(Docs, ErrorReferenceIsUpToDate) {
  EXPECT_EQ(base::read_file(test::source_dir() + "/docs/errors.md"), quintet("explain --markdown").out)
      << "run: make recipe-docs";
}

// What `doctor --probe --out` suggests.
TEST(Docs, AProbedMachinePlansARecipeOfItsSize) {
  const test::SmallRun small;
  const std::string file = (small / "here.toml").string();
  const Outcome probe = quintet("doctor --probe --seconds 0.01 --no-disk --cpu --ranks 2 --out " + file);
  ASSERT_EQ(probe.code, 0) << probe.err;
  ASSERT_NE(probe.out.find("for recipes of up to 2 ranks: quintet plan RECIPE"), std::string::npos)
      << probe.out;
  std::string suggested = probe.out.substr(probe.out.find("plan RECIPE"));
  suggested.resize(suggested.find('\n'));
  suggested.replace(5, 6, small.recipe_file().string());
  for (const char* ranks : {" --set parallel.tp=1", " --set parallel.tp=1 --set parallel.dp_shard=1"}) {
    const Outcome plan = quintet(suggested + ranks);
    EXPECT_EQ(plan.code, 0) << suggested << ranks << "\n" << plan.err;
  }
}

TEST(Docs, CommandsUseOptionsThatExist) {
  std::map<std::string, std::string> help;
  const auto options_of = [&](const std::string& verb) {
    if (!help.contains(verb)) help[verb] = quintet(verb + " --help").out;
    return help[verb];
  };
  int checked = 0;
  std::vector<base::Path> pages = base::list_files(test::source_dir() + "/docs");
  pages.push_back(test::source_dir() + "/README.md");
  pages.push_back(test::source_dir() + "/CONTRIBUTING.md");
  static const std::regex kOption(R"((?:^|\s|\[)(--[a-z][a-z-]*))");
  for (const base::Path& page : pages) {
    if (page.extension() != ".md") continue;
    const std::string text = base::read_file(page);
    std::vector<std::string> lines = lines_of_blocks(text, "sh");
    for (const std::string& command : commands_in_prose(text)) lines.push_back(command);
    for (const std::string& line : lines) {
      const std::string arguments = arguments_in(line);
      if (arguments.empty()) continue;
      std::string verb = arguments.substr(0, arguments.find(' '));
      if (verb == "bench" || verb == "checkpoint" || verb == "data" ||
          verb == "tokenizer")  // which have verbs of their own
        verb = arguments.substr(0, arguments.find(' ', verb.size() + 1));
      const std::string known = options_of(verb);
      EXPECT_NE(known, "") << page << ": " << line;
      for (std::sregex_iterator it(arguments.begin(), arguments.end(), kOption), end; it != end; ++it) {
        EXPECT_TRUE(std::regex_search(known, std::regex((*it)[1].str() + "[ ,\n]")))
            << page << ": " << line << "\n'quintet " << verb << "' has no option " << (*it)[1];
      }
      ++checked;
    }
  }
  EXPECT_GE(checked, 250);
}

}  // namespace
}  // namespace quintet
