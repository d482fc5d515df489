#include "program/slots.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"

namespace quintet::program {

SlotPlan plan_slots(const Program& p) {
  SlotPlan plan;
  int chunks = 1;
  for (const Body& body : p.bodies) chunks = std::max(chunks, body.chunk + 1);
  plan.count.assign(static_cast<size_t>(chunks), 1);

  std::map<std::pair<int, int>, size_t> last;  // call
  for (size_t i = 0; i < p.calls.size(); ++i)
    if (p.calls[i].micro >= 0)
      last[{p.bodies[static_cast<size_t>(p.calls[i].body)].chunk, p.calls[i].micro}] = i;
  std::vector<std::set<int>> taken(static_cast<size_t>(chunks));
  for (size_t i = 0; i < p.calls.size(); ++i) {
    if (p.calls[i].micro < 0) continue;
    const std::pair<int, int> key = {p.bodies[static_cast<size_t>(p.calls[i].body)].chunk, p.calls[i].micro};
    std::set<int>& busy = taken[static_cast<size_t>(key.first)];
    if (!plan.of_micro.contains(key)) {
      int slot = 0;
      while (busy.contains(slot)) ++slot;
      busy.insert(slot);
      plan.of_micro[key] = slot;
      int& count = plan.count[static_cast<size_t>(key.first)];
      count = std::max(count, slot + 1);
    }
    if (last[key] == i) busy.erase(plan.of_micro[key]);
  }

  plan.chunk_of_buffer.assign(p.buffers.size(), -1);
  for (const Body& body : p.bodies)
    for (const Instr& instr : body.instrs)
      for (const auto* list : {&instr.in, &instr.out})
        for (const Operand& o : *list) {
          if (p.buffer(o.buffer).scope != Scope::Micro) continue;
          int& chunk = plan.chunk_of_buffer[o.buffer.index()];
          chunk = chunk < 0 ? body.chunk : std::min(chunk, body.chunk);
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
      copy.offset += slot * p.frame_bytes[static_cast<size_t>(plan.chunk_of_buffer[id.index()])];
      p.buffers.push_back(std::move(copy));
      for (size_t i = 0, n = p.inputs.size(); i < n; ++i)
        if (p.inputs[i].second == id) p.inputs.emplace_back(p.inputs[i].first, it->second);
    }
    return it->second;
  };
  std::map<std::pair<int, std::vector<int>>, int> bodies;  // (body, slots by chunk) -> its repetition
  for (Call& call : p.calls) {
    if (call.micro < 0) continue;
    // The slots of the frames that the body touches.
    std::vector<int> slots(plan.count.size(), 0);
    const auto each_buffer = [&](Body& body, const auto& fn) {
      for (Instr& instr : body.instrs) {
        for (auto* list : {&instr.in, &instr.out})
          for (Operand& o : *list) fn(o.buffer);
        if (instr.kind == InstrKind::Free) fn(instr.frees);
      }
    };
    each_buffer(p.bodies[static_cast<size_t>(call.body)], [&](BufferId id) {
      const int chunk = id.index() < plan.chunk_of_buffer.size() ? plan.chunk_of_buffer[id.index()] : -1;
      if (chunk >= 0) slots[static_cast<size_t>(chunk)] = plan.of_micro.at({chunk, call.micro});
    });
    if (std::all_of(slots.begin(), slots.end(), [](int s) { return s == 0; })) continue;
    const auto [it, is_new] = bodies.try_emplace({call.body, slots}, static_cast<int>(p.bodies.size()));
    if (is_new) {
      Body body = p.bodies[static_cast<size_t>(call.body)];
      each_buffer(body, [&](BufferId& id) {
        const int chunk = id.index() < plan.chunk_of_buffer.size() ? plan.chunk_of_buffer[id.index()] : -1;
        if (chunk >= 0) id = copy_of(id, slots[static_cast<size_t>(chunk)]);
      });
      p.bodies.push_back(std::move(body));
    }
    call.body = it->second;
  }
}

}  // namespace quintet::program
