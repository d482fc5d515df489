// Traffic against closed forms. psi: bytes of the parameters (gradients) of a group buffer, padding included.
#include "program/ledger.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

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
    if (p.comms[i].name() == name) return CommId(static_cast<int32_t>(i));
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
      if (c.program.comms[i].name() == comm)
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

// The same bytes in fewer messages, but for the padding that every group has at its end.
TEST(Ledger, GroupsOfBlocksSendFewerMessages) {
  const auto compile = [](int zero, const std::string& group) {
    return compile_small({"parallel.dp_shard=4", fmt::format("parallel.zero={}", zero), "model.layers=6",
                          "parallel.reshard_after_forward=true", "parallel.group=" + group});
  };
  for (const int zero : {0, 1, 2, 3}) {
    SCOPED_TRACE(zero);
    std::map<std::string, size_t> groups = {{"1", 8}, {"2", 5}, {"4", 4}, {"6", 3}};
    for (const auto& [group, count] : groups) {
      const Compiled c = compile(zero, group);
      ASSERT_EQ(c.groups.size(), count) << group;
      const Ledger ledger = make_ledger(c.program, c.step);
      const auto n = static_cast<int64_t>(count);
      const double elements = static_cast<double>(psi(c, base::DType::F32));
      if (zero == 0) {
        EXPECT_DOUBLE_EQ(ledger.sent_bytes(), 1.5 * elements + scalars(2, 4));
        continue;
      }
      EXPECT_EQ(ledger.collectives(CollectiveKind::ReduceScatter), n);
      EXPECT_EQ(ledger.collectives(CollectiveKind::AllGather), zero == 3 ? 2 * n - 2 : n);
      if (zero < 3) {
        EXPECT_DOUBLE_EQ(ledger.sent_bytes(), 1.5 * elements + scalars(3, 4));
      }
    }
  }
}

// A block that takes more than a group may is split between its parameters.
TEST(Ledger, GroupsByBytesSplitBlocks) {
  const auto groups = [](const std::string& size) {
    return compile_small(
               {"parallel.dp_shard=2", "parallel.zero=3", "model.layers=4", "parallel.group='" + size + "'"})
        .groups;
  };
  const std::vector<layout::Group> blocks = groups("1B");
  for (const layout::Group& g : blocks) EXPECT_EQ(g.segments.size(), 1u) << g.name;
  const int64_t block = [&] {
    int64_t bytes = 0;
    for (const layout::Group& g : blocks) bytes += g.block == 1 ? g.parameter_bytes() : 0;
    return bytes;
  }();
  EXPECT_EQ(groups(fmt::format("{}B", block)).size(), groups("auto").size() + 1) << "the head is larger";
  EXPECT_EQ(groups(fmt::format("{}B", 2 * block)).size(), 4u);
  EXPECT_EQ(groups(fmt::format("{}B", 2 * block - 1)).size(), 6u);
  const std::vector<layout::Group> split = groups(fmt::format("{}B", block - 1));
  EXPECT_EQ(split.size(), 3u + 2 * 4u);
  for (const layout::Group& g : split)
    if (g.block > 0 && g.block < 5) {
      EXPECT_LT(g.parameter_bytes(), block) << g.name;
    }
}

// Neither pipeline stages nor virtual stages share a group.
TEST(Ledger, StagesBoundGroups) {
  const Compiled c = compile_small({"parallel.pp=2", "parallel.schedule=interleaved", "batch.accumulation=4",
                                    "model.layers=8", "parallel.stages=[2, 2, 2, 2]", "parallel.dp_shard=2",
                                    "parallel.zero=3", "parallel.group=8"});
  std::vector<std::string> names;
  for (const layout::Group& g : c.groups) names.push_back(g.name);
  EXPECT_EQ(names, (std::vector<std::string>{"block0", "blocks1-2", "blocks5-6"}));
}

// Over replicas: a reduce-scatter of the shard's gradients and a gather of its parameters, once per step,
// instead of an all-reduce of the gradients. Within a group nothing changes.
TEST(Ledger, ReplicasThatShareTheOptimizerState) {
  const auto compile = [](int zero, int shares, const char* compute) {
    return compile_small({"parallel.dp_replicate=2", "parallel.dp_shard=2",
                          fmt::format("parallel.zero={}", zero), "batch.accumulation=3",
                          fmt::format("parallel.zero_replicas={}", shares),
                          fmt::format("precision.compute={}", compute)});
  };
  for (const int zero : {1, 2, 3})
    for (const char* compute : {"f32", "bf16"}) {
      SCOPED_TRACE(fmt::format("zero {} {}", zero, compute));
      const Compiled with = compile(zero, 1, compute), without = compile(zero, 0, compute);
      const Ledger a = make_ledger(with.program, with.step), b = make_ledger(without.program, without.step);
      const double gradients = static_cast<double>(psi(with, base::DType::F32)) / 2,
                   weights =
                       static_cast<double>(
                           psi(with, compute == std::string("f32") ? base::DType::F32 : base::DType::BF16)) /
                       2;
      const CommId outer = comm_named(with.program, "dp_replicate"),
                   inner = comm_named(with.program, "dp_shard");
      EXPECT_DOUBLE_EQ(a.sent_bytes(outer), 0.5 * (gradients + weights));
      EXPECT_DOUBLE_EQ(b.sent_bytes(comm_named(without.program, "dp_replicate")),
                       static_cast<double>(psi(without, base::DType::F32)) / 2);
      const auto groups = static_cast<int64_t>(with.groups.size());
      EXPECT_EQ(a.collectives(outer, CollectiveKind::ReduceScatter), groups);
      EXPECT_EQ(a.collectives(outer, CollectiveKind::AllGather), groups);
      EXPECT_EQ(a.collectives(outer, CollectiveKind::AllReduce), 0);
      EXPECT_EQ(a.collectives(inner, CollectiveKind::AllGather),
                b.collectives(comm_named(without.program, "dp_shard"), CollectiveKind::AllGather));
      // Masters and moments are cut in four, gradients and parameters as before.
      const auto bytes = [](const Compiled& c, MemoryClass k) {
        int64_t sum = 0;
        for (const Buffer& buffer : c.program.buffers)
          if (buffer.scope == Scope::Persistent && buffer.memory_class == k) sum += buffer.bytes;
        return sum;
      };
      const int64_t shared = bytes(with, MemoryClass::Optimizer),
                    whole = bytes(without, MemoryClass::Optimizer);
      EXPECT_LT(std::abs(2 * shared - whole), whole / 50);  // padding
      EXPECT_LT(std::abs(bytes(with, MemoryClass::Gradients) - bytes(without, MemoryClass::Gradients)),
                whole / 50);
    }
}

// A group below the threshold is gathered in place, once a step, as with zero 2.
TEST(Ledger, SmallGroupsPersist) {
  const auto gathers = [](const std::string& threshold) {
    const Compiled c = compile_small({"parallel.dp_shard=4", "parallel.zero=3", "batch.accumulation=3",
                                      "parallel.persist_below='" + threshold + "'"});
    return make_ledger(c.program, c.step).collectives(CollectiveKind::AllGather);
  };
  const Compiled c = compile_small({"parallel.dp_shard=4", "parallel.zero=3"});
  const auto groups = static_cast<int64_t>(c.groups.size());
  int64_t smallest = c.groups[0].parameter_bytes(), largest = smallest;
  for (const layout::Group& g : c.groups) {
    smallest = std::min(smallest, g.parameter_bytes());
    largest = std::max(largest, g.parameter_bytes());
  }
  EXPECT_EQ(gathers("0B"), 3 * (2 * groups - 2));
  EXPECT_EQ(gathers(fmt::format("{}B", smallest)), 3 * (2 * groups - 2));
  EXPECT_EQ(gathers(fmt::format("{}B", largest + 1)), groups);
}

// Groups by the names of their parameters: apart from the others, kept for the backward pass, or whole.
TEST(Ledger, PatternsMakeGroups) {
  const auto gathers = [](const std::string& key) {
    const Compiled c =
        compile_small({"parallel.dp_shard=4", "parallel.zero=3", "batch.accumulation=3", "parallel." + key});
    return make_ledger(c.program, c.step).collectives(CollectiveKind::AllGather);
  };
  // Per micro-batch the embedding and the head once, two blocks twice.
  EXPECT_EQ(gathers("prefetch=1"), 3 * (2 + 2 * 2));
  EXPECT_EQ(gathers("group_match='*.attn.*'"), 3 * (2 + 2 * 4));
  EXPECT_EQ(gathers("keep_match='blocks.0.*'"), 3 * (2 + 1 + 2));
  EXPECT_EQ(gathers("persist_match='blocks.*norm*'"), 3 * (2 + 2 * 2) + 2);
  EXPECT_EQ(gathers("persist_match='blocks.0.*'"), 3 * (2 + 2) + 1);
}

// Every tensor rank keeps its rows of what all of them have, and gathers them for the backward pass.
TEST(Ledger, SavedRowsAreGatheredForTheBackward) {
  const auto planned = [](const std::string& split, const std::string& recompute) {
    const Compiled c = compile_small({"parallel.tp=2", "model.layers=6", "data.seq_len=64",
                                      "memory.recompute=" + recompute, "memory.split_saved=" + split});
    return std::pair(make_ledger(c.program, c.step).collectives(CollectiveKind::AllGather),
                     peak_of(c.program).by_class[static_cast<size_t>(MemoryClass::Activations)]);
  };
  for (const std::string recompute : {"none", "full"}) {
    const auto [none, whole] = planned("false", recompute);
    const auto [gathers, parts] = planned("true", recompute);
    EXPECT_EQ(none, 0);
    EXPECT_GE(gathers, 6);
    EXPECT_LT(parts, whole);
  }
  // With full recompute a block keeps its input, or half of it.
  const auto kept = [](const std::string& split, int layers) {
    const Compiled c =
        compile_small({"parallel.tp=2", fmt::format("model.layers={}", layers), "data.seq_len=64",
                       "memory.recompute=full", "memory.split_saved=" + split});
    int64_t bytes = 0;
    for (const Buffer& b : c.program.buffers)
      if (b.scope == Scope::Micro && b.memory_class == MemoryClass::Activations) bytes += b.bytes;
    return bytes;
  };
  const int64_t input = 64 * 16 * 4;
  EXPECT_EQ(kept("false", 12) - kept("false", 8), 4 * input);
  EXPECT_EQ(kept("true", 12) - kept("true", 8), 4 * input / 2);
}

// Experts alone are kept between forward and backward, or alone are not.
TEST(Ledger, ExpertsAreKeptOnTheirOwn) {
  const auto gathers = [](const std::string& after, const std::string& experts) {
    const Compiled c =
        compile_small({"parallel.dp_shard=4", "parallel.zero=3", "model.layers=3", "model.moe.first_dense=1",
                       "model.moe.experts=4", "model.moe.top_k=2", "model.moe.ffn=12",
                       "parallel.reshard_after_forward=" + after, "parallel.reshard_experts=" + experts});
    return make_ledger(c.program, c.step).collectives(CollectiveKind::AllGather);
  };
  // Embedding and head once; three blocks, and the experts of two.
  EXPECT_EQ(gathers("true", "same"), 2 + 2 * 3 + 2 * 2);
  EXPECT_EQ(gathers("true", "never"), 2 + 2 * 3 + 2);
  EXPECT_EQ(gathers("false", "always"), 2 + 3 + 2 * 2);
  EXPECT_EQ(gathers("false", "same"), 2 + 3 + 2);
}

// Bytes of gathered parameters that exist at once, by the program's own lifetimes.
int64_t live_gathered(const Program& p) {
  int64_t most = 0;
  for (const Body& body : p.bodies) {
    std::set<BufferId> live;
    int64_t bytes = 0;
    for (const Instr& i : body.instrs) {
      for (const Operand& o : i.out)
        if (p.buffer(o.buffer).name.find(".gathered.") != std::string::npos && live.insert(o.buffer).second)
          bytes += p.buffer(o.buffer).bytes;
      most = std::max(most, bytes);
      if (i.kind == InstrKind::Free && live.erase(i.frees) > 0) bytes -= p.buffer(i.frees).bytes;
    }
  }
  return most;
}

TEST(Ledger, GatheredParametersStayBelowTheLimit) {
  const auto compile = [](int64_t limit, int prefetch) {
    return compile_small({"parallel.dp_shard=4", "parallel.zero=3", "model.layers=8", "model.vocab=256",
                          fmt::format("parallel.prefetch={}", prefetch),
                          fmt::format("parallel.gathered_limit={}", limit)});
  };
  const int64_t far = live_gathered(compile(0, 4).program), near = live_gathered(compile(0, 0).program);
  ASSERT_GT(far, 2 * near);
  for (int64_t limit = near; limit < far; limit += (far - near) / 5) {
    const Compiled c = compile(limit, 4);
    EXPECT_LE(live_gathered(c.program), limit);
    EXPECT_EQ(make_ledger(c.program, c.step).sent_bytes(),
              make_ledger(compile(0, 4).program, compile(0, 4).step).sent_bytes());
  }
  EXPECT_EQ(live_gathered(compile(far, 4).program), far);
  try {
    compile(near - 1, 4);
    FAIL() << "accepted";
  } catch (const base::UserError& e) {
    EXPECT_NE(std::string(e.what()).find(fmt::format("use at least {}", near)), std::string::npos)
        << e.what();
  }
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
