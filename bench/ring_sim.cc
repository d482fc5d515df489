// Simulated steps of ring attention: how much of the transfers shows, by length of the sequence.
//   ring_sim [--trace FILE]      FILE: Chrome trace of the longest sequence, all ranks
// The model is one block of Llama 3 8B; rates are those of an accelerator of today with links of 50 GB/s.
#include <fmt/format.h>

#include "compiler/compile.h"
#include "config/parse.h"
#include "observe/trace.h"
#include "program/simulate.h"

namespace quintet {
namespace {

constexpr program::SimRates kRates{
    .flops_per_ns = 500e3, .memory_bytes_per_ns = 3e3, .sent_bytes_per_ns = 50, .latency_ns = 10e3};
constexpr int kRanks = 4;

struct World {
  std::vector<compiler::RankProgram> ranks;
  std::vector<const program::Program*> programs;
  std::vector<const program::Expanded*> steps;

  explicit World(int64_t seq_len)
      : ranks(compiler::compile_world(
            config::parse(
                "name = 'ring'\n[model]\npreset = 'llama3-8b'\n[optimizer]\nlr = 1e-4\n[run]\nsteps = 1\n",
                {"model.layers=1", "batch.micro=1", "batch.accumulation=2", "precision.compute=bf16",
                 fmt::format("data.seq_len={}", seq_len), fmt::format("parallel.cp={}", kRanks),
                 "parallel.cp_method=ring"}),
            {}, 2)) {
    for (const compiler::RankProgram& r : ranks) programs.push_back(&r.program), steps.push_back(&r.step);
  }
};

// Nanoseconds in which rank 0 moves K, V and their gradients, and in which its computing waits for them.
struct Shown {
  double moving = 0, waiting = 0;
};
Shown shown(const World& world, const program::Simulation& sim) {
  Shown sum;
  const program::Program& p = *world.programs[0];
  for (size_t k = 0; k < sim.ranks[0].size(); ++k) {
    const program::Instr& instr = program::instr_of(p, world.steps[0]->issues[k]);
    const program::SimSpan& span = sim.ranks[0][k];
    const auto is_context = [&](program::StreamId s) { return p.streams[s.index()].name.starts_with("cp."); };
    if (p.streams[instr.stream.index()].name == "cp.recv") sum.moving += span.end - span.start;
    if (instr.stream == program::kComputeStream && span.waited_for.valid() && is_context(span.waited_for))
      sum.waiting += span.stall();
  }
  return sum;
}

void write(const World& world, const program::Simulation& sim, const std::string& path) {
  std::vector<observe::RankTrace> traces;
  for (size_t r = 0; r < world.programs.size(); ++r) {
    const program::Program& p = *world.programs[r];
    observe::RankTrace& trace = traces.emplace_back(static_cast<int>(r));
    for (const program::Stream& s : p.streams) trace.add_stream(s.name);
    for (size_t k = 0; k < sim.ranks[r].size(); ++k) {
      const program::Issue& issue = world.steps[r]->issues[k];
      const program::Instr& instr = program::instr_of(p, issue);
      const program::SimSpan& span = sim.ranks[r][k];
      if (instr.kind == program::InstrKind::Free) continue;
      const bool moves = instr.kind == program::InstrKind::Collective;
      trace.add(instr.stream.value,
                moves      ? program::to_string(instr.collective.kind)
                : instr.op ? instr.op->name
                           : std::string_view("load_batch"),
                moves ? "communication" : "compute", static_cast<int64_t>(span.start),
                static_cast<int64_t>(span.end - span.start),
                {{"block", instr.block},
                 {"micro_batch", world.steps[r]->calls[static_cast<size_t>(issue.call)].micro}});
    }
  }
  observe::write_trace(path, traces);
}

}  // namespace
}  // namespace quintet

int main(int argc, char** argv) {
  using namespace quintet;
  const bool traces = argc == 3 && std::string_view(argv[1]) == "--trace";
  if (argc > 1 && !traces) {
    fmt::print(stderr, "usage: ring_sim [--trace FILE]\n");
    return 2;
  }
  fmt::print("{:>10} {:>10} {:>12} {:>12} {:>8}\n", "sequence", "step ms", "moving ms", "waiting ms",
             "hidden");
  for (const int64_t seq_len : {2048, 8192, 32768, 65536, 131072}) {
    const World world(seq_len);
    const program::Simulation sim = program::simulate(world.programs, world.steps, kRates);
    const Shown s = shown(world, sim);
    fmt::print("{:>10} {:>10.2f} {:>12.2f} {:>12.2f} {:>7.1f}%\n", seq_len, 1e-6 * sim.end, 1e-6 * s.moving,
               1e-6 * s.waiting, 100 * (1 - s.waiting / s.moving));
    if (traces && seq_len == 131072) write(world, sim, argv[2]);
  }
}
