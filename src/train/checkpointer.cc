#include "train/checkpointer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <initializer_list>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/error_codes.h"
#include "base/failure_rate.h"
#include "base/text.h"
#include "config/codes.h"

namespace quintet::train {

using base::DType;
using Unit = config::SaveInterval::Unit;

namespace {

constexpr double kSecond = 1e9;  // in nanoseconds
constexpr std::chrono::hours kLongestSave{1};
constexpr double kFirstAutoSeconds = 60;  // before the first save was measured
constexpr double kShortestAutoSeconds = 1;
constexpr int64_t kDeadlineMargin = 30;  // seconds, in addition to two steps and two saves
constexpr double kAssumedRate = 256e6;   // bytes per second of a rank, before the first save was measured
constexpr size_t kNotStaged = SIZE_MAX;
constexpr int64_t kStagedAtOnce = int64_t{32} << 20;  // then the thread that writes may go on
constexpr int64_t kOtherBytes = int64_t{1} << 20;     // headers and manifest, for each rank

// While it lives, calls wait longer for their peers than in a step. Calls of all ranks match, so that none is
// waiting when the usual time applies again.
class Patience {
 public:
  explicit Patience(comm::World& world) : world_(world), usual_(world.timeout()) {
    world_.set_timeout(usual_ + kLongestSave);
  }
  ~Patience() { world_.set_timeout(usual_); }
  Patience(const Patience&) = delete;
  Patience& operator=(const Patience&) = delete;

 private:
  comm::World& world_;
  const std::chrono::nanoseconds usual_;
};

// Folders that a failed attempt has made.
void remove_if_empty(std::initializer_list<base::Path> folders) {
  std::error_code ignored;
  for (const base::Path& folder : folders) std::filesystem::remove(folder, ignored);
}

// Failures in one sentence. A cause that they share, after the last colon, is stated once: "cannot write 'a',
// cannot write 'b': No space left on device".
std::string joined(const std::string& before, const std::string& failure) {
  if (before.empty()) return failure;
  const size_t a = before.rfind(": "), b = failure.rfind(": ");
  const bool same = a != std::string::npos && b != std::string::npos &&
                    base::without_code(before.substr(a)) == base::without_code(failure.substr(b));
  return same ? before.substr(0, a) + ", " + failure : before + "; " + failure;
}

}  // namespace

base::Path checkpoint_folder(const config::Recipe& recipe) {
  return recipe.checkpoint.dir.empty() ? base::Path(recipe.run.dir) / checkpoint::kStoreFolder
                                       : base::Path(recipe.checkpoint.dir);
}

double auto_interval(double cost_seconds, double writing_seconds, int64_t devices, double failures) {
  const double per_day = failures / 1000 * static_cast<double>(devices), between_failures = 86400 / per_day;
  return std::max(
      {kShortestAutoSeconds, 2 * writing_seconds, base::young_seconds(cost_seconds, between_failures)});
}

double overlapped_cost(double stopped_seconds, double step_before, double step_after, double copy_seconds) {
  return stopped_seconds + std::clamp(step_after - step_before, 0.0, copy_seconds);
}

Checkpointer::Checkpointer(Rank& rank, comm::World& world, const config::Recipe& recipe, State state, Say say,
                           base::FileSystem& files, int64_t peer_bytes)
    : rank_(rank),
      world_(world),
      recipe_(recipe),
      state_(std::move(state)),
      say_(std::move(say)),
      files_(files),
      store_(checkpoint_folder(recipe), files),
      tensors_(state_tensors(rank)),
      pieces_(state_pieces(rank, Holding::Own)),
      last_ns_(base::now_ns()) {
  int64_t bytes = 0;
  // As in the file where possible, so that the disk reads them there. Frozen ones are in a file of their own.
  for (const StatePiece& piece : pieces_) {
    const bool begins_file = piece.frozen && num_updated_ == places_.size();
    const int64_t unit = begins_file ? layout::kFrozenAlign : base::size_of(piece.saved.tensor.dtype);
    if (!piece.frozen) ++num_updated_;
    bytes = (bytes + unit - 1) / unit * unit;
    places_.push_back(bytes);
    bytes += piece.memory_bytes();
  }
  if (!recipe.checkpoint.every.is_on()) bytes = 0;
  if (bytes + peer_bytes == 0) return;
  const std::span<std::byte> memory = rank.executor().staging(bytes + peer_bytes);
  staging_ = memory.first(static_cast<size_t>(bytes));
  peer_staging_ = memory.subspan(static_cast<size_t>(bytes));
}

Checkpointer::~Checkpointer() = default;

void Checkpointer::require_space(bool replace) const {
  const auto& options = recipe_.checkpoint;
  int64_t bytes = kOtherBytes * world_.size(), present = 0, freed = 0;
  for (const checkpoint::TensorInfo& t : tensors_) bytes += t.bytes();
  for (const checkpoint::Entry& entry : store_.list()) {
    if (!replace && entry.complete) {
      ++present;
      continue;
    }
    // begin() removes it.
    for (const base::Path& file : base::list_files(entry.folder)) freed += base::size_of_file(file);
  }
  // Without checkpoint.every there is one save, at the end.
  const int64_t count = options.every.is_on() ? options.keep + 1 - present : 1,
                needed = bytes * std::max<int64_t>(1, count),
                free = base::free_bytes(store_.folder()) + freed;
  if (free < needed)
    config::fail_coded(config::kDiskHasRoom,
                       "checkpoints need {} in '{}', {} each, and {} is free: free some space, keep fewer "
                       "(checkpoint.keep is {}), or choose another folder with checkpoint.dir",
                       base::human_bytes(needed), store_.folder().string(), base::human_bytes(bytes),
                       base::human_bytes(free), options.keep);
  if (!options.every.is_on() || options.keep_every == 0) return;
  // Those accumulate over the whole run, and may be moved elsewhere meanwhile.
  int64_t kept = recipe_.run.steps / options.keep_every;
  if (options.every.unit == Unit::Steps) kept = std::min(kept, recipe_.run.steps / options.every.value);
  const int64_t more = kept + std::max<int64_t>(1, count);
  if (static_cast<double>(free) < static_cast<double>(more) * static_cast<double>(bytes))
    say_(
        fmt::format("warning: checkpoint.keep_every = {} keeps up to {} checkpoints of {} in '{}', and {} is "
                    "free: move some elsewhere in time, or choose a larger checkpoint.keep_every",
                    options.keep_every, kept, base::human_bytes(bytes), store_.folder().string(),
                    base::human_bytes(free)));
}

void Checkpointer::begin(int64_t step, bool replace) {
  if (replace) store_.clear();
  for (const checkpoint::Entry& entry : store_.list())
    if (!entry.complete) store_.remove(entry);
  if (const int count = store_.abandon_after(step); count > 0)
    say_(fmt::format("{} checkpoint{} after step {} set aside in {}", count, count == 1 ? "" : "s", step,
                     store_.folder().string()));
}

bool Checkpointer::is_due(int64_t step) const {
  const config::SaveInterval& every = recipe_.checkpoint.every;
  return every.unit == Unit::Steps && every.value > 0 && step % every.value == 0;
}

double Checkpointer::interval_seconds() const {
  const config::SaveInterval& every = recipe_.checkpoint.every;
  if (every.unit == Unit::Seconds) return static_cast<double>(every.value);
  if (every.unit != Unit::Auto) return 0;
  if (written_ns_ == 0) return kFirstAutoSeconds;
  return auto_interval(cost_seconds_, static_cast<double>(written_ns_) / kSecond, world_.size(),
                       recipe_.checkpoint.failures);
}

double Checkpointer::save_seconds() const {
  if (save_ns_ > 0) return static_cast<double>(save_ns_) / kSecond;
  double bytes = 0;
  for (const StatePiece& piece : pieces_) bytes += static_cast<double>(piece.saved.bytes());
  return bytes / kAssumedRate;
}

double Checkpointer::last_save_seconds() const {
  const double one = save_seconds();
  if (phase_ == Phase::Idle) return one;
  if (recipe_.checkpoint.bandwidth.value > 0) return 2 * one;  // most of it may still be to be written
  return one + std::max(0.0, one - static_cast<double>(base::now_ns() - begin_ns_) / kSecond);
}

// Whether a save within checkpoint.bandwidth would end after the job. Rank 0.
bool Checkpointer::is_capped_save_late() const {
  const auto limit = static_cast<double>(recipe_.checkpoint.bandwidth.value);
  if (!deadline_ || limit <= 0) return false;
  double bytes = 0;
  for (const checkpoint::TensorInfo& t : tensors_) bytes += static_cast<double>(t.bytes());
  return static_cast<double>(*deadline_ - base::wall_seconds() - kDeadlineMargin) <
         save_seconds() + bytes / limit;
}

Checkpointer::Flags Checkpointer::flags(double step_seconds, double other_seconds) {
  Flags flags;
  if (measures_next_) {
    measures_next_ = false;
    const int64_t copied = copied_ns_, copy_ns = copied > 0 ? copied : base::now_ns() - begin_ns_;
    cost_seconds_ = overlapped_cost(static_cast<double>(staged_ns_) / kSecond, step_seconds_, step_seconds,
                                    static_cast<double>(copy_ns) / kSecond);
  } else {
    step_seconds_ = step_seconds;
  }
  if (phase_ != Phase::Idle && !job_.is_done()) flags.busy = 1;
  if (phase_ != Phase::Idle && job_.has_failed()) flags.failed = 1;
  if (world_.rank().value != 0) return flags;
  const double interval = interval_seconds(),
               passed = static_cast<double>(base::now_ns() - last_ns_) / kSecond;
  if (interval > 0 && passed >= interval) flags.due = 1;
  if (deadline_ && static_cast<double>(*deadline_ - base::wall_seconds() - kDeadlineMargin) <
                       2 * (step_seconds + save_seconds()) + other_seconds) {
    say_("a checkpoint is saved before the job's time is over");
    deadline_.reset();
    flags.due = flags.ending = 1;
  }
  return flags;
}

void Checkpointer::advance(const Flags& reduced) {
  if (reduced.ending != 0) hurry();
  if (phase_ == Phase::Idle || (reduced.busy != 0 && reduced.failed == 0)) return;
  if (const auto failure = next_phase()) throw SaveFailed(message_of(*failure), base::code_in(failure->text));
}

void Checkpointer::set_last_step(int64_t step, Older older) {
  last_step_ = step;
  if (older == Older::Keep) superseded_ = step;
}

double Checkpointer::auto_seconds() const {
  return recipe_.checkpoint.every.unit == Unit::Auto && written_ns_ > 0 ? interval_seconds() : 0;
}

void Checkpointer::commit(checkpoint::Store& store, int64_t step, Older older) {
  const int64_t begin_ns = base::now_ns();
  if (before_commit_) before_commit_();
  store.commit(step, world_.size(), std::move(run_), tensors_);
  commit_ns_ = base::now_ns() - begin_ns;
  if (&store != &store_) return;
  const std::optional<int64_t> superseded = superseded_;
  superseded_ = older == Older::Keep ? std::optional(step) : std::nullopt;
  try {
    if (superseded && *superseded != step && base::directory_exists(store.folder_of(*superseded)))
      store.remove({.step = *superseded, .folder = store.folder_of(*superseded)});
    if (older == Older::Prune)
      store.prune({.keep = recipe_.checkpoint.keep, .keep_every = recipe_.checkpoint.keep_every});
  } catch (const base::UserError& e) {  // this checkpoint is complete all the same
    not_pruned_ = base::without_code(e.what());
  }
}

void Checkpointer::say_not_pruned() {
  if (!not_pruned_.empty())
    say_(fmt::format("warning: older checkpoints stay in '{}': {}", store_.folder().string(), not_pruned_));
  not_pruned_.clear();
}

// The job of this phase is done on all ranks, or has failed on one.
std::optional<Checkpointer::Failure> Checkpointer::next_phase() {
  std::exception_ptr thrown;
  try {
    job_.wait();
  } catch (...) {
    thrown = std::current_exception();
  }
  int64_t shard_ns = shard_ns_;
  if (auto failure = agree(thrown, &shard_ns)) {
    phase_ = Phase::Idle;
    last_step_ = -1;
    remove_incomplete(store_, step_);
    return failure;
  }
  const bool first = world_.rank().value == 0;
  if (phase_ == Phase::Writing) {
    if (num_updated_ < pieces_.size())
      frozen_ = store_.folder_of(step_) / checkpoint::frozen_name(world_.rank().value);
    phase_ = Phase::Committing;
    if (first) job_.start([this, step = step_] { commit(store_, step, older_); });
    return std::nullopt;
  }
  phase_ = Phase::Idle;
  written_ns_ = base::now_ns() - begin_ns_;
  save_ns_ = shard_ns + commit_ns_;
  say_not_pruned();
  if (first)
    say_(fmt::format(
        "checkpoint of step {} complete: {} in {}{}{}", step_, store_.folder_of(step_).filename().string(),
        base::human_duration(written_ns_),
        staging_.empty() ? ""
                         : fmt::format(", copied in {}, training stopped for {}",
                                       base::human_duration(copied_ns_), base::human_duration(staged_ns_)),
        auto_seconds() > 0 ? fmt::format("; checkpoint.every = \"auto\": every {}",
                                         base::human_duration(static_cast<int64_t>(auto_seconds() * kSecond)))
                           : ""));
  return std::nullopt;
}

// Collective check that no rank failed: the message of the lowest one that did. What is not a UserError ends
// the job.
std::optional<Checkpointer::Failure> Checkpointer::agree(const std::exception_ptr& failure, int64_t* most) {
  // Ranks write at different speeds, and rank 0 alone commits: that is not a hang.
  const Patience patience(world_);
  comm::Communicator& comm = world_.world();
  int64_t found_most[2] = {failure ? world_.size() - world_.rank().value : 0, most == nullptr ? 0 : *most};
  comm.all_reduce(found_most, 2, DType::I64, comm::ReduceOp::Max);
  const int64_t lowest = found_most[0];
  if (most != nullptr) *most = found_most[1];
  if (lowest == 0) return std::nullopt;
  Failure found{.rank = world_.size() - lowest, .text = {}};
  if (world_.rank().value == found.rank) {
    try {
      std::rethrow_exception(failure);
    } catch (const base::UserError& e) {
      found.text = e.what();
    }
  }
  auto size = static_cast<int64_t>(found.text.size());
  comm.broadcast(&size, 1, DType::I64, static_cast<int>(found.rank));
  found.text.resize(static_cast<size_t>(size));
  comm.broadcast(found.text.data(), size, DType::U8, static_cast<int>(found.rank));
  return found;
}

std::string Checkpointer::message_of(const Failure& failure) const {
  bool has_earlier = true;
  try {
    has_earlier = store_.newest().has_value();
  } catch (const base::UserError&) {  // the folder cannot be read now
  }
  return fmt::format("the checkpoint of step {} could not be written: {}; {}", step_,
                     base::without_code(failure.text),
                     has_earlier ? "earlier ones are intact" : "there is no earlier one");
}

// What a failed save has left takes space. Collective: no rank writes to it any more.
void Checkpointer::remove_incomplete(checkpoint::Store& store, int64_t step) {
  if (world_.rank().value == 0) try {
      store.remove({.step = step, .folder = store.folder_of(step)});
    } catch (const base::UserError&) {  // the failure that is reported comes first
    }
  world_.world().barrier();
}

// The first `count` pieces, in groups: the thread that writes follows.
void Checkpointer::stage(size_t count) {
  try {
    for (size_t i = 0; i < count;) {
      std::vector<exec::Executor::Staged> copies;
      for (int64_t bytes = 0; i < count && bytes < kStagedAtOnce; ++i) {
        bytes += pieces_[i].memory_bytes();
        copies.push_back({.from = pieces_[i].range, .to = places_[i]});
        if (pieces_[i].lower) copies.push_back({*pieces_[i].lower, places_[i] + pieces_[i].range.bytes});
      }
      rank_.executor().stage(copies);
      num_staged_ = i;
      num_staged_.notify_all();
    }
  } catch (...) {
    num_staged_ = kNotStaged;
    num_staged_.notify_all();
    throw;
  }
}

void Checkpointer::copy() { stage(pieces_.size()); }

void Checkpointer::await_staged(size_t piece) {
  size_t staged = num_staged_;
  for (; staged <= piece; staged = num_staged_) num_staged_.wait(staged);
  QUINTET_CHECK(staged != kNotStaged, "the state was not copied");
}

// Whether the frozen pieces of an earlier checkpoint are those of this one, too.
bool Checkpointer::link_frozen(int64_t step) {
  if (frozen_.empty()) return false;
  try {
    store_.begin(step);
    return files_.link(frozen_, store_.folder_of(step) / checkpoint::frozen_name(world_.rank().value));
  } catch (const base::UserError&) {
    return false;  // writing reports it
  }
}

void Checkpointer::link_to(const checkpoint::Manifest& m) {
  const std::string name = checkpoint::frozen_name(world_.rank().value);
  const auto is_here = [&](const checkpoint::Piece& p) {
    return m.files[static_cast<size_t>(p.file)].name == name;
  };
  size_t count = 0;
  for (const checkpoint::SavedTensor& t : m.tensors)
    count += static_cast<size_t>(std::count_if(t.pieces.begin(), t.pieces.end(), is_here));
  if (count == 0 || count != pieces_.size() - num_updated_) return;
  for (size_t i = num_updated_; i < pieces_.size(); ++i) {
    const checkpoint::ShardPiece& mine = pieces_[i].saved;
    const checkpoint::SavedTensor* const t = m.find(mine.tensor.name);
    if (t == nullptr || t->info.dtype != mine.tensor.dtype ||
        std::none_of(t->pieces.begin(), t->pieces.end(),
                     [&](const checkpoint::Piece& p) { return is_here(p) && p.region == mine.region; }))
      return;
  }
  frozen_ = store_.folder_of(m.step) / name;
}

void Checkpointer::write_shard(const base::Path& path, size_t begin, size_t end, int64_t step, bool staged,
                               checkpoint::RateLimit& limit) {
  std::vector<checkpoint::ShardPiece> saved;
  for (size_t i = begin; i < end; ++i) saved.push_back(pieces_[i].saved);
  const auto source = [&](size_t n, int64_t first, std::span<std::byte> out) {
    const size_t i = begin + n;
    const StatePiece& piece = pieces_[i];
    if (staged) await_staged(i);
    copy_elements(piece, first, out, [&](const exec::Range& part) {
      if (!staged) return rank_.read(part);
      const bool is_lower = piece.lower && part.buffer == piece.lower->buffer;
      const exec::Range& whole = is_lower ? *piece.lower : piece.range;
      return exec::HostBytes(staging_.data() + places_[i] + (is_lower ? piece.range.bytes : 0) +
                             (part.offset - whole.offset));
    });
  };
  const auto in_place = [&](size_t n) -> const std::byte* {
    const size_t i = begin + n;
    if (!staged || !pieces_[i].is_stored_as_saved()) return nullptr;
    await_staged(i);
    return staging_.data() + places_[i];
  };
  checkpoint::write_shard(path, saved, source,
                          {.files = &files_,
                           .step = step,
                           .written = [&](int64_t bytes) { limit.written(bytes); },
                           .in_place = in_place});
}

void Checkpointer::write_shards(checkpoint::Store& store, int64_t step, bool staged, bool linked) {
  const int64_t begin_ns = rate_clock_.now_ns();
  checkpoint::RateLimit limit(
      static_cast<double>(recipe_.checkpoint.bandwidth.value) / static_cast<double>(world_.size()),
      rate_clock_, [this] { return is_hurried(); });
  store.begin(step);
  const base::Path folder = store.folder_of(step);
  const int64_t rank = world_.rank().value;
  write_shard(folder / checkpoint::shard_name(rank), 0, num_updated_, step, staged, limit);
  if (!linked && num_updated_ < pieces_.size())
    write_shard(folder / checkpoint::frozen_name(rank), num_updated_, pieces_.size(), step, staged, limit);
  const int64_t took_ns = rate_clock_.now_ns() - begin_ns;
  shard_ns_ = std::max<int64_t>(1, took_ns - static_cast<int64_t>(limit.slept_seconds() * kSecond));
}

void Checkpointer::save(int64_t step, Older older) {
  const int64_t waiting_ns = base::now_ns();
  const bool waits = phase_ != Phase::Idle;
  finish();
  begin_ns_ = last_ns_ = base::now_ns();
  if (waits && world_.rank().value == 0 && !has_waited_) {
    has_waited_ = true;
    say_(
        fmt::format("warning: training waited {} for the previous checkpoint to be written: a larger "
                    "checkpoint.every or checkpoint.bandwidth avoids that",
                    base::human_duration(begin_ns_ - waiting_ns)));
  }
  step_ = last_step_ = step;
  if (staging_.empty()) {
    if (const auto failure = try_save(store_, step, older)) {
      last_step_ = -1;
      throw SaveFailed(message_of(*failure), base::code_in(failure->text));
    }
    return;
  }
  older_ = older;
  if (world_.rank().value == 0) run_ = state_();
  phase_ = Phase::Writing;
  const bool linked = link_frozen(step);
  const size_t count = linked ? num_updated_ : pieces_.size();
  num_staged_ = 0;
  copied_ns_ = 0;
  // A device that copies by itself does so at once, and the disk is slower: everything has arrived before the
  // first write. Otherwise the writes follow the copy.
  const bool ahead = rank_.executor().stages_by_itself();
  job_.start([this, step, linked, count, ahead] {
    if (ahead) {
      if (count > 0) await_staged(count - 1);
      rank_.executor().wait_staged();
      copied_ns_ = base::now_ns() - begin_ns_;
    }
    write_shards(store_, step, true, linked);
  });
  stage(count);
  staged_ns_ = base::now_ns() - begin_ns_;
  if (!ahead) copied_ns_ = staged_ns_;
  cost_seconds_ = static_cast<double>(staged_ns_) / kSecond;
  measures_next_ = ahead;
}

void Checkpointer::finish() {
  while (phase_ != Phase::Idle)
    if (const auto failure = next_phase())
      throw SaveFailed(message_of(*failure), base::code_in(failure->text));
}

// Writes the state itself, without a copy: it must not change until then, and only this thread may read it.
// Leaves nothing behind when it fails.
std::optional<Checkpointer::Failure> Checkpointer::try_save(checkpoint::Store& store, int64_t step,
                                                            Older older) {
  const bool first = world_.rank().value == 0;
  const auto attempt = [&](const std::function<void()>& write, int64_t* most = nullptr) {
    std::exception_ptr thrown;
    try {
      write();
    } catch (...) {
      thrown = std::current_exception();
    }
    return agree(thrown, most);
  };
  std::optional<Failure> failure = attempt([&] {
    if (first) run_ = state_();
    write_shards(store, step, false, &store == &store_ && link_frozen(step));
  });
  int64_t shard_ns = shard_ns_;
  if (!failure)
    failure = attempt(
        [&] {
          if (first) commit(store, step, older);
        },
        &shard_ns);
  if (failure) {
    remove_incomplete(store, step);
    return failure;
  }
  if (&store == &store_ && num_updated_ < pieces_.size())
    frozen_ = store.folder_of(step) / checkpoint::frozen_name(world_.rank().value);
  written_ns_ = base::now_ns() - begin_ns_;
  save_ns_ = shard_ns + commit_ns_;
  say_not_pruned();
  if (first)
    say_(fmt::format("checkpoint of step {} complete: {} in {}", step, store.folder_of(step).string(),
                     base::human_duration(written_ns_)));
  return std::nullopt;
}

Checkpointer::Last Checkpointer::save_last(int64_t step, Older older,
                                           const std::vector<base::Path>& elsewhere) {
  int32_t late = world_.rank().value == 0 && is_capped_save_late() ? 1 : 0;
  world_.world().all_reduce(&late, 1, DType::I32, comm::ReduceOp::Max);
  if (late != 0) hurry();
  std::optional<Failure> failure;
  while (phase_ != Phase::Idle && !failure) failure = next_phase();
  if (last_step_ == step) return {.folder = store_.folder_of(step), .failures = {}};
  begin_ns_ = last_ns_ = base::now_ns();
  step_ = last_step_ = step;
  std::string failures;
  const auto note = [&] { failures = joined(failures, failure->text); };
  if (failure) note();  // of the save before
  for (size_t i = 0; i < elsewhere.size() + 2; ++i) {
    if (i == 1) std::this_thread::sleep_for(pause_);
    checkpoint::Store other(i < 2 ? store_.folder() : elsewhere[i - 2] / checkpoint::kStoreFolder, files_);
    checkpoint::Store& store = i < 2 ? store_ : other;
    if (i >= 2 && world_.rank().value == 0)
      say_(fmt::format("saving the last checkpoint to {}", store.folder().string()));
    failure = try_save(store, step, older);
    if (!failure) return {.folder = store.folder_of(step), .failures = i < 2 ? "" : failures};
    if (i != 1) note();
    if (i >= 2 && world_.rank().value == 0) remove_if_empty({store.folder(), elsewhere[i - 2]});
  }
  // One rank throws, which ends the job; the others wait for that, so that one message is printed.
  if (world_.rank().value != failure->rank) world_.world().barrier();
  throw base::UserError(message_of({.rank = failure->rank, .text = failures}), base::code_in(failures));
}

}  // namespace quintet::train
