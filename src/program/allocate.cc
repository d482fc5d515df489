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
  std::vector<int> bodies;    // in which they are
};

std::vector<Lifetime> lifetimes(const Program& p) {
  std::vector<Lifetime> out(p.buffers.size());
  int time = 0, end_of_step = -1, index = -1;
  for (const Body& body : p.bodies) {
    ++index;
    for (const Instr& instr : body.instrs) {
      const auto touch = [&](BufferId id) {
        Lifetime& l = out[id.index()];
        if (l.first < 0) l.first = time;
        l.last = time;
        if (l.bodies.empty() || l.bodies.back() != index) l.bodies.push_back(index);
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

using CallSet = std::vector<uint64_t>;  // a bit per call of the step, its variants and the evaluation

class CallSets {
 public:
  explicit CallSets(const Program& p) : lists_(lists_of(p)) {
    lists_.push_back(&p.eval_calls);
    for (const auto* list : lists_) {
      begin_.push_back(size_);
      size_ += list->size();
    }
  }
  CallSet none() const { return CallSet(size_ / 64 + 1, 0); }
  void add(const Hold& hold, CallSet& set) const {
    for (size_t i = hold.first; i <= hold.last; ++i) add(hold.list, i, set);
  }
  void add_calls_of(int body, CallSet& set) const {
    for (size_t list = 0; list < lists_.size(); ++list)
      for (size_t i = 0; i < lists_[list]->size(); ++i)
        if ((*lists_[list])[i].body == body) add(list, i, set);
  }
  void add_steps(CallSet& set) const {  // all calls but the evaluation's
    for (size_t list = 0; list + 1 < lists_.size(); ++list)
      for (size_t i = 0; i < lists_[list]->size(); ++i) add(list, i, set);
  }

 private:
  void add(size_t list, size_t call, CallSet& set) const {
    const size_t bit = begin_[list] + call;
    set[bit / 64] |= uint64_t{1} << (bit % 64);
  }
  std::vector<const std::vector<Call>*> lists_;
  std::vector<size_t> begin_;
  size_t size_ = 0;
};

struct Holder {
  int64_t bytes = 0;
  CallSet calls;
  std::vector<size_t> buffers = {};  // of a body
  int64_t offset = 0;
};

// Largest first, each at the lowest offset that is free in all of its calls. Every holder begins at 0 or at
// the end of another, so that they never take more than the sum of their bytes.
void place(std::vector<Holder>& holders, bool share) {
  std::vector<size_t> order(holders.size()), placed;  // placed: by offset
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return holders[a].bytes > holders[b].bytes; });
  const auto meet = [&](const Holder& a, const Holder& b) {
    for (size_t w = 0; w < a.calls.size(); ++w)
      if (a.calls[w] & b.calls[w]) return true;
    return !share;
  };
  for (const size_t i : order) {
    Holder& own = holders[i];
    for (const size_t j : placed) {
      const Holder& other = holders[j];
      if (other.offset + other.bytes <= own.offset || !meet(own, other)) continue;
      if (other.offset >= own.offset + own.bytes) break;
      own.offset = other.offset + other.bytes;
    }
    placed.insert(std::upper_bound(placed.begin(), placed.end(), i,
                                   [&](size_t x, size_t y) { return holders[x].offset < holders[y].offset; }),
                  i);
  }
}

// Slots and where they are.
struct Placing {
  SlotPlan plan;
  std::vector<Holder> holders;              // those of bodies, then slots
  std::vector<std::vector<int64_t>> begin;  // by pool and slot
  int64_t top = 0;
};

// Frames take their slots from one pool when each has at least this share of the largest one's bytes. Chunks
// that peak at different times then use the same bytes, which cost the difference in size.
void pool_frames(SlotPlan& plan, const std::vector<int64_t>& bytes, double alike) {
  std::vector<size_t> order;
  for (size_t f = 0; f < bytes.size(); ++f) {
    plan.pool_of_frame[f] = static_cast<int>(f);
    if (plan.kinds[f] == FrameKind::Values) order.push_back(f);
  }
  if (alike >= 1) return;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return bytes[a] > bytes[b]; });
  size_t first = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    if (static_cast<double>(bytes[order[i]]) < alike * static_cast<double>(bytes[order[first]])) first = i;
    plan.pool_of_frame[order[i]] = static_cast<int>(order[first]);
  }
}

Placing place_holders(const SlotPlan& plan, const std::vector<int64_t>& frame_bytes, const CallSets& sets,
                      const std::vector<Holder>& bodies, bool share) {
  Placing out{.plan = plan, .holders = bodies, .begin = {}};
  std::vector<std::vector<size_t>> of_slot(plan.kinds.size());  // by pool: holders
  for (size_t pool = 0; pool < of_slot.size(); ++pool)
    for (int slot = 0; slot < plan.count[pool]; ++slot) {
      of_slot[pool].push_back(out.holders.size());
      out.holders.push_back({.bytes = 0, .calls = sets.none()});
    }
  for (const Hold& hold : plan.holds) {
    const size_t f = static_cast<size_t>(hold.frame), pool = static_cast<size_t>(plan.pool_of_frame[f]);
    Holder& holder = out.holders[of_slot[pool][static_cast<size_t>(hold.slot)]];
    holder.bytes = std::max(holder.bytes, frame_bytes[f]);
    sets.add(hold, holder.calls);
    if (plan.kinds[f] == FrameKind::Messages) sets.add_steps(holder.calls);
  }
  place(out.holders, share);
  for (const Holder& holder : out.holders) out.top = std::max(out.top, holder.offset + holder.bytes);
  for (const std::vector<size_t>& slots : of_slot) {
    out.begin.emplace_back();
    for (const size_t h : slots) out.begin.back().push_back(out.holders[h].offset);
  }
  return out;
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
      if (l.first >= 0) l.first = 0, l.last = std::numeric_limits<int>::max();
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

  SlotPlan plan = plan_frames(p);
  if (!plan.interleaved) {
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
  // What holds bytes during some calls: the temporaries of a body, and each slot of buffers that outlive one.
  const CallSets sets(p);
  std::vector<Holder> bodies;
  for (size_t b = 0; b < p.bodies.size(); ++b) {
    const std::vector<size_t> own =
        used(Scope::Body, [&](size_t i) { return life[i].bodies.front() == static_cast<int>(b); });
    if (own.empty()) continue;
    Holder holder{.bytes = round_up(place(p, life, 0, own)), .calls = sets.none(), .buffers = own};
    for (const size_t i : own)
      for (const int body : life[i].bodies) sets.add_calls_of(body, holder.calls);
    bodies.push_back(std::move(holder));
  }
  std::vector<std::vector<size_t>> of_frame(plan.kinds.size());
  for (size_t f = 0; f < of_frame.size(); ++f) {
    of_frame[f] =
        used(Scope::Micro, [&](size_t i) { return plan.frame_of_buffer[i] == static_cast<int>(f); });
    p.frame_bytes.push_back(round_up(place(p, life, 0, of_frame[f])));
  }
  Placing best;
  for (const double alike : {1.0, 0.9, 0.7, 0.5, 0.0}) {
    pool_frames(plan, p.frame_bytes, share ? alike : 1.0);
    assign_slots(p, plan);
    Placing now = place_holders(plan, p.frame_bytes, sets, bodies, share);
    if (best.holders.empty() || now.top < best.top) best = std::move(now);
  }
  const int64_t base = top;
  for (size_t h = 0; h < bodies.size(); ++h)
    for (const size_t i : bodies[h].buffers) p.buffers[i].offset += base + best.holders[h].offset;
  for (size_t f = 0; f < of_frame.size(); ++f)
    for (const size_t i : of_frame[f])
      p.buffers[i].offset += base + best.begin[static_cast<size_t>(best.plan.pool_of_frame[f])][0];
  unroll_slots(p, best.plan, best.begin);
  // To the last byte of a buffer that is used: the last slot may not use the end of its frame, and a frame of
  // a pool may have no use for slot 0.
  life = lifetimes(p);
  for (size_t i = 0; i < p.buffers.size(); ++i) {
    Buffer& b = p.buffers[i];
    if (b.scope == Scope::Persistent || b.offset < 0) continue;
    if (life[i].first < 0)
      b.offset = base;  // of no use; its frame's other slots are as large
    else
      grow(b.offset + b.bytes, b.bytes == 0);
  }
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
