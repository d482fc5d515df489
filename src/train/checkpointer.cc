#include "train/checkpointer.h"

#include <fmt/format.h>

#include <cstring>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"

namespace quintet::train {

using base::DType;

base::Path checkpoint_folder(const config::Recipe& recipe) {
  return recipe.checkpoint.dir.empty() ? base::Path(recipe.run.dir) / checkpoint::kStoreFolder
                                       : base::Path(recipe.checkpoint.dir);
}

Checkpointer::Checkpointer(Rank& rank, comm::World& world, const config::Recipe& recipe, State state, Say say,
                           base::FileSystem& files)
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
  for (const StatePiece& piece : pieces_) {
    saved_.push_back(piece.saved);
    places_.push_back(bytes);
    bytes += (piece.memory_bytes() + 63) / 64 * 64;
  }
  if (recipe.checkpoint.every.is_on()) staging_.resize(static_cast<size_t>(bytes));
}

Checkpointer::~Checkpointer() = default;

void Checkpointer::begin(int64_t step, bool replace) {
  for (const checkpoint::Entry& entry : store_.list())
    if (replace || !entry.complete) store_.remove(entry);
  if (const int count = store_.abandon_after(step); count > 0)
    say_(fmt::format("{} checkpoint{} after step {} set aside in {}", count, count == 1 ? "" : "s", step,
                     store_.folder().string()));
}

bool Checkpointer::is_due(int64_t step) const {
  const config::SaveInterval& every = recipe_.checkpoint.every;
  return every.unit == config::SaveInterval::Unit::Steps && every.value > 0 && step % every.value == 0;
}

Checkpointer::Flags Checkpointer::flags() const {
  Flags flags;
  if (phase_ != Phase::Idle && !job_.is_done()) flags.busy = 1;
  if (phase_ != Phase::Idle && job_.has_failed()) flags.failed = 1;
  const config::SaveInterval& every = recipe_.checkpoint.every;
  if (world_.rank().value == 0 && every.unit == config::SaveInterval::Unit::Seconds && every.value > 0 &&
      base::now_ns() - last_ns_ >= every.value * 1'000'000'000)
    flags.due = 1;
  return flags;
}

void Checkpointer::advance(const Flags& reduced) {
  if (phase_ != Phase::Idle && (reduced.busy == 0 || reduced.failed != 0)) next_phase();
}

// The job of this phase is done on all ranks.
void Checkpointer::next_phase() {
  std::exception_ptr failure;
  try {
    job_.wait();
  } catch (...) {
    failure = std::current_exception();
  }
  agree(failure);
  const bool first = world_.rank().value == 0;
  if (phase_ == Phase::Writing) {
    phase_ = Phase::Committing;
    if (first)
      job_.start([this, step = step_] {
        store_.commit(step, world_.size(), std::move(run_), tensors_);
        store_.prune({.keep = recipe_.checkpoint.keep, .keep_every = recipe_.checkpoint.keep_every});
      });
    return;
  }
  phase_ = Phase::Idle;
  if (first)
    say_(fmt::format(
        "checkpoint of step {} complete: {} in {}{}", step_, store_.folder_of(step_).filename().string(),
        base::human_duration(base::now_ns() - begin_ns_),
        staging_.empty() ? "" : fmt::format(", training stopped for {}", base::human_duration(staged_ns_))));
}

// Collective check that no rank failed: the lowest failing rank throws, which ends the job.
void Checkpointer::agree(const std::exception_ptr& failure) {
  int64_t lowest = failure ? world_.size() - world_.rank().value : 0;
  world_.world().all_reduce(&lowest, 1, DType::I64, comm::ReduceOp::Max);
  if (lowest == 0) return;
  if (world_.size() - world_.rank().value == lowest) {
    try {
      std::rethrow_exception(failure);
    } catch (const base::UserError& e) {
      base::fail_user("the checkpoint of step {} could not be written: {}; earlier ones are intact", step_,
                      e.what());
    }
  }
  world_.world().barrier();
}

void Checkpointer::stage() {
  for (size_t i = 0; i < pieces_.size(); ++i) {
    std::byte* const to = staging_.data() + places_[i];
    const auto copy = [&](const exec::Range& range, int64_t at) {
      std::memcpy(to + at, rank_.read(range).data(), static_cast<size_t>(range.bytes));
    };
    copy(pieces_[i].range, 0);
    if (pieces_[i].lower) copy(*pieces_[i].lower, pieces_[i].range.bytes);
  }
}

void Checkpointer::write_shard(int64_t step, bool staged) {
  const auto source = [&](size_t i, int64_t first, std::span<std::byte> out) {
    const StatePiece& piece = pieces_[i];
    copy_elements(piece, first, out, [&](const exec::Range& part) {
      if (!staged) return rank_.read(part);
      const bool is_lower = piece.lower && part.buffer == piece.lower->buffer;
      const exec::Range& whole = is_lower ? *piece.lower : piece.range;
      return exec::HostBytes(staging_.data() + places_[i] + (is_lower ? piece.range.bytes : 0) +
                             (part.offset - whole.offset));
    });
  };
  checkpoint::RateLimit limit(static_cast<double>(recipe_.checkpoint.bandwidth.value) /
                              static_cast<double>(world_.size()));
  store_.begin(step);
  checkpoint::write_shard(
      store_.folder_of(step) / checkpoint::shard_name(world_.rank().value), saved_, source,
      {.files = &files_, .step = step, .written = [&](int64_t bytes) { limit.written(bytes); }});
}

void Checkpointer::save(int64_t step) {
  finish();
  begin_ns_ = last_ns_ = base::now_ns();
  step_ = last_step_ = step;
  if (world_.rank().value == 0) run_ = state_();
  phase_ = Phase::Writing;
  if (staging_.empty()) {
    // The state must not change meanwhile, and only this thread may read it.
    std::exception_ptr failure;
    try {
      write_shard(step, false);
    } catch (...) {
      failure = std::current_exception();
    }
    agree(failure);
    next_phase();
    return;
  }
  stage();
  staged_ns_ = base::now_ns() - begin_ns_;
  job_.start([this, step] { write_shard(step, true); });
}

void Checkpointer::finish() {
  while (phase_ != Phase::Idle) next_phase();
}

}  // namespace quintet::train
