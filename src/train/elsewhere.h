// Where the last state of a run goes when its own folder cannot take it, and how a later start finds it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "comm/communicator.h"
#include "config/recipe.h"

namespace quintet::train {

// Run folders for the last checkpoint, by preference. Collective: the same on all ranks.
std::vector<base::Path> other_places(const config::Recipe& recipe, comm::World& world);

// Writes the recipe of the run to the folder that has taken its last checkpoint, so that it is a run folder.
void mark_elsewhere(const config::Recipe& recipe, const base::Path& folder);

// The latest state of this run that is in such a folder of this machine and user, if it is after `step`.
struct Elsewhere {
  base::Path folder;
  int64_t step = 0;
};
std::optional<Elsewhere> find_elsewhere(const config::Recipe& recipe, int64_t step);

}  // namespace quintet::train
