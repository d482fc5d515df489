#include "checkpoint/store.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/parallel_for.h"
#include "checkpoint/shard.h"

namespace quintet::checkpoint {
namespace {

constexpr std::string_view kPrefix = "step-", kAbandonedPrefix = "abandoned-";

std::string name_of(int64_t step) { return fmt::format("{}{:08}", kPrefix, step); }

// Only of names as this store writes them: other trainers have "step-1000", and what is in there is not ours
// to prune.
std::optional<int64_t> step_of_name(const std::string& name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  int64_t step = 0;
  const char* const end = name.data() + name.size();
  const auto [at, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
  if (error != std::errc() || at != end || step < 0 || name != name_of(step)) return std::nullopt;
  return step;
}

// Of a checkpoint that is set aside: "abandoned-2-step-00000100".
std::optional<int64_t> abandoned_step_of(const std::string& name) {
  const size_t dash = name.starts_with(kAbandonedPrefix) ? name.find('-', kAbandonedPrefix.size()) : 0;
  if (dash == 0 || dash == std::string::npos || dash == kAbandonedPrefix.size()) return std::nullopt;
  for (size_t i = kAbandonedPrefix.size(); i < dash; ++i)
    if (name[i] < '0' || name[i] > '9') return std::nullopt;
  return step_of_name(name.substr(dash + 1));
}

// Of a checkpoint's folder: the manifest and the shards, finished or not.
bool is_own_file(std::string_view name) {
  if (name.ends_with(".tmp")) name.remove_suffix(4);
  if (name == kManifestFile) return true;
  return name.ends_with(".safetensors") && (name.starts_with("rank-") || name.starts_with("frozen-"));
}

// The tensors of the shards are those that the ranks agreed to save.
void check_tensors(const Manifest& m, const std::vector<TensorInfo>& expected) {
  QUINTET_CHECK(m.tensors.size() == expected.size(), "{} tensors were saved, expected {}", m.tensors.size(),
                expected.size());
  for (const TensorInfo& info : expected) {
    const SavedTensor* const saved = m.find(info.name);
    QUINTET_CHECK(saved != nullptr && saved->info.shape == info.shape && saved->info.dtype == info.dtype,
                  "{} was not saved as it is", info.name);
    int64_t count = 0;
    for (const Piece piece : saved->pieces) count += piece.region.count;
    QUINTET_CHECK(count == info.count(), "{} elements of {} were saved, expected {}", count, info.name,
                  info.count());
  }
}

// Opening one takes a round trip to the file system, and a large job has thousands.
constexpr int kHeaderReaders = 32;
constexpr int64_t kHeadersAtOnce = 256;  // in memory

Manifest read_shards(const base::Path& folder, int64_t step, int64_t ranks, Json run) {
  const std::vector<base::Path> names = base::list_folder(folder);  // sorted
  const auto is_there = [&](const std::string& name) {
    return std::binary_search(names.begin(), names.end(), base::Path(name));
  };
  ManifestBuilder manifest(step, std::move(run));
  for (int64_t first = 0; first < ranks; first += kHeadersAtOnce) {
    std::vector<std::vector<ShardContents>> shards(
        static_cast<size_t>(std::min(kHeadersAtOnce, ranks - first)));
    base::parallel_for(kHeaderReaders, shards.size(), [&](size_t i) {
      const int64_t rank = first + static_cast<int64_t>(i);
      shards[i].push_back(read_shard(folder / shard_name(rank), step));
      if (const std::string frozen = frozen_name(rank); is_there(frozen))
        shards[i].push_back(read_shard(folder / frozen, std::nullopt));
    });
    for (std::vector<ShardContents>& of_rank : shards)
      for (ShardContents& shard : of_rank) manifest.add(std::move(shard));
  }
  return manifest.finish();
}

}  // namespace

std::optional<int64_t> step_of(const base::Path& folder) { return step_of_name(folder.filename().string()); }

base::Path Store::folder_of(int64_t step) const { return folder_ / name_of(step); }

std::optional<int64_t> Store::latest() const {
  constexpr int64_t kLongest = 64;
  const base::Path latest = folder_ / kLatestFile;
  std::string name;
  if (base::file_exists(latest) && base::size_of_file(latest) <= kLongest) name = base::read_file(latest);
  while (!name.empty() && name.back() == '\n') name.pop_back();
  return step_of_name(name);
}

void Store::require_own() const {
  const base::Path latest = folder_ / kLatestFile;
  if ((base::file_exists(latest) && !this->latest()) || base::directory_exists(latest))
    base::fail_user(
        "'{}' is not a pointer of this program and would be replaced; choose another folder with "
        "checkpoint.dir",
        latest.string());
}

namespace {

template <class StepOf>
std::vector<Entry> entries_of(const base::Path& folder, const StepOf& step_in, bool set_aside) {
  std::vector<Entry> entries;
  for (const base::Path& name : base::list_folder(folder))
    if (const auto step = step_in(name.string()); step && base::directory_exists(folder / name))
      entries.push_back({.step = *step,
                         .folder = folder / name,
                         .complete = base::file_exists(folder / name / kManifestFile),
                         .set_aside = set_aside});
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Entry& a, const Entry& b) { return a.step < b.step; });
  return entries;
}

}  // namespace

std::vector<Entry> Store::list() const { return entries_of(folder_, step_of_name, false); }

std::vector<Entry> Store::abandoned() const { return entries_of(folder_, abandoned_step_of, true); }

std::optional<Entry> Store::newest() const {
  std::optional<Entry> newest;
  for (const Entry& entry : list())
    if (entry.complete) newest = entry;
  return newest;
}

void Store::begin(int64_t step) {
  const base::Path folder = folder_of(step);
  QUINTET_CHECK(!base::file_exists(folder / kManifestFile), "step {} has a checkpoint already", step);
  files_->make_directories(folder_);
  files_->make_directory(folder);
}

void Store::commit(int64_t step, int64_t ranks, Json run, const std::vector<TensorInfo>& expected) {
  const base::Path folder = folder_of(step);
  const Manifest m = read_shards(folder, step, ranks, std::move(run));
  check_tensors(m, expected);
  files_->sync_directory(folder);   // the names of the shards
  files_->sync_directory(folder_);  // and of their folder
  base::replace_file(*files_, folder / kManifestFile, to_text(m));
  base::replace_file(*files_, folder_ / kLatestFile, folder.filename().string() + "\n");
}

void Store::point_to_newest() {
  const std::optional<Entry> entry = newest();
  if (!entry)
    files_->remove_file(folder_ / kLatestFile);
  else if (latest() != entry->step)
    base::replace_file(*files_, folder_ / kLatestFile, entry->folder.filename().string() + "\n");
}

void Store::replace_run(int64_t step, Json run) {
  const base::Path file = folder_of(step) / kManifestFile;
  Manifest m = parse_manifest(read_manifest(file), file.string());
  m.run = std::move(run);
  base::replace_file(*files_, file, to_text(m));
}

std::vector<Entry> Store::removable(const Retention& retention) const {
  std::vector<Entry> complete, incomplete;
  for (Entry& entry : list()) (entry.complete ? complete : incomplete).push_back(std::move(entry));
  if (complete.empty()) return {};
  std::set<int64_t> kept, intervals;
  for (size_t i = 0; i < complete.size(); ++i) {
    const int64_t step = complete[i].step;
    const int64_t interval = retention.keep_every > 0 ? step / retention.keep_every : 0;
    const bool is_first = interval > 0 && intervals.insert(interval).second;
    if (is_first || static_cast<int64_t>(complete.size() - i) <= std::max<int64_t>(1, retention.keep))
      kept.insert(step);
  }
  std::vector<Entry> out;
  for (const Entry& entry : complete)
    if (!kept.contains(entry.step)) out.push_back(entry);
  for (const Entry& entry : incomplete)
    if (entry.step < complete.back().step) out.push_back(entry);
  return out;
}

std::vector<int64_t> Store::prune(const Retention& retention) {
  std::vector<int64_t> removed;
  for (const Entry& entry : removable(retention)) {
    remove(entry);
    if (entry.complete) removed.push_back(entry.step);
  }
  return removed;
}

int Store::abandon_after(int64_t step) {
  std::vector<Entry> entries = list();
  // The newest first: whatever is left after a crash is a run that has gone back less far.
  std::reverse(entries.begin(), entries.end());
  int count = 0;
  for (const Entry& entry : entries) {
    if (entry.step <= step) continue;
    base::Path to;
    int number = 0;
    do to = folder_ / fmt::format("{}{}-{}", kAbandonedPrefix, ++number, entry.folder.filename().string());
    while (base::directory_exists(to));
    files_->rename(entry.folder, to);
    files_->sync_directory(folder_);
    ++count;
  }
  if (count > 0) point_to_newest();
  return count;
}

void Store::remove(const Entry& entry) {
  if (std::filesystem::is_symlink(entry.folder)) return files_->remove_file(entry.folder);
  files_->remove_file(entry.folder / kManifestFile);
  files_->sync_directory(entry.folder);  // the manifest goes first also after a crash
  bool others = false;
  for (const base::Path& name : base::list_folder(entry.folder)) {
    if (is_own_file(name.string()))
      files_->remove_file(entry.folder / name);
    else
      others = true;
  }
  if (!others) files_->remove_directory(entry.folder);
}

void Store::clear() {
  if (!base::directory_exists(folder_)) return;
  files_->remove_file(folder_ / kLatestFile);  // first: it must not name a folder that is half gone
  files_->sync_directory(folder_);
  for (const Entry& entry : list()) remove(entry);
  for (const Entry& entry : abandoned()) remove(entry);
}

namespace {

// The checkpoint of a step in a store; the message says which steps there are.
base::Path find_step(const base::Path& path, int64_t step) {
  std::string steps;
  for (const base::Path& folder : {path, path / kStoreFolder})
    for (const Entry& entry : Store(folder).list()) {
      if (!entry.complete) continue;
      if (entry.step == step) return entry.folder;
      steps += fmt::format("{}{}", steps.empty() ? "" : ", ", entry.step);
    }
  base::fail_user(
      "'{}' has no complete checkpoint of step {}{}", path.string(), step,
      !base::directory_exists(path) ? ": the folder does not exist"
      : steps.empty()
          ? ": it contains no complete checkpoint"
          : fmt::format("; it has {} {}",
                        steps.find(',') == std::string::npos ? "that of step" : "those of steps", steps));
}

}  // namespace

base::Path find_checkpoint(const base::Path& path, std::optional<int64_t> step) {
  const base::Path own = path.filename() == kManifestFile ? path.parent_path() : path;
  if (base::file_exists(own / kManifestFile)) {
    if (const std::string name = std::filesystem::absolute(own).lexically_normal().filename().string();
        step && step_of_name(name) != step)
      base::fail_user("'{}' is the checkpoint {}, not that of step {}", path.string(), name, *step);
    return own;
  }
  if (step) return find_step(path, *step);
  for (const base::Path& folder : {path, path / kStoreFolder})
    if (const auto newest = Store(folder).newest()) return newest->folder;
  base::fail_user(
      "'{}' is not a checkpoint: expected a folder with {}, a folder of checkpoints, or a run folder with "
      "one{}",
      path.string(), kManifestFile,
      !base::directory_exists(path) ? "; the folder does not exist"
      : Store(path).list().empty() && Store(path / kStoreFolder).list().empty()
          ? "; it contains no checkpoint"
          : "; the checkpoints in it are incomplete");
}

}  // namespace quintet::checkpoint
