// Slots: in a pipeline several micro-batches are in flight at once. Buffers that outlive a body are in a
// *frame*: the buffers that the same range of bodies needs (a chunk's forward to its backward, its backward
// to its weight gradients, ...). A micro-batch holds a slot of a frame from the first call of that range to
// the last, and the frame exists once per slot. Addresses in the program stay fixed: bodies are repeated per
// slot, with the slot's buffers.
#pragma once

#include <map>

#include "program/program.h"

namespace quintet::program {

struct SlotPlan {
  // False: the calls of each micro-batch follow one another in the order of the bodies; then a lifetime is a
  // range of instructions and slots are not needed.
  bool interleaved = false;
  std::vector<int> count;  // by frame: slots
  // By list of calls (the step's, then its variants'): (frame, micro-batch) -> slot.
  std::vector<std::map<std::pair<int, int>, int>> of_micro;
  std::vector<int> frame_of_buffer;  // Micro buffers: its frame; others: -1
};

// From the order of the calls; a frame has as many slots as the list of calls that needs most.
SlotPlan plan_slots(const Program& program);

// Repeats bodies and buffers for the slots after the first; offsets are those of the first slot.
void unroll_slots(Program& program, const SlotPlan& slots);

}  // namespace quintet::program
