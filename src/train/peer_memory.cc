#include "train/peer_memory.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/checksum.h"
#include "base/error.h"

namespace quintet::train {

using base::DType;
using Copy = PeerCopies::Copy;

namespace {

std::vector<base::RankId> all_ranks(const comm::World& world) {
  std::vector<base::RankId> ranks;
  for (int r = 0; r < world.size(); ++r) ranks.emplace_back(r);
  return ranks;
}

uint64_t sum_of(const Copy& copy) {
  base::Checksum sum;
  sum.add(std::as_bytes(std::span(copy.run)));
  sum.add(copy.state);
  return sum.value();
}

// Calls fn(range, place) for every range of memory of the pieces; places follow each other.
template <class Fn>
void for_each_range(const std::vector<StatePiece>& pieces, const Fn& fn) {
  int64_t place = 0;
  for (const StatePiece& piece : pieces) {
    fn(piece.range, place);
    place += piece.range.bytes;
    if (!piece.lower) continue;
    fn(*piece.lower, place);
    place += piece.lower->bytes;
  }
}

}  // namespace

bool PeerCopies::Copy::is_whole() const { return sum == sum_of(*this); }

int64_t PeerCopies::bytes() const {
  size_t bytes = 0;
  for (const auto* list : {&own, &other})
    for (const Copy& copy : *list) bytes += copy.state.size();
  return static_cast<int64_t>(bytes);
}

PeerMemory::PeerMemory(Rank& rank, comm::World& world, PeerCopies& copies, int64_t distance,
                       std::span<std::byte> staging, int64_t offset)
    : rank_(rank),
      world_(world),
      copies_(copies),
      distance_(world.size() > distance ? distance : 1),
      staging_(staging),
      offset_(offset),
      pieces_(state_pieces(rank, Holding::All)),
      slot_(copies.own[0].step > copies.own[1].step ? 1 : 0),
      comm_(world.create(all_ranks(world), "copies of states")) {
  for (const StatePiece& piece : pieces_) bytes_ += piece.memory_bytes();
  QUINTET_CHECK(staging.empty() || static_cast<int64_t>(staging.size()) >= bytes_,
                "{} bytes of staging memory for a state of {}", staging.size(), bytes_);
}

void PeerMemory::copy(int64_t step, std::string run) {
  finish();
  Copy &own = copies_.own[slot_], &other = copies_.other[slot_];
  slot_ = 1 - slot_;
  own.step = other.step = -1;
  own.run = std::move(run);
  own.state.resize(static_cast<size_t>(bytes_));
  if (staging_.empty()) {
    for_each_range(pieces_, [&](const exec::Range& range, int64_t place) {
      std::memcpy(own.state.data() + place, rank_.read(range).data(), static_cast<size_t>(range.bytes));
    });
  } else {
    std::vector<exec::Executor::Staged> staged;
    for_each_range(pieces_, [&](const exec::Range& range, int64_t place) {
      staged.push_back({.from = range, .to = offset_ + place});
    });
    rank_.executor().stage(staged);
  }
  job_.start([this, step, &own, &other] {
    if (!staging_.empty()) {
      rank_.executor().wait_staged();
      std::memcpy(own.state.data(), staging_.data(), own.state.size());
    }
    own.sum = sum_of(own);
    exchange(own, other);
    own.step = step;
    if (other.is_whole()) other.step = step;
  });
}

// Sends this rank's copy to its keeper and receives that of the rank whose keeper this one is.
void PeerMemory::exchange(const Copy& own, Copy& other) {
  const auto size = static_cast<size_t>(world_.size());
  const int64_t me = world_.rank().value, to = keeper_of(me),
                from = (me + world_.size() - distance_) % world_.size();
  const auto turn = [&](const void* send, int64_t send_count, void* receive, int64_t receive_count,
                        DType type) {
    std::vector<int64_t> send_counts(size), receive_counts(size);
    const std::vector<int64_t> offsets(size);
    send_counts[static_cast<size_t>(to)] = send_count;
    receive_counts[static_cast<size_t>(from)] = receive_count;
    comm_->all_to_all_v(send, offsets, send_counts, receive, offsets, receive_counts, type);
  };
  const int64_t sizes[3] = {std::ssize(own.run), std::ssize(own.state), static_cast<int64_t>(own.sum)};
  int64_t incoming[3] = {0, 0, 0};
  turn(sizes, 3, incoming, 3, DType::I64);
  other.sum = static_cast<uint64_t>(incoming[2]);
  other.run.resize(static_cast<size_t>(incoming[0]));
  other.state.resize(static_cast<size_t>(incoming[1]));
  turn(own.run.data(), sizes[0], other.run.data(), incoming[0], DType::U8);
  turn(own.state.data(), sizes[1], other.state.data(), incoming[1], DType::U8);
}

void PeerMemory::finish() {
  job_.wait();
  world_.world().barrier();
}

// `held`: for each rank the steps of its own copies and of those that it keeps, two each.
std::optional<int64_t> PeerMemory::newest(const std::vector<int64_t>& held) const {
  const auto has = [&](int64_t rank, int64_t first, int64_t step) {
    const size_t at = static_cast<size_t>(4 * rank + first);
    return held[at] == step || held[at + 1] == step;
  };
  std::optional<int64_t> found;
  for (const int64_t step : held) {
    if (step < 0 || (found && step <= *found)) continue;
    bool everywhere = true;
    for (int64_t r = 0; r < world_.size(); ++r)
      everywhere = everywhere && (has(r, 0, step) || has(keeper_of(r), 2, step));
    if (everywhere) found = step;
  }
  return found;
}

std::optional<PeerMemory::Restored> PeerMemory::restore() {
  finish();
  comm::Communicator& comm = world_.world();
  const int64_t me = world_.rank().value;
  for (Copy* copy : {&copies_.own[0], &copies_.own[1], &copies_.other[0], &copies_.other[1]})
    if (copy->step >= 0 && !copy->is_whole()) copy->step = -1;
  const int64_t mine[4] = {copies_.own[0].step, copies_.own[1].step, copies_.other[0].step,
                           copies_.other[1].step};
  std::vector<int64_t> held(4 * static_cast<size_t>(world_.size()));
  comm.all_gather(mine, held.data(), 4, DType::I64);
  const std::optional<int64_t> step = newest(held);
  if (!step) return std::nullopt;
  const auto at = [&](Copy* list) { return list[0].step == *step ? &list[0] : &list[1]; };
  for (int64_t r = 0; r < world_.size(); ++r) {
    const size_t own = static_cast<size_t>(4 * r);
    if (held[own] == *step || held[own + 1] == *step) continue;
    if (me == keeper_of(r)) {
      const Copy& kept = *at(copies_.other);
      const int64_t sizes[3] = {std::ssize(kept.run), std::ssize(kept.state), static_cast<int64_t>(kept.sum)};
      comm.send(sizes, 3, DType::I64, static_cast<int>(r));
      comm.send(kept.run.data(), sizes[0], DType::U8, static_cast<int>(r));
      comm.send(kept.state.data(), sizes[1], DType::U8, static_cast<int>(r));
    }
    if (me == r) {
      const int keeper = static_cast<int>(keeper_of(r));
      int64_t sizes[3] = {0, 0, 0};
      comm.recv(sizes, 3, DType::I64, keeper);
      Copy& back = copies_.own[slot_];
      back.run.resize(static_cast<size_t>(sizes[0]));
      back.state.resize(static_cast<size_t>(sizes[1]));
      comm.recv(back.run.data(), sizes[0], DType::U8, keeper);
      comm.recv(back.state.data(), sizes[1], DType::U8, keeper);
      back.step = *step;
      back.sum = static_cast<uint64_t>(sizes[2]);
    }
  }
  const Copy& own = *at(copies_.own);
  // Those that have been sent back may have been damaged on the way: then none of this step are used.
  int32_t damaged = own.is_whole() ? 0 : 1;
  comm.all_reduce(&damaged, 1, DType::I32, comm::ReduceOp::Max);
  if (damaged != 0) {
    for (Copy* copy : {&copies_.own[0], &copies_.own[1], &copies_.other[0], &copies_.other[1]})
      if (copy->step == *step) copy->step = -1;
    return restore();
  }
  slot_ = &own == &copies_.own[0] ? 1 : 0;
  put(own);
  world_.world().barrier();
  return Restored{.step = *step, .run = own.run};
}

void PeerMemory::put(const Copy& copy) {
  if (static_cast<int64_t>(copy.state.size()) != bytes_)
    base::fail_user(
        "the copy in another rank's memory has {} bytes, and this rank's state {}: the layout has changed",
        copy.state.size(), bytes_);
  for_each_range(pieces_, [&](const exec::Range& range, int64_t place) {
    rank_.write(range, [&](std::byte* to) {
      std::memcpy(to, copy.state.data() + place, static_cast<size_t>(range.bytes));
    });
  });
  rank_.weights_changed();
}

}  // namespace quintet::train
