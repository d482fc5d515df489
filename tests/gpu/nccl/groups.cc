// Many communicators, grouped calls, and calls in graphs.
#include <fmt/core.h>

#include <algorithm>

#include "gpu/nccl/values.h"

namespace quintet::comm::testing {
namespace {

using base::DType;
using base::RankId;

constexpr int64_t kCount = 3001;

std::vector<RankId> all_ranks(const World& world) {
  std::vector<RankId> members;
  for (int r = 0; r < world.size(); ++r) members.emplace_back(r);
  return members;
}

Bytes host_sum(Communicator& host, const Bytes& mine, DType dtype) {
  Bytes sum = mine;
  host.all_reduce(sum.data(), static_cast<int64_t>(mine.size()) / base::size_of(dtype), dtype, ReduceOp::Sum);
  return sum;
}

// This rank's part of all groups of the world, sorted: all ranks, all ranks in reverse, the same twice,
// pairs, and each rank alone.
std::vector<DeviceGroup> own_groups(const World& world) {
  std::vector<std::vector<RankId>> lists = {all_ranks(world), all_ranks(world)};
  lists.push_back({lists[0].rbegin(), lists[0].rend()});
  for (int a = 0; a < world.size(); ++a) {
    lists.push_back({RankId(a)});
    for (int b = a + 1; b < world.size(); ++b) lists.push_back({RankId(a), RankId(b)});
  }
  std::sort(lists.begin(), lists.end(), [](const auto& x, const auto& y) {
    return std::lexicographical_compare(x.begin(), x.end(), y.begin(), y.end(),
                                        [](RankId p, RankId q) { return p.value < q.value; });
  });
  std::vector<DeviceGroup> groups;
  for (const auto& list : lists)
    if (std::find(list.begin(), list.end(), world.rank()) != list.end()) groups.push_back({list, ""});
  return groups;
}

}  // namespace

void check_groups(World& world) {
  const int device = device_of(world);
  const std::vector<DeviceGroup> groups = own_groups(world);
  std::vector<std::shared_ptr<Communicator>> hosts;
  for (const DeviceGroup& g : groups) hosts.push_back(world.create(g.members));
  for (int round = 0; round < 2; ++round) {
    const auto made = make_device_communicators(groups, world, device);
    const Stream stream;
    for (size_t i = 0; i < made.size(); ++i) {
      DeviceCommunicator& c = *made[i];
      expect(c.members() == groups[i].members && c.members()[static_cast<size_t>(c.rank())] == world.rank(),
             "the members of " + c.name());
      const Bytes mine = values(DType::I32, world.rank().value, kCount, i + 10);
      DeviceBytes data(mine), whole(Bytes(mine.size() * static_cast<size_t>(c.size())));
      c.all_gather(data.data(), whole.data(), kCount, DType::I32, stream);
      c.all_reduce(data.data(), kCount, DType::I32, ReduceOp::Sum, stream);
      wait(stream, made, world);
      expect(data.get() == host_sum(*hosts[i], mine, DType::I32), "the sum over " + c.name());
      Bytes expected(whole.get().size());
      hosts[i]->all_gather(mine.data(), expected.data(), kCount, DType::I32);
      expect(whole.get() == expected, "the order of members in " + c.name());
    }
  }
}

void check_grouped(World& world) {
  const auto members = all_ranks(world);
  const auto made = make_device_communicators({{members, "ring"}, {members, "sum"}}, world, device_of(world));
  const Stream first, second;
  const int n = world.size(), me = world.rank().value, next = (me + 1) % n, before = (me + n - 1) % n;
  for (int round = 0; round < 3; ++round) {
    const auto seed = static_cast<uint64_t>(round) + 20;
    const Bytes mine = values(DType::I64, me, kCount, seed);
    DeviceBytes up(mine), down(mine), from_before(mine), from_next(mine), sum(mine), all(mine);
    {
      GroupedCalls group;
      made[0]->send(up.data(), kCount, DType::I64, next, first);
      made[0]->recv(from_before.data(), kCount, DType::I64, before, first);
      made[1]->all_reduce(sum.data(), kCount, DType::I64, ReduceOp::Sum, second);
      made[1]->all_reduce(all.data(), kCount, DType::I64, ReduceOp::Max, second);
      group.end();
    }
    {
      GroupedCalls group;
      made[0]->recv(from_next.data(), kCount, DType::I64, next, first);
      made[0]->send(down.data(), kCount, DType::I64, before, first);
      group.end();
    }
    {
      GroupedCalls dropped;  // without an end it does nothing
      made[0]->all_reduce(up.data(), kCount, DType::I64, ReduceOp::Sum, first);
    }
    wait(first, made, world);
    wait(second, made, world);
    expect(from_before.get() == values(DType::I64, before, kCount, seed), "what the member before sent");
    expect(from_next.get() == values(DType::I64, next, kCount, seed), "what the next member sent");
    expect(sum.get() == host_sum(world.world(), mine, DType::I64), "a sum in a group");
    expect(up.get() == mine, "a group that was dropped");
  }
}

void check_graph(World& world) {
  const auto members = all_ranks(world);
  auto made = make_device_communicators({{members, "one"}, {members, "two"}}, world, device_of(world));
  const int n = world.size(), me = world.rank().value;
  const Stream main, side;
  cudaEvent_t fork = nullptr, join = nullptr;
  require(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
  require(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
  const Bytes start = values(DType::F32, me, kCount * n, 30);
  const Bytes blank(start.size());
  DeviceBytes source(start), sum(start), turned(blank), gathered(blank);
  for (const auto& c : made) c->register_memory(sum.data(), static_cast<int64_t>(start.size()));
  const size_t piece = start.size() / static_cast<size_t>(n);
  // A sum, then concurrently an exchange and a gather of it, then a second sum of what was exchanged.
  const auto step = [&] {
    require(cudaMemcpyAsync(sum.data(), source.data(), start.size(), cudaMemcpyDeviceToDevice, main));
    made[0]->all_reduce(sum.data(), kCount * n, DType::F32, ReduceOp::Sum, main);
    require(cudaEventRecord(fork, main));
    require(cudaStreamWaitEvent(side, fork, 0));
    made[1]->all_gather(source.data() + piece * static_cast<size_t>(me), gathered.data(), kCount, DType::F32,
                        side);
    require(cudaEventRecord(join, side));
    made[0]->all_to_all(sum.data(), turned.data(), kCount, DType::F32, main);
    require(cudaStreamWaitEvent(main, join, 0));
    GroupedCalls group;
    made[0]->all_reduce(turned.data(), kCount * n, DType::F32, ReduceOp::Max, main);
    made[1]->all_reduce(gathered.data(), kCount * n, DType::F32, ReduceOp::Sum, main);
    group.end();
  };
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  // The second one's connections are made during its capture.
  made[0]->all_reduce(sum.data(), kCount * n, DType::F32, ReduceOp::Sum, main);
  wait(main, made, world);
  require(cudaStreamBeginCapture(main, cudaStreamCaptureModeThreadLocal));
  step();
  for (const auto& c : made) c->check();
  require(cudaStreamEndCapture(main, &graph));
  require(cudaGraphInstantiate(&exec, graph, 0));
  for (int round = 0; round < 3; ++round) {
    const Bytes input = values(DType::F32, me, kCount * n, 31 + static_cast<uint64_t>(round));
    source.set(input);
    require(cudaGraphLaunch(exec, main));
    wait(main, made, world);
    const Bytes replayed[] = {sum.get(), turned.get(), gathered.get()};
    for (DeviceBytes* d : {&sum, &turned, &gathered}) d->set(blank);
    step();
    wait(main, made, world);
    expect(sum.get() == replayed[0], "the sum of a replay");
    expect(turned.get() == replayed[1], "the exchange of a replay");
    expect(gathered.get() == replayed[2], "the gather of a replay");
    expect(sum.get() != blank && turned.get() != blank && gathered.get() != blank, "that something was done");
  }
  require(cudaGraphExecDestroy(exec));
  require(cudaGraphDestroy(graph));
  require(cudaEventDestroy(fork));
  require(cudaEventDestroy(join));
  made.clear();  // before the registered memory
}

}  // namespace quintet::comm::testing
