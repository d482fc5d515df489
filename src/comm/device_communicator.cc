#include "comm/device_communicator.h"

#include <fmt/format.h>

#include <exception>
#include <map>

#include "base/clock.h"
#include "comm/backoff.h"
#include "comm/hash.h"
#include "comm/members.h"

namespace quintet::comm {
namespace {

// Rethrows the failure being handled with `more` appended to its message.
[[noreturn]] void rethrow_with(const std::string& more) {
  try {
    throw;
  } catch (const TimeoutError& e) {
    throw TimeoutError(e.what() + more);
  } catch (const MismatchError& e) {
    throw MismatchError(e.what() + more);
  } catch (const AbortedError& e) {
    throw AbortedError(e.what() + more);
  } catch (const CommError& e) {
    throw CommError(e.what() + more);
  }
}

// One member's summary of a communicator, for comparison.
struct CallSummary {
  uint64_t group = 0;  // 0: none
  uint64_t hash = 0, calls = 0;
};

// By communicator. Several communicators with the same members are distinguished by their order.
std::vector<CallSummary> summarise_calls(const DeviceCommunicators& communicators) {
  std::vector<CallSummary> list;
  std::map<std::vector<base::RankId>, uint64_t> seen;
  for (const auto& c : communicators) {
    uint64_t group = mixed(1, seen[c->members()]++);
    for (const base::RankId r : c->members()) group = mixed(group, static_cast<uint64_t>(r.value));
    list.push_back({group | 1, c->calls().hash(), c->calls().calls()});
  }
  return list;
}

}  // namespace

void wait_for_device(const std::function<bool()>& done, const DeviceCommunicators& communicators,
                     World& world, const std::function<std::string()>& where) {
  const int64_t start = base::now_ns(), timeout = world.timeout().count();
  Backoff backoff;
  const auto check = [&] {
    for (const auto& c : communicators) c->check();
    world.throw_if_aborted();
  };
  try {
    while (!done()) {
      check();
      if (base::now_ns() - start > timeout)
        throw TimeoutError(fmt::format(
            "rank {} waited {:.3f} s for its GPU to finish what was enqueued; a peer has not arrived, or "
            "the work takes longer than the timeout. Calls made outside of graphs, newest last:\n{}",
            world.rank(), static_cast<double>(timeout) * 1e-9, world.recorder().describe(8)));
      backoff.pause();
    }
    // A call that was stopped by an error counts as done too.
    check();
  } catch (const std::exception& e) {
    // Evaluated first, because an abort lets the device proceed.
    const std::string more = where ? where() : std::string();
    for (const auto& c : communicators) c->abort(e.what());
    if (more.empty() || dynamic_cast<const CommError*>(&e) == nullptr) throw;
    rethrow_with(more);
  }
}

void compare_calls(const DeviceCommunicators& communicators, World& world) {
  std::vector<CallSummary> mine = summarise_calls(communicators);
  auto most = static_cast<int64_t>(mine.size());
  world.world().all_reduce(&most, 1, base::DType::I64, ReduceOp::Max);
  const auto width = static_cast<size_t>(most);
  mine.resize(width);
  std::vector<CallSummary> all(width * static_cast<size_t>(world.size()));
  world.world().all_gather(mine.data(), all.data(), most * static_cast<int64_t>(sizeof(CallSummary)),
                           base::DType::U8);
  for (size_t i = 0; i < communicators.size(); ++i) {
    const DeviceCommunicator& c = *communicators[i];
    for (const base::RankId r : c.members()) {
      CallSummary theirs;
      for (size_t k = 0; k < width; ++k)
        if (const CallSummary& t = all[r.index() * width + k]; t.group == mine[i].group) theirs = t;
      if (theirs.group != 0 && theirs.hash == mine[i].hash) continue;
      throw MismatchError(fmt::format(
          "rank {} on device communicator '{}' {}: rank {} {}. All members must make the same calls with the "
          "same counts and types; ranks with different recipes, data or builds of the program do not. The "
          "last calls here:\n{}",
          world.rank(), c.name(), members_text(c.members()), r,
          theirs.group == 0 ? "has no such communicator"
                            : fmt::format("has made different calls than this rank ({} there, {} here)",
                                          theirs.calls, mine[i].calls),
          world.recorder().describe(8)));
    }
  }
}

}  // namespace quintet::comm
