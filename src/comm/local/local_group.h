// The memory shared by the member threads of one communicator.
//
// A collective is: publish the pointers, wait until all members have arrived, work on the own slice directly
// in the peers' memory, wait until all are done. The last to arrive checks that all calls match. If the call
// touches little memory, the last to arrive also does everybody's work before releasing them, and the second
// wait is skipped: with more ranks than cores, waits cost more than bytes.
//
// Only the wait for peers to arrive can end by timeout or abort. Once all have arrived, nobody leaves before
// all work is done: no thread can then touch the memory of a rank that has left, and since no user code runs
// in between, that wait always ends.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/local/wait_word.h"

namespace quintet::comm::local {

enum class FailureKind { Mismatch, Timeout, Aborted };

class LocalGroup {
 public:
  // `recorders` of the members, in order; they must outlive the group.
  LocalGroup(std::string name, std::vector<base::RankId> members, std::vector<const Recorder*> recorders);

  // `exchange` of an all_to_all_v must stay valid until the call returns.
  void collective(int me, const Call& call, const void* send, void* recv, std::chrono::nanoseconds timeout,
                  const Exchange* exchange = nullptr);
  void send(int me, const Call& call, const void* data, std::chrono::nanoseconds timeout);
  void recv(int me, const Call& call, void* data, std::chrono::nanoseconds timeout);

  // Every member blocked in this group, and every later call, throws. The first reason is kept.
  void fail(FailureKind kind, const std::string& text);

 private:
  struct alignas(64) Slot {
    Call call;
    const void* send = nullptr;
    void* recv = nullptr;
    const Exchange* exchange = nullptr;
  };
  // From one member to another. The word is transfers done << 3 | failed << 2 | state.
  struct alignas(64) Channel {
    WaitWord word;
    Call call;
    const void* data = nullptr;
  };

  int size() const { return static_cast<int>(members_.size()); }
  Channel& channel(int from, int to) {
    return channels_[static_cast<size_t>(from) * members_.size() + static_cast<size_t>(to)];
  }

  void wait_for_release(int me, const Call& call, uint32_t generation, std::chrono::nanoseconds timeout);
  void complete_gathering();
  std::string find_mismatch() const;
  std::string find_count_mismatch() const;
  int64_t bytes_for_each() const;

  void work_all();
  void work_slice(int me);
  void all_reduce_range(int64_t begin, int64_t end);

  [[noreturn]] void throw_failure();
  void spread_failure(FailureKind kind, const std::string& text);  // with mutex_ held
  std::string timeout_text(int me, const Call& call, std::chrono::nanoseconds timeout) const;

  const std::string name_;
  const std::vector<base::RankId> members_;
  const std::vector<const Recorder*> recorders_;
  const bool may_spin_;
  std::vector<Slot> slots_;
  std::unique_ptr<Channel[]> channels_;

  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) WaitWord gate_;  // calls done << 2 | completing << 1 | failed
  bool combined_ = false;      // the last to arrive did all the work; written before the gate opens
  alignas(64) std::atomic<int> working_{0};
  alignas(64) WaitWord finished_;  // counts the calls whose work is done

  std::mutex mutex_;  // guards the next two; a set `failed` bit means they are set
  FailureKind failure_kind_ = FailureKind::Aborted;
  std::string failure_text_;
};

}  // namespace quintet::comm::local
