// Always-on record of a rank's last calls, for diagnosing hangs. Recording costs a few relaxed stores and one
// clock read at each end of a call; it takes no lock and never waits. Any thread may read while others
// record.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/ids.h"

namespace quintet::comm {

enum class ReduceOp : uint8_t;
enum class CallKind : uint8_t {
  AllReduce,
  AllGather,
  ReduceScatter,
  AllToAll,
  AllToAllV,
  Broadcast,
  Send,
  Recv,
  Barrier
};
const char* to_string(CallKind kind);

// The parameters of one member's call.
struct Call {
  CallKind kind = CallKind::Barrier;
  base::DType dtype = base::DType::U8;
  ReduceOp op{};
  int peer = -1;  // root of a broadcast, peer of a send or recv (member index), else -1
  // Elements (per rank where the call is per rank); 0 for an all_to_all_v, whose members differ.
  int64_t count = 0;
  uint64_t sequence = 0;  // position in this rank's calls on the communicator
  // Whether two members' calls are the same collective. Sequence numbers may differ: they also count sends,
  // whose number varies between members.
  bool agrees_with(const Call& other) const {
    return kind == other.kind && dtype == other.dtype && op == other.op && peer == other.peer &&
           count == other.count;
  }
};

class Recorder {
 public:
  static constexpr int kCapacity = 256;  // calls kept

  struct Entry {
    Call call;
    std::string communicator;
    bool left = false;       // false: still inside
    int64_t entered_ns = 0;  // steady clock
    int64_t left_ns = 0;
  };

  explicit Recorder(base::RankId rank) : rank_(rank) {}

  base::RankId rank() const { return rank_; }
  int intern(const std::string& communicator_name);

  // Returns a ticket for leave(). A call that throws is never left: it stays visible as the point of failure.
  uint64_t enter(int communicator, const Call& call);
  void leave(uint64_t ticket);

  uint64_t calls() const { return next_.load(std::memory_order_relaxed); }
  std::vector<Entry> last(int n = kCapacity) const;  // oldest first; entries being written are skipped
  std::string describe(int n) const;                 // the last n, one per line
  std::string describe_now() const;                  // one line: the calls it is inside, or the last it left

 private:
  struct Slot {
    std::atomic<uint64_t> ticket{0};  // 0 while being written; otherwise 1 + index of the call
    std::atomic<uint64_t> shape{0};   // kind, dtype, op, communicator and peer, packed
    std::atomic<int64_t> count{0};
    std::atomic<uint64_t> sequence{0};
    std::atomic<int64_t> entered_ns{0};
    std::atomic<int64_t> left_ns{0};  // 0: inside
  };

  const base::RankId rank_;
  std::atomic<uint64_t> next_{0};
  std::array<Slot, kCapacity> slots_;
  mutable std::mutex names_mutex_;
  std::deque<std::string> names_;
};

// "all_reduce(count 12, f32, sum) #7"
std::string describe(const Call& call);
// Message for two members of an uneven exchange that disagree.
std::string describe_count_mismatch(const Call& call, const std::string& communicator, base::RankId from,
                                    int64_t sent, base::RankId to, int64_t expected);

}  // namespace quintet::comm
