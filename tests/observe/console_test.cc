#include "observe/console.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "observe/log.h"
#include "observe/progress.h"

namespace quintet::observe {
namespace {

// A pipe whose read end collects the console's output.
class Pipe {
 public:
  Pipe() {
    if (::pipe(ends_) != 0) throw std::runtime_error("no pipe");
    ::fcntl(ends_[0], F_SETFL, O_NONBLOCK);
  }
  ~Pipe() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  int in() const { return ends_[1]; }
  std::string take() {
    std::string text;
    char buffer[4096];
    for (ssize_t n; (n = ::read(ends_[0], buffer, sizeof buffer)) > 0;)
      text.append(buffer, static_cast<size_t>(n));
    return text;
  }

 private:
  int ends_[2];
};

int64_t g_time = 0;
int64_t fake_now() { return g_time; }

TEST(Console, PipeGetsPlainLinesOnly) {
  Pipe pipe;
  Console console({pipe.in(), {}, {}});
  EXPECT_FALSE(console.is_terminal());
  console.set_live("live");
  console.print_line("line");
  console.end_live();
  EXPECT_EQ(pipe.take(), "line\n");
}

TEST(Console, LinesGoAboveTheLiveLine) {
  Pipe pipe;
  {
    Console console({pipe.in(), true, 20});
    console.set_live("step 1");
    console.print_line("hello");
    EXPECT_EQ(pipe.take(), "\r\x1b[2Kstep 1\r\x1b[2Khello\nstep 1");
    console.end_live();
    console.end_live();
    EXPECT_EQ(pipe.take(), "\n");
    console.set_live("again");
    pipe.take();
  }
  EXPECT_EQ(pipe.take(), "\n");  // the destructor starts a new line
}

TEST(Console, LiveLineIsTruncatedBetweenCharacters) {
  Pipe pipe;
  Console console({pipe.in(), true, 5});
  console.set_live("a\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9");
  EXPECT_EQ(pipe.take(), "\r\x1b[2Ka\xC3\xA9\xC3\xA9\xC3\xA9");
}

TEST(Console, AsksTheTerminal) {
  const int master = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (master < 0 || ::grantpt(master) != 0 || ::unlockpt(master) != 0)
    GTEST_SKIP() << "no pseudo-terminal available (" << std::strerror(errno)
                 << "): mount devpts at /dev/pts to run this test";
  const int slave = ::open(::ptsname(master), O_RDWR | O_NOCTTY);
  ASSERT_GE(slave, 0);
  winsize size{};
  size.ws_col = 57;
  ASSERT_EQ(::ioctl(slave, TIOCSWINSZ, &size), 0);
  {
    const Console console({slave, {}, {}});
    EXPECT_TRUE(console.is_terminal());
    EXPECT_EQ(console.width(), 57);
  }
  ::close(slave);
  ::close(master);
}

// A terminal that becomes narrower breaks the live line into rows: all of them are erased.
TEST(Console, ErasesTheRowsOfALiveLineThatNoLongerFits) {
  const int master = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (master < 0 || ::grantpt(master) != 0 || ::unlockpt(master) != 0)
    GTEST_SKIP() << "no pseudo-terminal available (" << std::strerror(errno)
                 << "): mount devpts at /dev/pts to run this test";
  const int slave = ::open(::ptsname(master), O_RDWR | O_NOCTTY);
  ASSERT_GE(slave, 0);
  const auto resize = [&](unsigned short columns) {
    winsize size{};
    size.ws_col = columns;
    ASSERT_EQ(::ioctl(slave, TIOCSWINSZ, &size), 0);
  };
  const auto shown = [&] {
    char text[4096];
    return std::string(text, static_cast<size_t>(std::max<ssize_t>(0, ::read(master, text, sizeof text))));
  };
  {
    Console console({slave, {}, {}});
    resize(80);
    console.set_live(std::string(79, 'a'));
    shown();
    resize(40);
    console.set_live("bb");
    EXPECT_EQ(shown(), "\r\x1b[1A\x1b[Jbb");
    resize(80);
    console.set_live(std::string(70, 'c'));
    shown();
    resize(30);
    console.print_line("hello");
    EXPECT_EQ(shown(), "\r\x1b[2A\x1b[Jhello\r\n" + std::string(29, 'c'));
    console.clear_live();
    EXPECT_EQ(shown(), "\r\x1b[2K");
  }
  ::close(slave);
  ::close(master);
}

TEST(Console, LinesOfThreadsDoNotMix) {
  Pipe pipe;
  Console console({pipe.in(), {}, {}});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&console, t] {
      for (int i = 0; i < 20; ++i) console.print_line(std::string(40, static_cast<char>('a' + t)));
    });
  for (auto& thread : threads) thread.join();
  const std::string text = pipe.take();
  ASSERT_EQ(text.size(), 4u * 20 * 41);
  for (size_t at = 0; at < text.size(); at += 41)
    ASSERT_EQ(text.substr(at, 41), std::string(40, text[at]) + "\n");
}

TEST(Console, LiveLineAndLinesFromSeveralThreads) {
  Pipe pipe;
  Console console({pipe.in(), true, 40});
  std::thread other([&] {
    for (int i = 0; i < 100; ++i) console.set_live("live");
  });
  for (int i = 0; i < 100; ++i) console.print_line("line");
  other.join();
  const std::string text = pipe.take();
  size_t lines = 0;
  for (size_t at = 0; (at = text.find("line\n", at)) != std::string::npos; ++at) ++lines;
  EXPECT_EQ(lines, 100u);
}

TEST(Log, LevelsAndRank) {
  Pipe pipe;
  Console console({pipe.in(), {}, {}});
  const Log log(console, Level::Info);
  log.debug("hidden {}", 1);
  log.info("shown {}", 2);
  log.with_rank(3).warning("odd");
  log.with_rank(3).info("fine");
  log.error("bad");
  EXPECT_EQ(pipe.take(), "shown 2\n[rank 3] warning: odd\n[rank 3] fine\nerror: bad\n");
  Log(console, Level::Silent).error("nothing");
  Log(console, Level::Debug).debug("all");
  EXPECT_EQ(pipe.take(), "debug: all\n");
  EXPECT_EQ(parse_level("warning"), Level::Warning);
  EXPECT_EQ(parse_level("loud"), std::nullopt);
}

TEST(Progress, FieldsThatFit) {
  const std::vector<std::string> fields = {"step 1/2", "loss 3", "lr 4"};
  EXPECT_EQ(fit_fields(fields, 0), "step 1/2  loss 3  lr 4");
  EXPECT_EQ(fit_fields(fields, 22), "step 1/2  loss 3  lr 4");
  // The first and the last stay.
  EXPECT_EQ(fit_fields(fields, 21), "step 1/2  lr 4");
  EXPECT_EQ(fit_fields(fields, 3), "step 1/2  lr 4");
  EXPECT_EQ(fit_fields({"step 1/2"}, 3), "step 1/2");
}

TEST(Progress, PipeShowsFirstEveryNthAndLast) {
  Pipe pipe;
  Console console({pipe.in(), {}, {}});
  g_time = 0;
  Progress progress(console, {.total_steps = 25, .done_before = 0, .every = 10, .now_ns = fake_now});
  for (int step = 1; step <= 25; ++step) {
    g_time += 2'000'000'000;
    progress.update({step, 2.5, 12'345, 1.25, 3e-4});
  }
  progress.finish();
  EXPECT_EQ(pipe.take(),
            "step  1/25  loss 2.5000  12.3k tok/s  grad 1.250  lr 3.00e-04  left 48s\n"
            "step 10/25  loss 2.5000  12.3k tok/s  grad 1.250  lr 3.00e-04  left 30s\n"
            "step 20/25  loss 2.5000  12.3k tok/s  grad 1.250  lr 3.00e-04  left 10s\n"
            "step 25/25  loss 2.5000  12.3k tok/s  grad 1.250  lr 3.00e-04  left 0s\n");
}

TEST(Progress, TimeLeftCountsThisRunsStepsOnly) {
  Pipe pipe;
  Console console({pipe.in(), {}, {}});
  g_time = 0;
  Progress progress(console, {.total_steps = 200, .done_before = 100, .every = 1, .now_ns = fake_now});
  g_time = 3'000'000'000;
  progress.update({101, 1, 1, 1, 1});
  EXPECT_NE(pipe.take().find("left 4m 57s"), std::string::npos);
}

TEST(Progress, ShowsTheLoadOfExpertsWhereThereAreAny) {
  Pipe pipe;
  Console console({pipe.in(), {}, {}});
  g_time = 0;
  Progress progress(console, {.total_steps = 1, .now_ns = fake_now});
  progress.update({1, 2.5, 12'345, 1.25, 3e-4, 1.416});
  EXPECT_EQ(pipe.take(),
            "step 1/1  loss 2.5000  12.3k tok/s  grad 1.250  lr 3.00e-04  load 1.42x  left 0s\n");
}

// On a terminal lines stay above the live line, and the time left is always there.
TEST(Progress, TerminalKeepsLinesAboveTheLiveOne) {
  Pipe pipe;
  Console console({pipe.in(), true, 40});
  g_time = 0;
  const std::string erase = "\r\x1b[2K";
  {
    Progress progress(console, {.total_steps = 4, .done_before = 0, .every = 2, .now_ns = fake_now});
    g_time = 1'000'000'000;
    progress.update({1, 2.5, 12'345, 1.25, 3e-4});
    EXPECT_EQ(pipe.take(), "step 1/4  loss 2.5000  left 3s\n" + erase + "[====>           ]  25 %  left 3s");
    g_time = 2'000'000'000;
    progress.update({2, 2.25, 12'345, 1.25, 3e-4});
    EXPECT_EQ(pipe.take(), erase + "step 2/4  loss 2.2500  left 2s\n[====>           ]  25 %  left 3s" +
                               erase + "[========>       ]  50 %  left 2s");
    g_time = 3'000'000'000;
    progress.update({3, 2.0, 12'345, 1.25, 3e-4});
    EXPECT_EQ(pipe.take(), erase + "[============>   ]  75 %  left 1s");
    progress.update({4, 1.5, 12'345, 1.25, 3e-4});
    pipe.take();
    console.print_line("eval at step 4");
    EXPECT_EQ(pipe.take(), "eval at step 4\n");  // after the last step
  }
  EXPECT_EQ(pipe.take(), "");
}

// A run that is stopped between two lines ends with the line of its last step.
TEST(Progress, TheLastStepHasALine) {
  Pipe pipe;
  Console console({pipe.in(), {}, {}});
  g_time = 0;
  {
    Progress progress(console, {.total_steps = 100, .done_before = 0, .every = 50, .now_ns = fake_now});
    for (int step = 1; step <= 7; ++step) progress.update({step, 2.5, 12'345, 1.25, 3e-4});
    pipe.take();
  }
  EXPECT_NE(pipe.take().find("step   7/100"), std::string::npos);
}

TEST(Console, LongLinesAreBrokenOnATerminal) {
  Pipe pipe;
  Console console({pipe.in(), true, 30});
  console.print_line("memory       21 MiB planned on rank 0", kLabelled);
  EXPECT_EQ(pipe.take(), "memory       21 MiB planned\n             on rank 0\n");
  console.print_line("sample       " + std::string(20, 'x'), {.indent = 13, .break_words = true});
  EXPECT_EQ(pipe.take(), "sample\n             xxxxxxxxxxxxxxxx\n             xxxx\n");
  Console plain({pipe.in(), false, 30});
  plain.print_line("memory       21 MiB planned on rank 0", kLabelled);
  EXPECT_EQ(pipe.take(), "memory       21 MiB planned on rank 0\n");
}

TEST(Console, ColoursAreForTerminalsOnly) {
  Pipe pipe;
  Console console({pipe.in(), true, 80}), plain({pipe.in(), false, 80});
  Console::allow_colours(true);
  console.print_line("warning: odd", {.style = Style::Warning});
  console.print_line("model        tiny", kLabelled);
  plain.print_line("model        tiny", kLabelled);
  Console::allow_colours(false);
  console.print_line("model        tiny", kLabelled);
  EXPECT_EQ(
      pipe.take(),
      "\x1b[33mwarning: odd\x1b[0m\n\x1b[1mmodel        \x1b[0mtiny\nmodel        tiny\nmodel        tiny\n");
}

}  // namespace
}  // namespace quintet::observe
