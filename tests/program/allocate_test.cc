#include "program/allocate.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <set>

#include "config/schedule_traits.h"
#include "program/support.h"

namespace quintet::program {
namespace {

using namespace testing;

// Lifetime of every buffer, found by looking at every instruction, numbered through all bodies.
struct Life {
  int first = -1, last = -1;
};

std::vector<Life> lives(const Program& p) {
  std::vector<Life> out(p.buffers.size());
  for (size_t b = 0; b < p.buffers.size(); ++b) {
    int now = 0;
    for (const Body& body : p.bodies)
      for (const Instr& instr : body.instrs) {
        bool here = instr.kind == InstrKind::Free && instr.frees.index() == b;
        for (const Operand& o : instr.in) here |= o.buffer.index() == b;
        for (const Operand& o : instr.out) here |= o.buffer.index() == b;
        if (here && out[b].first < 0) out[b].first = now;
        if (here) out[b].last = now;
        ++now;
      }
  }
  return out;
}

void check_no_overlap(const Program& p) {
  const std::vector<Life> life = lives(p);
  for (size_t i = 0; i < p.buffers.size(); ++i) {
    const Buffer& a = p.buffers[i];
    const bool stays = a.scope == Scope::Persistent;
    if (a.bytes == 0 || (!stays && life[i].first < 0)) continue;
    ASSERT_GE(a.offset, 0) << a.name;
    ASSERT_EQ(a.offset % kBufferAlign, 0) << a.name;
    ASSERT_LE(a.offset + a.bytes, p.arena_bytes) << a.name;
    for (size_t j = 0; j < i; ++j) {
      const Buffer& b = p.buffers[j];
      const bool other_stays = b.scope == Scope::Persistent;
      if (b.bytes == 0 || (!other_stays && life[j].first < 0)) continue;
      const bool together =
          stays || other_stays || (life[i].first <= life[j].last && life[j].first <= life[i].last);
      if (together) {
        ASSERT_FALSE(std::max(a.offset, b.offset) < std::min(a.offset + a.bytes, b.offset + b.bytes))
            << a.name << " and " << b.name;
      }
    }
  }
}

// The most bytes that are live at one moment, each buffer rounded up to the alignment: no allocator can use
// less.
int64_t lower_bound(const Program& p) {
  const std::vector<Life> life = lives(p);
  int moments = 0;
  for (const Body& body : p.bodies) moments += static_cast<int>(body.instrs.size());
  int64_t most = 0;
  for (int now = 0; now < std::max(moments, 1); ++now) {
    int64_t live = 0;
    for (size_t i = 0; i < p.buffers.size(); ++i)
      if (p.buffers[i].scope == Scope::Persistent ||
          (life[i].first <= now && now <= life[i].last && life[i].first >= 0))
        live += p.buffers[i].bytes;
    most = std::max(most, live);
  }
  return most;
}

Program random_program(std::mt19937_64& rng) {
  Program p{.rank = RankId(0)};
  p.streams = {{"compute"}};
  const int count = 5 + static_cast<int>(rng() % 60), moments = 10 + static_cast<int>(rng() % 80);
  p.bodies.push_back({.kind = BodyKind::Forward, .instrs = std::vector<Instr>(static_cast<size_t>(moments))});
  for (int i = 0; i < count; ++i) {
    const int64_t bytes =
        rng() % 4 == 0 ? static_cast<int64_t>(rng() % 100) : static_cast<int64_t>(rng() % 20000);
    const bool stays = rng() % 6 == 0;
    p.buffers.push_back(
        {.name = fmt::format("b{}", i), .bytes = bytes, .scope = stays ? Scope::Persistent : Scope::Body});
    if (stays) continue;
    const size_t first = rng() % static_cast<size_t>(moments);
    const size_t last = std::min<size_t>(first + rng() % 20, static_cast<size_t>(moments) - 1);
    const Operand o{BufferId(i), 0, {graph::DType::U8, {{graph::Dim::Flat, bytes}}}};
    p.bodies[0].instrs[first].out.push_back(o);
    p.bodies[0].instrs[last].in.push_back(o);
  }
  return p;
}

TEST(Allocate, NoLiveBuffersOverlapInRandomPrograms) {
  std::mt19937_64 rng(7);
  double worst = 0;
  for (int t = 0; t < 300; ++t) {
    Program p = random_program(rng);
    allocate(p);
    check_no_overlap(p);
    const int64_t bound = lower_bound(p);
    EXPECT_GE(p.arena_bytes, bound);
    // Alignment can cost one pad per live buffer; apart from that fragmentation is bounded in practice, not
    // in theory.
    EXPECT_LE(static_cast<double>(p.arena_bytes), 1.35 * static_cast<double>(bound) + 60.0 * kBufferAlign);
    if (bound > 0) worst = std::max(worst, static_cast<double>(p.arena_bytes) / static_cast<double>(bound));
  }
  RecordProperty("worst_ratio", fmt::format("{:.3f}", worst));
  printf("worst arena / live bytes: %.3f\n", worst);
}

TEST(Allocate, CompiledProgramsComeCloseToTheirLiveBytes) {
  for (const testing::Layout& layout : layouts()) {
    SCOPED_TRACE(layout.name);
    const Program p = compile_small(layout.overrides).program;
    check_no_overlap(p);
    const int64_t bound = lower_bound(p);
    EXPECT_GE(p.arena_bytes, bound);
    const int64_t pads = static_cast<int64_t>(p.buffers.size()) * kBufferAlign;
    EXPECT_LE(p.arena_bytes, bound + bound / 10 + pads);
    const Peak peak = peak_of(p);
    EXPECT_EQ(peak.live_bytes, bound);
    EXPECT_EQ(peak.arena_bytes, p.arena_bytes);
    int64_t sum = 0;
    for (const int64_t bytes : peak.by_class) sum += bytes;
    EXPECT_EQ(sum, peak.live_bytes);
  }
}

// With zero 2 and 3 the whole gradients of a block exist until they are reduced. Two places alternate, so
// that the next block's are written while the last one's are in flight; with one place the compute stream
// waits.
TEST(Allocate, GradientBlocksAlternate) {
  for (const int zero : {2, 3})
    for (const char* const reduce : {"f32", "bf16"}) {
      SCOPED_TRACE(fmt::format("zero {} reduce {}", zero, reduce));
      const auto places = [&](int blocks) {
        const compiler::Compiled c = compile_small(
            {"model.layers=5", "parallel.dp_shard=4", fmt::format("parallel.zero={}", zero),
             fmt::format("precision.reduce={}", reduce), fmt::format("parallel.gradient_blocks={}", blocks)});
        std::vector<std::pair<int64_t, int64_t>> list;  // of equal blocks, in the order of the model
        for (const Buffer& b : c.program.buffers)
          if (b.name.ends_with(".grad.block") && b.name.starts_with("block"))
            list.emplace_back(b.offset, b.offset + b.bytes);
        return list;
      };
      const auto overlap = [](const auto& a, const auto& b) {
        return a.first < b.second && b.first < a.second;
      };
      const auto one = places(1), two = places(2);
      ASSERT_GE(one.size(), 5u);
      ASSERT_EQ(two.size(), one.size());
      int64_t shared = 0;
      for (size_t i = 0; i + 1 < two.size(); ++i) {
        EXPECT_FALSE(overlap(two[i], two[i + 1])) << i;
        shared += overlap(one[i], one[i + 1]);
      }
      EXPECT_GE(shared, 3);
    }
}

// While a message is in flight, compute that does not need it goes on, in other bytes than those that are
// sent.
TEST(Allocate, WhatAMessageSendsKeepsItsBytesUntilItIsReceived) {
  const compiler::Compiled c =
      compile_small({"model.layers=3", "model.moe.first_dense=1", "model.moe.experts=4", "model.moe.top_k=2",
                     "model.moe.ffn=16", "model.moe.shared_ffn=16", "parallel.dp_shard=2", "parallel.tp=2",
                     "parallel.sequence_parallel=true", "parallel.ep=4"});
  const Program& p = c.program;
  const auto meet = [&](const Operand& a, const Operand& b) {
    const int64_t first = p.buffer(a.buffer).offset + a.offset_bytes,
                  second = p.buffer(b.buffer).offset + b.offset_bytes;
    return first < second + b.bytes() && second < first + a.bytes();
  };
  const auto touches = [](const Instr& instr, BufferId id) {
    const auto is = [&](const Operand& o) { return o.buffer == id; };
    return std::any_of(instr.in.begin(), instr.in.end(), is) ||
           std::any_of(instr.out.begin(), instr.out.end(), is);
  };
  int beside = 0;
  for (const Body& body : p.bodies)
    for (size_t i = 0; i < body.instrs.size(); ++i) {
      const Instr& sent = body.instrs[i];
      if (sent.kind != InstrKind::Collective || p.streams[sent.stream.index()].name == kStateStream) continue;
      for (size_t k = i + 1; k < body.instrs.size() && !touches(body.instrs[k], sent.out[0].buffer); ++k) {
        if (body.instrs[k].kind != InstrKind::Compute) continue;
        ++beside;
        for (const Operand& in : sent.in)
          for (const Operand& out : body.instrs[k].out)
            EXPECT_FALSE(meet(in, out)) << sent.note << " and instruction " << k;
      }
    }
  EXPECT_GT(beside, 20);
}

// In a pipeline what is live follows from the calls. The slow way: at every issue, all buffers that were
// touched before and not freed since.
int64_t live_by_calls(const Program& p, const Expanded& e) {
  int64_t most = 0;
  std::set<size_t> live;
  for (size_t i = 0; i < p.buffers.size(); ++i)
    if (p.buffers[i].scope == Scope::Persistent) live.insert(i);
  for (const Issue& issue : e.issues) {
    const Instr& instr = instr_of(p, issue);
    for (const auto* list : {&instr.in, &instr.out})
      for (const Operand& o : *list) live.insert(o.buffer.index());
    int64_t bytes = 0;
    for (const size_t i : live) bytes += p.buffers[i].bytes;
    most = std::max(most, bytes);
    if (instr.kind == InstrKind::Free) live.erase(instr.frees.index());
  }
  return most;
}

TEST(Allocate, PeakOfAPipelineCountsEveryMicroBatchInFlight) {
  for (const testing::Layout& layout : pipeline_layouts()) {
    SCOPED_TRACE(layout.name);
    const compiler::Compiled c = compile_small(layout.overrides);
    const Peak peak = peak_of(c.program);
    EXPECT_EQ(peak.live_bytes, live_by_calls(c.program, c.step));
    EXPECT_LE(peak.live_bytes, c.program.arena_bytes);
  }
  // Twice the micro-batches in flight, twice the kept activations.
  const auto activations = [](const std::string& m) {
    const Program p =
        compile_small({"parallel.pp=2", "parallel.schedule=gpipe", "batch.accumulation=" + m}).program;
    return peak_of(p).by_class[static_cast<size_t>(MemoryClass::Activations)];
  };
  EXPECT_EQ(activations("8") - activations("6"), activations("4") - activations("2"));
  EXPECT_GT(activations("4"), activations("2") * 3 / 2);
}

// Chunks of a pipeline peak at different times, and what waits for its W takes over from what B has freed:
// slots that no micro-batch holds at once share bytes. What is left unused are the parts of a slot that its
// micro-batch does not use yet, or no longer: at most one slot of each kind is in use in part.
TEST(Allocate, SlotsThatAreNotHeldTogetherShareBytes) {
  for (const char* const schedule :
       {"1f1b", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min", "interleaved", "dualpipev"})
    for (const int zero : {1, 3})
      for (int rank = 0; rank < 4; ++rank) {
        SCOPED_TRACE(fmt::format("{} zero {} rank {}", schedule, zero, rank));
        const char* const even =
            config::traits_of(schedule).two_chunks() ? "[2, 2, 2, 2, 2, 2, 2, 2]" : "[4, 4, 4, 4]";
        const Program p = compile_small({fmt::format("parallel.schedule={}", schedule), "parallel.pp=4",
                                         fmt::format("parallel.zero={}", zero), "parallel.dp_shard=2",
                                         "batch.accumulation=12", "model.layers=16",
                                         fmt::format("parallel.stages={}", even), "model.embed=32",
                                         "model.ffn=80", "data.seq_len=64"},
                                        2 * rank)
                              .program;
        if (p.frame_bytes.empty()) continue;  // the last rank of 1F1B has one micro-batch at a time
        const int64_t one_of_each = std::accumulate(p.frame_bytes.begin(), p.frame_bytes.end(), int64_t{0});
        EXPECT_LE(p.arena_bytes - peak_of(p).live_bytes, one_of_each);
        // Measured bytes end with the last one that an instruction touches.
        int64_t end = p.persistent_bytes;
        for (const Body& body : p.bodies)
          for (const Instr& instr : body.instrs)
            for (const auto* list : {&instr.in, &instr.out})
              for (const Operand& o : *list)
                end = std::max(end, p.buffer(o.buffer).offset + p.buffer(o.buffer).bytes);
        EXPECT_EQ(p.arena_bytes, end);
      }
}

TEST(Allocate, PersistentBuffersAreBelowAllOthers) {
  const Program p = compile_small({"parallel.dp_shard=2", "parallel.zero=3"}).program;
  int persistent = 0, others = 0;
  for (const Buffer& b : p.buffers) {
    if (b.bytes == 0 || b.offset < 0) continue;
    ++(b.scope == Scope::Persistent ? persistent : others);
    if (b.scope == Scope::Persistent)
      EXPECT_LE(b.offset + b.bytes, p.persistent_bytes) << b.name;
    else
      EXPECT_GE(b.offset, p.persistent_bytes) << b.name;
  }
  EXPECT_GT(persistent, 0);
  EXPECT_GT(others, 0);
}

}  // namespace
}  // namespace quintet::program
