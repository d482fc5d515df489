// The traffic of a real step compared with the ledger of the programs, and overlap of the ring in a real
// trace.
#include "train/traffic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/temp_folder.h"
#include "comm/local.h"
#include "observe/trace.h"
#include "program/ledger.h"
#include "train/rank.h"
#include "train/support.h"

namespace quintet {
namespace {

using test::SmallRun;

// Arbitrary tokens: traffic does not depend on them.
exec::LoadBatch constant_batch(const config::Recipe& recipe) {
  return [rows = recipe.batch.micro * recipe.data.seq_len, seq_len = recipe.data.seq_len](
             int, const std::vector<exec::InputRows>& inputs) {
    for (const auto& [spec, data] : inputs)
      for (int64_t i = 0; i < rows; ++i)
        data[i] = spec.kind == graph::InputKind::Positions ? static_cast<int32_t>(i % seq_len) : 0;
  };
}

struct Row {
  int64_t calls = 0, bytes = 0;  // bytes of the whole messages
  friend bool operator==(const Row&, const Row&) = default;
};
using Rows = std::map<std::pair<std::string, std::string>, Row>;  // by communicator and kind

void PrintTo(const Row& row, std::ostream* out) { *out << row.calls << " calls, " << row.bytes << " bytes"; }

Rows of_ledger(const program::Program& p, const program::Ledger& ledger) {
  Rows rows;
  for (const program::LedgerRow& r : ledger.rows) {
    Row& row = rows[{p.comms[r.comm.index()].name(), std::string(program::to_string(r.kind))}];
    row.calls += r.collectives;
    row.bytes += r.message_bytes;
  }
  return rows;
}

Rows of_recorder(const program::Program& p, const comm::Recorder& recorder, uint64_t before) {
  const uint64_t calls = recorder.calls() - before;
  EXPECT_LE(calls, static_cast<uint64_t>(comm::Recorder::kCapacity))
      << "the step does not fit in the recorder";
  Rows rows;
  for (const comm::Recorder::Entry& e : recorder.last(static_cast<int>(calls))) {
    EXPECT_TRUE(e.left);
    int64_t members = 0;
    for (const program::Communicator& c : p.comms)
      if (c.name() == e.communicator) members = static_cast<int64_t>(c.members.size());
    const bool divided = e.call.kind == comm::CallKind::AllGather ||
                         e.call.kind == comm::CallKind::ReduceScatter ||
                         e.call.kind == comm::CallKind::AllToAll;
    Row& row = rows[{e.communicator, comm::to_string(e.call.kind)}];
    ++row.calls;
    row.bytes += e.call.count * base::size_of(e.call.dtype) * (divided ? members : 1);
  }
  return rows;
}

TEST(Traffic, IsWhatTheLedgerSays) {
  const SmallRun small;
  const std::vector<std::vector<std::string>> layouts = {
      {},
      {"parallel.dp_shard=1", "parallel.zero=0", "parallel.tp=1", "parallel.sequence_parallel=false",
       "parallel.cp=4", "parallel.cp_method=ring", "batch.micro=4"},
      {"parallel.tp=1", "parallel.sequence_parallel=false", "parallel.cp=2", "parallel.cp_method=ulysses"},
      {"parallel.dp_shard=1", "parallel.tp=1", "parallel.sequence_parallel=false", "parallel.cp=2",
       "parallel.cp_method=gather"},
      {"parallel.dp_shard=1", "parallel.zero=1", "parallel.tp=1", "parallel.sequence_parallel=false",
       "parallel.cp=2", "parallel.cp_method=ring", "parallel.pp=2"},
  };
  for (const auto& layout : layouts) {
    SCOPED_TRACE(::testing::PrintToString(layout));
    const config::Recipe recipe = small.recipe(layout);
    comm::run_local_world(static_cast<int>(recipe.parallel.world()), [&](comm::World& world) {
      train::Rank rank(recipe, world, {});
      const uint64_t before = world.recorder().calls();
      rank.step_with(0, constant_batch(recipe), 1);
      const compiler::Compiled& c = rank.compiled();
      EXPECT_EQ(of_recorder(c.program, world.recorder(), before),
                of_ledger(c.program, program::make_ledger(c.program, c.step)));
    });
  }
}

// The first step of every run compares what was sent with the plan; here the plan is wrong on purpose.
TEST(Traffic, ADifferenceFromThePlanFailsTheRun) {
  const SmallRun small;
  const config::Recipe recipe = small.recipe({});
  comm::run_local_world(static_cast<int>(recipe.parallel.world()), [&](comm::World& world) {
    train::Rank rank(recipe, world, {});
    rank.step_with(0, constant_batch(recipe), 1);
    EXPECT_TRUE(rank.traffic().require_planned(rank.executor()));
    train::TrafficLedger twice(rank.compiled().program);
    twice.ran(rank.compiled().step);
    EXPECT_TRUE(twice.require_planned(rank.executor()));
    twice.ran(rank.compiled().step);
    try {
      twice.require_planned(rank.executor());
      ADD_FAILURE() << "a step too many was not noticed";
    } catch (const base::InternalError& e) {
      EXPECT_NE(std::string(e.what()).find("but the plan has"), std::string::npos) << e.what();
    }
    twice.lost();
    EXPECT_FALSE(twice.require_planned(rank.executor())) << "an abandoned step is not compared";
  });
}

TEST(Traffic, IsSummedOverRanksByGroup) {
  const SmallRun small;
  const config::Recipe recipe = small.recipe({});
  std::vector<train::GroupTraffic> list;
  double planned = 0;
  comm::run_local_world(static_cast<int>(recipe.parallel.world()), [&](comm::World& world) {
    train::Rank rank(recipe, world, {});
    rank.step_with(0, constant_batch(recipe), 1);
    double own = program::make_ledger(rank.compiled().program, rank.compiled().step).sent_bytes();
    auto all = train::gather_traffic(rank.traffic(), rank.executor(), world);
    world.world().all_reduce(&own, 1, base::DType::F64, comm::ReduceOp::Sum);
    if (world.rank().value != 0) return;
    list = std::move(all);
    planned = own;
  });
  double sent = 0;
  for (const train::GroupTraffic& g : list) {
    sent += g.sent_bytes;
    EXPECT_EQ(g.link, "memory") << g.group;
    EXPECT_EQ(g.transport, "threads, direct");
    EXPECT_GT(g.calls, 0) << g.group << " " << g.call;
    EXPECT_GE(g.seconds, g.waiting) << g.group << " " << g.call;
  }
  EXPECT_NEAR(sent, planned, 1e-6 * planned);
  EXPECT_GE(list.size(), 3u);
  EXPECT_FALSE(train::traffic_lines(list).empty());
}

// Rows of the next hop are received while a hop computes. The machine may delay a thread at any time, so a
// single overlapping hop is enough.
TEST(Traffic, RingOverlapsWithComputing) {
  const SmallRun small;
  const config::Recipe recipe = small.recipe(
      {"parallel.dp_shard=1", "parallel.zero=0", "parallel.tp=1", "parallel.sequence_parallel=false",
       "parallel.cp=2", "parallel.cp_method=ring", "data.seq_len=1024", "batch.global=4", "batch.micro=1"});
  std::vector<observe::RankTrace> traces;
  for (int r = 0; r < 2; ++r) traces.emplace_back(r);
  comm::run_local_world(2, [&](comm::World& world) {
    train::Rank rank(recipe, world, {});
    observe::RankTrace& trace = traces[world.rank().index()];
    for (const program::Stream& s : rank.compiled().program.streams) trace.add_stream(s.name);
    rank.executor().trace_next(&trace, 0);
    rank.step_with(0, constant_batch(recipe), 1);
  });
  const test::TempFolder folder;
  observe::write_trace(folder / "trace.json", traces);
  std::vector<observe::TraceRecord> hops, receives;
  for (observe::TraceRecord& r : observe::read_trace(folder / "trace.json")) {
    if (r.name.starts_with("attention_hop"))
      hops.push_back(std::move(r));
    else if (r.stream == "cp.recv")
      receives.push_back(std::move(r));
  }
  EXPECT_EQ(hops.size(), size_t{2 * 4 * 2 * 2 * 2});        // ranks, micro-batches, blocks, passes, hops
  EXPECT_EQ(receives.size(), size_t{2 * 4 * 2 * (2 + 6)});  // K and V; again with dK and dV twice
  int overlapping = 0;
  for (const observe::TraceRecord& a : receives)
    overlapping += std::any_of(hops.begin(), hops.end(), [&](const observe::TraceRecord& b) {
      return a.rank == b.rank &&
             std::max(a.start_ns, b.start_ns) < std::min(a.start_ns + a.dur_ns, b.start_ns + b.dur_ns);
    });
  EXPECT_GT(overlapping, 0) << "of " << receives.size();
}

}  // namespace
}  // namespace quintet
