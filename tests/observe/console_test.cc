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
  EXPECT_EQ(fit_fields(fields, 21), "step 1/2  loss 3");
  EXPECT_EQ(fit_fields(fields, 3), "step 1/2");
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

TEST(Progress, TerminalHasOneLiveLineThatFits) {
  Pipe pipe;
  Console console({pipe.in(), true, 30});
  g_time = 0;
  {
    Progress progress(console, {.total_steps = 2, .done_before = 0, .every = 100, .now_ns = fake_now});
    progress.update({1, 2.5, 12'345, 1.25, 3e-4});
    EXPECT_EQ(pipe.take(), "\r\x1b[2Kstep 1/2  loss 2.5000");
    progress.update({2, 2.25, 12'345, 1.25, 3e-4});
    EXPECT_EQ(pipe.take(), "\r\x1b[2Kstep 2/2  loss 2.2500");
  }
  EXPECT_EQ(pipe.take(), "\n");
}

}  // namespace
}  // namespace quintet::observe
