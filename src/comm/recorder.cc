#include "comm/recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/clock.h"
#include "comm/communicator.h"

namespace quintet::comm {
namespace {

using base::now_ns;

// kind 8 | dtype 8 | op 8 | communicator 20 | peer + 1 20
uint64_t pack(int communicator, const Call& call) {
  return static_cast<uint64_t>(call.kind) | static_cast<uint64_t>(call.dtype) << 8 |
         static_cast<uint64_t>(call.op) << 16 | static_cast<uint64_t>(communicator & 0xfffff) << 24 |
         static_cast<uint64_t>((call.peer + 1) & 0xfffff) << 44;
}

std::string entry_text(const Recorder::Entry& e) {
  const int64_t now = now_ns();
  const auto ms = [](int64_t ns) { return static_cast<double>(ns) * 1e-6; };
  if (!e.left)
    return fmt::format("inside {} on '{}' for {:.3f} ms", describe(e.call), e.communicator,
                       ms(now - e.entered_ns));
  return fmt::format("left {} on '{}' {:.3f} ms ago after {:.3f} ms", describe(e.call), e.communicator,
                     ms(now - e.left_ns), ms(e.left_ns - e.entered_ns));
}

}  // namespace

const char* to_string(CallKind kind) {
  switch (kind) {
    case CallKind::AllReduce:
      return "all_reduce";
    case CallKind::AllGather:
      return "all_gather";
    case CallKind::ReduceScatter:
      return "reduce_scatter";
    case CallKind::AllToAll:
      return "all_to_all";
    case CallKind::AllToAllV:
      return "all_to_all_v";
    case CallKind::Broadcast:
      return "broadcast";
    case CallKind::Send:
      return "send";
    case CallKind::Recv:
      return "recv";
    case CallKind::Barrier:
      return "barrier";
  }
  return "?";
}

std::string describe(const Call& call) {
  if (call.kind == CallKind::Barrier) return fmt::format("barrier #{}", call.sequence);
  if (call.kind == CallKind::AllToAllV)
    return fmt::format("all_to_all_v({}) #{}", base::to_string(call.dtype), call.sequence);
  std::string text =
      fmt::format("{}(count {}, {}", to_string(call.kind), call.count, base::to_string(call.dtype));
  if (call.kind == CallKind::AllReduce || call.kind == CallKind::ReduceScatter)
    text += fmt::format(", {}", to_string(call.op));
  if (call.kind == CallKind::Broadcast) text += fmt::format(", root {}", call.peer);
  if (call.kind == CallKind::Send) text += fmt::format(", to member {}", call.peer);
  if (call.kind == CallKind::Recv) text += fmt::format(", from member {}", call.peer);
  return text + fmt::format(") #{}", call.sequence);
}

std::string describe_count_mismatch(const Call& call, const std::string& communicator, base::RankId from,
                                    int64_t sent, base::RankId to, int64_t expected) {
  return fmt::format("{} on communicator '{}': rank {} sends {} elements to rank {}, which expects {}",
                     describe(call), communicator, from, sent, to, expected);
}

int Recorder::intern(const std::string& communicator_name) {
  const std::lock_guard lock(names_mutex_);
  names_.push_back(communicator_name);
  return static_cast<int>(names_.size()) - 1;
}

uint64_t Recorder::enter(int communicator, const Call& call) {
  const uint64_t index = next_.fetch_add(1, std::memory_order_relaxed);
  Slot& s = slots_[index % kCapacity];
  // Readers trust the fields only if they see the same non-zero ticket before and after reading them.
  s.ticket.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  s.shape.store(pack(communicator, call), std::memory_order_relaxed);
  s.count.store(call.count, std::memory_order_relaxed);
  s.sequence.store(call.sequence, std::memory_order_relaxed);
  s.entered_ns.store(now_ns(), std::memory_order_relaxed);
  s.left_ns.store(0, std::memory_order_relaxed);
  s.ticket.store(index + 1, std::memory_order_release);
  return index + 1;
}

void Recorder::leave(uint64_t ticket) {
  Slot& s = slots_[(ticket - 1) % kCapacity];
  // A call during which 256 others started has lost its slot.
  if (s.ticket.load(std::memory_order_relaxed) == ticket)
    s.left_ns.store(now_ns(), std::memory_order_relaxed);
}

std::vector<Recorder::Entry> Recorder::last(int n) const {
  const uint64_t end = next_.load(std::memory_order_acquire);
  const uint64_t kept = std::min<uint64_t>({end, kCapacity, static_cast<uint64_t>(std::max(n, 0))});
  std::vector<Entry> entries;
  for (uint64_t index = end - kept; index < end; ++index) {
    const Slot& s = slots_[index % kCapacity];
    if (s.ticket.load(std::memory_order_acquire) != index + 1) continue;
    const uint64_t shape = s.shape.load(std::memory_order_relaxed);
    Entry e;
    e.call.kind = static_cast<CallKind>(shape & 0xff);
    e.call.dtype = static_cast<base::DType>(shape >> 8 & 0xff);
    e.call.op = static_cast<ReduceOp>(shape >> 16 & 0xff);
    e.call.peer = static_cast<int>(shape >> 44 & 0xfffff) - 1;
    e.call.count = s.count.load(std::memory_order_relaxed);
    e.call.sequence = s.sequence.load(std::memory_order_relaxed);
    e.entered_ns = s.entered_ns.load(std::memory_order_relaxed);
    e.left_ns = s.left_ns.load(std::memory_order_relaxed);
    e.left = e.left_ns != 0;
    std::atomic_thread_fence(std::memory_order_acquire);
    if (s.ticket.load(std::memory_order_relaxed) != index + 1) continue;
    const size_t communicator = shape >> 24 & 0xfffff;
    const std::lock_guard lock(names_mutex_);
    e.communicator = communicator < names_.size() ? names_[communicator] : "?";
    entries.push_back(std::move(e));
  }
  return entries;
}

std::string Recorder::describe(int n) const {
  std::string text;
  for (const Entry& e : last(n)) text += fmt::format("rank {}: {}\n", rank_, entry_text(e));
  return text;
}

std::string Recorder::describe_now() const {
  const std::vector<Entry> entries = last();
  std::string text;
  for (const Entry& e : entries)
    if (!e.left) text += fmt::format("{}{}", text.empty() ? "" : "; ", entry_text(e));
  if (text.empty()) text = entries.empty() ? "no call yet" : entry_text(entries.back());
  return fmt::format("rank {}: {}", rank_, text);
}

}  // namespace quintet::comm
