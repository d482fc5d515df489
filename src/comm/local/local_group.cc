#include "comm/local/local_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <thread>

#include "comm/members.h"

namespace quintet::comm::local {
namespace {

// Bits of the gate.
constexpr uint32_t kFailed = 1, kCompleting = 2, kGenerationShift = 2;
// Bits of a channel. State 0: nothing offered; offered: the sender waits; taken: the receiver reads the
// sender's memory.
constexpr uint32_t kStateMask = 3, kOffered = 1, kTaken = 2, kChannelFailed = 4, kTransferShift = 3;

// Up to this many bytes per member, one thread does the work of all.
constexpr int64_t kCombineBytes = 32 * 1024;

Clock::time_point deadline_after(std::chrono::nanoseconds timeout) {
  const auto now = Clock::now();
  return timeout > kNever - now ? kNever : now + timeout;
}

}  // namespace

LocalGroup::LocalGroup(std::string name, std::vector<base::RankId> members,
                       std::vector<const Recorder*> recorders)
    : name_(std::move(name)),
      members_(std::move(members)),
      recorders_(std::move(recorders)),
      may_spin_(members_.size() <= std::thread::hardware_concurrency()),
      slots_(members_.size()),
      channels_(std::make_unique<Channel[]>(members_.size() * members_.size())) {}

void LocalGroup::collective(int me, const Call& call, const void* send, void* recv,
                            std::chrono::nanoseconds timeout, const Exchange* exchange) {
  const uint32_t before = gate_.value.load(std::memory_order_acquire);
  if (before & kFailed) throw_failure();
  const uint32_t generation = before >> kGenerationShift;
  slots_[static_cast<size_t>(me)] = {call, send, recv, exchange};
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size())
    complete_gathering();
  else
    wait_for_release(me, call, generation, timeout);
  if (combined_) return;  // not written again before our next call
  const uint32_t unfinished =
      finished_.value.load(std::memory_order_acquire);  // cannot change before we are counted
  work_slice(me);
  if (working_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    finished_.value.fetch_add(1);
    finished_.notify_all();
  } else {
    finished_.wait_while(unfinished, kNever, may_spin_);
  }
}

// Called by the last member to arrive: checks the calls, does all the work if it is little, opens the gate.
void LocalGroup::complete_gathering() {
  uint32_t gate = gate_.value.load(std::memory_order_acquire);
  do {
    if (gate & kFailed) throw_failure();
  } while (!gate_.value.compare_exchange_weak(gate, gate | kCompleting));
  if (const std::string mismatch = find_mismatch(); !mismatch.empty()) {
    {
      const std::lock_guard lock(mutex_);
      spread_failure(FailureKind::Mismatch, mismatch);
      gate_.value.fetch_and(~kCompleting);
    }
    gate_.notify_all();
    throw_failure();
  }
  combined_ = bytes_for_each() <= kCombineBytes;
  if (combined_)
    work_all();
  else
    working_.store(size(), std::memory_order_relaxed);
  arrived_.store(0, std::memory_order_relaxed);
  // A concurrent failure keeps its bit: this call has succeeded, the next one sees it.
  gate_.value.fetch_add((1u << kGenerationShift) - kCompleting);
  gate_.notify_all();
}

void LocalGroup::wait_for_release(int me, const Call& call, uint32_t generation,
                                  std::chrono::nanoseconds timeout) {
  Clock::time_point deadline = deadline_after(timeout);
  while (true) {
    const uint32_t gate = gate_.value.load(std::memory_order_acquire);
    if (gate >> kGenerationShift != generation) return;
    if (gate & kCompleting) {
      gate_.wait_while(gate, kNever, may_spin_);
      continue;
    }
    if (gate & kFailed) throw_failure();
    if (Clock::now() < deadline) {
      gate_.wait_while(gate, deadline, may_spin_);
      continue;
    }
    const std::string text = timeout_text(me, call, timeout);
    const std::lock_guard lock(mutex_);
    uint32_t expected = gate;  // unless the last member has just arrived
    if (gate_.value.compare_exchange_strong(expected, gate | kFailed)) {
      spread_failure(FailureKind::Timeout, text);
      throw TimeoutError(text);
    }
  }
}

std::string LocalGroup::find_mismatch() const {
  const Call& first = slots_[0].call;
  for (size_t i = 1; i < slots_.size(); ++i)
    if (!slots_[i].call.agrees_with(first)) {
      std::string text = fmt::format(
          "ranks of communicator '{}' issued different calls: rank {} {}, rank {} {}. All members:", name_,
          members_[0], describe(first), members_[i], describe(slots_[i].call));
      for (size_t j = 0; j < slots_.size(); ++j)
        text += fmt::format("\n  rank {}: {}", members_[j], describe(slots_[j].call));
      return text;
    }
  return first.kind == CallKind::AllToAllV ? find_count_mismatch() : std::string();
}

std::string LocalGroup::find_count_mismatch() const {
  for (size_t i = 0; i < slots_.size(); ++i)
    for (size_t j = 0; j < slots_.size(); ++j) {
      const int64_t sent = slots_[i].exchange->send_counts[j], expected = slots_[j].exchange->recv_counts[i];
      if (sent != expected)
        return describe_count_mismatch(slots_[i].call, name_, members_[i], sent, members_[j], expected);
    }
  return {};
}

// Bytes that the collective reads per member; for an uneven exchange, for the member that receives the most.
int64_t LocalGroup::bytes_for_each() const {
  const Call& call = slots_[0].call;
  const int64_t width = size_of(call.dtype), bytes = call.count * width;
  switch (call.kind) {
    case CallKind::AllGather:
    case CallKind::ReduceScatter:
    case CallKind::AllToAll:
      return bytes * size();
    case CallKind::AllToAllV: {
      int64_t most = 0;
      for (const Slot& s : slots_)
        most = std::max(most, std::accumulate(s.exchange->recv_counts.begin(), s.exchange->recv_counts.end(),
                                              int64_t{0}));
      return most * width;
    }
    default:
      return bytes;
  }
}

void LocalGroup::fail(FailureKind kind, const std::string& text) {
  const std::lock_guard lock(mutex_);
  spread_failure(kind, text);
}

void LocalGroup::spread_failure(FailureKind kind, const std::string& text) {
  if (failure_text_.empty()) {
    failure_kind_ = kind;
    failure_text_ = text;
  }
  gate_.value.fetch_or(kFailed);
  gate_.notify_all();
  for (size_t i = 0; i < slots_.size() * slots_.size(); ++i) {
    channels_[i].word.value.fetch_or(kChannelFailed);
    channels_[i].word.notify_all();
  }
}

void LocalGroup::throw_failure() {
  const std::lock_guard lock(mutex_);
  switch (failure_kind_) {
    case FailureKind::Mismatch:
      throw MismatchError(failure_text_);
    case FailureKind::Timeout:
      throw TimeoutError(failure_text_);
    case FailureKind::Aborted:
      break;
  }
  throw AbortedError(failure_text_);
}

std::string LocalGroup::timeout_text(int me, const Call& call, std::chrono::nanoseconds timeout) const {
  std::string text =
      fmt::format("rank {} waited {:.3f} s in {} on communicator '{}' {}; the members:",
                  members_[static_cast<size_t>(me)], std::chrono::duration<double>(timeout).count(),
                  describe(call), name_, members_text(members_));
  for (const Recorder* r : recorders_) text += "\n  " + r->describe_now();
  return text;
}

// ---- sends and receives

void LocalGroup::send(int me, const Call& call, const void* data, std::chrono::nanoseconds timeout) {
  Channel& c = channel(me, call.peer);
  uint32_t word = c.word.value.load(std::memory_order_acquire);
  const uint32_t transfer = word >> kTransferShift;
  c.call = call;
  c.data = data;
  do {
    if (word & kChannelFailed) throw_failure();
  } while (!c.word.value.compare_exchange_weak(word, word | kOffered));
  c.word.notify_all();
  const Clock::time_point deadline = deadline_after(timeout);
  while (true) {
    word = c.word.value.load(std::memory_order_acquire);
    if (word >> kTransferShift != transfer) return;
    if ((word & kStateMask) == kTaken) {  // the receiver is reading our memory
      c.word.wait_while(word, kNever, may_spin_);
      continue;
    }
    if (word & kChannelFailed) throw_failure();
    if (Clock::now() < deadline) {
      c.word.wait_while(word, deadline, may_spin_);
      continue;
    }
    const std::string text = timeout_text(me, call, timeout);
    const std::lock_guard lock(mutex_);
    if (c.word.value.compare_exchange_strong(word, word | kChannelFailed)) {
      spread_failure(FailureKind::Timeout, text);
      throw TimeoutError(text);
    }
  }
}

void LocalGroup::recv(int me, const Call& call, void* data, std::chrono::nanoseconds timeout) {
  Channel& c = channel(call.peer, me);
  const Clock::time_point deadline = deadline_after(timeout);
  while (true) {
    uint32_t word = c.word.value.load(std::memory_order_acquire);
    if (word & kChannelFailed) throw_failure();
    if ((word & kStateMask) == kOffered) {
      if (c.word.value.compare_exchange_strong(word, word - kOffered + kTaken)) break;
      continue;
    }
    if (Clock::now() < deadline) {
      c.word.wait_while(word, deadline, may_spin_);
      continue;
    }
    const std::string text = timeout_text(me, call, timeout);
    const std::lock_guard lock(mutex_);
    if (c.word.value.compare_exchange_strong(word, word | kChannelFailed)) {
      spread_failure(FailureKind::Timeout, text);
      throw TimeoutError(text);
    }
  }
  if (c.call.count != call.count || c.call.dtype != call.dtype) {
    const std::string text = fmt::format("ranks of communicator '{}' disagree: rank {} {}, rank {} {}", name_,
                                         members_[static_cast<size_t>(call.peer)], describe(c.call),
                                         members_[static_cast<size_t>(me)], describe(call));
    {
      const std::lock_guard lock(mutex_);
      spread_failure(FailureKind::Mismatch, text);
      c.word.value.fetch_and(~kStateMask);
    }
    c.word.notify_all();
    throw_failure();
  }
  const int64_t bytes = call.count * size_of(call.dtype);
  if (bytes > 0) std::memcpy(data, c.data, static_cast<size_t>(bytes));
  c.word.value.fetch_add((1u << kTransferShift) - kTaken);
  c.word.notify_all();
}

}  // namespace quintet::comm::local
