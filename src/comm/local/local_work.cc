// The work of each collective once all members' pointers are known. Member `me` writes only what no other
// member reads or writes in the same call, so slices need no ordering.
#include <algorithm>
#include <cstring>

#include "comm/local/local_group.h"
#include "comm/reduce.h"

namespace quintet::comm::local {
namespace {

const char* at(const void* base, int64_t bytes) { return static_cast<const char*>(base) + bytes; }
char* at(void* base, int64_t bytes) { return static_cast<char*>(base) + bytes; }

void copy(void* to, const void* from, int64_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

}  // namespace

void LocalGroup::work_all() {
  if (slots_[0].call.kind == CallKind::AllReduce) return all_reduce_range(0, slots_[0].call.count);
  for (int i = 0; i < size(); ++i) work_slice(i);
}

void LocalGroup::work_slice(int me) {
  const Slot& mine = slots_[static_cast<size_t>(me)];
  const Call& call = mine.call;
  const int n = size();
  const int64_t piece = call.count * size_of(call.dtype);
  // Each member starts with a different peer, so that they do not all read the same memory at once.
  const auto peer = [&](int k) { return (me + k) % n; };
  switch (call.kind) {
    case CallKind::AllReduce: {
      // Slices end on cache lines (of a line-aligned buffer); otherwise neighbours would write the same line.
      const int64_t line = 64 / size_of(call.dtype);
      const int64_t slice = ((call.count + n - 1) / n + line - 1) / line * line;
      return all_reduce_range(std::min(call.count, me * slice), std::min(call.count, (me + 1) * slice));
    }
    case CallKind::AllGather:
      for (int k = 0; k < n; ++k) {
        const int j = peer(k);
        copy(at(mine.recv, j * piece), slots_[static_cast<size_t>(j)].send, piece);
      }
      return;
    case CallKind::ReduceScatter: {
      std::vector<const void*> sources(static_cast<size_t>(n));
      for (size_t j = 0; j < sources.size(); ++j) sources[j] = at(slots_[j].send, me * piece);
      void* target = mine.recv;
      return reduce_in_order(sources.data(), n, &target, 1, call.count, call.dtype, call.op);
    }
    case CallKind::AllToAll:
      for (int k = 0; k < n; ++k) {
        const int j = peer(k);
        copy(at(mine.recv, j * piece), at(slots_[static_cast<size_t>(j)].send, me * piece), piece);
      }
      return;
    case CallKind::AllToAllV:
      for (int k = 0; k < n; ++k) {
        const auto j = static_cast<size_t>(peer(k)), m = static_cast<size_t>(me);
        const Exchange &to = *mine.exchange, &from = *slots_[j].exchange;
        const int64_t width = size_of(call.dtype);
        if (to.recv_counts[j] > 0)
          copy(at(to.recv, to.recv_offsets[j] * width), at(from.send, from.send_offsets[m] * width),
               to.recv_counts[j] * width);
      }
      return;
    case CallKind::Broadcast:
      return copy(mine.recv, slots_[static_cast<size_t>(call.peer)].send, piece);
    case CallKind::Barrier:
    case CallKind::Send:
    case CallKind::Recv:
      return;
  }
}

// Reduces a range that only this thread touches and writes it to every member: in place, with no buffer but a
// block in the cache, and without a second exchange.
void LocalGroup::all_reduce_range(int64_t begin, int64_t end) {
  if (begin >= end) return;
  const Call& call = slots_[0].call;
  const int64_t offset = begin * size_of(call.dtype);
  std::vector<const void*> sources(slots_.size());
  std::vector<void*> targets(slots_.size());
  for (size_t j = 0; j < slots_.size(); ++j) {
    sources[j] = at(slots_[j].send, offset);
    targets[j] = at(slots_[j].recv, offset);
  }
  reduce_in_order(sources.data(), size(), targets.data(), size(), end - begin, call.dtype, call.op);
}

}  // namespace quintet::comm::local
