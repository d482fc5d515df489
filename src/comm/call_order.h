// What a member has called on a communicator so far, as a number that members can compare: equal for members
// whose calls agree in kind, count, type, operation and order.
#pragma once

#include <cstdint>

#include "comm/recorder.h"

namespace quintet::comm {

class CallOrder {
 public:
  // Member `rank` of `size` makes the call. Messages count between two members only, each direction by
  // itself: a member may send and receive in another order than its peer. In larger groups a message concerns
  // two of many and is left out.
  void add(const Call& call, int rank, int size);

  uint64_t hash() const;
  uint64_t calls() const { return calls_; }

 private:
  uint64_t all_ = 0;           // calls of all members
  uint64_t messages_[2] = {};  // by sender
  uint64_t calls_ = 0;
};

}  // namespace quintet::comm
