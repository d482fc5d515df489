// How an expansion becomes launches: which issues are followed by an event, which events each waits for, and
// the layout of the inputs in the staging memory. Made once per expansion, without a device.
//
// A row exchange by counts is launched by the host once it knows how many rows go where, so an expansion with
// such exchanges is not one graph (with padded experts it is). The host reads the counts of a layer back
// once: the exchanges of its rows, weights and gradients all use them. The work of the compute stream between
// waits and events is replayed as separate graphs, the pieces. Further passes over experts (Repeat) are
// launched one by one, as often as the host has read that they are needed.
#pragma once

#include <string>
#include <vector>

#include "program/expand.h"

namespace quintet::exec::cuda {

struct LaunchPlan {
  struct Step {
    int lane = 0;        // stream that executes the issue
    int first_wait = 0;  // events, in `waits`
    int num_waits = 0;
    int event = -1;  // recorded after it; -1: none
    int load = -1;   // LoadBatch: index into `loads`
    // The first of its lane that changes a state which checkpoints save: copies of the states must be over.
    bool changes_saved = false;
    int piece = -1;  // index into `pieces`; -1: launched by itself
    // Row exchange by counts: their offset in the page-locked memory for counts, and whether this issue
    // transfers them there.
    int64_t counts = -1;
    bool reads_back = false;
    // The number of passes over experts: where in that memory. A Repeat that does not transfer it finds it
    // there: the exchange of the first pass has transferred it, with its counts.
    int64_t passes = -1;
    bool reads_passes = false;
    int64_t passes_offset = 0;  // in the arena
  };
  std::vector<Step> steps;  // by issue
  std::vector<int> waits;
  int num_events = 0;
  std::vector<char> lane_used;  // by stream

  // Inputs of one LoadBatch, after the scalars in the staging memory.
  struct Load {
    int micro = 0;
    struct Input {
      graph::InputSpec spec;
      int64_t offset = 0, bytes = 0;
      int64_t arena_offset = 0;
    };
    std::vector<Input> inputs;
  };
  std::vector<Load> loads;
  int64_t staging_bytes = 0;

  int64_t counts_bytes = 0;

  // Issues of the compute stream without collectives, in order. The first may wait for events or copies, and
  // the last may be followed by one. Pieces with equal launches share a graph.
  struct Piece {
    std::vector<int> issues;
    int graph = 0;
  };
  std::vector<Piece> pieces;  // empty if one graph can hold everything, or capturing is off
  int num_graphs = 0;

  std::string not_captured;  // why one graph cannot hold it, and what is replayed instead; empty: it can
};

// With `poison` the compute stream executes everything except messages, in issue order.
LaunchPlan make_launch_plan(const program::Program& program, const program::Expanded& expanded, bool poison);

}  // namespace quintet::exec::cuda
