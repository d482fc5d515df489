#include "program/text.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/error_codes.h"
#include "program/support.h"

namespace quintet::program {
namespace {

using namespace testing;

// Field by field, so that a field that the text omits is found.
bool same(const Operand& a, const Operand& b) {
  return a.buffer == b.buffer && a.offset_bytes == b.offset_bytes && a.type == b.type;
}

template <class T, class Same>
bool same_list(const std::vector<T>& a, const std::vector<T>& b, Same same) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same);
}

bool same_operands(const std::vector<Operand>& a, const std::vector<Operand>& b) {
  return same_list(a, b, [](const Operand& x, const Operand& y) { return same(x, y); });
}

bool same(const Instr& a, const Instr& b) {
  const Collective &x = a.collective, &y = b.collective;
  const bool same_collective =
      a.kind != InstrKind::Collective || (x.kind == y.kind && x.comm == y.comm && x.count == y.count &&
                                          x.dtype == y.dtype && x.reduction == y.reduction);
  return a.kind == b.kind && a.op == b.op && a.attrs == b.attrs && same_operands(a.in, b.in) &&
         same_operands(a.out, b.out) &&
         same_list(a.parts, b.parts,
                   [](const Part& p, const Part& q) {
                     return p.dim == q.dim && p.begin == q.begin && p.size == q.size && p.valid == q.valid &&
                            p.global == q.global;
                   }) &&
         same_collective && a.frees == b.frees && a.stream == b.stream && a.when == b.when &&
         a.accumulate == b.accumulate && a.workspace_bytes == b.workspace_bytes && a.phase == b.phase &&
         a.block == b.block && a.note == b.note;
}

bool same(const Call& a, const Call& b) {
  return a.body == b.body && a.micro == b.micro && a.first == b.first && a.last == b.last;
}

void expect_same(const Program& a, const Program& b) {
  EXPECT_EQ(a.rank, b.rank);
  EXPECT_EQ(a.world, b.world);
  EXPECT_EQ(a.arena_bytes, b.arena_bytes);
  EXPECT_EQ(a.persistent_bytes, b.persistent_bytes);
  EXPECT_EQ(a.frame_bytes, b.frame_bytes);
  EXPECT_TRUE(same_list(a.variants, b.variants, [](const StepVariant& x, const StepVariant& y) {
    return x.micro_batches == y.micro_batches && x.measures == y.measures &&
           same_list(x.calls, y.calls, [](const Call& c, const Call& d) { return same(c, d); });
  }));
  EXPECT_EQ(a.scalars, b.scalars);
  EXPECT_TRUE(same_list(a.scalar_table, b.scalar_table, [](const ScalarDecl& x, const ScalarDecl& y) {
    return x.name == y.name && x.kind == y.kind && x.dtype == y.dtype && x.initial == y.initial;
  }));
  EXPECT_EQ(a.workspace, b.workspace);
  EXPECT_EQ(a.result, b.result);
  EXPECT_EQ(a.inputs, b.inputs);
  EXPECT_EQ(a.sums, b.sums);
  EXPECT_TRUE(same_list(a.step_sums, b.step_sums, [](const SumPlace& x, const SumPlace& y) {
    return x.kind == y.kind && x.block == y.block && x.first == y.first && x.count == y.count;
  }));
  EXPECT_TRUE(same_list(a.states, b.states, [](const StatePlace& x, const StatePlace& y) {
    return x.name == y.name && same(x.place, y.place);
  }));
  EXPECT_TRUE(
      same_list(a.streams, b.streams, [](const Stream& x, const Stream& y) { return x.name == y.name; }));
  EXPECT_TRUE(same_list(a.comms, b.comms, [](const Communicator& x, const Communicator& y) {
    return x.channel == y.channel && x.atoms == y.atoms && x.members == y.members && x.position == y.position;
  }));
  EXPECT_TRUE(same_list(a.buffers, b.buffers, [](const Buffer& x, const Buffer& y) {
    return x.name == y.name && x.bytes == y.bytes && x.memory_class == y.memory_class && x.scope == y.scope &&
           x.offset == y.offset;
  }));
  EXPECT_TRUE(same_list(a.slots, b.slots, [](const GroupSlot& x, const GroupSlot& y) {
    return x.group == y.group && x.role == y.role && x.keep == y.keep && x.slot == y.slot &&
           x.dtype == y.dtype && x.first == y.first && x.count == y.count && x.buffer == y.buffer &&
           x.offset_bytes == y.offset_bytes && x.lower == y.lower;
  }));
  const auto same_call = [](const Call& x, const Call& y) { return same(x, y); };
  EXPECT_TRUE(same_list(a.calls, b.calls, same_call));
  EXPECT_TRUE(same_list(a.eval_calls, b.eval_calls, same_call));
  ASSERT_EQ(a.bodies.size(), b.bodies.size());
  for (size_t i = 0; i < a.bodies.size(); ++i) {
    EXPECT_EQ(a.bodies[i].kind, b.bodies[i].kind);
    EXPECT_EQ(a.bodies[i].chunk, b.bodies[i].chunk);
    ASSERT_EQ(a.bodies[i].instrs.size(), b.bodies[i].instrs.size());
    for (size_t k = 0; k < a.bodies[i].instrs.size(); ++k)
      EXPECT_TRUE(same(a.bodies[i].instrs[k], b.bodies[i].instrs[k]))
          << to_text(a, a.bodies[i].instrs[k], true);
  }
}

TEST(ProgramText, FullFormReadsBack) {
  for (const Layout& layout : all_layouts()) {
    SCOPED_TRACE(layout.name);
    const auto compiled = compiler::compile(
        small_recipe(layout.overrides), {.evaluate = true, .workspace_bytes = [](const Instr& i) {
                                           return i.stream == kComputeStream ? i.in[0].type.count() % 100 : 0;
                                         }});
    const std::string text = to_text(compiled.program, compiled.step, {.full = true});
    const Program back = parse_text(text);
    expect_same(compiled.program, back);
    EXPECT_EQ(to_text(back, compiled.step, {.full = true}), text);
  }
}

// Makes sure that the layouts above cover everything: one program with a ring, experts, states and sums, one
// with Ulysses.
TEST(ProgramText, LayoutsCoverTheText) {
  const auto compiled = [](const std::string& name) {
    for (const Layout& layout : all_layouts())
      if (layout.name == name) return compile_small(layout.overrides).program;
    ADD_FAILURE() << "no layout " << name;
    return Program();
  };
  const auto count = [](const Program& p, CollectiveKind kind) {
    int n = 0;
    for (const Body& body : p.bodies)
      for (const Instr& i : body.instrs) n += i.kind == InstrKind::Collective && i.collective.kind == kind;
    return n;
  };
  const Program ring = compiled("ep_cp_ring"), ulysses = compiled("ep_pp_ulysses");
  EXPECT_GT(count(ring, CollectiveKind::Send), 0);
  EXPECT_GT(count(ring, CollectiveKind::AllToAllV), 0);
  EXPECT_EQ(ring.states.size(), 2u);  // the bias of two blocks
  EXPECT_EQ(ring.step_sums.size(), 6u);
  EXPECT_TRUE(ring.sums.valid());
  EXPECT_GT(count(ulysses, CollectiveKind::AllToAll), 0);
  EXPECT_GT(count(ulysses, CollectiveKind::AllToAllV), 0);
}

TEST(ProgramText, ParserNamesTheLine) {
  const auto message = [](const std::string& text) -> std::string {
    try {
      parse_text(text);
    } catch (const base::UserError& e) {
      return base::without_code(e.what());
    }
    return "accepted";
  };
  EXPECT_EQ(message("stream 0 \"compute\"\nstream 2 \"tp\"\n"),
            "program text, line 2: expected number 1, got '2 \"tp\"'");
  EXPECT_EQ(
      message("# a comment\n\nnonsense\n"),
      "program text, line 3: expected program, stream, comm, buffer, scalar, input, slot, body or call, got "
      "'nonsense'");
  EXPECT_EQ(message("body 0 forward\n  compute lineal stream=0\n"),
            "program text, line 2: expected the name of an op, got 'lineal stream=0'");
  EXPECT_EQ(message("comm 0 \"experts\" atoms=[0]"),
            "program text, line 1: expected the name of a communicator, such as \"dp_shard+tp state\", "
            "\"up 0-1\" or \"cp ring 0-1\", got '\"experts\" atoms=[0]'");
  EXPECT_EQ(message("call body=0 micro=1 first last x"),
            "program text, line 1: expected the end of the line, got 'x'");
  EXPECT_EQ(message("sum \"loads\" block=0 first=0 count=1"),
            "program text, line 1: expected \"load\", \"balance_loss\", \"micro_batch_balance_loss\", "
            "\"sequence_balance_loss\", \"global_balance_loss\", \"z_loss\", \"next_token_loss\", "
            "\"running\", \"amax\" or \"rounded\", got "
            "'\"loads\" block=0 first=0 count=1'");
}

TEST(ProgramText, ChannelsOfCommunicators) {
  using layout::Axis;
  const std::vector<layout::AxisPart> tp = {{Axis::Tp}}, parts = {{Axis::DpShard, 1}, {Axis::Tp}};
  const std::pair<const char*, Channel> channels[] = {
      {"tp", {.axes = tp}},
      {"dp_shard[1]+tp state", {.axes = parts, .purpose = Purpose::State}},
      {"tp values", {.axes = tp, .purpose = Purpose::Values}},
      {"tp experts", {.axes = tp, .purpose = Purpose::Experts}},
      {"tp overflow", {.axes = tp, .purpose = Purpose::Overflow}},
      {"up 0-1", {.purpose = Purpose::Up, .places = {0, 1}}},
      {"down 1-0", {.purpose = Purpose::Down, .places = {1, 0}}},
      {"shared 0-2-3", {.purpose = Purpose::Shared, .places = {0, 2, 3}}},
      {"shared 0-12", {.purpose = Purpose::Shared, .places = {0, 12}}},
      {"tp ring 3-0", {.axes = tp, .purpose = Purpose::Ring, .places = {3, 0}}},
  };
  for (const auto& [text, channel] : channels) {
    EXPECT_EQ(to_string(channel), text);
    EXPECT_EQ(parse_channel(text), channel) << text;
  }
  for (const char* wrong : {"", " ", "none", "ep", "state", "tp main", "tp state 0-1", "tp state ", "up",
                            "up 0", "up 0-", "up 0-1 ", "up -1-0", "tp up 0-1", "ring 0-1", "tp ring"})
    EXPECT_FALSE(parse_channel(wrong)) << wrong;
}

TEST(ProgramText, ReadableFormIsFoldedAndShort) {
  const auto c =
      compile_small({"parallel.dp_shard=2", "parallel.zero=3", "batch.accumulation=16", "model.head_dim=16"});
  const std::string text = to_text(c.program, c.step);
  EXPECT_NE(text.find("step: begin repeat 16 { forward backward } step\n"), std::string::npos);
  EXPECT_NE(text.find(" ... 8 in all"), std::string::npos) << "inv_freq is not shortened";
  EXPECT_NE(text.find("all_gather comm=dp_shard"), std::string::npos);
  EXPECT_NE(text.find("block1.gathered.f1"), std::string::npos);
  const std::string expanded = to_text(c.program, c.step, {.form = TextOptions::Form::Expanded});
  EXPECT_NE(expanded.find("call 1 forward body=1 micro=0 first\n"), std::string::npos);
  EXPECT_NE(expanded.find("after dp."), std::string::npos);
  EXPECT_EQ(static_cast<size_t>(std::count(expanded.begin(), expanded.end(), '\n')) -
                static_cast<size_t>(std::count(
                    text.begin(), text.begin() + static_cast<ptrdiff_t>(text.find("body 0")), '\n')),
            c.step.issues.size() + c.step.calls.size());
}

}  // namespace
}  // namespace quintet::program
