#include "train/saved_state.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "base/checksum.h"
#include "base/error.h"
#include "base/split_float.h"

namespace quintet::train {

using base::DType;
using checkpoint::Region;
using checkpoint::TensorInfo;

namespace {

std::vector<int64_t> sizes_of(const graph::Type& type) {
  std::vector<int64_t> sizes;
  for (const graph::DimSize& d : type.dims) sizes.push_back(d.size);
  return sizes;
}

bool is_saved(const program::GroupSlot& s) { return s.keep == graph::Keep::Saved; }

int64_t element_bytes(const StatePiece& piece) {
  return piece.lower ? 2 : base::size_of(piece.saved.tensor.dtype);  // of each half of a split master
}

}  // namespace

std::string state_name(const program::GroupSlot& slot, const layout::Segment& segment) {
  return program::holds_weights(slot) ? segment.name : segment.name + "/" + slot.slot;
}

StatePiece part_of(StatePiece piece, int64_t first, int64_t count) {
  for (Region* region : {&piece.saved.region, &piece.memory}) {
    region->first += first;
    region->count = count;
  }
  const layout::ElementRange span = layout::span_of(piece.memory);
  const int64_t skipped = span.first - piece.origin, size = element_bytes(piece);
  const auto cut = [&](exec::Range& range) {
    range.offset += skipped * size;
    range.bytes = span.count * size;
  };
  cut(piece.range);
  if (piece.lower) cut(*piece.lower);
  piece.origin = span.first;
  return piece;
}

namespace {

// What this rank saves of a piece that several have; count 0: nothing.
StatePiece share_of(StatePiece piece, const Rank::Copies& copies) {
  const layout::ElementRange saved = layout::saved_by(piece.saved.tensor.name, piece.saved.region.count,
                                                      base::size_of(piece.saved.tensor.dtype), copies);
  if (saved.count > 0) return part_of(std::move(piece), saved.first, saved.count);
  piece.saved.region.count = 0;
  return piece;
}

}  // namespace

std::vector<TensorInfo> state_tensors(const Rank& rank) {
  std::vector<TensorInfo> tensors;
  for (const graph::StateDecl& s : rank.compiled().step_graph.states)
    if (s.keep == graph::Keep::Saved && s.role != graph::Role::Scalar)
      tensors.push_back({.name = s.name,
                         .dtype = s.type.dtype,
                         .shape = layout::in_blocks(sizes_of(s.type), sizes_of(s.type), s.block)});
  // States that only a step updates (router biases) are declared by it; a program for inference reads them
  // too.
  for (const Rank::State& state : rank.states())
    if (std::none_of(tensors.begin(), tensors.end(),
                     [&](const TensorInfo& t) { return t.name == state.name; }))
      tensors.push_back({.name = std::string(state.name), .dtype = state.dtype, .shape = {state.count}});
  std::sort(tensors.begin(), tensors.end(),
            [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; });
  return tensors;
}

std::vector<StatePiece> state_pieces(const Rank& rank, Holding holding) {
  std::vector<StatePiece> pieces;
  const auto add = [&](StatePiece piece, const Rank::Copies& copies) {
    if (piece.saved.region.count > 0 && holding == Holding::Own) piece = share_of(std::move(piece), copies);
    if (piece.saved.region.count > 0) pieces.push_back(std::move(piece));
  };
  for (const program::GroupSlot& slot : rank.compiled().program.slots) {
    if (!is_saved(slot)) continue;
    const auto wanted = [&](const program::GroupSlot& s) { return &s == &slot; };
    rank.visit(wanted, [&](const Rank::Piece& p, const layout::GlobalIndex& global) {
      const auto blocks = [&](const std::vector<int64_t>& part) {
        return layout::in_blocks(part, global.global_sizes(), p.block);
      };
      const std::vector<int64_t> shape = blocks(global.global_sizes());
      const int64_t first = p.first / p.block, count = (p.count + p.block - 1) / p.block;
      checkpoint::Clipped clipped =
          checkpoint::clip(shape, blocks(global.begins()), blocks(global.local_sizes()), first, count);
      add({.saved = {.tensor = {.name = state_name(slot, *p.segment), .dtype = p.dtype, .shape = shape},
                     .region = std::move(clipped.region)},
           .memory = std::move(clipped.memory),
           .origin = first,
           .range = p.range,
           .lower = p.lower,
           .frozen = !p.group->trainable,
           .replicas = rank.replicas(p)},
          rank.copies(p));
    });
  }
  for (const Rank::State& state : rank.states()) {
    const Region whole = Region::whole({state.count});
    add({.saved = {.tensor = {.name = std::string(state.name), .dtype = state.dtype, .shape = {state.count}},
                   .region = whole},
         .memory = whole,
         .origin = 0,
         .range = state.range,
         .lower = {}},
        {.place = rank.world().rank().value, .count = rank.world().size()});
  }
  const auto order = [](const StatePiece& p) {
    return std::tuple(p.frozen, -base::size_of(p.saved.tensor.dtype), !p.is_stored_as_saved());
  };
  std::stable_sort(pieces.begin(), pieces.end(),
                   [&](const StatePiece& a, const StatePiece& b) { return order(a) < order(b); });
  return pieces;
}

void copy_elements(const StatePiece& piece, int64_t first, std::span<std::byte> out, const Fetch& fetch) {
  const int64_t size = base::size_of(piece.saved.tensor.dtype);
  const int64_t count = static_cast<int64_t>(out.size()) / size;
  if (count == 0) return;
  const StatePiece part = part_of(piece, first, count);
  const exec::HostBytes upper = fetch(part.range);
  std::optional<exec::HostBytes> lower;
  if (part.lower) lower.emplace(fetch(*part.lower));
  const checkpoint::Runs runs(part.memory);
  for (int64_t i = 0; i < runs.size(); ++i) {
    const checkpoint::Run run = runs[i];
    const int64_t from = run.tensor - part.origin;
    if (!lower) {
      std::memcpy(out.data() + run.at * size, upper.data() + from * size,
                  static_cast<size_t>(run.length * size));
      continue;
    }
    for (int64_t k = 0; k < run.length; ++k) {
      const float whole = base::join_float(reinterpret_cast<const base::Bf16*>(upper.data())[from + k],
                                           reinterpret_cast<const int16_t*>(lower->data())[from + k]);
      std::memcpy(out.data() + (run.at + k) * size, &whole, sizeof(whole));
    }
  }
}

namespace {

// Writes the elements to memory; what is between them is padding and becomes 0. Padding between parts of a
// piece stays as it is: 0 in a new run.
void put_elements(Rank& rank, const StatePiece& piece, const std::vector<std::byte>& bytes) {
  const checkpoint::Runs runs(piece.memory);
  const int64_t size = base::size_of(piece.saved.tensor.dtype);
  if (!piece.lower) {
    rank.write(piece.range, [&](std::byte* to) {
      if (runs.size() > 1 || piece.range.bytes != static_cast<int64_t>(bytes.size()))
        std::memset(to, 0, static_cast<size_t>(piece.range.bytes));
      for (int64_t i = 0; i < runs.size(); ++i)
        std::memcpy(to + (runs[i].tensor - piece.origin) * size, bytes.data() + runs[i].at * size,
                    static_cast<size_t>(runs[i].length * size));
    });
    return;
  }
  const auto half = [&](const exec::Range& range, const auto& part) {
    rank.write(range, [&](std::byte* to) {
      std::memset(to, 0, static_cast<size_t>(range.bytes));
      for (int64_t i = 0; i < runs.size(); ++i)
        for (int64_t k = 0; k < runs[i].length; ++k) {
          float whole = 0;
          std::memcpy(&whole, bytes.data() + (runs[i].at + k) * size, sizeof(whole));
          const auto value = part(base::split_float(whole));
          static_assert(sizeof(value) == 2);
          std::memcpy(to + (runs[i].tensor - piece.origin + k) * 2, &value, 2);
        }
    });
  };
  half(piece.range, [](const auto& split) { return split.high; });
  half(*piece.lower, [](const auto& split) { return split.low; });
}

}  // namespace

void write_elements(Rank& rank, const StatePiece& piece, const FillElements& fill) {
  const int64_t size = base::size_of(piece.saved.tensor.dtype), count = piece.saved.region.count;
  const int64_t step = kWriteBytes / size;
  std::vector<std::byte> bytes;
  for (int64_t first = 0; first < count; first += step) {
    const int64_t n = std::min(step, count - first);
    const StatePiece part = part_of(piece, first, n);
    if (!part.lower && part.range.bytes == n * size) {
      rank.write(part.range, [&](std::byte* to) {
        fill(part.saved.region, {to, static_cast<size_t>(part.range.bytes)});
      });
      continue;
    }
    bytes.resize(static_cast<size_t>(n * size));
    fill(part.saved.region, bytes);
    put_elements(rank, part, bytes);
  }
}

}  // namespace quintet::train
