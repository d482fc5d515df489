// Slots: in a pipeline several micro-batches are under way at once. Each holds a slot of its chunk from its
// forward call to the end of its last call, and the buffers that outlive a body exist once per slot. The
// program stays one of fixed addresses: bodies are repeated per slot, with the slot's buffers.
#pragma once

#include <map>

#include "program/program.h"

namespace quintet::program {

struct SlotPlan {
  std::vector<int> count;                       // by chunk
  std::map<std::pair<int, int>, int> of_micro;  // (chunk, micro-batch) -> slot
  std::vector<int> chunk_of_buffer;  // Micro buffers: the chunk in whose frame it stands; others: -1

  bool several() const {
    if (count.size() > 1) return true;
    return !count.empty() && count[0] > 1;
  }
};

// From the order of the calls. A buffer that two chunks of a rank use stands in the frame of the lower one,
// whose micro-batch is under way longer.
SlotPlan plan_slots(const Program& program);

// Repeats bodies and buffers for the slots after the first; buffers have their offsets for the first.
void unroll_slots(Program& program, const SlotPlan& slots);

}  // namespace quintet::program
