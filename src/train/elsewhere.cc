#include "train/elsewhere.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/clock.h"
#include "base/error.h"
#include "base/file_system.h"
#include "base/scratch_folder.h"
#include "checkpoint/store.h"
#include "config/parse.h"
#include "train/run_folder.h"

namespace quintet::train {
namespace {

constexpr const char* kPlaces[] = {"/var/tmp", "/tmp", "/dev/shm"};

std::string prefix_of(const config::Recipe& recipe) { return fmt::format("quintet-{}-", recipe.name); }

base::Path absolute(const std::string& folder) {
  return std::filesystem::absolute(folder).lexically_normal();
}

// Empty when the folder cannot be read: it may be anybody's.
std::vector<base::Path> names_in(const base::Path& folder) {
  try {
    return base::list_folder(folder);
  } catch (const base::UserError&) {
    return {};
  }
}

// The step of the newest checkpoint in a run folder, if it belongs to the run.
std::optional<int64_t> step_of_run(const RunFolder& folder, const std::string& run_dir) {
  try {
    const auto newest = checkpoint::Store(folder.path() / checkpoint::kStoreFolder).newest();
    if (!newest || absolute(config::load(folder.recipe_file().string()).run.dir) != absolute(run_dir))
      return std::nullopt;
    return newest->step;
  } catch (const base::UserError&) {  // not what a run has left
    return std::nullopt;
  }
}

}  // namespace

std::vector<base::Path> other_places(const config::Recipe& recipe, comm::World& world) {
  int64_t stamp = base::now_ns();
  world.world().broadcast(&stamp, 1, base::DType::I64, 0);
  std::vector<base::Path> places;
  for (const char* folder : kPlaces)
    places.push_back(base::Path(folder) / fmt::format("{}{}", prefix_of(recipe), stamp));
  return places;
}

void mark_elsewhere(const config::Recipe& recipe, const base::Path& folder) {
  config::Recipe moved = recipe;
  moved.checkpoint.dir.clear();
  moved.run.dir = absolute(recipe.run.dir).string();
  RunFolder(folder).write_recipe(moved);
}

std::optional<Elsewhere> find_elsewhere(const config::Recipe& recipe, int64_t step) {
  std::optional<Elsewhere> latest;
  for (const char* place : kPlaces)
    for (const base::Path& name : names_in(place)) {
      const base::Path folder = place / name;
      if (!name.string().starts_with(prefix_of(recipe)) || !base::is_own_folder(folder)) continue;
      const std::optional<int64_t> found = step_of_run(RunFolder(folder), recipe.run.dir);
      if (found && *found > (latest ? latest->step : step)) latest = {.folder = folder, .step = *found};
    }
  return latest;
}

}  // namespace quintet::train
