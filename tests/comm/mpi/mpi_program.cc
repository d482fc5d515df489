// Run by mpirun from CTest: the body of the local tests over MPI, and the failure modes, selected by the
// first argument.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>

#include "base/error.h"
#include "comm/collective_checks.h"
#include "comm/mpi.h"

namespace quintet::comm {
namespace {

using base::DType;
using base::RankId;

void expect(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(what);
}

// Uneven, longer than one message, with more messages in flight than are started at once.
void large_exchange(Communicator& c) {
  const int n = c.size(), me = c.rank();
  const auto length = [&](int from, int to) {
    return from == to ? int64_t{0} : (int64_t{1} << 20) * (from == 0 ? 70 : 9 * to) + 3;
  };
  std::vector<int64_t> zeros(static_cast<size_t>(n)), out(zeros), in(zeros), places(zeros);
  int64_t most = 0, filled = 0;
  for (int j = 0; j < n; ++j) {
    const auto m = static_cast<size_t>(j);
    out[m] = length(me, j);
    in[m] = length(j, me);
    places[m] = filled;
    filled += in[m];
    most = std::max(most, out[m]);
  }
  const auto value = [](int member, int64_t i) { return static_cast<uint8_t>(i * 7 + i / 4096 + member); };
  std::vector<uint8_t> send(static_cast<size_t>(most)), recv(static_cast<size_t>(filled));
  for (int64_t i = 0; i < most; ++i) send[static_cast<size_t>(i)] = value(me, i);
  c.all_to_all_v(send.data(), zeros, out, recv.data(), places, in, DType::U8);
  for (int j = 0; j < n; ++j)
    for (int64_t i = 0; i < in[static_cast<size_t>(j)]; ++i)
      expect(recv[static_cast<size_t>(places[static_cast<size_t>(j)] + i)] == value(j, i), "large exchange");
}

void collectives(World& w) {
  testing::check_collectives(w.world(), 1, 8);
  testing::check_sends(w.world(), 2);
  testing::check_exchanges(w.world(), 3);
  for (int columns = 1; columns <= w.size(); ++columns)
    if (w.size() % columns == 0) testing::check_grid(w, columns, 7, 2);

  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (int poisoned = 0; poisoned < w.size(); ++poisoned) {
    float x = w.rank().value == poisoned ? kNan : 1.0f;
    w.world().all_reduce(&x, 1, DType::F32, ReduceOp::Max);
    expect(std::isnan(x), "max lost a NaN");
  }

  // Longer than one message, and than one block of a reduction, by an odd number of bytes.
  constexpr int64_t kCount = (9 << 20) / 4 + 1;
  std::vector<int32_t> data(kCount), all(static_cast<size_t>(w.size()) * kCount);
  for (int64_t i = 0; i < kCount; ++i)
    data[static_cast<size_t>(i)] = static_cast<int32_t>(i) * (w.rank().value + 1);
  w.world().all_gather(data.data(), all.data(), kCount, DType::I32);
  w.world().all_reduce(data.data(), kCount, DType::I32, ReduceOp::Sum);
  const int32_t factor = w.size() * (w.size() + 1) / 2;
  for (int64_t i = 0; i < kCount; ++i) {
    const auto k = static_cast<uint32_t>(i);
    expect(data[static_cast<size_t>(i)] == static_cast<int32_t>(k * static_cast<uint32_t>(factor)),
           "large sum");
    for (int r = 0; r < w.size(); ++r)
      expect(
          all[static_cast<size_t>(r * kCount + i)] == static_cast<int32_t>(k * static_cast<uint32_t>(r + 1)),
          "large gather");
  }
  w.world().reduce_scatter(all.data(), all.data() + w.rank().value * kCount, kCount, DType::I32,
                           ReduceOp::Max);
  for (int64_t i = 0; i < kCount; i += 97)
    expect(all[static_cast<size_t>(w.rank().value * kCount + i)] ==
               static_cast<int32_t>(i) * (w.rank().value + 1),
           "large reduce_scatter");
  large_exchange(w.world());
  w.world().barrier();
  if (w.rank().value == 0) fmt::print("all collectives agree on {} ranks\n", w.size());
}

void mismatch(World& w) {
  std::vector<float> x(64);
  bool seen = false;
  try {
    w.world().all_reduce(x.data(), w.rank().value == 1 ? 9 : 8, DType::F32, ReduceOp::Sum);
  } catch (const MismatchError& e) {
    seen = true;
    fmt::print("seen by rank {}: {}\n", w.rank().value, e.what());
  }
  expect(seen, "no mismatch was seen");
  try {
    w.world().barrier();
    throw std::runtime_error("a dead communicator went on");
  } catch (const MismatchError&) {
  }
  // Another operation of the same size.
  const auto again = w.create({RankId(0), RankId(1)}, "again");
  try {
    again->all_reduce(x.data(), 8, DType::F32, w.rank().value == 1 ? ReduceOp::Max : ReduceOp::Sum);
    throw std::runtime_error("the operation went unnoticed");
  } catch (const MismatchError& e) {
    fmt::print("operation seen by rank {}: {}\n", w.rank().value, e.what());
  }
}

// Member 0 sends what member 1 does not expect: more, less, nothing, or too many whole pieces.
void unequal(World& w) {
  const int64_t piece = int64_t{4} << 20;
  int found = 0;
  for (const auto& [sent, expected] : std::vector<std::pair<int64_t, int64_t>>{
           {5, 4}, {4, 5}, {0, 7}, {7, 0}, {2 * piece, piece}, {piece, 2 * piece}}) {
    const auto c = w.create({RankId(0), RankId(1)}, fmt::format("{} for {}", sent, expected));
    const std::vector<int64_t> zeros(2);
    std::vector<int64_t> out(2), in(2);
    if (w.rank().value == 0)
      out[1] = sent;
    else
      in[0] = expected;
    std::vector<uint8_t> data(static_cast<size_t>(std::max(sent, expected)));
    w.set_timeout(std::chrono::seconds(2));
    try {
      c->all_to_all_v(data.data(), zeros, out, data.data(), zeros, in, DType::U8);
    } catch (const MismatchError& e) {
      ++found;
      fmt::print("seen: {}\n", e.what());
    } catch (const TimeoutError&) {  // the sender of a large message that was never received
    }
    w.set_timeout(kDefaultTimeout);
    w.world().barrier();
  }
  if (w.rank().value == 1) {
    expect(found == 6, "an unequal exchange went unnoticed");
    fmt::print("all {} were noticed\n", found);
  }
}

void timeout(World& w) {
  const auto other = w.create({RankId(1), RankId(0)}, "other");
  w.world().barrier();
  float x[5] = {};
  if (w.rank().value == 0) {
    w.set_timeout(std::chrono::milliseconds(300));
    w.world().all_reduce(x, 5, DType::F32, ReduceOp::Sum);
  } else {
    other->recv(x, 1, DType::F32, 1);  // waits for another call than rank 0 makes
  }
}

void throws(World& w) {
  w.world().barrier();
  if (w.rank().value == 1) throw base::UserError("the data file is missing");
  w.world().barrier();
}

void aborts(World& w) {
  w.world().barrier();
  if (w.rank().value == 1) w.abort("out of ideas");
  w.world().barrier();
}

void run(const std::string& mode) {
  if (mode == "collectives") return run_mpi_world(collectives);
  if (mode == "mismatch") return run_mpi_world(mismatch);
  if (mode == "unequal") return run_mpi_world(unequal);
  if (mode == "timeout") return run_mpi_world(timeout);
  if (mode == "throws") return run_mpi_world(throws);
  if (mode == "aborts") return run_mpi_world(aborts);
  base::fail_user("unknown mode '{}'", mode);
}

}  // namespace
}  // namespace quintet::comm

int main(int argc, char** argv) try {
  quintet::comm::run(argc > 1 ? argv[1] : "collectives");
} catch (const std::exception& e) {
  fmt::print(stderr, "{}\n", e.what());
  return 2;
}
