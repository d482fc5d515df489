#include "sim/trace.h"

#include <cmath>

namespace quintet::sim {

using program::Instr;
using program::InstrKind;

std::vector<observe::RankTrace> make_trace(const Simulation& sim, const World& world) {
  std::vector<observe::RankTrace> traces;
  const auto ns = [](double seconds) { return std::llround(seconds * 1e9); };
  for (size_t r = 0; r < world.ranks.size(); ++r) {
    const program::Program& p = *world.ranks[r].program;
    const program::Expanded& e = *world.ranks[r].expanded;
    observe::RankTrace& trace = traces.emplace_back(static_cast<int>(p.rank.value));
    for (const program::Stream& s : p.streams) trace.add_stream(s.name);
    for (size_t k = 0; k < e.issues.size(); ++k) {
      const Instr& i = instr_of(p, e.issues[k]);
      if (!does_work(i) || (i.repeated && sim.ranks[r][k].end == sim.ranks[r][k].start)) continue;
      const Span& span = sim.ranks[r][k];
      const int64_t micro = e.calls[static_cast<size_t>(e.issues[k].call)].micro;
      const int64_t start = ns(span.start), length = ns(span.end) - start;
      int64_t bytes = 0;
      for (const program::Operand& o : i.out) bytes += o.bytes();
      const bool collective = i.kind == InstrKind::Collective;
      trace.add(i.stream.value,
                collective ? program::to_string(i.collective.kind)
                : i.op     ? i.op->name
                           : std::string_view("load_batch"),
                collective ? observe::Category::Communication : observe::Category::Compute, start, length,
                {{"bytes", bytes}, {"block", i.block}, {"micro_batch", micro}, {"step", 0}});
    }
  }
  return traces;
}

}  // namespace quintet::sim
