// Simulated steps of ring attention: how much of the transfers is exposed, by sequence length.
//   ring_sim [--trace FILE]      FILE: Chrome trace of the longest sequence, all ranks
// The model is one block of Llama 3 8B; rates are those of a current accelerator with 50 GB/s links.
#include <fmt/format.h>

#include "compiler/compile.h"
#include "config/parse.h"
#include "sim/simulate.h"
#include "sim/trace.h"

namespace quintet {
namespace {

constexpr sim::Rates kRates{
    .flops_per_s = 500e12, .memory_bytes_per_s = 3e12, .sent_bytes_per_s = 50e9, .latency_s = 10e-6};
constexpr int kRanks = 4;

struct World {
  std::vector<compiler::RankProgram> ranks;
  sim::World world;

  explicit World(int64_t seq_len)
      : ranks(compiler::compile_world(
            config::parse(
                "name = 'ring'\n[model]\npreset = 'llama3-8b'\n[optimizer]\nlr = 1e-4\n[run]\nsteps = 1\n",
                {"model.layers=1", "batch.micro=1", "batch.accumulation=2", "precision.compute=bf16",
                 fmt::format("data.seq_len={}", seq_len), fmt::format("parallel.cp={}", kRanks),
                 "parallel.cp_method=ring"}),
            {}, 2)) {
    for (const compiler::RankProgram& r : ranks) world.ranks.push_back({&r.program, &r.step});
  }
};

// Seconds during which rank 0 transfers K, V and their gradients, and during which its compute waits for
// them.
struct Shown {
  double moving = 0, waiting = 0;
};
Shown shown(const sim::Rank& rank, const std::vector<sim::Span>& spans) {
  Shown sum;
  const program::Program& p = *rank.program;
  for (size_t k = 0; k < spans.size(); ++k) {
    const program::Instr& instr = program::instr_of(p, rank.expanded->issues[k]);
    const program::StreamId stream = sim::waited_for(rank, spans, k);
    if (p.streams[instr.stream.index()].name == "cp.recv") sum.moving += spans[k].end - spans[k].start;
    if (instr.stream == program::kComputeStream && stream.valid() &&
        p.streams[stream.index()].name.starts_with("cp."))
      sum.waiting += spans[k].stall();
  }
  return sum;
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
    const sim::Simulation simulation = sim::simulate(world.world, sim::by_rates(kRates));
    const Shown s = shown(world.world.ranks[0], simulation.ranks[0]);
    fmt::print("{:>10} {:>10.2f} {:>12.2f} {:>12.2f} {:>7.1f}%\n", seq_len, 1e3 * simulation.end,
               1e3 * s.moving, 1e3 * s.waiting, 100 * (1 - s.waiting / s.moving));
    if (traces && seq_len == 131072)
      observe::write_trace(std::string(argv[2]), sim::make_trace(simulation, world.world));
  }
}
