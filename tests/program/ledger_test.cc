// Traffic against closed forms. psi: bytes of the parameters (gradients) of a group buffer, padding included.
#include "program/ledger.h"

#include <gtest/gtest.h>

#include "program/support.h"

namespace quintet::program {
namespace {

using namespace testing;
using compiler::Compiled;

int64_t psi(const Compiled& c, base::DType dtype) {
  int64_t count = 0;
  for (const layout::Group& g : c.groups) count += g.count;
  return count * base::size_of(dtype);
}

CommId comm_named(const Program& p, const std::string& name) {
  for (size_t i = 0; i < p.comms.size(); ++i)
    if (p.comms[i].name == name) return CommId(static_cast<int32_t>(i));
  ADD_FAILURE() << "no communicator " << name;
  return CommId();
}

// What scalars (token count, loss, norm) add to the traffic of an axis: 8 bytes each, by all-reduce.
double scalars(int all_reduces, int n) { return all_reduces * 2.0 * (n - 1) / n * 8; }

TEST(Ledger, ClosedFormsOfSingleMessages) {
  const Collective c{CollectiveKind::AllReduce, CommId(0), 100, base::DType::F32, graph::Reduction::Sum};
  EXPECT_EQ(message_bytes(c, 4), 400);
  EXPECT_EQ(sent_bytes(c, 4), 600);
  for (const CollectiveKind kind :
       {CollectiveKind::AllGather, CollectiveKind::ReduceScatter, CollectiveKind::AllToAll}) {
    Collective d = c;
    d.kind = kind;
    EXPECT_EQ(message_bytes(d, 4), 1600);
    EXPECT_EQ(sent_bytes(d, 4), 1200);
  }
}

TEST(Ledger, AMessageIsSentOnceByItsSender) {
  const Collective c{CollectiveKind::Send, CommId(0), 100, base::DType::F32, graph::Reduction::Sum};
  EXPECT_EQ(message_bytes(c, 2), 400);
  EXPECT_EQ(sent_bytes(c, 2), 400);
  Collective d = c;
  d.kind = CollectiveKind::Recv;
  EXPECT_EQ(message_bytes(d, 2), 400);
  EXPECT_EQ(sent_bytes(d, 2), 0);
}

// Stages exchange the residual stream of every micro-batch, and its gradient back: 8 tokens x embed 16.
TEST(Ledger, PipelinesSendTheResidualStreamBothWays) {
  const std::vector<std::string> pipeline = {"parallel.pp=3", "model.layers=3", "batch.accumulation=4"};
  for (int rank = 0; rank < 3; ++rank) {
    const Compiled c = compile_small(pipeline, rank);
    const Ledger ledger = make_ledger(c.program, c.step);
    const int64_t neighbours = rank == 1 ? 2 : 1;
    EXPECT_EQ(ledger.collectives(CollectiveKind::Send), 4 * neighbours);
    EXPECT_EQ(ledger.collectives(CollectiveKind::Recv), 4 * neighbours);
    double sent = 0;
    for (const LedgerRow& row : ledger.rows) {
      if (row.kind == CollectiveKind::Send) sent += row.sent_bytes;
      if (row.kind == CollectiveKind::Recv) {
        EXPECT_EQ(row.sent_bytes, 0);
      }
    }
    EXPECT_DOUBLE_EQ(sent, static_cast<double>(4 * neighbours * 8 * 16 * 4));
  }
}

TEST(Ledger, OneRankSendsNothing) {
  const Compiled c = compile_small({"batch.accumulation=4"});
  EXPECT_TRUE(make_ledger(c.program, c.step).rows.empty());
}

TEST(Ledger, DdpSendsTwoPsiWhateverTheAccumulation) {
  for (const int n : {2, 3, 4})
    for (const int accumulation : {1, 3}) {
      const Compiled c = compile_small(
          {fmt::format("parallel.dp_replicate={}", n), fmt::format("batch.accumulation={}", accumulation)});
      const double whole = 2.0 * (n - 1) / n * static_cast<double>(psi(c, base::DType::F32));
      EXPECT_DOUBLE_EQ(make_ledger(c.program, c.step).sent_bytes(), whole + scalars(2, n));
    }
}

TEST(Ledger, ZeroOneIsAReduceScatterAndAGatherPerStep) {
  for (const int accumulation : {1, 4}) {
    const Compiled c = compile_small(
        {"parallel.dp_shard=4", "parallel.zero=1", fmt::format("batch.accumulation={}", accumulation)});
    const Ledger ledger = make_ledger(c.program, c.step);
    const double part = 0.75 * static_cast<double>(psi(c, base::DType::F32));
    EXPECT_DOUBLE_EQ(ledger.sent_bytes(), 2 * part + scalars(3, 4));
    const auto groups = static_cast<int64_t>(c.groups.size());
    EXPECT_EQ(ledger.collectives(CollectiveKind::AllGather), groups);
    EXPECT_EQ(ledger.collectives(CollectiveKind::ReduceScatter), groups);
  }
}

TEST(Ledger, ZeroTwoReducesEveryMicroBatch) {
  for (const int g : {1, 4}) {
    const Compiled c =
        compile_small({"parallel.dp_shard=4", "parallel.zero=2", fmt::format("batch.accumulation={}", g)});
    const double part = 0.75 * static_cast<double>(psi(c, base::DType::F32));
    EXPECT_DOUBLE_EQ(make_ledger(c.program, c.step).sent_bytes(), (g + 1) * part + scalars(3, 4));
  }
}

TEST(Ledger, ZeroThreeGathersTwiceAndReducesOncePerMicroBatch) {
  for (const int g : {1, 4}) {
    const Compiled c = compile_small({"parallel.dp_shard=4", "parallel.zero=3",
                                      fmt::format("batch.accumulation={}", g), "precision.compute=bf16"});
    const Ledger ledger = make_ledger(c.program, c.step);
    // The embedding's backward needs no table, and the last group is kept from forward to backward: both are
    // gathered once, all others twice.
    const auto groups = static_cast<int64_t>(c.groups.size());
    EXPECT_EQ(ledger.collectives(CollectiveKind::AllGather), g * (2 * groups - 2));
    EXPECT_EQ(ledger.collectives(CollectiveKind::ReduceScatter), g * groups);
    int64_t gathered = 0;
    for (size_t i = 0; i < c.groups.size(); ++i)
      gathered += c.groups[i].count * 2 * (i == 0 || i + 1 == c.groups.size() ? 1 : 2);
    const double expected = 0.75 * g * static_cast<double>(gathered + psi(c, base::DType::F32));
    EXPECT_DOUBLE_EQ(ledger.sent_bytes(), expected + scalars(3, 4));
  }
}

TEST(Ledger, KeptParametersAreGatheredOnce) {
  const Compiled c =
      compile_small({"parallel.dp_shard=4", "parallel.zero=3", "parallel.reshard_after_forward=false"});
  EXPECT_EQ(make_ledger(c.program, c.step).collectives(CollectiveKind::AllGather),
            static_cast<int64_t>(c.groups.size()));
}

TEST(Ledger, ReshardGathersInTheSmallGroupForTheBackward) {
  const Compiled c =
      compile_small({"parallel.dp_shard=4", "parallel.zero=3", "parallel.reshard_after_forward=2"});
  const Ledger ledger = make_ledger(c.program, c.step);
  const auto groups = static_cast<int64_t>(c.groups.size());
  EXPECT_EQ(ledger.collectives(comm_named(c.program, "dp_shard"), CollectiveKind::AllGather), groups);
  EXPECT_EQ(ledger.collectives(comm_named(c.program, "dp_shard[1]"), CollectiveKind::AllGather), groups - 2);
}

// Of eight data ranks two share the experts: each has copies on every second rank, and two of its copies are
// among any four consecutive ranks. Where no two are, experts are gathered from all their copies.
TEST(Ledger, ExpertsReshardInTheSmallGroup) {
  const auto gathers = [](int ep, const std::string& comm) {
    const Compiled c =
        compile_small({"parallel.dp_shard=8", "parallel.zero=3", "model.layers=3", "model.moe.first_dense=1",
                       "model.moe.experts=8", "model.moe.top_k=2", "model.moe.ffn=12",
                       fmt::format("parallel.ep={}", ep), "parallel.reshard_after_forward=4"});
    const Ledger ledger = make_ledger(c.program, c.step);
    int64_t found = 0;
    for (size_t i = 0; i < c.program.comms.size(); ++i)
      if (c.program.comms[i].name == comm)
        found += ledger.collectives(CommId(static_cast<int32_t>(i)), CollectiveKind::AllGather);
    return found;
  };
  // Two blocks of experts.
  EXPECT_EQ(gathers(2, "dp_shard[0]+dp_shard[1]"), 2);
  EXPECT_EQ(gathers(2, "dp_shard[1]"), 2) << "the backward pass";
  EXPECT_EQ(gathers(4, "dp_shard[0]"), 4) << "no two copies among four ranks";
}

TEST(Ledger, HybridReducesOwnRangeOverReplicasOncePerStep) {
  const Compiled c = compile_small(
      {"parallel.dp_replicate=2", "parallel.dp_shard=2", "parallel.zero=3", "batch.accumulation=3"});
  const Ledger ledger = make_ledger(c.program, c.step);
  const double range = static_cast<double>(psi(c, base::DType::F32)) / 2;
  EXPECT_DOUBLE_EQ(ledger.sent_bytes(comm_named(c.program, "dp_replicate")), 2.0 / 2 * range);
}

struct TensorCounts {
  int64_t all_reduce, all_gather, reduce_scatter;
};

TensorCounts tensor_counts(int layers, int accumulation, bool sequence_parallel) {
  const Compiled c = compile_small({"parallel.tp=2", fmt::format("model.layers={}", layers),
                                    fmt::format("batch.accumulation={}", accumulation),
                                    fmt::format("parallel.sequence_parallel={}", sequence_parallel)});
  const Ledger ledger = make_ledger(c.program, c.step);
  // With sequence parallel only gradients are all-reduced over tp, on a separate communicator.
  const CommId tp = comm_named(c.program, "tp"),
               reduces = sequence_parallel ? comm_named(c.program, "tp state") : tp;
  return {ledger.collectives(reduces, CollectiveKind::AllReduce),
          ledger.collectives(tp, CollectiveKind::AllGather),
          ledger.collectives(tp, CollectiveKind::ReduceScatter)};
}

// Differencing over the number of layers and micro-batches isolates the contribution of one block.
TEST(Ledger, TensorParallelHasFourAllReducesPerBlockAndMicroBatch) {
  const TensorCounts a = tensor_counts(2, 2, false), b = tensor_counts(5, 2, false);
  EXPECT_EQ(b.all_reduce - a.all_reduce, 3 * 2 * 4);
  EXPECT_EQ(a.all_gather, 0);
  EXPECT_EQ(a.reduce_scatter, 0);
}

TEST(Ledger, SequenceParallelTurnsEachIntoGatherAndScatter) {
  const TensorCounts a = tensor_counts(2, 2, true), b = tensor_counts(5, 2, true);
  // Plus two gathers: the weight gradients need the gathered inputs again, and a gathered copy is not kept
  // from forward to backward.
  EXPECT_EQ(b.reduce_scatter - a.reduce_scatter, 3 * 2 * 4);
  EXPECT_EQ(b.all_gather - a.all_gather, 3 * 2 * (4 + 2));
  // Norm weights see parts of the rows: their gradients are summed over tp, once per step and group.
  EXPECT_EQ(b.all_reduce - a.all_reduce, 3);
}

TEST(Ledger, FlopsAreThoseOfTheMatmulsAndScaleWithTheBatch) {
  const Compiled one = compile_small({"batch.accumulation=1"}),
                 four = compile_small({"batch.accumulation=4"});
  const Ledger a = make_ledger(one.program, one.step), b = make_ledger(four.program, four.step);
  // 6 x weights x tokens, over all matrices except the embedding table; attention and the rest are extra.
  int64_t weights = 0;
  for (const layout::Group& g : one.groups)
    for (const layout::Segment& s : g.segments)
      if (s.global.num_dims() > 1 && s.name != "embed.weight") weights += s.global.count();
  const double matmuls = 6.0 * static_cast<double>(weights) * 8;
  EXPECT_GT(a.flops, matmuls);
  EXPECT_LT(a.flops, 1.6 * matmuls);
  const double per_step = (4 * a.flops - b.flops) / 3;  // the optimizer's part, which does not grow
  EXPECT_GT(per_step, 0);
  EXPECT_NEAR(b.flops - per_step, 4 * (a.flops - per_step), 1);
  EXPECT_DOUBLE_EQ(a.flops_by_phase[0] + a.flops_by_phase[1] + a.flops_by_phase[2], a.flops);
}

TEST(Ledger, TensorParallelDividesTheMatmuls) {
  const Compiled one = compile_small({}), two = compile_small({"parallel.tp=2"});
  const double whole = make_ledger(one.program, one.step).flops,
               half = make_ledger(two.program, two.step).flops;
  EXPECT_NEAR(half / whole, 0.5, 0.05);
}

}  // namespace
}  // namespace quintet::program
