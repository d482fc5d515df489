// A digest of the calls a member has made on a communicator. Members whose calls agree in kind, count, type,
// operation and order have equal digests.
#pragma once

#include <cstdint>

#include "comm/recorder.h"

namespace quintet::comm {

class CallOrder {
 public:
  // Records a call by member `rank` of `size`. Messages count only between two members, each direction by
  // itself: a member may interleave its sends and receives differently than its peer. In larger groups a
  // message concerns only two of the members and is left out.
  void add(const Call& call, int rank, int size);

  uint64_t hash() const;
  uint64_t calls() const { return calls_; }

 private:
  uint64_t all_ = 0;           // calls that involve all members
  uint64_t messages_[2] = {};  // by sender
  uint64_t calls_ = 0;
};

}  // namespace quintet::comm
