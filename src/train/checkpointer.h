// Saves checkpoints during a run. Training stops only while the state is copied into staging memory,
// on a GPU not even for that: the copy overlaps the next step, whose update waits for it. A thread of
// every rank then writes its shard, and rank 0's commits the checkpoint when all are on disk. There is no
// communication between those threads: the ranks learn of the others at step boundaries, through flags that
// the training loop reduces with its own.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/background.h"
#include "checkpoint/store.h"
#include "comm/communicator.h"
#include "train/rank.h"
#include "train/saved_state.h"

namespace quintet::train {

// Where a run's checkpoints are.
base::Path checkpoint_folder(const config::Recipe& recipe);

// checkpoint.every = "auto": seconds between saves, from what the last one cost. A save must also be over
// long before the next begins. `devices` fail at base::kFailuresPerDeviceHour.
double auto_interval(double stopped_seconds, double writing_seconds, int64_t devices);

class Checkpointer {
 public:
  // `state` is Manifest::run of the state as it is now; only rank 0's is used.
  using State = std::function<checkpoint::Json()>;
  using Say = std::function<void(const std::string& line)>;
  // `peer_bytes`: of staging memory, for copies in other ranks' memory.
  Checkpointer(Rank& rank, comm::World& world, const config::Recipe& recipe, State state, Say say,
               base::FileSystem& files = base::FileSystem::real(), int64_t peer_bytes = 0);
  ~Checkpointer();

  // UserError unless the disk has room for checkpoint.keep checkpoints and one more; a warning if it has none
  // for those of checkpoint.keep_every. What begin() will remove counts as free. Rank 0.
  void require_space(bool replace = false) const;
  // Before the first step, on rank 0 with the run folder's lock held: sets aside checkpoints after `step`, or
  // removes all of them with `replace`, and removes what interrupted saves have left.
  void begin(int64_t step, bool replace);
  // A save is made when this time comes near, in seconds since 1970. Rank 0.
  void set_deadline(int64_t wall_seconds) { deadline_ = wall_seconds; }

  // What a rank contributes to the flags of a step boundary; each is then the maximum over the ranks.
  struct Flags {
    int32_t busy = 0, failed = 0, due = 0;
  };
  // Only rank 0 looks at the clock. `step_seconds` is what a step takes.
  Flags flags(double step_seconds);
  // Collective, with the reduced flags: commits a checkpoint whose shards are all written. Throws on a rank
  // whose write has failed, and on the others when that one has ended the run.
  void advance(const Flags& reduced);
  // Whether checkpoint.every has a checkpoint after this step. The loop must not start the next step before
  // it; with an interval of time, `due` says so.
  bool is_due(int64_t step) const;

  // Collective, between steps: copies the state after `step` and starts to write it. Waits for the save in
  // progress first.
  void save(int64_t step);
  // Collective: returns when the save in progress, if any, is complete.
  void finish();
  // Starts the copy of a save and nothing else, for measurements; checkpoint.every must be on.
  void copy();
  int64_t copied_ns() const { return copied_ns_; }  // that the copy of the last finished save took

  // Where the last state of a run is.
  struct Last {
    base::Path folder;     // of the checkpoint
    std::string failures;  // why it is not with the run's other checkpoints; empty: it is
  };
  enum class Older : uint8_t { Prune, Keep };
  // Collective, at the end of a run: saves the state after `step`, unless it is saved, and returns when it is
  // on disk. If the run's folder cannot take it, tries again after a pause, then the first of the run folders
  // `elsewhere` that can; all ranks give the same. Throws when none can: what was saved before is intact.
  Last save_last(int64_t step, Older older, const std::vector<base::Path>& elsewhere);
  void set_pause(std::chrono::milliseconds pause) { pause_ = pause; }  // before the second attempt
  int64_t last_step() const { return last_step_; }  // of the last save that was started or loaded; -1: none
  void set_last_step(int64_t step) { last_step_ = step; }
  // The frozen pieces have the values of a checkpoint in this folder: where one of its files is this rank's
  // part of them, later checkpoints link to it.
  void link_to(const checkpoint::Manifest& saved);

  // Bytes on this rank's host.
  int64_t staging_bytes() const { return static_cast<int64_t>(staging_.size()); }
  // The part of the staging memory that is for peers; it begins after staging_bytes().
  std::span<std::byte> peer_staging() const { return peer_staging_; }

 private:
  enum class Phase : uint8_t { Idle, Writing, Committing };
  // A failed write. The same on all ranks.
  struct Failure {
    int64_t rank = 0;
    std::string text;
  };
  std::optional<Failure> next_phase();
  std::optional<Failure> agree(const std::exception_ptr& failure);
  [[noreturn]] void fail(const Failure& failure);
  std::optional<Failure> try_save(checkpoint::Store& store, int64_t step, bool prune);
  void commit(checkpoint::Store& store, int64_t step, bool prune);
  void say_not_pruned();
  void stage(size_t count);
  void await_staged(size_t piece);
  bool link_frozen(int64_t step);
  void write_shards(checkpoint::Store& store, int64_t step, bool staged, bool linked);
  void write_shard(const base::Path& path, size_t begin, size_t end, int64_t step, bool staged,
                   checkpoint::RateLimit& limit);
  double interval_seconds() const;  // between saves by time; 0: none
  double save_seconds() const;      // that a save takes: the last one's time, before it an estimate

  Rank& rank_;
  comm::World& world_;
  const config::Recipe& recipe_;
  const State state_;
  const Say say_;
  base::FileSystem& files_;
  checkpoint::Store store_;
  const std::vector<checkpoint::TensorInfo> tensors_;
  std::vector<StatePiece> pieces_;  // frozen ones last
  size_t num_updated_ = 0;          // pieces that are not frozen
  std::vector<int64_t> places_;     // of the pieces in staging_
  std::span<std::byte> staging_;    // the executor's; empty: nothing is staged, saves are synchronous
  std::span<std::byte> peer_staging_;
  std::atomic<size_t> num_staged_ = 0;  // pieces of the save in progress; kNotStaged: the copy has failed
  base::Path frozen_;                   // a file of the frozen pieces that is complete; empty: none yet
  Phase phase_ = Phase::Idle;
  int64_t step_ = 0, last_step_ = -1;
  int64_t last_ns_ = 0;  // when the last save was started
  int64_t begin_ns_ = 0, written_ns_ = 0;
  int64_t staged_ns_ = 0;  // that the last save stopped training for
  int64_t copied_ns_ = 0;  // until its copy was complete; the job's while one is in progress
  std::optional<int64_t> deadline_;
  std::chrono::milliseconds pause_{2000};  // a full disk may have been cleared by then
  checkpoint::Json run_;
  std::string not_pruned_;      // why; empty: all were, or none is known yet
  bool has_waited_ = false;     // for a save that was still in progress when the next one was due
  checkpoint::Background job_;  // last: it uses the others
};

// Where the last checkpoint goes when its folder cannot take it, by preference. Collective.
std::vector<base::Path> other_places(const config::Recipe& recipe, comm::World& world);

}  // namespace quintet::train
