#include "program/allocate.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "program/expand.h"
#include "program/slots.h"

namespace quintet::program {
namespace {

int64_t round_up(int64_t n) { return (n + kBufferAlign - 1) / kBufferAlign * kBufferAlign; }

struct Lifetime {
  int first = -1, last = -1;  // instructions, numbered through all bodies
};

std::vector<Lifetime> lifetimes(const Program& p) {
  std::vector<Lifetime> out(p.buffers.size());
  int time = 0, end_of_step = -1;
  for (const Body& body : p.bodies) {
    for (const Instr& instr : body.instrs) {
      const auto touch = [&](BufferId id) {
        Lifetime& l = out[id.index()];
        if (l.first < 0) l.first = time;
        l.last = time;
      };
      for (const Operand& o : instr.in) touch(o.buffer);
      for (const Operand& o : instr.out) touch(o.buffer);
      if (instr.kind == InstrKind::Free) touch(instr.frees);
      ++time;
    }
    if (body.kind == BodyKind::Step) end_of_step = time - 1;
  }
  for (size_t i = 0; i < out.size(); ++i)
    if (p.buffers[i].scope == Scope::Step && out[i].first >= 0) out[i].last = end_of_step;
  return out;
}

// Assigns offsets to the buffers from `base` on: largest first, each at the lowest offset that is free for
// its whole lifetime. Returns the end of the highest.
int64_t place(Program& p, const std::vector<Lifetime>& life, int64_t base, std::vector<size_t> order) {
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return p.buffers[a].bytes > p.buffers[b].bytes; });
  int64_t top = base;
  std::vector<size_t> placed;  // by offset
  for (const size_t i : order) {
    Buffer& b = p.buffers[i];
    int64_t at = base;
    for (const size_t j : placed) {
      const Buffer& other = p.buffers[j];
      if (life[j].last < life[i].first || life[i].last < life[j].first) continue;
      if (other.offset >= at + b.bytes) break;
      at = std::max(at, round_up(other.offset + other.bytes));
    }
    b.offset = at;
    top = std::max(top, at + b.bytes);
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), i,
                         [&](size_t x, size_t y) { return p.buffers[x].offset < p.buffers[y].offset; }),
        i);
  }
  return top;
}

}  // namespace

void allocate(Program& p, bool share) {
  int64_t top = 0;
  for (Buffer& b : p.buffers) {
    if (b.scope != Scope::Persistent) continue;
    b.offset = top;
    p.arena_bytes = std::max(p.arena_bytes, top + b.bytes);
    top = round_up(top + b.bytes);
  }
  p.persistent_bytes = top;
  std::vector<Lifetime> life = lifetimes(p);
  if (!share)
    for (Lifetime& l : life)
      if (l.first >= 0) l = {0, std::numeric_limits<int>::max()};
  const auto used = [&](Scope scope, const auto& also) {
    std::vector<size_t> list;
    for (size_t i = 0; i < p.buffers.size(); ++i)
      if (p.buffers[i].scope == scope && life[i].first >= 0 && p.buffers[i].bytes > 0 && also(i))
        list.push_back(i);
    return list;
  };
  const auto any = [](size_t) { return true; };
  const auto grow = [&](int64_t end, bool empty) {
    if (!empty) p.arena_bytes = std::max(p.arena_bytes, end);
  };

  const SlotPlan slots = plan_slots(p);
  if (!slots.interleaved) {
    std::vector<size_t> all;
    for (const Scope scope : {Scope::Step, Scope::Micro, Scope::Body}) {
      const std::vector<size_t> some = used(scope, any);
      all.insert(all.end(), some.begin(), some.end());
    }
    std::sort(all.begin(), all.end());
    grow(place(p, life, top, all), all.empty());
    return;
  }
  QUINTET_CHECK(used(Scope::Step, any).empty(), "micro-batches overlap, but some buffers have step scope");
  // Buffers that outlive a body are in frames, each repeated for every slot; the others share the bytes below
  // the frames, for bodies that run one at a time.
  top = round_up(place(p, life, top, used(Scope::Body, any)));
  for (size_t f = 0; f < slots.count.size(); ++f) {
    const std::vector<size_t> own =
        used(Scope::Micro, [&](size_t i) { return slots.frame_of_buffer[i] == static_cast<int>(f); });
    const int64_t frame = round_up(place(p, life, top, own) - top);
    p.frame_bytes.push_back(frame);
    top += frame * slots.count[f];
  }
  unroll_slots(p, slots);
  // To the last byte of a buffer, not of a frame: the last slot may not use the end of its frame.
  for (const Buffer& b : p.buffers)
    if (b.scope != Scope::Persistent && b.offset >= 0) grow(b.offset + b.bytes, b.bytes == 0);
}

Peak peak_of(const Program& p) {
  Peak peak{.arena_bytes = p.arena_bytes};
  std::array<int64_t, kNumMemoryClasses> now{};
  for (const Buffer& b : p.buffers)
    if (b.scope == Scope::Persistent) now[static_cast<size_t>(b.memory_class)] += b.bytes;
  int64_t live = std::accumulate(now.begin(), now.end(), int64_t{0});

  std::vector<char> is_live(p.buffers.size(), 0);
  const auto set = [&](BufferId id, bool to) {
    const Buffer& b = p.buffer(id);
    char& was = is_live[id.index()];
    if (b.scope == Scope::Persistent || static_cast<bool>(was) == to) return;
    was = to;
    const int64_t change = to ? b.bytes : -b.bytes;
    now[static_cast<size_t>(b.memory_class)] += change;
    live += change;
  };
  std::vector<const std::vector<Call>*> runs = {&p.calls, &p.eval_calls};
  for (const StepVariant& variant : p.variants) runs.push_back(&variant.calls);
  for (const auto* calls : runs) {
    for (const Call& call : *calls) {
      const std::vector<Instr>& instrs = p.bodies[static_cast<size_t>(call.body)].instrs;
      for (size_t i = 0; i < instrs.size(); ++i) {
        if (!takes_part(instrs[i], call)) continue;
        for (const Operand& o : instrs[i].in) set(o.buffer, true);
        for (const Operand& o : instrs[i].out) set(o.buffer, true);
        if (live > peak.live_bytes) {
          peak.live_bytes = live;
          peak.by_class = now;
          peak.body = call.body;
          peak.instr = static_cast<int>(i);
        }
        if (instrs[i].kind == InstrKind::Free) set(instrs[i].frees, false);
      }
    }
    for (size_t i = 0; i < p.buffers.size(); ++i)
      if (p.buffers[i].scope == Scope::Step) set(BufferId(static_cast<int32_t>(i)), false);
  }
  return peak;
}

}  // namespace quintet::program
