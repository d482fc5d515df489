#include "train/start_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/checksum.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "checkpoint/store.h"
#include "config/codes.h"
#include "train/agreement.h"
#include "train/checkpointer.h"

namespace quintet::train {

using base::DType;

namespace {

constexpr const char* kLockFile = ".lock";  // in checkpoint.dir
// Of the file by which ranks know that they share a folder.
constexpr std::string_view kTokenPrefix = ".seen-";

void broadcast(std::string& text, comm::World& world) {
  auto size = static_cast<int64_t>(text.size());
  world.world().broadcast(&size, 1, DType::I64, 0);
  text.resize(static_cast<size_t>(size));
  if (size > 0) world.world().broadcast(text.data(), size, DType::U8, 0);
}

// Of starts that were killed.
void remove_leftovers(const base::Path& folder) {
  for (const base::Path& name : base::list_folder(folder)) {
    const std::string text = name.string();
    if (text.starts_with(kTokenPrefix) && text.find_first_of("0123456789") == kTokenPrefix.size())
      base::remove_file(folder / name);
  }
  base::remove_partial_files(folder, {"probe"});
}

}  // namespace

std::string read_for_all(const base::Path& file, comm::World& world) {
  std::string text;
  std::exception_ptr failure;
  if (world.rank().value == 0) try {
      text = checkpoint::read_manifest(file);
    } catch (...) {
      failure = std::current_exception();
    }
  broadcast(text, world);
  if (failure) std::rethrow_exception(failure);
  return text;
}

std::string SharedTexts::read(const base::Path& file) {
  const auto [text, is_new] = texts_.try_emplace(file);
  if (is_new) try {
      text->second = checkpoint::read_manifest(file);
    } catch (...) {
      texts_.erase(text);
      throw;
    }
  return text->second;
}

void SharedTexts::send(comm::World& world) {
  auto count = static_cast<int64_t>(texts_.size());
  world.world().broadcast(&count, 1, DType::I64, 0);
  auto next = texts_.begin();
  for (int64_t i = 0; i < count; ++i) {
    const bool is_first = world.rank().value == 0;
    std::string name, text;
    if (is_first) {
      name = next->first.string(), text = next->second;
      ++next;
    }
    broadcast(name, world);
    broadcast(text, world);
    if (!is_first) texts_.insert_or_assign(name, std::move(text));
  }
}

void agree_on_start(const Start& start, comm::World& world) {
  // Step, checksum of the manifest.
  const int64_t mine[2] = {start.checkpoint.empty() ? -1 : start.step(),
                           static_cast<int64_t>(start.manifest_sum)};
  std::exception_ptr failure;
  int64_t first[2] = {mine[0], mine[1]};
  world.world().broadcast(first, 2, DType::I64, 0);
  if (!std::equal(mine, mine + 2, first))
    failure = std::make_exception_ptr(base::UserError(fmt::format(
        "rank {} finds another checkpoint to start from than rank 0 ({}; rank 0: {}): the folder must be the "
        "same for all ranks; with a network file system, wait until every machine sees the newest files",
        world.rank(), mine[0] < 0 ? "none" : start.checkpoint.string(),
        first[0] < 0 ? std::string("none") : fmt::format("one of step {}", first[0]))));
  agree(world, failure);
}

void require_shared_folder(const base::Path& folder, const char* key, comm::World& world) {
  const bool is_first = world.rank().value == 0;
  int64_t stamp = base::now_ns();
  world.world().broadcast(&stamp, 1, DType::I64, 0);
  const base::Path token = folder / fmt::format("{}{}", kTokenPrefix, stamp);
  std::exception_ptr failure;
  try {
    if (is_first) {
      base::require_writable_directory(folder);
      remove_leftovers(folder);
      base::write_file_atomically(token, "");
    }
  } catch (...) {
    failure = std::current_exception();
  }
  agree(world, failure);
  if (!base::file_exists(token))
    failure = std::make_exception_ptr(
        base::UserError(fmt::format("rank {} does not see what rank 0 writes to '{}': checkpoints need a "
                                    "folder that all machines of the job "
                                    "share; name one with {}",
                                    world.rank(), folder.string(), key)));
  agree(world, failure);
  if (is_first) base::remove_file(token);
}

std::optional<base::FileLock> lock_checkpoints(const config::Recipe& recipe, const Start& start) {
  const base::Path folder = checkpoint_folder(recipe);
  std::error_code none;
  const bool is_run_folder = std::filesystem::equivalent(folder, recipe.run.dir, none);  // locked already
  const bool is_shared = !recipe.checkpoint.dir.empty() && !is_run_folder;
  std::optional<base::FileLock> lock = is_shared ? base::FileLock::acquire(folder / kLockFile, recipe.run.dir)
                                                 : std::optional<base::FileLock>();
  if (is_shared && !lock) {
    config::fail_coded(config::kFolderIsNotInUse,
                       "another run saves its checkpoints in checkpoint.dir = \"{}\" ({}): wait for it, or "
                       "choose another folder",
                       folder.string(), base::FileLock::owner_of(folder / kLockFile));
  }
  const auto newest = checkpoint::Store(folder).newest();
  if (start.newest && newest && newest->step != *start.newest)
    config::fail_coded(config::kFolderIsNotInUse,
                       "another process has saved step {} in '{}' while this run was starting from step {}: "
                       "start it again",
                       newest->step, folder.string(), *start.newest);
  return lock;
}

void require_whole_state(const Start& start, const std::vector<std::string>& unset, int64_t sequences,
                         bool other_settings) {
  const std::string file = (start.checkpoint / checkpoint::kManifestFile).string();
  if (!unset.empty() && !other_settings)
    base::fail_user(
        "'{}' is damaged or was written by another program: it has no usable value of the state {}", file,
        fmt::join(unset, ", "));
  if (start.check_data && start.state->sequences != sequences)
    base::fail_user("'{}' contradicts itself: {} sequences after step {}, where this recipe has read {}",
                    file, start.state->sequences, start.state->step, sequences);
}

std::string with_origin(const std::string& facts, const Start& start, const std::vector<std::string>& load,
                        const base::Path& earlier) {
  nlohmann::ordered_json from;
  if (start.existing == Existing::Continue && base::file_exists(earlier)) {
    const auto before = base::parse_ordered_json(base::read_file(earlier));
    if (before.is_object() && before.contains("from")) from = before.at("from");
  } else if (!start.checkpoint.empty()) {
    from = {
        {"checkpoint", start.checkpoint.string()}, {"weights_only", start.load.weights_only}, {"load", load}};
  }
  if (from.is_null()) return facts;
  auto json = nlohmann::ordered_json::parse(facts);
  json["from"] = from;
  return base::json_text(json, 2) + "\n";
}

}  // namespace quintet::train
