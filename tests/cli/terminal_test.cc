// The tool on a pseudo-terminal of 80 columns: what a person sees.
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>

#include <algorithm>
#include <cstring>

#include "chat/tiny_tokenizer.h"
#include "cli/support.h"
#include "support/folders.h"

namespace quintet {
namespace {

using test::SmallRun;

constexpr int kColumns = 80;

// What is on the screen in the end, and whether any line was ever wider than the terminal.
struct Screen {
  int code = -1;
  std::string raw;
  std::vector<std::string> lines;
  bool wrapped = false;

  std::string text() const {
    std::string all;
    for (const std::string& line : lines) all += line + "\n";
    return all;
  }
};

// Carries out carriage returns and erasures, and drops colours.
void render(Screen& screen) {
  std::string line;
  size_t column = 0;
  const std::string& raw = screen.raw;
  for (size_t i = 0; i < raw.size(); ++i) {
    const char c = raw[i];
    if (c == '\x1b' && i + 1 < raw.size() && raw[i + 1] == '[') {
      const size_t end = raw.find_first_of("mK", i);
      if (end == std::string::npos) break;
      if (raw[end] == 'K') line.clear(), column = 0;
      i = end;
    } else if (c == '\r') {
      column = 0;
    } else if (c == '\n') {
      screen.lines.push_back(line);
      line.clear();
      column = 0;
    } else {
      line.resize(std::max(line.size(), column + 1), ' ');
      line[column++] = c;
      screen.wrapped = screen.wrapped || column >= kColumns;
    }
  }
  if (!line.empty()) screen.lines.push_back(line);
}

// Runs the tool with all descriptors on a terminal, and types `input`.
Screen on_terminal(const std::vector<std::string>& arguments, const std::string& input = {},
                   const std::string& no_color = {}, const char* term = "xterm") {
  Screen screen;
  const int master = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (master < 0 || ::grantpt(master) != 0 || ::unlockpt(master) != 0) return screen;
  const std::string name = ::ptsname(master);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::setsid();
    const int slave = ::open(name.c_str(), O_RDWR);
    winsize size{};
    size.ws_col = kColumns, size.ws_row = 24;
    ::ioctl(slave, TIOCSWINSZ, &size);
    for (const int fd : {0, 1, 2}) ::dup2(slave, fd);
    ::setenv("TERM", term, 1);
    ::setenv("NO_COLOR", no_color.c_str(), 1);
    std::vector<char*> argv = {const_cast<char*>(test::kTool.c_str())};
    for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    ::execv(test::kTool.c_str(), argv.data());
    ::_exit(127);
  }
  size_t typed = 0;
  char buffer[4096];
  pollfd ready{.fd = master, .events = POLLIN, .revents = 0};
  while (::poll(&ready, 1, 120'000) > 0) {
    const ssize_t n = ::read(master, buffer, sizeof buffer);
    if (n <= 0) break;  // the last process on the terminal has ended
    screen.raw.append(buffer, static_cast<size_t>(n));
    // One line is typed after each question.
    if (typed < input.size() && screen.raw.ends_with("\n")) {
      const size_t end = input.find('\n', typed) + 1;
      if (::write(master, input.data() + typed, end - typed) < 0) break;
      typed = end;
    }
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  ::close(master);
  screen.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  std::erase(screen.raw, '\0');
  render(screen);
  return screen;
}

#define SKIP_WITHOUT_TERMINAL(screen) \
  if ((screen).code == -1) GTEST_SKIP() << "no pseudo-terminal available: mount devpts at /dev/pts"

size_t line_with(const Screen& screen, const std::string& text) {
  const auto found = std::find_if(screen.lines.begin(), screen.lines.end(), [&](const std::string& line) {
    return line.find(text) != std::string::npos;
  });
  return static_cast<size_t>(found - screen.lines.begin());
}

TEST(Terminal, ARunFitsIntoEightyColumns) {
  const SmallRun small;
  const Screen s = on_terminal({"train", small.recipe_file().string(), "--set", "eval.every=2", "--set",
                                "run.log_every=2", "--set", "run.steps=5", "--sample", "0"});
  SKIP_WITHOUT_TERMINAL(s);
  EXPECT_EQ(s.code, 0) << s.raw;
  EXPECT_FALSE(s.wrapped) << s.text();
  // Lines of logged steps stay; the last evaluation comes after the last step, and no live line is left.
  for (const char* kept : {"step 1/5", "step 2/5", "step 4/5", "step 5/5"})
    EXPECT_LT(line_with(s, kept), s.lines.size()) << kept << "\n" << s.text();
  EXPECT_EQ(line_with(s, "step 3/5"), s.lines.size()) << s.text();
  EXPECT_GT(line_with(s, "eval at step 5"), line_with(s, "step 5/5"));
  EXPECT_EQ(line_with(s, "[="), s.lines.size()) << s.text();
  EXPECT_NE(s.raw.find("[========="), std::string::npos);  // it was there
  EXPECT_LT(line_with(s, "set-up"), s.lines.size());
  EXPECT_NE(s.raw.find("\x1b[1m"), std::string::npos);
  for (const std::string& line : s.lines)
    if (line.starts_with("step ") && line.find("/5  ") != std::string::npos) {
      EXPECT_NE(line.find("left "), std::string::npos) << line;
    }
}

// Of texts and of conversations: how much is read, how fast, and how long it will take.
TEST(Terminal, PreparingShowsABar) {
  const test::TempFolder folder;
  test::write_tiny_tokenizer(folder / "tok");
  std::string text, chat;
  const std::string words(1000, 'x');  // several buffers of the reader
  for (int i = 0; i < 4000; ++i) {
    text += fmt::format("{{\"text\": \"document {} {}\"}}\n", i, words);
    chat += fmt::format(
        R"({{"messages": [{{"role": "user", "content": "{}{}"}}, {{"role": "assistant", "content": "a"}}]}})",
        i, words);
    chat += "\n";
  }
  base::write_file_atomically(folder / "text.jsonl", text);
  base::write_file_atomically(folder / "chat.jsonl", chat);
  for (const std::string kind : {"text", "chat"}) {
    std::vector<std::string> arguments = {"prepare",     (folder / (kind + ".jsonl")).string(),
                                          "--tokenizer", (folder / "tok").string(),
                                          "--out",       (folder / kind).string(),
                                          "--shard",     "400000"};
    if (kind == "chat") arguments.emplace_back("--chat");
    const Screen s = on_terminal(arguments);
    SKIP_WITHOUT_TERMINAL(s);
    EXPECT_EQ(s.code, 0) << s.raw;
    EXPECT_NE(s.raw.find("reading [#"), std::string::npos) << kind << s.raw;
    EXPECT_NE(s.raw.find(" MB/s, "), std::string::npos) << s.raw;
    EXPECT_NE(s.raw.find(" s left"), std::string::npos) << s.raw;
    EXPECT_EQ(line_with(s, "reading"), s.lines.size()) << "no live line is left\n" << s.text();
    EXPECT_LT(line_with(s, "lengths  median"), s.lines.size()) << s.text();
  }
}

TEST(Terminal, NoColorIsRespected) {
  const SmallRun small;
  const Screen s = on_terminal({"train", small.recipe_file().string(), "--dry-run", "-v"}, {}, "1");
  SKIP_WITHOUT_TERMINAL(s);
  EXPECT_EQ(s.code, 0) << s.raw;
  EXPECT_EQ(s.raw.find("\x1b[1m"), std::string::npos);
  EXPECT_FALSE(s.wrapped) << s.text();
  EXPECT_LT(line_with(s, "guards"), s.lines.size()) << "-v has every setting";
}

TEST(Terminal, ADumbTerminalGetsNoEscapeSequences) {
  const SmallRun small;
  const Screen s = on_terminal({"train", small.recipe_file().string(), "--sample", "0"}, {}, {}, "dumb");
  SKIP_WITHOUT_TERMINAL(s);
  EXPECT_EQ(s.code, 0) << s.raw;
  EXPECT_EQ(s.raw.find('\x1b'), std::string::npos) << s.raw;
  EXPECT_LT(line_with(s, "step 6/6"), s.lines.size());
}

TEST(Terminal, ProblemsAndPlansFitIntoEightyColumns) {
  const SmallRun small;
  const std::string recipe = small.recipe_file().string();
  const Screen bad =
      on_terminal({"check", recipe, "--set", "parallel.tp=3", "--set", "optimizer.name=adamww"});
  SKIP_WITHOUT_TERMINAL(bad);
  EXPECT_EQ(bad.code, 2);
  EXPECT_FALSE(bad.wrapped) << bad.text();
  const Screen plan = on_terminal(
      {"plan", recipe, "--search", "--plans", "2", "--cluster", "1x4 h100", "--tokens", "1B", "--scaling"});
  EXPECT_FALSE(plan.wrapped) << plan.text();
  EXPECT_GT(plan.lines.size(), 20u) << plan.text();
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"--help"}, {"train", "--help"}, {"plan", "--help"}, {"init", "--help"}}) {
    const Screen help = on_terminal(words);
    EXPECT_FALSE(help.wrapped) << help.text();
  }
  // Paragraphs of the help start at the margin, all of their lines.
  EXPECT_CONTAINS(on_terminal({"train", "--help"}).text(),
                  "without pipeline stages a long step is abandoned at the next micro-batch), save");
}

TEST(Terminal, ReportsFitIntoEightyColumns) {
  const SmallRun small;
  const std::string recipe = small.recipe_file().string(), run = small.run_dir().string();
  ASSERT_EQ(test::quintet("train " + recipe + " --sample 0").code, 0);
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"verify", recipe, "--dtype", "f64", "--steps", "2"},
           {"bench", "reference", test::source_dir() + "/docs/reference/published_runs.csv", "--source",
            "LLMC"},
           {"bench", "step", recipe, "--steps", "2", "--warmup", "3"},
           {"data", "ledger", run, "--step", "2"},
           {"checkpoint", "show", run, "--tensors"},
           {"explain", "Q1210"},
           {"schedule", "--name", "zb-v", "--pp", "4", "--micro", "16"},
           {"schedule", "--name", "zb-v", "--pp", "4", "--micro", "8", "--gantt"},
           {"--version"},
           {"program", recipe}}) {
    const Screen s = on_terminal(words);
    SKIP_WITHOUT_TERMINAL(s);
    EXPECT_FALSE(s.wrapped) << words[0] << "\n" << s.text();
    EXPECT_GT(s.lines.size(), 2u) << words[0];
    // Rows of a chart are cut into panels, not wrapped at a space.
    for (const std::string& line : s.lines)
      if (words.back() == "--gantt" && line.find('|') != std::string::npos) {
        EXPECT_EQ(std::count(line.begin(), line.end(), '|'), 2) << s.text();
      }
  }
}

// Whatever is printed to a terminal: no control character of a file reaches it.
TEST(Terminal, ControlCharactersAreShown) {
  const SmallRun small;
  base::write_file_atomically(small / "ids.txt", "27 91 51 49 109 65 194 155 10");  // ESC [ 3 1 m A U+009B
  const Screen s = on_terminal({"tokenizer", "decode", "--tokenizer", "bytes", (small / "ids.txt").string()});
  SKIP_WITHOUT_TERMINAL(s);
  EXPECT_EQ(s.code, 0) << s.raw;
  EXPECT_EQ(s.raw.find('\x1b'), std::string::npos) << s.raw;
  EXPECT_EQ(s.raw.find('\x9b'), std::string::npos) << s.raw;
  EXPECT_CONTAINS(s.text(), "\\x1b[31mA\\xc2\\x9b");
  const std::string pipe =
      test::quintet("tokenizer decode --tokenizer bytes " + (small / "ids.txt").string()).out;
  EXPECT_EQ(pipe, "\x1b[31mA\xc2\x9b\n") << "a pipe gets the bytes";
}

TEST(Terminal, InitAsksAndWritesARecipeThatPassesCheck) {
  const SmallRun small;
  const std::string file = (small / "asked.toml").string();
  const Screen s =
      on_terminal({"init", file}, (small / "data.txt").string() + "\nllama9-8b\n?\nllama-tiny\ncpu\n2\n10\n");
  SKIP_WITHOUT_TERMINAL(s);
  EXPECT_EQ(s.code, 0) << s.raw;
  EXPECT_CONTAINS(s.text(), "there is no preset 'llama9-8b', did you mean 'llama3-8b'?");
  EXPECT_CONTAINS(s.text(), "deepseek-v3");
  EXPECT_EQ(test::quintet("check " + file).code, 0) << base::read_file(file);
  EXPECT_CONTAINS(base::read_file(file), "dp_shard = 2");
}

}  // namespace
}  // namespace quintet
