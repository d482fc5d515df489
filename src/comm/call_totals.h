// What a rank's calls on one communicator amounted to, by kind, for reports. Not thread-safe: the owner reads
// it between calls.
//
// Bytes are those of whole messages over all members; of an uneven exchange those that this member sends to
// others. Waiting is the time that calls took beyond the quickest of the same kind and size: for peers that
// arrive late, or for a busy machine. Calls of an uneven exchange have no common size, so theirs is not
// known.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "comm/recorder.h"

namespace quintet::comm {

struct CallTotals {
  CallKind kind = CallKind::Barrier;
  int64_t calls = 0, bytes = 0;
  double seconds = 0, waiting = 0;
  friend bool operator==(const CallTotals&, const CallTotals&) = default;
};

// Bytes that each member of a group of `members` must send for a message of B bytes, as a multiple of B: the
// factor from the bandwidth of an algorithm to that of the bus.
inline double bus_factor(CallKind kind, int members) {
  const double part = static_cast<double>(members - 1) / members;
  switch (kind) {
    case CallKind::AllReduce:
      return 2 * part;
    case CallKind::AllGather:
    case CallKind::ReduceScatter:
    case CallKind::AllToAll:
      return part;
    default:
      return 1;
  }
}

// Bytes of the whole message of a call.
inline int64_t message_bytes(const Call& call, int members) {
  const int64_t own = call.count * base::size_of(call.dtype);
  const bool per_rank = call.kind == CallKind::AllGather || call.kind == CallKind::ReduceScatter ||
                        call.kind == CallKind::AllToAll;
  return per_rank ? own * members : own;
}

class CallCounter {
 public:
  void add(CallKind kind, int64_t bytes, int64_t nanos) {
    const bool uneven = kind == CallKind::AllToAllV;
    for (Shape& s : shapes_)
      if (s.kind == kind && (uneven || s.bytes == bytes)) {
        ++s.calls;
        s.nanos += nanos;
        s.quickest = std::min(s.quickest, nanos);
        s.all_bytes += bytes;
        return;
      }
    shapes_.push_back({kind, bytes, 1, bytes, nanos, nanos});
  }
  std::vector<CallTotals> totals() const {
    std::vector<CallTotals> list;
    for (const Shape& s : shapes_) {
      auto row = std::find_if(list.begin(), list.end(), [&](const auto& t) { return t.kind == s.kind; });
      if (row == list.end()) row = list.insert(row, {.kind = s.kind});
      row->calls += s.calls;
      row->bytes += s.all_bytes;
      row->seconds += static_cast<double>(s.nanos) * 1e-9;
      if (s.kind != CallKind::AllToAllV)
        row->waiting += static_cast<double>(s.nanos - s.calls * s.quickest) * 1e-9;
    }
    return list;
  }

 private:
  struct Shape {
    CallKind kind;
    int64_t bytes, calls, all_bytes, nanos, quickest;
  };
  std::vector<Shape> shapes_;  // few: a program's messages have few sizes
};

}  // namespace quintet::comm
