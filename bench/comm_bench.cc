// Latency and bandwidth of the collectives by payload size.
//   comm_bench [ranks] [seconds]        ranks as threads (default 2)
//   mpirun -np 2 comm_bench mpi [seconds]
// Payload is the whole buffer (all_reduce: count; others: the pieces of all ranks together; all_to_all_v: the
// mean over the ranks, each of which receives a quarter less or more than that from every peer). Bus
// bandwidth is payload x 2 (n-1)/n / time for all_reduce and payload x (n-1)/n / time for the others: the
// bytes that each rank must move, so that results are comparable across numbers of ranks.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "comm/local.h"
#include "comm/mpi.h"

namespace quintet::comm {
namespace {

using base::DType;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Times {
  double median = 0, best = 0;
};

// The slowest rank's time in each repetition.
Times measure(Communicator& c, double budget, const std::function<void()>& call) {
  Clock::time_point start = Clock::now();
  for (int i = 0; i < 3; ++i) call();
  double once = seconds_since(start) / 3;
  c.all_reduce(&once, 1, DType::F64, ReduceOp::Max);
  // Short calls are timed in batches; otherwise the clock and the barrier would dominate.
  const int batch = std::clamp(static_cast<int>(1e-3 / once), 1, 1000);
  const int repetitions = std::clamp(static_cast<int>(budget / (once * batch)), 5, 200);
  std::vector<double> times(static_cast<size_t>(repetitions));
  for (double& t : times) {
    c.barrier();
    start = Clock::now();
    for (int i = 0; i < batch; ++i) call();
    t = seconds_since(start) / batch;
  }
  c.all_reduce(times.data(), repetitions, DType::F64, ReduceOp::Max);
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times[0]};
}

void bench(World& w, const char* backend, double budget) {
  Communicator& c = w.world();
  const int n = c.size();
  if (w.rank().value == 0)
    fmt::print(
        "| backend | ranks | call | dtype | payload | median | best | bus bandwidth "
        "|\n|---|---|---|---|---|---|---|---|\n");
  for (const DType dtype : {DType::F32, DType::BF16})
    for (const int64_t bytes : {int64_t{4} << 10, int64_t{1} << 20, int64_t{16} << 20, int64_t{64} << 20}) {
      const int64_t count = bytes / size_of(dtype), piece = count / n;
      std::vector<char> a(static_cast<size_t>(bytes)), b(static_cast<size_t>(bytes));
      const auto members = static_cast<size_t>(n);
      std::vector<int64_t> offsets(members), wide(members), out(members), in(members);
      for (int j = 0; j < n; ++j) {
        const auto m = static_cast<size_t>(j);
        const auto share = [&](int member) { return piece / 4 * (member % 2 == 0 ? 3 : 5); };
        offsets[m] = j * (piece / 4) * 3;
        out[m] = share(j);
        in[m] = share(c.rank());
        wide[m] = j * in[m];
      }
      std::vector<char> uneven(static_cast<size_t>(wide.back() + in.back()) * size_of(dtype));
      const auto row = [&](const char* name, double share, const std::function<void()>& call) {
        const Times t = measure(c, budget, call);
        if (w.rank().value == 0)
          fmt::print("| {} | {} | {} | {} | {} KiB | {:.1f} us | {:.1f} us | {:.2f} GB/s |\n", backend, n,
                     name, base::to_string(dtype), bytes >> 10, t.median * 1e6, t.best * 1e6,
                     static_cast<double>(bytes) * share / t.median * 1e-9);
      };
      const double part = static_cast<double>(n - 1) / n;
      row("all_reduce", 2 * part, [&] { c.all_reduce(a.data(), count, dtype, ReduceOp::Sum); });
      row("reduce_scatter", part, [&] { c.reduce_scatter(a.data(), b.data(), piece, dtype, ReduceOp::Sum); });
      row("all_to_all", part, [&] { c.all_to_all(a.data(), b.data(), piece, dtype); });
      row("all_to_all_v", part,
          [&] { c.all_to_all_v(a.data(), offsets, out, uneven.data(), wide, in, dtype); });
      row("all_gather", part, [&] { c.all_gather(a.data(), b.data(), piece, dtype); });
    }
}

}  // namespace
}  // namespace quintet::comm

int main(int argc, char** argv) {
  using namespace quintet::comm;
  const std::string mode = argc > 1 ? argv[1] : "2";
  const double budget = argc > 2 ? std::atof(argv[2]) : 0.3;
  if (mode == "mpi")
    run_mpi_world([&](World& w) { bench(w, "mpi", budget); });
  else
    run_local_world(std::max(1, std::atoi(mode.c_str())), [&](World& w) { bench(w, "local", budget); });
}
