// Peers that never arrive. Rank 0 is the one that waits; the others stay away from the call under test. All
// exit normally: the script checks exit codes and the line that each mode prints.
#include <fmt/core.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "base/clock.h"
#include "gpu/nccl/values.h"

namespace quintet::comm::testing {
namespace {

using base::DType;
using base::RankId;

constexpr int64_t kCount = 1000;
constexpr std::chrono::seconds kShort{4}, kLong{60};

bool waits(const World& world) { return world.rank().value == 0; }

std::vector<RankId> all_ranks(const World& world) {
  std::vector<RankId> members;
  for (int r = 0; r < world.size(); ++r) members.emplace_back(r);
  return members;
}

template <class Error, class Body>
void must_throw(const char* what, Body&& body) {
  try {
    body();
  } catch (const Error& e) {
    fmt::print("as it should ({}): {}\n", what, e.what());
    return;
  }
  throw std::runtime_error(fmt::format("{}: nothing was thrown", what));
}

// Rank 0 makes `body` fail with `Error` under a short timeout; then all meet on the host.
template <class Error, class Body>
void alone(World& world, Communicator& end, const char* what, Body&& body) {
  if (waits(world)) {
    world.set_timeout(kShort);
    must_throw<Error>(what, body);
    world.set_timeout(kLong);
  }
  end.barrier();
}

// Memory last: freeing it would wait for a hanging call, which the communicators' destructors abort.
struct Setting {
  explicit Setting(World& w)
      : end((w.set_timeout(kLong), w.create(all_ranks(w), "end"))),
        device(device_of(w)),
        data(values(DType::F32, w.rank().value, kCount, 1)),
        made(make_device_communicators({{all_ranks(w), "tested"}}, w, device)) {}
  void sum() { made[0]->all_reduce(data.data(), kCount, DType::F32, ReduceOp::Sum, stream); }

  std::shared_ptr<Communicator> end;
  int device;
  DeviceBytes data;
  Stream stream;
  DeviceCommunicators made;
};

}  // namespace

void fail_to_join(World& world) {
  world.set_timeout(kLong);
  const auto end = world.create(all_ranks(world), "end");
  const int device = device_of(world);
  if (waits(world)) {
    alone<TimeoutError>(world, *end, "nobody joins", [&] {
      make_device_communicators({{all_ranks(world), "lonely"}}, world, device);
    });
  } else {
    // Takes part in the exchange on the host, but never calls NCCL.
    make_device_communicators({}, world, device);
    uint8_t identity[128];
    world.world().recv(identity, sizeof identity, DType::U8, 0);
    end->barrier();
  }
}

void fail_at_first_call(World& world) {
  Setting s(world);
  alone<TimeoutError>(world, *s.end, "first call", [&] {
    s.sum();
    wait(s.stream, s.made, world);
  });
  require(cudaStreamSynchronize(s.stream));
}

void fail_at_later_call(World& world) {
  Setting s(world);
  s.sum();
  wait(s.stream, s.made, world);
  alone<TimeoutError>(world, *s.end, "later call", [&] {
    s.sum();
    wait(s.stream, s.made, world);
  });
  require(cudaStreamSynchronize(s.stream));
  if (waits(world)) must_throw<TimeoutError>("a dead communicator", [&] { s.sum(); });
}

void fail_in_graph(World& world) {
  Setting s(world);
  s.sum();
  wait(s.stream, s.made, world);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  require(cudaStreamBeginCapture(s.stream, cudaStreamCaptureModeThreadLocal));
  s.sum();
  require(cudaStreamEndCapture(s.stream, &graph));
  require(cudaGraphInstantiate(&exec, graph, 0));
  alone<TimeoutError>(world, *s.end, "replayed call", [&] {
    require(cudaGraphLaunch(exec, s.stream));
    wait(s.stream, s.made, world);
  });
  // The abort concurrently waits for the graph to be destroyed.
  require(cudaGraphExecDestroy(exec));
  require(cudaGraphDestroy(graph));
  require(cudaStreamSynchronize(s.stream));
}

void abort_a_call(World& world) {
  Setting s(world);
  s.sum();
  wait(s.stream, s.made, world);
  if (waits(world)) {
    s.sum();
    s.made[0]->check();
    s.made[0]->abort("the test wants it");
    require(cudaStreamSynchronize(s.stream));
    must_throw<AbortedError>("aborted", [&] { s.sum(); });
    must_throw<AbortedError>("aborted", [&] { s.made[0]->check(); });
  }
  s.end->barrier();
}

// All ranks but rank 0 leave with an exception before its second call, which must not hang.
void unwind(World& world) {
  const auto end = world.create(all_ranks(world), "end");
  try {
    Setting s(world);
    s.sum();
    wait(s.stream, s.made, world);
    if (!waits(world)) throw std::runtime_error("a rank fails");
    world.set_timeout(kShort);
    must_throw<CommError>("a peer unwound", [&] {
      s.sum();
      wait(s.stream, s.made, world);
    });
    world.set_timeout(kLong);
  } catch (const std::runtime_error& e) {
    if (std::string(e.what()) != "a rank fails") throw;
  }
  end->barrier();
}

// Sizes differ: on the device that is a hang or garbage. Found by comparing, before any rank waits.
void fail_to_agree(World& world) {
  Setting s(world);
  s.sum();
  compare_calls(s.made, world);
  wait(s.stream, s.made, world);
  const int64_t count = waits(world) ? kCount : kCount / 2;
  s.made[0]->all_reduce(s.data.data(), count, DType::F32, ReduceOp::Sum, s.stream);
  must_throw<MismatchError>("sizes differ", [&] { compare_calls(s.made, world); });
  s.made[0]->abort("sizes differ");
  require(cudaStreamSynchronize(s.stream));
  s.end->barrier();
}

// The last rank is killed while the others wait for it in a call: each of them ends by itself. They cannot
// synchronise after that, so the ranks exit at once; the launcher must not end the job itself
// (mpirun --enable-recovery).
void lose_a_peer(World& world) {
  Setting s(world);
  s.sum();
  wait(s.stream, s.made, world);
  s.end->barrier();
  if (world.rank().value == world.size() - 1) std::raise(SIGKILL);
  world.set_timeout(kShort);
  const int64_t begin = base::now_ns();
  must_throw<CommError>("a peer was killed", [&] {
    s.sum();
    wait(s.stream, s.made, world);
  });
  require(cudaStreamSynchronize(s.stream));
  const double seconds = static_cast<double>(base::now_ns() - begin) * 1e-9;
  expect(seconds < 3 * static_cast<double>(kShort.count()), fmt::format("an end soon ({:.1f} s)", seconds));
  if (waits(world)) fmt::print("killed passed on {} ranks\n", world.size());
  std::fflush(stdout);
  std::_Exit(0);
}

}  // namespace quintet::comm::testing
