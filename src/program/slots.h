// Slots: in a pipeline several micro-batches are in flight at once. Buffers that outlive a body are in a
// *frame*: the buffers that the same range of bodies needs (a chunk's forward to its backward, its backward
// to its weight gradients, ...). A micro-batch holds a slot of a frame from the first call of that range to
// the last. Slots that are never held at once may share bytes. Addresses in the program stay fixed: bodies
// are repeated per slot, with the slot's buffers.
#pragma once

#include <map>
#include <set>

#include "program/program.h"

namespace quintet::program {

enum class FrameKind : uint8_t {
  Values,
  // Messages between stages. One may be in flight until its partner takes it, so that nothing else may wait
  // for its bytes: they are its frame's alone.
  Messages,
  Evaluated,  // an evaluation uses them too, in slot 0
};

// A slot is held for one micro-batch from one call of a list to another.
struct Hold {
  int frame = 0, slot = 0;
  size_t list = 0;  // the step's calls, its variants', then the evaluation's
  size_t first = 0, last = 0;
};

struct SlotPlan {
  // False: the calls of each micro-batch follow one another in the order of the bodies; then a lifetime is a
  // range of instructions and slots are not needed.
  bool interleaved = false;
  std::vector<int> frame_of_buffer;   // Micro buffers: its frame; others: -1
  std::vector<FrameKind> kinds;       // by frame
  std::vector<std::set<int>> bodies;  // by frame: that touch it
  // Frames of one pool, of FrameKind::Values, take their slots from the same ones.
  std::vector<int> pool_of_frame;
  std::vector<int> count;  // by pool: slots
  // By list of calls (the step's, then its variants'): (frame, micro-batch) -> slot.
  std::vector<std::map<std::pair<int, int>, int>> of_micro;
  std::vector<Hold> holds;

  int frames() const { return static_cast<int>(kinds.size()); }
};

// The calls of a step and of its variants.
std::vector<const std::vector<Call>*> lists_of(const Program& p);

// The frames, each in a pool of its own, without slots.
SlotPlan plan_frames(const Program& program);
// Slots from the order of the calls; a pool has as many as the list of calls that needs most.
void assign_slots(const Program& program, SlotPlan& plan);

// Repeats bodies and buffers for the slots after the first. Offsets of buffers are those of the first slot;
// `begin`: by pool, where its slots begin.
void unroll_slots(Program& program, const SlotPlan& slots, const std::vector<std::vector<int64_t>>& begin);

}  // namespace quintet::program
