#include "layout/saved_share.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/checksum.h"
#include "base/file_system.h"

namespace quintet::layout {
namespace {

constexpr int64_t kAlignedBytes = 4096;  // of the parts that replicas write
static_assert(kFrozenAlign == base::kDirectBytes);

bool is_padded(const GlobalIndex& global) {
  for (size_t d = 0; d < global.begins().size(); ++d)
    if (global.begins()[d] + global.local_sizes()[d] > global.global_sizes()[d]) return true;
  return false;
}

}  // namespace

ElementRange own_range(const Group& group, const Layout& layout, RankId rank) {
  const AtomList atoms = group.divided_by();
  const int64_t range = group.shard_count(layout.mesh.size(atoms));
  return {layout.mesh.index(rank, atoms) * range, range};
}

Copies copies_of(const Group& group, const Segment& segment, const Layout& layout, RankId rank) {
  const Mesh& mesh = layout.mesh;
  const AtomList atoms = group.replicas(segment);
  Copies copies{.place = mesh.index(rank, atoms), .count = mesh.size(atoms)};
  const std::vector<int>& shared_by = group.shared_by;
  if (shared_by.empty()) return copies;
  const auto stage = std::find(shared_by.begin(), shared_by.end(), mesh.index(rank, layout.pipeline));
  copies.place += (stage - shared_by.begin()) * copies.count;
  copies.count *= static_cast<int64_t>(shared_by.size());
  return copies;
}

std::vector<int64_t> in_blocks(std::vector<int64_t> part, const std::vector<int64_t>& tensor, int64_t block) {
  if (block == 1) return part;
  size_t dim = tensor.size();
  int64_t inner = 1;  // elements of the dims after `dim`
  for (int64_t product = 1; dim > 0 && product % block != 0;) {
    inner = product;
    product *= tensor[--dim];
  }
  const int64_t elements = part[dim] * inner;
  part.resize(dim);
  part.push_back((elements + block - 1) / block);
  return part;
}

ElementRange saved_by(std::string_view name, int64_t count, int64_t element_bytes, const Copies& copies) {
  if (copies.count == 1) return {0, count};
  if (count * element_bytes < kDividedBytes) {
    const auto writer = static_cast<int64_t>(base::hash_of(name).low % static_cast<uint64_t>(copies.count));
    return {0, writer == copies.place ? count : 0};
  }
  const int64_t unit = kAlignedBytes / element_bytes, units = (count + unit - 1) / unit,
                begin = std::min(count, units * copies.place / copies.count * unit),
                end = std::min(count, units * (copies.place + 1) / copies.count * unit);
  return {begin, end - begin};
}

ElementRange span_of(const base::Region& memory) {
  const base::Runs runs(memory);
  const base::Run front = runs[0], back = runs[runs.size() - 1];
  return {front.tensor, back.tensor + back.length - front.tensor};
}

SavedShare::SavedShare(const std::vector<Group>& groups, const std::vector<graph::StateDecl>& states,
                       std::vector<Whole> whole, const Layout& layout)
    : groups_(groups), table_(state_table(states, groups)), whole_(std::move(whole)), layout_(layout) {}

int64_t SavedShare::Bytes::total() const {
  return frozen == 0 ? updated : (updated + kFrozenAlign - 1) / kFrozenAlign * kFrozenAlign + frozen;
}

int64_t SavedShare::bytes_of(const Segment& segment, const Group& group, const StateRow& row,
                             const ElementRange& own, RankId rank) const {
  const int64_t begin = std::max(segment.offset, own.first),
                end = std::min(segment.offset + segment.count, own.first + own.count);
  if (begin >= end) return 0;
  const int64_t first = (begin - segment.offset) / row.block,
                count = (end - begin + row.block - 1) / row.block, size = base::size_of(row.dtype);
  const bool is_weight = row.role == graph::Role::Weight || row.role == graph::Role::Master;
  const std::string name = is_weight ? segment.name : segment.name + "/" + row.slot;
  const Copies copies = copies_of(group, segment, layout_, rank);
  const GlobalIndex global(segment, layout_.mesh, rank);
  if (!is_padded(global)) return saved_by(name, count, size, copies).count * size;
  const auto blocks = [&](const std::vector<int64_t>& part) {
    return in_blocks(part, global.global_sizes(), row.block);
  };
  base::Region memory = base::clip(blocks(global.global_sizes()), blocks(global.begins()),
                                   blocks(global.local_sizes()), first, count)
                            .memory;
  if (memory.count == 0) return 0;
  const ElementRange saved = saved_by(name, memory.count, size, copies);
  if (saved.count == 0) return 0;
  memory.first += saved.first;
  memory.count = saved.count;
  return span_of(memory).count * size;
}

SavedShare::Bytes SavedShare::bytes(RankId rank) const {
  Bytes sum;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Group& group = groups_[g];
    const ElementRange own = own_range(group, layout_, rank);
    for (const Segment& segment : group.segments)
      for (const StateRow& row : table_[g])
        if (row.keep == graph::Keep::Saved)
          (group.trainable ? sum.updated : sum.frozen) += bytes_of(segment, group, row, own, rank);
  }
  const Copies all{.place = rank.value, .count = layout_.mesh.world()};
  for (const Whole& state : whole_) sum.updated += saved_by(state.name, state.bytes, 1, all).count;
  return sum;
}

}  // namespace quintet::layout
