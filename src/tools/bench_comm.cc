#include "tools/bench_comm.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "comm/local.h"
#include "comm/mpi.h"
#include "config/environment.h"

namespace quintet::tools {

using base::DType;
using comm::CallKind;
using comm::Communicator;

namespace {

constexpr int kWarmUpCalls = 3;
constexpr double kShortestBatch = 1e-3;  // seconds: below it the clock and the barrier would dominate

double seconds_from(int64_t start_ns) { return static_cast<double>(base::now_ns() - start_ns) * 1e-9; }

struct CallTimes {
  double median = 0, best = 0;
};

// The slowest rank's time in each repetition.
CallTimes measure_calls(Communicator& c, double budget, const std::function<void()>& call) {
  int64_t start = base::now_ns();
  for (int i = 0; i < kWarmUpCalls; ++i) call();
  double once = std::max(seconds_from(start) / kWarmUpCalls, 1e-9);
  c.all_reduce(&once, 1, DType::F64, comm::ReduceOp::Max);
  const int batch = std::clamp(static_cast<int>(kShortestBatch / once), 1, 1000);
  const int repetitions = std::clamp(static_cast<int>(budget / (once * batch)), 5, 200);
  std::vector<double> times(static_cast<size_t>(repetitions));
  for (double& t : times) {
    c.barrier();
    start = base::now_ns();
    for (int i = 0; i < batch; ++i) call();
    t = seconds_from(start) / batch;
  }
  c.all_reduce(times.data(), repetitions, DType::F64, comm::ReduceOp::Max);
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times[0]};
}

void bench_size(Communicator& c, DType dtype, int64_t bytes, double budget, std::vector<CommBenchRow>& rows) {
  const int n = c.size();
  const int64_t piece = bytes / base::size_of(dtype) / n, count = piece * n;
  const auto members = static_cast<size_t>(n);
  std::vector<std::byte> a(static_cast<size_t>(count * base::size_of(dtype))), b(a.size());
  std::vector<int64_t> offsets(members), wide(members), out(members), in(members);
  const auto share = [&](int member) { return piece / 4 * (member % 2 == 0 ? 3 : 5); };
  for (size_t j = 0; j < members; ++j) {
    out[j] = share(static_cast<int>(j));
    in[j] = share(c.rank());
    offsets[j] = static_cast<int64_t>(j) * (piece / 4) * 3;
    wide[j] = static_cast<int64_t>(j) * in[j];
  }
  std::vector<std::byte> uneven(static_cast<size_t>((wide.back() + in.back()) * base::size_of(dtype)));
  const auto row = [&](CallKind kind, const std::function<void()>& call) {
    const CallTimes t = measure_calls(c, budget, call);
    const double payload = static_cast<double>(count * base::size_of(dtype));
    // An uneven exchange moves what an even one does, on average.
    const double factor = comm::bus_factor(kind == CallKind::AllToAllV ? CallKind::AllToAll : kind, n);
    rows.push_back({.call = kind,
                    .dtype = dtype,
                    .bytes = bytes,
                    .median = t.median,
                    .best = t.best,
                    .bandwidth = payload / t.median,
                    .bus_bandwidth = payload * factor / t.median});
  };
  row(CallKind::AllReduce, [&] { c.all_reduce(a.data(), count, dtype, comm::ReduceOp::Sum); });
  row(CallKind::ReduceScatter,
      [&] { c.reduce_scatter(a.data(), b.data(), piece, dtype, comm::ReduceOp::Sum); });
  row(CallKind::AllGather, [&] { c.all_gather(a.data(), b.data(), piece, dtype); });
  row(CallKind::AllToAll, [&] { c.all_to_all(a.data(), b.data(), piece, dtype); });
  row(CallKind::AllToAllV, [&] { c.all_to_all_v(a.data(), offsets, out, uneven.data(), wide, in, dtype); });
}

CommBench bench_world(comm::World& world, const CommBenchOptions& options) {
  CommBench bench{.ranks = world.size(), .transport = world.transport(), .rows = {}};
  bench.is_first = world.rank().value == 0;
  for (const DType dtype : options.dtypes)
    for (const int64_t bytes : options.bytes)
      bench_size(world.world(), dtype, bytes, options.seconds, bench.rows);
  return bench;
}

}  // namespace

CommBench bench_comm(const CommBenchOptions& options) {
  const auto launch = config::detect_launch();
  const int64_t ranks = launch && launch->world > 1 ? launch->world : options.ranks;
  if (ranks < 2)
    base::fail_user(
        "bench comm measures messages between ranks, but there is {}; use --ranks 2 or more, or mpirun",
        ranks);
  for (const int64_t bytes : options.bytes)
    for (const DType dtype : options.dtypes)
      if (bytes < 4 * ranks * base::size_of(dtype))
        base::fail_user(
            "bench comm: {} bytes of {} do not give each of {} ranks 4 elements; the smallest size is {}",
            bytes, base::to_string(dtype), ranks, 4 * ranks * base::size_of(dtype));
  CommBench bench;
  const auto body = [&](comm::World& world) {
    CommBench own = bench_world(world, options);
    if (own.is_first || (launch && launch->world > 1)) bench = std::move(own);
  };
  if (launch && launch->world > 1)
    comm::run_mpi_world(body);
  else
    comm::run_local_world(static_cast<int>(ranks), body);
  return bench;
}

std::string to_table(const CommBench& bench) {
  std::string text =
      fmt::format("{} ranks ({})\n\n{:<15} {:<5} {:>10} {:>11} {:>11} {:>8} {:>8}\n", bench.ranks,
                  bench.transport, "call", "type", "payload", "median us", "best us", "GB/s", "bus GB/s");
  for (const CommBenchRow& r : bench.rows)
    text += fmt::format("{:<15} {:<5} {:>10} {:>11.1f} {:>11.1f} {:>8.2f} {:>8.2f}\n",
                        comm::to_string(r.call), base::to_string(r.dtype), base::human_bytes(r.bytes),
                        r.median * 1e6, r.best * 1e6, r.bandwidth * 1e-9, r.bus_bandwidth * 1e-9);
  return text;
}

std::string to_json(const CommBench& bench) {
  nlohmann::ordered_json j = {{"ranks", bench.ranks}, {"transport", bench.transport}};
  j["rows"] = nlohmann::ordered_json::array();
  for (const CommBenchRow& r : bench.rows)
    j["rows"].push_back({{"call", comm::to_string(r.call)},
                         {"dtype", base::to_string(r.dtype)},
                         {"bytes", r.bytes},
                         {"median_s", r.median},
                         {"best_s", r.best},
                         {"bandwidth_bytes_per_s", r.bandwidth},
                         {"bus_bandwidth_bytes_per_s", r.bus_bandwidth}});
  return j.dump(2);
}

}  // namespace quintet::tools
