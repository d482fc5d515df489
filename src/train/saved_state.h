// The tensors of a checkpoint as a rank sees them: weights, masters, moments, averages and router biases, as
// the step graph declares them (graph::StateDecl with Keep::Saved). Nothing here knows an optimizer by name.
#pragma once

#include <optional>
#include <vector>

#include "checkpoint/reader.h"
#include "checkpoint/shard.h"
#include "train/load_plan.h"
#include "train/rank.h"

namespace quintet::train {

// All tensors of a checkpoint, by name, the same on all ranks: those of other pipeline stages included.
std::vector<checkpoint::TensorInfo> state_tensors(const Rank& rank);

// The name in checkpoints of a parameter's master or moment.
std::string state_name(const program::GroupSlot& slot, const layout::Segment& segment);

// Elements of a tensor in this rank's memory.
struct StatePiece {
  checkpoint::ShardPiece saved;
  // The same elements in the memory of `range`: run.tensor - origin is the index of a run's first element.
  checkpoint::Region memory;
  int64_t origin = 0;
  exec::Range range;
  std::optional<exec::Range> lower;        // see Rank::Piece
  bool frozen = false;                     // never updated
  comm::Communicator* replicas = nullptr;  // those ranks, where they are one group
  int64_t memory_bytes() const { return range.bytes + (lower ? lower->bytes : 0); }
  bool is_stored_as_saved() const { return !lower && range.bytes == saved.bytes(); }
};

enum class Holding : uint8_t {
  All,  // everything that this rank holds: what it must load
  Own,  // every element on exactly one of the ranks that hold it, evenly: what it saves
};
// Without padding. In the order in which shards store them: frozen ones last, and by element size, so that
// all are aligned; those that are stored as they are saved before others.
std::vector<StatePiece> state_pieces(const Rank& rank, Holding holding);

// Elements [first, first + count) of a piece as a piece of its own.
StatePiece part_of(StatePiece piece, int64_t first, int64_t count);

// Elements [first, ...) of a piece. `fetch` returns the contents of a part of piece.range or piece.lower.
using Fetch = std::function<exec::HostBytes(const exec::Range& range)>;
void copy_elements(const StatePiece& piece, int64_t first, std::span<std::byte> out, const Fetch& fetch);

// Writes a piece from elsewhere, in parts of at most kWriteBytes: `fill` provides the elements of a region of
// the tensor, in the piece's dtype, and gets their place itself where they are stored as they are.
inline constexpr int64_t kWriteBytes = int64_t{32} << 20;
using FillElements = std::function<void(const checkpoint::Region& region, std::span<std::byte> out)>;
void write_elements(Rank& rank, const StatePiece& piece, const FillElements& fill);

// Collective. Reads this rank's part of every tensor of the plan, whatever the layout it was saved in. Other
// tensors keep their values: those of a new run. What several ranks hold is read by one of them, which sends
// it to the others: when reading fails on a rank, its exception must end the job.
void load_state(Rank& rank, checkpoint::Reader& reader, const LoadPlan& plan);
// The same by a plan for all tensors of the rank. Returns its notes.
std::vector<std::string> load_state(Rank& rank, checkpoint::Reader& reader, const LoadOptions& options);
LoadPlan plan_load(const Rank& rank, const checkpoint::Reader& reader, const LoadOptions& options);

}  // namespace quintet::train
