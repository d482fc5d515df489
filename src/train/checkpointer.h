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

#include "base/error.h"
#include "checkpoint/background.h"
#include "checkpoint/store.h"
#include "comm/communicator.h"
#include "train/rank.h"
#include "train/saved_state.h"

namespace quintet::train {

// Where a run's checkpoints are.
base::Path checkpoint_folder(const config::Recipe& recipe);

// checkpoint.every = "auto": seconds between saves, from what the last one cost training. A save must also be
// over long before the next begins. `failures` is checkpoint.failures.
double auto_interval(double cost_seconds, double writing_seconds, int64_t devices, double failures);

// What a save cost whose copy overlaps the step after it: training stopped while the copy was queued, and the
// step took longer than the one before. That is other noise where it exceeds the copy.
double overlapped_cost(double stopped_seconds, double step_before, double step_after, double copy_seconds);

// A save whose write has failed. All ranks throw it, with the same message: what was saved before is intact,
// and so is the state in memory.
class SaveFailed : public base::UserError {
 public:
  using base::UserError::UserError;
};

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
  // A save is made when this time comes near, in seconds since 1970, and from then on saves hurry(). Rank 0.
  void set_deadline(int64_t wall_seconds) { deadline_ = wall_seconds; }
  // From now on checkpoint.bandwidth does not apply, not even to the save in progress: the process is about
  // to be ended. Any rank, any thread.
  void hurry() { hurries_ = true; }
  // The same as soon as this is true. Called by the threads that write.
  void set_ending(std::function<bool()> ending) { ending_ = std::move(ending); }

  // Called on rank 0 before the manifest of a checkpoint is written, in any thread: for files that must be on
  // disk by then.
  void set_before_commit(std::function<void()> flush) { before_commit_ = std::move(flush); }

  // What a rank contributes to the flags of a step boundary; each is then the maximum over the ranks.
  struct Flags {
    int32_t busy = 0, failed = 0, due = 0;
    int32_t ending = 0;  // the job's time is nearly over
  };
  // Only rank 0 looks at the clock. `step_seconds` is what the last step took; before the end of the job
  // there must also be time for `other_seconds`, for which training stops within two steps.
  Flags flags(double step_seconds, double other_seconds = 0);
  // Collective, with the reduced flags: commits a checkpoint whose shards are all written. SaveFailed when a
  // rank's write has failed.
  void advance(const Flags& reduced);
  // Whether checkpoint.every has a checkpoint after this step. The loop must not start the next step before
  // it; with an interval of time, `due` says so.
  bool is_due(int64_t step) const;

  // What happens to older checkpoints when a new one is complete. Keep is for a state after a step that was
  // skipped or had no finite loss: it replaces only the one before it that was saved so, and is itself
  // replaced by the next.
  enum class Older : uint8_t { Prune, Keep };
  // Collective, between steps: copies the state after `step` and starts to write it. Waits for the save in
  // progress first. SaveFailed as above.
  void save(int64_t step, Older older = Older::Prune);
  // Collective: returns when the save in progress, if any, is complete. SaveFailed as above.
  void finish();
  // Starts the copy of a save and nothing else, for measurements; checkpoint.every must be on.
  void copy();
  int64_t copied_ns() const { return copied_ns_; }  // that the copy of the last finished save took

  // Where the last state of a run is.
  struct Last {
    base::Path folder;     // of the checkpoint
    std::string failures;  // why it is not with the run's other checkpoints; empty: it is
  };
  // Collective, at the end of a run: saves the state after `step`, unless it is saved, and returns when it is
  // on disk. If the run's folder cannot take it, tries again after a pause, then the first of the run folders
  // `elsewhere` that can; all ranks give the same. Throws when none can: what was saved before is intact.
  Last save_last(int64_t step, Older older, const std::vector<base::Path>& elsewhere);
  void set_pause(std::chrono::milliseconds pause) { pause_ = pause; }  // before the second attempt
  // By which checkpoint.bandwidth is kept; for tests.
  void set_rate_clock(checkpoint::RateLimit::Clock clock) { rate_clock_ = std::move(clock); }
  // How long save_last() would take now if it came at once: until the save in progress is complete, and as
  // long as one without checkpoint.bandwidth takes. Rank 0.
  double last_save_seconds() const;
  // The step of the checkpoint that the run continues, and how it was saved.
  void set_last_step(int64_t step, Older older = Older::Prune);
  // checkpoint.every = "auto": the seconds between saves, from the last one's cost; 0: not measured, or
  // another interval. Rank 0.
  double auto_seconds() const;
  bool has_saved() const { return written_ns_ > 0; }  // a checkpoint that is complete
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
  // `most` becomes the maximum over the ranks.
  std::optional<Failure> agree(const std::exception_ptr& failure, int64_t* most = nullptr);
  bool is_hurried() const { return hurries_ || (ending_ && ending_()); }
  bool is_capped_save_late() const;
  std::string message_of(const Failure& failure) const;
  void remove_incomplete(checkpoint::Store& store, int64_t step);
  std::optional<Failure> try_save(checkpoint::Store& store, int64_t step, Older older);
  void commit(checkpoint::Store& store, int64_t step, Older older);
  void say_not_pruned();
  void stage(size_t count);
  void await_staged(size_t piece);
  bool link_frozen(int64_t step);
  void write_shards(checkpoint::Store& store, int64_t step, bool staged, bool linked);
  void write_shard(const base::Path& path, size_t begin, size_t end, int64_t step, bool staged,
                   checkpoint::RateLimit& limit);
  double interval_seconds() const;  // between saves by time; 0: none
  // That a save takes without checkpoint.bandwidth: as the last one, before it an estimate from its size.
  double save_seconds() const;

  Rank& rank_;
  comm::World& world_;
  const config::Recipe& recipe_;
  const State state_;
  const Say say_;
  std::function<void()> before_commit_;
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
  int64_t step_ = 0;
  int64_t last_step_ = -1;  // of the last save that was started and has not failed, or was loaded; -1: none
  Older older_ = Older::Prune;         // of the save in progress
  std::optional<int64_t> superseded_;  // the checkpoint that was saved with Older::Keep; rank 0's job
  int64_t last_ns_ = 0;                // when the last save was started
  int64_t begin_ns_ = 0, written_ns_ = 0;
  int64_t staged_ns_ = 0;               // that the last save stopped training for
  std::atomic<int64_t> copied_ns_ = 0;  // until its copy was complete; 0: it is not yet
  double cost_seconds_ = 0;             // of the last save, to training
  double step_seconds_ = 0;             // of the last step before it
  bool measures_next_ = false;          // the step in progress is the one beside the copy
  std::atomic<int64_t> shard_ns_ = 0;   // that this rank worked for its shards in the last save
  std::atomic<int64_t> commit_ns_ = 0;  // and rank 0 for the manifest
  int64_t save_ns_ = 0;                 // both, of the slowest rank; 0: not measured
  std::optional<int64_t> deadline_;
  std::atomic<bool> hurries_ = false;
  std::function<bool()> ending_;
  std::chrono::milliseconds pause_{2000};  // a full disk may have been cleared by then
  checkpoint::RateLimit::Clock rate_clock_ = checkpoint::RateLimit::Clock::real();
  checkpoint::Json run_;
  std::string not_pruned_;      // why; empty: all were, or none is known yet
  bool has_waited_ = false;     // for a save that was still in progress when the next one was due
  checkpoint::Background job_;  // last: it uses the others
};

}  // namespace quintet::train
