// Reading the state of a run from a checkpoint, by all ranks together. Every rank reads what only it needs.
// What several ranks hold is dealt among them: one reads a part and sends it to the others, so that a job
// reads every byte of the checkpoint about once, whatever the number of replicas.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "base/parallel_for.h"
#include "train/element.h"
#include "train/saved_state.h"

namespace quintet::train {
namespace {

using base::DType;
using checkpoint::Region;

// At most kWriteBytes of a tensor in this rank's memory.
struct Part {
  StatePiece piece;
  const checkpoint::SavedTensor* saved = nullptr;
  int reader = -1;  // the member of piece.replicas that reads it; -1: this rank, for itself alone
  bool is_read_here() const { return reader < 0 || reader == piece.replicas->rank(); }
};

std::vector<Part> parts_of(const Rank& rank, const checkpoint::Reader& reader, const LoadPlan& plan) {
  std::vector<Part> parts;
  std::map<const comm::Communicator*, std::vector<int64_t>> dealt;  // bytes of every member
  for (const StatePiece& piece : state_pieces(rank, Holding::All)) {
    const auto source = plan.sources.find(piece.saved.tensor.name);
    if (source == plan.sources.end()) continue;
    const checkpoint::SavedTensor& saved = reader.at(source->second);
    const int64_t count = piece.saved.region.count,
                  at_once = kWriteBytes / std::max(base::size_of(piece.saved.tensor.dtype),
                                                   base::size_of(saved.info.dtype));
    for (int64_t first = 0; first < count; first += at_once) {
      Part part{.piece = part_of(piece, first, std::min(at_once, count - first)), .saved = &saved};
      if (piece.replicas != nullptr) {
        std::vector<int64_t>& bytes = dealt[piece.replicas];
        bytes.resize(static_cast<size_t>(piece.replicas->size()));
        const auto least = std::min_element(bytes.begin(), bytes.end());
        *least += part.piece.saved.bytes();
        part.reader = static_cast<int>(least - bytes.begin());
      }
      parts.push_back(std::move(part));
    }
  }
  // Those that others wait for come first. All members of a group have the same parts in the same order.
  std::stable_partition(parts.begin(), parts.end(), [](const Part& p) { return p.reader >= 0; });
  return parts;
}

// Threads read; the calling thread passes parts on as they arrive.
class Loader {
 public:
  Loader(Rank& rank, checkpoint::Reader& reader, const LoadPlan& plan)
      : rank_(rank), reader_(reader), parts_(parts_of(rank, reader, plan)), is_ready_(parts_.size()) {
    for (size_t i = 0; i < parts_.size(); ++i)
      if (parts_[i].is_read_here()) read_here_.push_back(i);
  }

  void run() {
    std::jthread readers([this] { read_all(); });
    try {
      for (size_t i = 0; i < parts_.size() && parts_[i].reader >= 0 && await(i); ++i) pass_on(parts_[i]);
    } catch (...) {
      is_over_ = true;  // another rank has ended the job
      throw;
    }
    readers.join();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void read_all() {
    int64_t bytes = 0;
    for (const size_t i : read_here_) bytes += parts_[i].piece.saved.bytes();
    const int64_t threads = std::min<int64_t>(checkpoint::kReadThreads, bytes / kWriteBytes + 1);
    std::exception_ptr failure;
    try {
      base::parallel_for(static_cast<int>(threads), read_here_.size(), [&](size_t n) {
        if (is_over_) return;
        read(parts_[read_here_[n]]);
        const std::lock_guard lock(mutex_);
        is_ready_[read_here_[n]] = true;
        changed_.notify_all();
      });
    } catch (...) {
      failure = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    failure_ = failure;
    changed_.notify_all();
  }

  void read(const Part& part) {
    const DType dtype = part.piece.saved.tensor.dtype, saved = part.saved->info.dtype;
    write_elements(rank_, part.piece, [&](const Region& region, std::span<std::byte> out) {
      if (saved == dtype) return reader_.read(*part.saved, region, out);
      std::vector<std::byte> elements(static_cast<size_t>(region.count * base::size_of(saved)));
      reader_.read(*part.saved, region, elements);
      for (int64_t i = 0; i < region.count; ++i)
        write_element(out.data(), dtype, i, read_element(elements.data(), saved, i));
    });
  }

  // Whether the part can be passed on: not if reading has failed.
  bool await(size_t part) {
    if (!parts_[part].is_read_here()) return true;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_ready_[part] || failure_; });
    return is_ready_[part];
  }

  // Collective over the replicas.
  void pass_on(const Part& part) {
    const StatePiece& piece = part.piece;
    comm::Communicator& replicas = *piece.replicas;
    if (!part.is_read_here())
      return write_elements(rank_, piece, [&](const Region&, std::span<std::byte> out) {
        replicas.broadcast(out.data(), std::ssize(out), DType::U8, part.reader);
      });
    if (piece.is_stored_as_saved()) {
      const exec::HostBytes memory = rank_.read(piece.range);
      // A root's data are only read.
      replicas.broadcast(const_cast<std::byte*>(memory.data()), piece.range.bytes, DType::U8, part.reader);
      return;
    }
    std::vector<std::byte> elements(static_cast<size_t>(piece.saved.bytes()));
    copy_elements(piece, 0, elements, [&](const exec::Range& range) { return rank_.read(range); });
    replicas.broadcast(elements.data(), std::ssize(elements), DType::U8, part.reader);
  }

  Rank& rank_;
  checkpoint::Reader& reader_;
  const std::vector<Part> parts_;
  std::vector<size_t> read_here_;  // of parts_
  std::atomic<bool> is_over_ = false;
  std::mutex mutex_;  // of the following
  std::condition_variable changed_;
  std::vector<bool> is_ready_;  // by part: read here, and in memory
  std::exception_ptr failure_;
};

}  // namespace

LoadPlan plan_load(const Rank& rank, const checkpoint::Reader& reader, const LoadOptions& options) {
  return plan_load(rank.compiled().step_graph.states, state_tensors(rank), reader.manifest(),
                   reader.folder().string(), options);
}

void load_state(Rank& rank, checkpoint::Reader& reader, const LoadPlan& plan) {
  rank.draw_weights([&](const program::GroupSlot& slot, const layout::Segment& segment) {
    return !plan.sources.contains(state_name(slot, segment));
  });
  Loader(rank, reader, plan).run();
  rank.weights_changed();
}

std::vector<std::string> load_state(Rank& rank, checkpoint::Reader& reader, const LoadOptions& options) {
  LoadPlan plan = plan_load(rank, reader, options);
  load_state(rank, reader, plan);
  return std::move(plan.notes);
}

}  // namespace quintet::train
