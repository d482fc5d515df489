// What must hold before a run takes its folder and its first state: all ranks agree on the checkpoint and see
// the same folder, and nobody else saves there.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/file_lock.h"
#include "comm/communicator.h"
#include "config/recipe.h"
#include "train/resume.h"

namespace quintet::train {

// The text of a manifest, which rank 0 reads and sends to the others: that of a large job, read by every
// rank, would be terabytes. When reading fails, rank 0 throws, and the others get an empty text.
// Collective.
std::string read_for_all(const base::Path& file, comm::World& world);

// The manifests that rank 0 reads before the others: what they read then comes from here where it has it.
class SharedTexts {
 public:
  std::string read(const base::Path& file);
  void send(comm::World& world);  // collective, after rank 0 has read: to all ranks

 private:
  std::map<base::Path, std::string> texts_;
};

// Every process looks for the checkpoint by itself, and one of them may not see the newest yet. Collective.
void agree_on_start(const Start& start, comm::World& world);

// Every rank writes its shard to the folder of checkpoints and rank 0 reads them all: one that is local to a
// machine would be noticed only at the first save. `key` names it. Collective.
void require_shared_folder(const base::Path& folder, const char* key, comm::World& world);

// Nothing may have been saved since the start was planned, and no other run may save in checkpoint.dir from
// now on. Rank 0, with the run folder's lock held.
std::optional<base::FileLock> lock_checkpoints(const config::Recipe& recipe, const Start& start);

// What the manifest has beside tensors: `unset` are states of the program without a value, `sequences` what
// the recipe has read by then. Other settings may need other states.
void require_whole_state(const Start& start, const std::vector<std::string>& unset, int64_t sequences,
                         bool other_settings);

// run.json with the checkpoint of another run that this one began with, also after it was continued.
std::string with_origin(const std::string& facts, const Start& start, const std::vector<std::string>& load,
                        const base::Path& earlier);

}  // namespace quintet::train
