// Every call, type and form against the host's communicator with the same data.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "gpu/nccl/values.h"

namespace quintet::comm::testing {
namespace {

using base::DType;

constexpr int64_t kCounts[] = {0, 1, 7, 1000, 40003};
constexpr uint8_t kFill = 0xa5;

struct Case {
  World& world;
  const DeviceCommunicators& all;
  DeviceCommunicator& device;
  Communicator& host;
  cudaStream_t stream;
  DType dtype;
  int64_t count;
  int rank = device.rank(), size = device.size();

  Bytes mine(int64_t elements, uint64_t seed) const { return values(dtype, rank, elements, seed); }
  Bytes blank(int64_t elements) const {
    return Bytes(static_cast<size_t>(elements * base::size_of(dtype)), kFill);
  }
  int64_t bytes(int64_t elements) const { return elements * base::size_of(dtype); }
  void wait() const { testing::wait(stream, all, world); }
  void same(const Bytes& got, const Bytes& expected, const char* what) const {
    expect(got == expected, fmt::format("{}, {} elements of {}, rank {} of {}", what, count,
                                        base::to_string(dtype), rank, size));
  }
};

// The host's reduction of `mine` in f64 with its bound, or its exact bits for integers.
void check_reduction(const Case& c, const Bytes& got, const Bytes& mine, ReduceOp op, const char* what) {
  if (!is_float(c.dtype)) {
    Bytes expected = mine;
    c.host.all_reduce(expected.data(), static_cast<int64_t>(mine.size()) / base::size_of(c.dtype), c.dtype,
                      op);
    return c.same(got, expected, what);
  }
  std::vector<double> expected = decode(c.dtype, mine), scale = expected;
  for (double& s : scale) s = std::abs(s);
  const auto n = static_cast<int64_t>(expected.size());
  c.host.all_reduce(expected.data(), n, DType::F64, op);
  c.host.all_reduce(scale.data(), n, DType::F64, ReduceOp::Sum);
  const std::vector<double> g = decode(c.dtype, got);
  for (size_t i = 0; i < g.size(); ++i) {
    const double bound = op == ReduceOp::Max ? 0 : c.size * unit_roundoff(c.dtype) * scale[i];
    expect(std::abs(g[i] - expected[i]) <= bound,
           fmt::format("{}: element {} of {} in {} is {} for {}", what, i, g.size(), base::to_string(c.dtype),
                       g[i], expected[i]));
  }
}

Bytes piece(const Case& c, const Bytes& whole, int index) {
  const auto begin = whole.begin() + index * c.bytes(c.count);
  return {begin, begin + c.bytes(c.count)};
}

void check_all_reduce(const Case& c, ReduceOp op) {
  const Bytes mine = c.mine(c.count, 1);
  DeviceBytes data(mine);
  c.device.all_reduce(data.data(), c.count, c.dtype, op, c.stream);
  c.wait();
  const Bytes got = data.get();
  check_reduction(c, got, mine, op, "all_reduce");
  // The same bits on all members, and in a repetition.
  Bytes from_first = got;
  c.host.broadcast(from_first.data(), static_cast<int64_t>(got.size()), DType::U8, 0);
  c.same(got, from_first, "all_reduce on member 0");
  data.set(mine);
  c.device.all_reduce(data.data(), c.count, c.dtype, op, c.stream);
  c.wait();
  c.same(data.get(), got, "all_reduce again");
}

void check_reduce_scatter(const Case& c, ReduceOp op) {
  const Bytes mine = c.mine(c.count * c.size, 2);
  DeviceBytes send(mine), recv(c.blank(c.count));
  c.device.reduce_scatter(send.data(), recv.data(), c.count, c.dtype, op, c.stream);
  c.wait();
  c.same(send.get(), mine, "what reduce_scatter sends");
  // The host reduces all pieces; each member checks its own.
  Bytes got = c.blank(c.count * c.size);
  const Bytes own = recv.get();
  c.host.all_gather(own.data(), got.data(), c.count, c.dtype);
  check_reduction(c, got, mine, op, "reduce_scatter");
  c.device.reduce_scatter(send.data(), send.at(c.rank * c.count, c.dtype), c.count, c.dtype, op, c.stream);
  c.wait();
  c.same(piece(c, send.get(), c.rank), own, "reduce_scatter in place");
}

void check_all_gather(const Case& c) {
  const Bytes mine = c.mine(c.count, 3);
  Bytes expected = c.blank(c.count * c.size);
  c.host.all_gather(mine.data(), expected.data(), c.count, c.dtype);
  DeviceBytes send(mine), recv(c.blank(c.count * c.size));
  c.device.all_gather(send.data(), recv.data(), c.count, c.dtype, c.stream);
  c.wait();
  c.same(recv.get(), expected, "all_gather");
  Bytes start = c.blank(c.count * c.size);
  std::copy(mine.begin(), mine.end(), start.begin() + c.rank * c.bytes(c.count));
  recv.set(start);
  c.device.all_gather(recv.at(c.rank * c.count, c.dtype), recv.data(), c.count, c.dtype, c.stream);
  c.wait();
  c.same(recv.get(), expected, "all_gather in place");
}

void check_all_to_all(const Case& c) {
  const Bytes mine = c.mine(c.count * c.size, 4);
  Bytes expected = c.blank(c.count * c.size);
  c.host.all_to_all(mine.data(), expected.data(), c.count, c.dtype);
  DeviceBytes send(mine), recv(c.blank(c.count * c.size));
  c.device.all_to_all(send.data(), recv.data(), c.count, c.dtype, c.stream);
  c.wait();
  c.same(recv.get(), expected, "all_to_all");
  c.same(send.get(), mine, "what all_to_all sends");
}

// Uneven pieces, some of them empty, with gaps between the received ones.
void check_all_to_all_v(const Case& c, int variant) {
  const auto length = [&](int from, int to) -> int64_t {
    if (variant == 1) return to == 0 ? c.count : 0;    // one gets everything
    if (variant == 2 && from == c.size - 1) return 0;  // one sends nothing
    return (from * 7 + to * 3) % 4 == 0 ? 0 : c.count / (1 + (from + 2 * to) % 3) + from + to;
  };
  const auto n = static_cast<size_t>(c.size);
  std::vector<int64_t> send_offsets(n), send_counts(n), recv_offsets(n), recv_counts(n);
  int64_t sent = 0, received = 2;
  for (int j = 0; j < c.size; ++j) {
    const auto m = static_cast<size_t>(j);
    send_counts[m] = length(c.rank, j);
    recv_counts[m] = length(j, c.rank);
    send_offsets[m] = sent;
    sent += send_counts[m];
    recv_offsets[m] = received;
    received += recv_counts[m] + 1;
  }
  const Bytes mine = c.mine(sent, 5);
  Bytes expected = c.blank(received);
  c.host.all_to_all_v(mine.data(), send_offsets, send_counts, expected.data(), recv_offsets, recv_counts,
                      c.dtype);
  DeviceBytes send(mine), recv(c.blank(received));
  c.device.all_to_all_v({send.data(), send_offsets, send_counts, recv.data(), recv_offsets, recv_counts},
                        c.dtype, c.stream);
  c.wait();
  c.same(recv.get(), expected, "all_to_all_v");
}

void check_broadcast(const Case& c) {
  for (int root = 0; root < c.size; ++root) {
    Bytes expected = c.mine(c.count, 6);
    DeviceBytes data(expected);
    c.host.broadcast(expected.data(), c.count, c.dtype, root);
    c.device.broadcast(data.data(), c.count, c.dtype, root, c.stream);
    c.wait();
    c.same(data.get(), expected, "broadcast");
  }
}

// Along a chain, so that nothing is sent in both directions at once.
void check_sends(const Case& c) {
  Bytes expected = c.mine(c.count, 7);
  DeviceBytes data(expected);
  if (c.rank > 0) c.device.recv(data.data(), c.count, c.dtype, c.rank - 1, c.stream);
  if (c.rank + 1 < c.size) c.device.send(data.data(), c.count, c.dtype, c.rank + 1, c.stream);
  if (c.rank > 0) c.host.recv(expected.data(), c.count, c.dtype, c.rank - 1);
  if (c.rank + 1 < c.size) c.host.send(expected.data(), c.count, c.dtype, c.rank + 1);
  c.wait();
  c.same(data.get(), expected, "a chain of sends");
}

void check_one(const Case& c) {
  for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Max}) {
    check_all_reduce(c, op);
    check_reduce_scatter(c, op);
  }
  check_all_gather(c);
  check_all_to_all(c);
  for (int variant = 0; variant < 3; ++variant) check_all_to_all_v(c, variant);
  check_broadcast(c);
  check_sends(c);
}

void check_all(World& world, const std::vector<base::RankId>& members) {
  const auto made = make_device_communicators({{members, "checked"}}, world, device_of(world));
  const auto host = world.create(members, "reference");
  const Stream stream;
  for (const DType dtype : kTypes)
    for (const int64_t count : kCounts) check_one({world, made, *made[0], *host, stream, dtype, count});
  made[0]->check();
  for (const Recorder::Entry& e : world.recorder().last())
    expect(e.left, "a finished call is still inside: " + describe(e.call));
}

}  // namespace

void check_collectives(World& world) {
  std::vector<base::RankId> members;
  for (int r = 0; r < world.size(); ++r) members.emplace_back(r);
  check_all(world, members);
}

void check_alone(World& world) { check_all(world, {world.rank()}); }

}  // namespace quintet::comm::testing
