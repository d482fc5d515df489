// A pipeline schedule as plain data: for every pipeline rank, the ordered list of what it computes. Nothing
// here executes anything; lowering turns these lists into instructions, the simulator into times.
//
// The model is cut into stages * chunks virtual stages. A rank holds `chunks` of them, assigned by the
// placement.
#pragma once

#include <compare>
#include <string>
#include <vector>

namespace quintet::schedule {

// F: forward. B: input gradients. W: weight gradients. BW: both in one action.
enum class Kind { F, B, W, BW };

struct Action {
  Kind kind = Kind::F;
  int chunk = 0;  // index among the rank's own virtual stages, 0-based
  int micro = 0;  // micro-batch, 0-based
  // Only on an F: it and the next action (a B or BW of another chunk or micro-batch) run mixed, each hiding
  // the other's communication. Both start when both inputs are available, and both end together.
  bool with_next = false;
  auto operator<=>(const Action&) const = default;
};

// Looped: rank r holds r, r + p, r + 2p, ... VShape (two chunks): rank r holds r and 2p - 1 - r, so the first
// and the last virtual stage are both on rank 0.
enum class Placement { Looped, VShape };

struct Home {
  int rank = 0;
  int chunk = 0;
  auto operator<=>(const Home&) const = default;
};

struct Schedule {
  std::string name;
  int stages = 1;  // pipeline ranks, p
  int chunks = 1;  // virtual stages per rank, v
  int micro_batches = 1;
  Placement placement = Placement::Looped;
  bool splits_backward = false;  // some backwards are a B and a W; otherwise all are BW
  // The promised maximum of chunk activations that each rank holds at once, each from its F to the end of its
  // W or BW. Empty: no promise.
  std::vector<int> max_in_flight;
  std::vector<std::vector<Action>> ranks;

  int virtual_stages() const { return stages * chunks; }
  int stage_of(int rank, int chunk) const;
  Home home_of(int stage) const;
  bool operator==(const Schedule&) const = default;
};

// The most chunk activations each rank holds at once, from the order of its actions alone. `until_w` counts
// an activation until its W or BW ends; `until_b` until its B or BW ends (what no W needs).
struct InFlight {
  std::vector<int> until_w;
  std::vector<int> until_b;
};
InFlight in_flight(const Schedule& schedule);

std::string to_text(Kind kind);
std::string to_text(const Action& action);  // "0F3", "1BW2": chunk, kind, micro-batch
std::string to_text(Placement placement);   // "looped", "v"

}  // namespace quintet::schedule
