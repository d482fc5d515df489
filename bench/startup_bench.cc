// Cost of starting a large job: rank 0, which compiles and verifies one program per class of ranks, and an
// ordinary rank, which compiles and verifies its own; and the bytes that the ranks exchange to agree.
//   startup_bench [--threads N] [--repeat N]
// Each figure is the median of several child processes (--repeat, default 5), so that its peak memory is its
// own and the parent holds nothing that a child could reuse. Times are processor time over all threads, so
// that other jobs on the machine matter little.
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>

#include "compiler/compile.h"
#include "config/parse.h"
#include "program/expand.h"
#include "train/agreement.h"

namespace quintet {
namespace {

struct Case {
  std::string name, preset;
  std::vector<std::string> sets;
};

// Layouts in use at these sizes: Llama 3 405B on 16,384 GPUs is the published one.
const std::vector<Case> kCases = {
    {"64 ranks, 8B",
     "llama3-8b",
     {"parallel.pp=2", "parallel.dp_shard=4", "parallel.zero=1", "parallel.cp=2", "parallel.tp=4",
      "parallel.sequence_parallel=true", "batch.accumulation=8", "batch.micro=1"}},
    {"64 ranks, 8B, zero 3", "llama3-8b", {"parallel.dp_shard=64", "parallel.zero=3", "batch.micro=1"}},
    {"1,024 ranks, 70B",
     "llama3-70b",
     {"parallel.pp=4", "parallel.schedule=interleaved", "parallel.dp_shard=32", "parallel.zero=1",
      "parallel.tp=8", "parallel.sequence_parallel=true", "batch.accumulation=8", "batch.micro=1"}},
    {"1,024 ranks, experts",
     "mixtral-8x22b",
     {"parallel.pp=4", "parallel.dp_shard=64", "parallel.zero=1", "parallel.tp=4",
      "parallel.sequence_parallel=true", "parallel.ep=8", "batch.accumulation=8", "batch.micro=1"}},
    {"16,384 ranks, 405B",
     "llama3-405b",
     {"parallel.pp=16", "parallel.schedule=interleaved", "parallel.dp_shard=128", "parallel.zero=1",
      "parallel.tp=8", "parallel.sequence_parallel=true", "batch.accumulation=16", "batch.micro=1"}},
};

config::Recipe recipe_of(const Case& c) {
  const std::string text = fmt::format(
      "name = \"startup\"\n[model]\npreset = \"{}\"\n[data]\nseq_len = 8192\n[precision]\ncompute = "
      "\"bf16\"\n"
      "[optimizer]\nlr = 1e-4\n[run]\nsteps = 1\n",
      c.preset);
  return config::parse(text, c.sets);
}

struct Cost {
  double cpu_seconds = 0;
  double megabytes = 0;  // peak of the process, minus its size before
  double result = 0;     // of the work
};

double cpu_seconds(const rusage& r) {
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(r.ru_utime) + seconds(r.ru_stime);
}

Cost measure_once(const std::function<double()>& work) {
  int ends[2];
  if (pipe(ends) != 0) return {};
  const pid_t child = fork();
  if (child == 0) {
    rusage before{}, after{};
    getrusage(RUSAGE_SELF, &before);
    Cost cost{.result = work()};
    getrusage(RUSAGE_SELF, &after);
    cost.cpu_seconds = cpu_seconds(after) - cpu_seconds(before);
    cost.megabytes = static_cast<double>(after.ru_maxrss - before.ru_maxrss) / 1024;
    const bool sent = write(ends[1], &cost, sizeof(cost)) == sizeof(cost);
    _exit(sent ? 0 : 1);
  }
  Cost cost;
  close(ends[1]);
  const bool received = read(ends[0], &cost, sizeof(cost)) == sizeof(cost);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (!received || status != 0) fmt::print(stderr, "a measurement failed\n");
  return cost;
}

Cost measure(int repeat, const std::function<double()>& work) {
  std::vector<Cost> costs;
  for (int i = 0; i < repeat; ++i) costs.push_back(measure_once(work));
  std::ranges::sort(costs, {}, &Cost::cpu_seconds);
  return costs[costs.size() / 2];
}

// All that compile() does but the comparison with the class and the verifier.
void compile_and_expand(const config::Recipe& recipe, const compiler::CompileOptions& options) {
  const compiler::Compiled own = compiler::compile_unverified(recipe, options);
  program::expand(own.program, own.program.calls);
  program::expand(own.program, own.program.eval_calls);
}

}  // namespace
}  // namespace quintet

int main(int argc, char** argv) {
  using namespace quintet;
  int threads = 2, repeat = 5;
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::string(argv[i]) == "--threads") threads = std::stoi(argv[i + 1]);
    if (std::string(argv[i]) == "--repeat") repeat = std::stoi(argv[i + 1]);
  }
  fmt::print(
      "| job | classes | instructions | rank 0 | its memory | ordinary rank | of it verifying | its memory | "
      "received per rank | texts would be |\n|---|---|---|---|---|---|---|---|---|---|\n");
  for (const Case& c : kCases) {
    const config::Recipe recipe = recipe_of(c);
    const int64_t world = recipe.parallel.world(), classes = recipe.parallel.pp;
    const compiler::CompileOptions of_last{.rank = base::RankId(static_cast<int32_t>(world - 1))};
    const Cost first = measure(repeat, [&] {
      const compiler::Compiled own = compiler::compile(recipe, {});
      train::recipe_hash(recipe);
      return static_cast<double>(train::verified_classes(recipe, {}, own, threads).size());
    });
    if (first.result != static_cast<double>(classes)) {
      fmt::print(stderr, "{}: rank 0 verified {} of {} classes\n", c.name, first.result, classes);
      return 1;
    }
    const Cost ordinary = measure(repeat, [&] {
      const compiler::Compiled own = compiler::compile(recipe, of_last);
      train::recipe_hash(recipe);
      return static_cast<double>(own.step.issues.size());
    });
    const Cost unverified = measure(repeat, [&] { return compile_and_expand(recipe, of_last), 0.0; });
    const Cost text =
        measure_once([&] { return static_cast<double>(compiler::class_text(recipe, {}, 0).size()); });
    fmt::print(
        "| {} | {} | {:.0f} | {:.2f} s | {:.0f} MiB | {:.3f} s | {:.3f} s | {:.0f} MiB | {} B | {:.2f} GiB "
        "|\n",
        c.name, classes, ordinary.result, first.cpu_seconds, first.megabytes, ordinary.cpu_seconds,
        ordinary.cpu_seconds - unverified.cpu_seconds, ordinary.megabytes, train::agreement_bytes(classes),
        text.result * static_cast<double>(world) / (1 << 30));
    std::fflush(stdout);
  }
}
