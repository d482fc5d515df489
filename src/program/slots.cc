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

// The calls of a step and of its variants.
template <class P>
auto lists_of(P& p) {
  std::vector<decltype(&p.calls)> lists = {&p.calls};
  for (auto& variant : p.variants) lists.push_back(&variant.calls);
  return lists;
}

}  // namespace

SlotPlan plan_slots(const Program& p) {
  const std::vector<const std::vector<Call>*> lists = lists_of(p);
  SlotPlan plan{.interleaved = std::any_of(lists.begin(), lists.end(),
                                           [](const auto* l) { return is_interleaved(*l); })};
  plan.of_micro.resize(lists.size());
  std::vector<int> steps;  // bodies of micro-batches of a step
  for (const Call& call : p.calls)
    if (call.micro >= 0) steps.push_back(call.body);
  std::sort(steps.begin(), steps.end());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  std::map<int, Stretch> of_chunk;
  for (const int b : steps)
    extend(of_chunk.try_emplace(p.bodies[static_cast<size_t>(b)].chunk, -1, -1).first->second, {b, b});

  std::vector<Stretch> touched(p.buffers.size(), {-1, -1});
  for (const int b : steps) {
    const Body& body = p.bodies[static_cast<size_t>(b)];
    for (const Instr& instr : body.instrs)
      each_operand(instr, [&](BufferId id) {
        if (p.buffer(id).scope != Scope::Micro) return;
        // A buffer that is sent between stages belongs to its micro-batch as long as that is in flight in its
        // chunk: the next micro-batch need not wait for the message.
        extend(touched[id.index()], joins_stages(p, instr) ? of_chunk.at(body.chunk) : Stretch{b, b});
      });
  }
  std::map<Stretch, int> frames;
  plan.frame_of_buffer.assign(p.buffers.size(), -1);
  for (size_t i = 0; i < p.buffers.size(); ++i)
    if (p.buffers[i].scope == Scope::Micro && touched[i].first >= 0)
      plan.frame_of_buffer[i] = frames.try_emplace(touched[i], static_cast<int>(frames.size())).first->second;
  // An evaluation never runs during a step: buffers that only it touches may overlap any of a step.
  for (size_t i = 0; i < p.buffers.size(); ++i)
    if (p.buffers[i].scope == Scope::Micro && plan.frame_of_buffer[i] < 0) plan.frame_of_buffer[i] = 0;
  plan.count.assign(std::max<size_t>(frames.size(), 1), 1);

  // Between the first and the last body others may touch a frame, and a schedule may call them later: a slot
  // is held over all of them.
  std::vector<std::set<int>> bodies(plan.count.size());
  for (const auto& [ends, frame] : frames) bodies[static_cast<size_t>(frame)] = {ends.first, ends.second};
  for (const int b : steps)
    for (const Instr& instr : p.bodies[static_cast<size_t>(b)].instrs)
      each_operand(instr, [&](BufferId id) {
        if (const int frame = plan.frame_of_buffer[id.index()]; frame >= 0)
          bodies[static_cast<size_t>(frame)].insert(b);
      });
  for (size_t list = 0; list < lists.size(); ++list)
    for (size_t f = 0; f < bodies.size(); ++f) {
      const std::vector<Call>& calls = *lists[list];
      auto& of_micro = plan.of_micro[list];
      std::map<int, size_t> last;  // micro-batch -> its last call
      for (size_t i = 0; i < calls.size(); ++i)
        if (bodies[f].contains(calls[i].body)) last[calls[i].micro] = i;
      std::set<int> busy;
      for (size_t i = 0; i < calls.size(); ++i) {
        if (!bodies[f].contains(calls[i].body)) continue;
        const int micro = calls[i].micro;
        const std::pair<int, int> key = {static_cast<int>(f), micro};
        if (!of_micro.contains(key)) {
          int slot = 0;
          while (busy.contains(slot)) ++slot;
          busy.insert(slot);
          of_micro[key] = slot;
          plan.count[f] = std::max(plan.count[f], slot + 1);
        }
        if (last[micro] == i) busy.erase(of_micro[key]);
      }
    }
  return plan;
}

void unroll_slots(Program& p, const SlotPlan& plan) {
  std::map<std::pair<BufferId, int>, BufferId> copies;
  const auto copy_of = [&](BufferId id, int slot) {
    if (slot == 0) return id;
    const auto [it, is_new] =
        copies.try_emplace({id, slot}, BufferId(static_cast<int32_t>(p.buffers.size())));
    if (is_new) {
      Buffer copy = p.buffer(id);
      copy.name += fmt::format("@{}", slot);
      copy.offset += slot * p.frame_bytes[static_cast<size_t>(plan.frame_of_buffer[id.index()])];
      p.buffers.push_back(std::move(copy));
      for (size_t i = 0, n = p.inputs.size(); i < n; ++i)
        if (p.inputs[i].buffer == id) p.inputs.push_back({p.inputs[i].spec, slot, it->second});
    }
    return it->second;
  };
  std::map<std::pair<int, std::vector<int>>, int> bodies;  // (body, slots by frame) -> its repetition
  const auto each_buffer = [&](Body& body, const auto& fn) {
    for (Instr& instr : body.instrs) {
      for (auto* list : {&instr.in, &instr.out})
        for (Operand& o : *list) fn(o.buffer);
      if (instr.kind == InstrKind::Free) fn(instr.frees);
    }
  };
  const std::vector<std::vector<Call>*> lists = lists_of(p);
  for (size_t list = 0; list < lists.size(); ++list)
    for (Call& call : *lists[list]) {
      if (call.micro < 0) continue;
      // The slots of the frames that the body touches.
      std::vector<int> slots(plan.count.size(), 0);
      each_buffer(p.bodies[static_cast<size_t>(call.body)], [&](BufferId id) {
        const int frame = id.index() < plan.frame_of_buffer.size() ? plan.frame_of_buffer[id.index()] : -1;
        if (frame >= 0) slots[static_cast<size_t>(frame)] = plan.of_micro[list].at({frame, call.micro});
      });
      if (std::all_of(slots.begin(), slots.end(), [](int s) { return s == 0; })) continue;
      const auto [it, is_new] = bodies.try_emplace({call.body, slots}, static_cast<int>(p.bodies.size()));
      if (is_new) {
        Body body = p.bodies[static_cast<size_t>(call.body)];
        each_buffer(body, [&](BufferId& id) {
          const int frame = id.index() < plan.frame_of_buffer.size() ? plan.frame_of_buffer[id.index()] : -1;
          if (frame >= 0) id = copy_of(id, slots[static_cast<size_t>(frame)]);
        });
        p.bodies.push_back(std::move(body));
      }
      call.body = it->second;
    }
}

}  // namespace quintet::program
