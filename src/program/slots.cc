#include "program/slots.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"

namespace quintet::program {

namespace {

using Stretch = std::pair<int, int>;  // first and last body; -1: none

bool is_interleaved(const std::vector<Call>& calls) {
  const Call* before = nullptr;
  std::set<int> begun;
  for (const Call& call : calls) {
    if (call.micro < 0) continue;
    const bool continues = before != nullptr && before->micro == call.micro && before->body < call.body;
    if (!begun.insert(call.micro).second && !continues) return true;
    before = &call;
  }
  return false;
}

void extend(Stretch& stretch, Stretch by) {
  stretch.first = stretch.first < 0 ? by.first : std::min(stretch.first, by.first);
  stretch.second = std::max(stretch.second, by.second);
}

template <class Fn>
void each_operand(const Instr& instr, const Fn& fn) {
  for (const auto* list : {&instr.in, &instr.out})
    for (const Operand& o : *list) fn(o.buffer);
}

template <class P>
auto step_lists(P& p) {
  std::vector<decltype(&p.calls)> lists = {&p.calls};
  for (auto& variant : p.variants) lists.push_back(&variant.calls);
  return lists;
}

}  // namespace

std::vector<const std::vector<Call>*> lists_of(const Program& p) { return step_lists(p); }

SlotPlan plan_frames(const Program& p) {
  const std::vector<const std::vector<Call>*> lists = lists_of(p);
  SlotPlan plan{.interleaved = std::any_of(lists.begin(), lists.end(),
                                           [](const auto* l) { return is_interleaved(*l); })};
  std::vector<int> steps;  // bodies of micro-batches of a step
  for (const Call& call : p.calls)
    if (call.micro >= 0) steps.push_back(call.body);
  std::sort(steps.begin(), steps.end());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  std::map<int, Stretch> of_chunk;
  for (const int b : steps)
    extend(of_chunk.try_emplace(p.bodies[static_cast<size_t>(b)].chunk, -1, -1).first->second, {b, b});

  std::vector<Stretch> touched(p.buffers.size(), {-1, -1});
  std::vector<FrameKind> kinds(p.buffers.size(), FrameKind::Values);
  for (const Call& call : p.eval_calls)
    for (const Instr& instr : p.bodies[static_cast<size_t>(call.body)].instrs)
      each_operand(instr, [&](BufferId id) { kinds[id.index()] = FrameKind::Evaluated; });
  for (const int b : steps) {
    const Body& body = p.bodies[static_cast<size_t>(b)];
    for (const Instr& instr : body.instrs)
      each_operand(instr, [&](BufferId id) {
        if (p.buffer(id).scope != Scope::Micro) return;
        // A buffer that is sent between stages belongs to its micro-batch as long as that is in flight in its
        // chunk: the next micro-batch need not wait for the message.
        const bool sent = joins_stages(p, instr);
        extend(touched[id.index()], sent ? of_chunk.at(body.chunk) : Stretch{b, b});
        if (sent) kinds[id.index()] = FrameKind::Messages;
      });
  }
  std::map<std::pair<Stretch, FrameKind>, int> frames;
  plan.frame_of_buffer.assign(p.buffers.size(), -1);
  for (size_t i = 0; i < p.buffers.size(); ++i) {
    if (p.buffers[i].scope != Scope::Micro) continue;
    const auto [it, is_new] = frames.try_emplace({touched[i], kinds[i]}, plan.frames());
    plan.frame_of_buffer[i] = it->second;
    if (!is_new) continue;
    plan.kinds.push_back(kinds[i]);
    plan.bodies.emplace_back();
    if (touched[i].first >= 0) plan.bodies.back() = {touched[i].first, touched[i].second};
  }
  // Between the first and the last body others may touch a frame, and a schedule may call them later: a slot
  // is held over all of them.
  for (const int b : steps)
    for (const Instr& instr : p.bodies[static_cast<size_t>(b)].instrs)
      each_operand(instr, [&](BufferId id) {
        if (const int frame = plan.frame_of_buffer[id.index()]; frame >= 0)
          plan.bodies[static_cast<size_t>(frame)].insert(b);
      });
  for (int f = 0; f < plan.frames(); ++f) plan.pool_of_frame.push_back(f);
  return plan;
}

void assign_slots(const Program& p, SlotPlan& plan) {
  const std::vector<const std::vector<Call>*> lists = lists_of(p);
  plan.count.assign(plan.kinds.size(), 1);
  plan.of_micro.assign(lists.size(), {});
  plan.holds.clear();
  std::vector<std::vector<int>> frames_of(p.bodies.size());  // by body
  for (int f = 0; f < plan.frames(); ++f)
    for (const int body : plan.bodies[static_cast<size_t>(f)])
      frames_of[static_cast<size_t>(body)].push_back(f);
  for (size_t list = 0; list < lists.size(); ++list) {
    const std::vector<Call>& calls = *lists[list];
    std::map<std::pair<int, int>, std::pair<size_t, size_t>> held;  // (frame, micro) -> first and last call
    for (size_t i = 0; i < calls.size(); ++i)
      for (const int f : frames_of[static_cast<size_t>(calls[i].body)])
        held.try_emplace({f, calls[i].micro}, i, i).first->second.second = i;
    auto& of_micro = plan.of_micro[list];
    std::vector<std::set<int>> busy(plan.kinds.size());  // by pool
    for (size_t i = 0; i < calls.size(); ++i) {
      for (const int f : frames_of[static_cast<size_t>(calls[i].body)]) {
        const std::pair<int, int> key = {f, calls[i].micro};
        if (of_micro.contains(key)) continue;
        const size_t pool = static_cast<size_t>(plan.pool_of_frame[static_cast<size_t>(f)]);
        int slot = 0;
        while (busy[pool].contains(slot)) ++slot;
        busy[pool].insert(slot);
        of_micro[key] = slot;
        plan.count[pool] = std::max(plan.count[pool], slot + 1);
        plan.holds.push_back({f, slot, list, i, held.at(key).second});
      }
      for (const int f : frames_of[static_cast<size_t>(calls[i].body)]) {
        const std::pair<int, int> key = {f, calls[i].micro};
        if (held.at(key).second == i)
          busy[static_cast<size_t>(plan.pool_of_frame[static_cast<size_t>(f)])].erase(of_micro.at(key));
      }
    }
  }
  if (p.eval_calls.empty()) return;
  for (int f = 0; f < plan.frames(); ++f)
    if (plan.kinds[static_cast<size_t>(f)] == FrameKind::Evaluated)
      plan.holds.push_back({f, 0, lists.size(), 0, p.eval_calls.size() - 1});
}

void unroll_slots(Program& p, const SlotPlan& plan, const std::vector<std::vector<int64_t>>& begin) {
  const auto begin_of = [&](BufferId id, int slot) {
    const int frame = plan.frame_of_buffer[id.index()];
    return begin[static_cast<size_t>(plan.pool_of_frame[static_cast<size_t>(frame)])]
                [static_cast<size_t>(slot)];
  };
  std::map<std::pair<BufferId, int>, BufferId> copies;
  const auto copy_of = [&](BufferId id, int slot) {
    if (slot == 0) return id;
    const auto [it, is_new] =
        copies.try_emplace({id, slot}, BufferId(static_cast<int32_t>(p.buffers.size())));
    if (is_new) {
      Buffer copy = p.buffer(id);
      copy.name += fmt::format("@{}", slot);
      copy.offset += begin_of(id, slot) - begin_of(id, 0);
      p.buffers.push_back(std::move(copy));
      for (size_t i = 0, n = p.inputs.size(); i < n; ++i)
        if (p.inputs[i].buffer == id) p.inputs.push_back({p.inputs[i].spec, slot, it->second});
    }
    return it->second;
  };
  // (body, slots by frame) -> its repetition. The first one replaces the body: in a pool its frames cannot
  // all have slot 0.
  std::map<std::pair<int, std::vector<int>>, int> bodies;
  const std::vector<Body> before = p.bodies;
  std::vector<char> replaced(before.size(), 0);
  const auto frame_of = [&](BufferId id) {
    return id.index() < plan.frame_of_buffer.size() ? plan.frame_of_buffer[id.index()] : -1;
  };
  const auto each_buffer = [&](auto& body, const auto& fn) {
    for (auto& instr : body.instrs) {
      for (auto* list : {&instr.in, &instr.out})
        for (auto& o : *list) fn(o.buffer);
      if (instr.kind == InstrKind::Free) fn(instr.frees);
    }
  };
  const std::vector<std::vector<Call>*> lists = step_lists(p);
  for (size_t list = 0; list < lists.size(); ++list)
    for (Call& call : *lists[list]) {
      if (call.micro < 0) continue;
      const size_t from = static_cast<size_t>(call.body);
      // The slots of the frames that the body touches.
      std::vector<int> slots(plan.kinds.size(), 0);
      each_buffer(before[from], [&](BufferId id) {
        if (const int frame = frame_of(id); frame >= 0)
          slots[static_cast<size_t>(frame)] = plan.of_micro[list].at({frame, call.micro});
      });
      const int here = replaced[from] ? static_cast<int>(p.bodies.size()) : call.body;
      const auto [it, is_new] = bodies.try_emplace({call.body, slots}, here);
      if (is_new) {
        Body body = before[from];
        each_buffer(body, [&](BufferId& id) {
          if (const int frame = frame_of(id); frame >= 0) id = copy_of(id, slots[static_cast<size_t>(frame)]);
        });
        if (replaced[from])
          p.bodies.push_back(std::move(body));
        else
          p.bodies[from] = std::move(body);
        replaced[from] = 1;
      }
      call.body = it->second;
    }
}

}  // namespace quintet::program
