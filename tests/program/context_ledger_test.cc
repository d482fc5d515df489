// Traffic of context and expert ranks against closed forms.
#include <gtest/gtest.h>

#include "program/ledger.h"
#include "program/support.h"

namespace quintet::program {
namespace {

using namespace testing;
using compiler::Compiled;

constexpr int64_t kTokens = 16, kLayers = 2, kMicros = 3;  // of one sequence, and micro-batches a step
constexpr int64_t kHeads = 4, kHeadDim = 6;                // of the small model
constexpr int64_t kTimes = kLayers * kMicros;              // a block runs in a step

Overrides context(int cp, const std::string& method, Overrides more = {}) {
  more.insert(more.end(),
              {fmt::format("data.seq_len={}", kTokens), fmt::format("batch.accumulation={}", kMicros),
               fmt::format("parallel.cp={}", cp), "parallel.cp_method=" + method});
  return more;
}

// Collectives of a kind in one phase of the model, over all micro-batches, with the bytes that they send.
struct Traffic {
  int64_t count = 0;
  double sent = 0;
};
Traffic traffic(const Program& p, const Expanded& e, CollectiveKind kind, graph::Phase phase) {
  Traffic sum;
  for (const Issue& issue : e.issues) {
    const Instr& i = instr_of(p, issue);
    if (i.kind != InstrKind::Collective || i.collective.kind != kind || i.phase != phase) continue;
    ++sum.count;
    sum.sent += sent_bytes(i.collective, static_cast<int>(p.comms[i.collective.comm.index()].members.size()));
  }
  return sum;
}

Traffic in_step(const Overrides& overrides, CollectiveKind kind, graph::Phase phase, int rank = 0) {
  const Compiled c = compile_small(overrides, rank);
  return traffic(c.program, c.step, kind, phase);
}

// Bytes of a rank's rows of a tensor with this many heads.
int64_t row_bytes(int64_t ranks, int64_t heads, int64_t size = 4) {
  return kTokens / ranks * heads * kHeadDim * size;
}

// Forward K and V make cp - 1 hops. Backward they repeat them, and their gradients make cp: the last returns
// them to their owner.
TEST(ContextLedger, RingSendsKAndVOncePerHopAndReturnsTheirGradients) {
  for (const int cp : {2, 4, 8})
    for (const int kv_heads : {2, 4})
      for (const char* dtype : {"f32", "bf16"})
        for (int rank = 0; rank < cp; rank += 3) {
          const Overrides o = context(
              cp, "ring",
              {fmt::format("model.kv_heads={}", kv_heads), fmt::format("precision.compute={}", dtype)});
          const int64_t message = row_bytes(cp, kv_heads, std::string(dtype) == "bf16" ? 2 : 4);
          const int64_t forward = kTimes * 2 * (cp - 1), backward = kTimes * (2 * (cp - 1) + 2 * cp);
          const Traffic f = in_step(o, CollectiveKind::Send, graph::Phase::F, rank),
                        b = in_step(o, CollectiveKind::Send, graph::Phase::B, rank);
          EXPECT_EQ(f.count, forward);
          EXPECT_EQ(b.count, backward);
          EXPECT_EQ(f.sent, static_cast<double>(forward * message));
          EXPECT_EQ(b.sent, static_cast<double>(backward * message));
          EXPECT_EQ(in_step(o, CollectiveKind::Recv, graph::Phase::F, rank).count, forward);
          EXPECT_EQ(in_step(o, CollectiveKind::Recv, graph::Phase::B, rank).count, backward);
          EXPECT_EQ(in_step(o, CollectiveKind::AllGather, graph::Phase::F, rank).count, 0);
        }
}

// A hop reads what arrived during the previous hop, which is forwarded while that hop computes.
TEST(ContextLedger, RingForwardsWhatItReceived) {
  const Compiled c = compile_small(context(4, "ring"));
  int hops = 0;
  for (const Body& body : c.program.bodies) {
    if (body.kind != BodyKind::Forward) continue;
    std::vector<BufferId> received, sent;
    for (const Instr& i : body.instrs) {
      if (i.kind == InstrKind::Collective && i.collective.kind == CollectiveKind::Recv)
        received.push_back(i.out[0].buffer);
      if (i.kind == InstrKind::Collective && i.collective.kind == CollectiveKind::Send)
        sent.push_back(i.in[0].buffer);
      if (i.op != &graph::kAttentionHop) continue;
      const auto hop = static_cast<size_t>(i.attrs.integer("hop"));
      ++hops;
      if (hop == 0) continue;
      // Two messages per hop, K then V; the first two of a block are its own.
      const size_t end = received.size() - (hop + 1 < 4 ? 2 : 0);
      EXPECT_EQ(i.in[1].buffer, received[end - 2]);
      EXPECT_EQ(i.in[2].buffer, received[end - 1]);
      if (hop + 1 < 4) {
        EXPECT_EQ(sent[sent.size() - 2], i.in[1].buffer);
        EXPECT_EQ(sent.back(), i.in[2].buffer);
      }
    }
    EXPECT_EQ(received.size(), static_cast<size_t>(kLayers * 2 * 3));
  }
  EXPECT_EQ(hops, kLayers * 4);
}

// K and V are gathered for each pass, and their gradients scattered back: each (cp - 1) / cp of the whole.
TEST(ContextLedger, GatherMovesWholeKAndVTwiceAndTheirGradientsOnce) {
  for (const int cp : {2, 4}) {
    const Overrides o = context(cp, "gather", {"model.kv_heads=2"});
    const double each = static_cast<double>(row_bytes(1, 2)) * (cp - 1) / cp;
    for (const graph::Phase phase : {graph::Phase::F, graph::Phase::B}) {
      const Traffic t = in_step(o, CollectiveKind::AllGather, phase);
      EXPECT_EQ(t.count, kTimes * 2);
      EXPECT_DOUBLE_EQ(t.sent, static_cast<double>(kTimes * 2) * each);
    }
    const Traffic t = in_step(o, CollectiveKind::ReduceScatter, graph::Phase::B);
    EXPECT_EQ(t.count, kTimes * 2);
    EXPECT_DOUBLE_EQ(t.sent, static_cast<double>(kTimes * 2) * each);
  }
}

// Q, K, V out and O back; backward those again, dO out, and dQ, dK, dV back. Each exchange sends (n - 1)
// / n of a rank's own rows, which are 1 / cp of all.
TEST(ContextLedger, UlyssesSendsAShareOfItsOwnRows) {
  for (const int cp : {2, 4}) {
    const Overrides o = context(cp, "ulysses");
    const double each = static_cast<double>(row_bytes(cp, kHeads)) * (cp - 1) / cp;
    const Traffic f = in_step(o, CollectiveKind::AllToAll, graph::Phase::F),
                  b = in_step(o, CollectiveKind::AllToAll, graph::Phase::B);
    EXPECT_EQ(f.count, kTimes * 4);
    EXPECT_EQ(b.count, kTimes * 8);
    EXPECT_DOUBLE_EQ(f.sent, static_cast<double>(f.count) * each);
    EXPECT_DOUBLE_EQ(b.sent, static_cast<double>(b.count) * each);
  }
}

// Rows are exchanged for heads among `ulysses` neighbours; the ring moves the rows of all of them, with fewer
// heads.
TEST(ContextLedger, UlyssesTimesRingIsBoth) {
  const Overrides o = context(4, "ulysses+ring", {"parallel.ulysses=2"});
  const Traffic exchange = in_step(o, CollectiveKind::AllToAll, graph::Phase::F),
                ring = in_step(o, CollectiveKind::Send, graph::Phase::F);
  EXPECT_EQ(exchange.count, kTimes * 4);
  EXPECT_DOUBLE_EQ(exchange.sent, static_cast<double>(exchange.count * row_bytes(4, kHeads)) / 2);
  EXPECT_EQ(ring.count, kTimes * 2);
  EXPECT_DOUBLE_EQ(ring.sent, static_cast<double>(ring.count * row_bytes(2, kHeads / 2)));
}

// Two blocks, the second with a window: each exchanges as its own method does, and as it does alone.
TEST(ContextLedger, WindowedBlocksHaveTheirOwnMethod) {
  const auto with = [](const std::string& method, const std::string& windowed) {
    return context(4, method,
                   {"model.sliding_window=3", "model.full_attention_layers=[0]",
                    "parallel.cp_method_windowed=" + windowed});
  };
  using graph::Phase;
  for (const Phase phase : {Phase::F, Phase::B})
    for (const auto& [method, windowed] : std::vector<std::pair<std::string, std::string>>{
             {"ring", "gather"}, {"ring", "ulysses"}, {"ulysses", "ring"}, {"gather", "ulysses"}})
      for (const CollectiveKind kind :
           {CollectiveKind::Send, CollectiveKind::AllToAll, CollectiveKind::AllGather}) {
        const Traffic both = in_step(with(method, windowed), kind, phase),
                      full = in_step(context(4, method), kind, phase),
                      narrow = in_step(context(4, windowed), kind, phase);
        EXPECT_DOUBLE_EQ(both.sent, (full.sent + narrow.sent) / 2) << method << " and " << windowed;
        EXPECT_EQ(2 * both.count, full.count + narrow.count) << method << " and " << windowed;
      }
  EXPECT_EQ(in_step(with("ring", "auto"), CollectiveKind::Send, Phase::F).count,
            in_step(context(4, "ring"), CollectiveKind::Send, Phase::F).count);
}

// Forward the counts, the rows, their weights, and the results back; backward the gradient of the results
// out, those of the rows and weights back. Sizes are the planned maxima. Latent experts send rows of their
// own width in all of them.
TEST(ContextLedger, ExpertsExchangeFourTimesForwardAndThreeTimesBackward) {
  for (const auto& [ep, latent] : {std::pair{2, 0}, {4, 0}, {2, 5}, {4, 4}}) {
    const Overrides o = {fmt::format("parallel.dp_shard={}", ep),
                         "parallel.zero=1",
                         fmt::format("parallel.ep={}", ep),
                         fmt::format("model.moe.latent={}", latent),
                         "model.moe.experts=8",
                         "model.moe.top_k=2",
                         "model.moe.first_dense=1",
                         "model.moe.ffn=12",
                         "batch.accumulation=3"};
    const Compiled c = compile_small(o);
    const Traffic f = traffic(c.program, c.step, CollectiveKind::AllToAllV, graph::Phase::F),
                  b = traffic(c.program, c.step, CollectiveKind::AllToAllV, graph::Phase::B);
    EXPECT_EQ(f.count, kMicros * 4);
    EXPECT_EQ(b.count, kMicros * 3);
    const int64_t tokens = 8, choices = 2, width = latent > 0 ? latent : 16;
    const int64_t slots = tokens * choices, routed = ep * slots;
    const double away = (ep - 1.0) / ep;
    const int64_t there = routed * 4 * (width + 1), back = slots * 4 * width;
    EXPECT_DOUBLE_EQ(f.sent, kMicros * away * static_cast<double>(there + back + 8 * 4));
    EXPECT_DOUBLE_EQ(b.sent,
                     kMicros * away * static_cast<double>(routed * 4 * width + slots * 4 * (width + 1)));
  }
}

}  // namespace
}  // namespace quintet::program
