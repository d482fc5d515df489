// A folder of checkpoints. Each is a folder "step-00000100" with a manifest and one shard per rank; a folder
// without a manifest is incomplete and never read. The manifest appears by one rename after everything that
// it names is on disk, and checkpoints are removed manifest first, so a crash at any point leaves every
// folder either complete or incomplete, and the newest complete one is never removed.
#pragma once

#include <optional>
#include <vector>

#include "base/file_system.h"
#include "checkpoint/manifest.h"

namespace quintet::checkpoint {

struct Entry {
  int64_t step = 0;
  base::Path folder;
  bool complete = false;
  bool set_aside = false;  // by Store::abandon_after
};

struct Retention {
  int64_t keep = 1;        // the newest
  int64_t keep_every = 0;  // and the first of each interval of this many steps; 0: none
};

class Store {
 public:
  explicit Store(base::Path folder, base::FileSystem& files = base::FileSystem::real())
      : folder_(std::move(folder)), files_(&files) {}

  const base::Path& folder() const { return folder_; }
  base::Path folder_of(int64_t step) const;

  std::vector<Entry> list() const;        // by step, without those that are set aside
  std::vector<Entry> abandoned() const;   // those that are set aside
  std::optional<Entry> newest() const;    // complete
  std::optional<int64_t> latest() const;  // the step that the pointer "latest" names

  // UserError if the folder has a file "latest" that the store did not write, such as DeepSpeed's: saving
  // would replace it.
  void require_own() const;
  // Creates the folder of a step, which may exist but have no manifest. Every rank calls it, in any order.
  void begin(int64_t step);
  // After all shards of ranks [0, ranks) are on disk: reads their headers, writes the manifest, then the
  // pointer "latest". `run` is Manifest::run. Every element of `expected` must be in exactly one piece.
  void commit(int64_t step, int64_t ranks, Json run, const std::vector<TensorInfo>& expected);
  // Makes "latest" name the newest complete checkpoint: a process may be killed between writing the two.
  void point_to_newest();
  // Replaces Manifest::run of a complete checkpoint, by one rename.
  void replace_run(int64_t step, Json run);
  // Complete checkpoints that are not retained, and incomplete ones that are older than the newest complete
  // one.
  std::vector<Entry> removable(const Retention& retention) const;
  // Removes them. Returns the steps of the complete ones.
  std::vector<int64_t> prune(const Retention& retention);
  // Renames checkpoints after a step, complete or not, to names that no reader looks for ("abandoned-1-..."):
  // a run that goes back to the step would otherwise mix with them. Returns how many.
  int abandon_after(int64_t step);
  // Removes a checkpoint. What else is in its folder stays, and the folder with it; of a link only the link
  // goes.
  void remove(const Entry& entry);
  // Removes every checkpoint, complete or not, those that are set aside included.
  void clear();

 private:
  base::Path folder_;
  base::FileSystem* files_;
};

// The step that a folder of a store has by its name; empty for other names.
std::optional<int64_t> step_of(const base::Path& folder);

// The checkpoint that a path names: its own folder or manifest, a store, or a run folder with a store, of
// which it is the newest, or that of `step` if one is given. UserError with what was found instead.
base::Path find_checkpoint(const base::Path& path, std::optional<int64_t> step = {});

inline constexpr const char* kStoreFolder = "checkpoints";  // in a run folder
inline constexpr const char* kLatestFile = "latest";

}  // namespace quintet::checkpoint
