// Copies of the ranks' states in other ranks' memory (checkpoint.peer_every). At that interval each rank
// keeps a copy of its own state and one of another rank's, on another machine where there is one. A rank that
// is lost is restored from the rank that has its copy; the others go back to their own: no disk is read. A
// copy that is not what its owner had, after the transfer or later in memory, counts as absent.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/background.h"
#include "comm/communicator.h"
#include "train/saved_state.h"

namespace quintet::train {

// The copies in a rank's memory. They outlive the Rank: after a loss, the remaining processes form a new
// world with the rank that replaces the lost one, which has none.
struct PeerCopies {
  struct Copy {
    int64_t step = -1;  // -1: none, or being written
    std::string run;    // the state that is not tensors: Manifest::run as text
    std::vector<std::byte> state;
    uint64_t sum = 0;  // XXH3-64 of both, as its owner had them
    bool is_whole() const;
  };
  // Two of each: one is complete while the other is written.
  Copy own[2], other[2];
  int64_t bytes() const;
};

class PeerMemory {
 public:
  // Collective. Rank r's copy is on rank r + distance: the number of ranks of a machine, so that it is on
  // another one; 1 where all are on the same. `staging` is a part of the executor's staging memory, which
  // begins there at `offset`; empty: the state is copied directly.
  PeerMemory(Rank& rank, comm::World& world, PeerCopies& copies, int64_t distance,
             std::span<std::byte> staging = {}, int64_t offset = 0);

  // Bytes of this rank's state.
  int64_t bytes() const { return bytes_; }

  // Collective, between steps: copies the state after `step`; it is sent while the next steps run. Waits for
  // the copy in progress first.
  void copy(int64_t step, std::string run);
  // Collective: returns when the copy in progress, if any, is complete on all ranks.
  void finish();

  struct Restored {
    int64_t step = 0;
    std::string run;
  };
  // Collective: every rank's state becomes that after the newest step of which every rank, or the one that
  // has its copy, has all. Empty when there is none; nothing is changed then.
  std::optional<Restored> restore();

 private:
  // Rank r's copy is on it.
  int64_t keeper_of(int64_t rank) const { return (rank + distance_) % world_.size(); }
  void exchange(const PeerCopies::Copy& own, PeerCopies::Copy& other);
  std::optional<int64_t> newest(const std::vector<int64_t>& held) const;
  void put(const PeerCopies::Copy& copy);

  Rank& rank_;
  comm::World& world_;
  PeerCopies& copies_;
  const int64_t distance_;
  const std::span<std::byte> staging_;
  const int64_t offset_;
  std::vector<StatePiece> pieces_;
  int64_t bytes_ = 0;
  int slot_ = 0;                              // of the next copy
  std::shared_ptr<comm::Communicator> comm_;  // of the thread that sends
  checkpoint::Background job_;                // last: it uses the others
};

}  // namespace quintet::train
