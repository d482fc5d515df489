#include "plan/memory.h"

#include <numeric>

#include "plan/memory_timeline.h"
#include "program/allocate.h"

namespace quintet::plan {

int64_t RankMemory::live_bytes() const {
  return std::accumulate(by_class.begin(), by_class.end(), int64_t{0});
}

namespace {

// Without a pipeline all micro-batches between the first and the last hold the same.
program::Peak peak_of(const program::Program& p, bool pipeline) {
  if (pipeline || p.calls.size() <= 16) return program::peak_of(p);
  program::Program few = p;
  few.calls.assign(p.calls.begin(), p.calls.begin() + 8);
  few.calls.insert(few.calls.end(), p.calls.end() - 8, p.calls.end());
  return program::peak_of(few);
}

}  // namespace

Memory memory_of(const compiler::Ranks& ranks, const hardware::Cluster& cluster) {
  Memory memory{.limit = cluster.accelerator.memory_bytes};
  for (size_t i = 0; i < ranks.program.size(); ++i) {
    const program::Program& p = ranks.program[i].program;
    const program::Peak peak = peak_of(p, !ranks.layout.pipeline.empty());
    memory.ranks.push_back({.rank = p.rank,
                            .stage = static_cast<int>(i),
                            .arena_bytes = p.arena_bytes,
                            .by_class = peak.by_class,
                            .runtime_bytes = cluster.accelerator.runtime_bytes,
                            .peak_at = instruction_words(p, peak.body, peak.instr)});
    if (memory.ranks.back().total() > memory.ranks[memory.most_loaded].total()) memory.most_loaded = i;
  }
  return memory;
}

}  // namespace quintet::plan
