#include "plan/memory_timeline.h"

#include <fmt/format.h>

#include <algorithm>

namespace quintet::plan {

using program::Buffer;
using program::BufferId;
using program::InstrKind;
using program::Scope;

namespace {

class Live {
 public:
  explicit Live(const program::Program& p) : program_(p), is_live_(p.buffers.size(), 0) {
    for (const Buffer& b : p.buffers)
      if (b.scope == Scope::Persistent) by_class_[static_cast<size_t>(b.memory_class)] += b.bytes;
  }
  void set(BufferId id, bool to) {
    const Buffer& b = program_.buffer(id);
    char& was = is_live_[id.index()];
    if (b.scope == Scope::Persistent || static_cast<bool>(was) == to) return;
    was = to;
    by_class_[static_cast<size_t>(b.memory_class)] += to ? b.bytes : -b.bytes;
  }
  const std::array<int64_t, program::kNumMemoryClasses>& by_class() const { return by_class_; }

 private:
  const program::Program& program_;
  std::vector<char> is_live_;
  std::array<int64_t, program::kNumMemoryClasses> by_class_{};
};

}  // namespace

int64_t MemoryPoint::bytes() const {
  int64_t sum = 0;
  for (const int64_t b : by_class) sum += b;
  return sum;
}

std::vector<MemoryPoint> memory_timeline(const sim::Rank& rank, const std::vector<sim::Span>& spans,
                                         double end, size_t points) {
  const program::Program& p = *rank.program;
  Live live(p);
  std::vector<MemoryPoint> list;
  size_t stretch = 0;
  double now = 0;
  for (size_t k = 0; k < rank.expanded->issues.size(); ++k) {
    const program::Instr& instr = instr_of(p, rank.expanded->issues[k]);
    if (instr.stream == program::kComputeStream && instr.kind != InstrKind::Free)
      now = std::max(now, spans[k].start);
    for (const program::Operand& o : instr.in) live.set(o.buffer, true);
    for (const program::Operand& o : instr.out) live.set(o.buffer, true);
    const MemoryPoint point{now, live.by_class()};
    const size_t at =
        end > 0 ? std::min(points - 1, static_cast<size_t>(now / end * static_cast<double>(points))) : 0;
    if (list.empty() || at != stretch)
      list.push_back(point);
    else if (point.bytes() > list.back().bytes())
      list.back() = point;
    stretch = at;
    if (instr.kind == InstrKind::Free) live.set(instr.frees, false);
  }
  return list;
}

std::string instruction_words(const program::Program& p, int body, int instr) {
  const program::Body& b = p.bodies[static_cast<size_t>(body)];
  const program::Instr& i = b.instrs[static_cast<size_t>(instr)];
  std::string out(to_string(b.kind));
  if (b.chunk > 0) out += fmt::format(" of chunk {}", b.chunk);
  if (i.block >= 0) out += fmt::format(", block {}", i.block);
  out += fmt::format(", {}", i.kind == InstrKind::Collective ? program::to_string(i.collective.kind)
                             : i.op != nullptr               ? std::string_view(i.op->name)
                             : i.kind == InstrKind::Free     ? std::string_view("free")
                             : !does_work(i)                 ? std::string_view("further passes")
                                                             : std::string_view("load_batch"));
  return out;
}

}  // namespace quintet::plan
