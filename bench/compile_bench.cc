// Time to compile and verify the programs of all ranks of a large job.
//   compile_bench [--threads N] [--text DIR] [layout ...]     layouts: moe, moe_zero1, dense (default: all)
// Prints wall time and CPU time. --text writes the full text of every program to DIR, to compare two versions
// of the compiler.
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <fstream>

#include "base/clock.h"
#include "compiler/compile.h"
#include "config/parse.h"
#include "program/text.h"
#include "program/verify.h"

namespace quintet {
namespace {

const char* const kModel = R"(
name = "compile-bench"
[model]
preset = "llama3-8b"
[data]
seq_len = 8192
[batch]
micro = 1
accumulation = 8
[precision]
compute = "bf16"
[optimizer]
lr = 1e-4
[run]
steps = 1
)";

struct Case {
  std::string name;
  std::vector<std::string> overrides;
};

const std::vector<std::string> kExperts = {"model.moe.first_dense=1",     "model.moe.experts=32",
                                           "model.moe.top_k=4",           "model.moe.ffn=4096",
                                           "model.moe.balance_loss=0.01", "model.moe.z_loss=0.001"};

std::vector<Case> cases() {
  std::vector<Case> list = {
      {"moe",
       {"parallel.pp=2", "parallel.schedule=interleaved", "parallel.dp_shard=4", "parallel.zero=3",
        "parallel.cp=2", "parallel.tp=4", "parallel.sequence_parallel=true", "parallel.ep=8"}},
      {"moe_zero1",
       {"parallel.pp=4", "parallel.schedule=interleaved", "parallel.dp_shard=2", "parallel.zero=1",
        "parallel.cp=2", "parallel.cp_method=ring", "parallel.tp=4", "parallel.sequence_parallel=true",
        "parallel.ep=8"}},
      {"dense",
       {"parallel.pp=4", "parallel.schedule=interleaved", "parallel.dp_shard=2", "parallel.zero=1",
        "parallel.cp=2", "parallel.cp_method=ring", "parallel.tp=4", "parallel.sequence_parallel=true"}},
  };
  for (Case& c : list)
    if (c.name.starts_with("moe")) c.overrides.insert(c.overrides.end(), kExperts.begin(), kExperts.end());
  return list;
}

double processor_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

struct Stopwatch {
  int64_t wall = base::now_ns();
  double processor = processor_seconds();
  void lap(const std::string& what) {
    const int64_t now = base::now_ns();
    const double used = processor_seconds();
    fmt::print("  {:<18} {:7.3f} s wall {:7.3f} s CPU\n", what, 1e-9 * static_cast<double>(now - wall),
               used - processor);
    wall = now;
    processor = used;
  }
};

}  // namespace
}  // namespace quintet

int main(int argc, char** argv) {
  using namespace quintet;
  int threads = 2;
  std::string dir;
  std::vector<std::string> only;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--text" && i + 1 < argc)
      dir = argv[++i];
    else if (arg == "--threads" && i + 1 < argc)
      threads = std::stoi(argv[++i]);
    else
      only.push_back(arg);
  }
  const std::vector<Case> all = cases();
  for (const std::string& name : only)
    if (std::none_of(all.begin(), all.end(), [&](const Case& c) { return c.name == name; })) {
      fmt::print(stderr, "unknown layout {}; known: moe, moe_zero1, dense\n", name);
      return 2;
    }
  for (const Case& c : all) {
    if (!only.empty() && std::find(only.begin(), only.end(), c.name) == only.end()) continue;
    const config::Recipe recipe = config::parse(kModel, c.overrides);
    Stopwatch total, watch;
    const std::vector<compiler::RankProgram> world = compiler::compile_world(recipe, {}, threads);
    watch.lap("compile and verify");
    std::vector<const program::Program*> programs;
    std::vector<const program::Expanded*> steps;
    for (const compiler::RankProgram& one : world)
      programs.push_back(&one.program), steps.push_back(&one.step);
    program::verify_together(programs, steps);
    watch.lap("verify together");
    total.lap(c.name);

    size_t instrs = 0, issues = 0;
    for (const compiler::RankProgram& one : world) {
      for (const program::Body& b : one.program.bodies) instrs += b.instrs.size();
      issues += one.step.issues.size();
    }
    fmt::print("  {} ranks, {} instructions in bodies, {} issued in a step\n", world.size(), instrs, issues);
    if (!dir.empty())
      for (size_t r = 0; r < world.size(); ++r)
        std::ofstream(fmt::format("{}/{}.{}", dir, c.name, r))
            << program::to_text(*programs[r], *steps[r], {.full = true})
            << program::to_text(*programs[r], *steps[r], {.form = program::TextOptions::Form::Expanded});
  }
}
