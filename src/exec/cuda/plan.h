// How an expansion becomes launches: which issues are followed by an event, which events each waits for, and
// where in the staging memory the inputs lie. Made once per expansion, without a device.
//
// An exchange of rows between ranks by counts is launched by the host once it knows how many rows go where,
// so an expansion with such exchanges is no graph (one where experts are padded to the same rows is). The
// host reads the counts of a layer back once: the exchanges of its rows, weights and gradients all go by
// them. What the compute stream does between waits and events is replayed as graphs of its own, the pieces.
#pragma once

#include <string>
#include <vector>

#include "program/expand.h"

namespace quintet::exec::cuda {

struct LaunchPlan {
  struct Step {
    int lane = 0;        // stream that carries the issue
    int first_wait = 0;  // events, in `waits`
    int num_waits = 0;
    int event = -1;  // recorded after it; -1: none
    int load = -1;   // LoadBatch: index into `loads`
    int piece = -1;  // of `pieces`; -1: launched by itself
    // Exchange of rows by counts: where these are in the page-locked memory for counts, and whether this one
    // brings them there.
    int64_t counts = -1;
    bool reads_back = false;
  };
  std::vector<Step> steps;  // by issue
  std::vector<int> waits;
  int num_events = 0;
  std::vector<char> lane_used;  // by stream

  // Inputs of one LoadBatch, behind the scalars in the staging memory.
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

  // Issues of the compute stream without collectives, in order. The first may wait for events, and the last
  // may be followed by one. Pieces that launch the same share a graph.
  struct Piece {
    std::vector<int> issues;
    int graph = 0;
  };
  std::vector<Piece> pieces;  // none where one graph can hold everything, or where nothing may be captured
  int num_graphs = 0;

  std::string not_captured;  // why one graph cannot hold it, and what is replayed instead; empty: it can
};

// With `poison` everything but messages is carried by the compute stream in issue order.
LaunchPlan make_launch_plan(const program::Program& program, const program::Expanded& expanded, bool poison);

}  // namespace quintet::exec::cuda
