// Slots: in a pipeline several micro-batches are under way at once. What outlives a body stands in a *frame*:
// the buffers that the same stretch of bodies needs (a chunk's forward to its backward, its backward to its
// weight gradients, ...). A micro-batch holds a slot of a frame from the first call of that stretch to the
// last, and the frame exists once per slot. The program stays one of fixed addresses: bodies are repeated per
// slot, with the slot's buffers.
#pragma once

#include <map>

#include "program/program.h"

namespace quintet::program {

struct SlotPlan {
  // Whether the calls of a micro-batch are not one after another in the order of the bodies. If they are, a
  // lifetime is a stretch of instructions and slots are not needed.
  bool interleaved = false;
  std::vector<int> count;                       // by frame: slots
  std::map<std::pair<int, int>, int> of_micro;  // (frame, micro-batch) -> slot
  std::vector<int> frame_of_buffer;             // Micro buffers: the frame it stands in; others: -1
};

// From the order of the calls.
SlotPlan plan_slots(const Program& program);

// Repeats bodies and buffers for the slots after the first; buffers have their offsets for the first.
void unroll_slots(Program& program, const SlotPlan& slots);

}  // namespace quintet::program
