// Further passes of experts (InstrKind::Repeat): what the verifier refuses, and what the plan counts.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "program/allocate.h"
#include "program/support.h"
#include "program/text.h"
#include "program/verify.h"

namespace quintet::program {
namespace {

using namespace testing;

// A dense block, then two with experts.
const Overrides kExperts = {"model.layers=3",    "model.moe.first_dense=1", "model.moe.experts=8",
                            "model.moe.top_k=2", "model.moe.ffn=12",        "parallel.dp_shard=4",
                            "parallel.zero=3",   "parallel.ep=4",           "memory.recompute=full"};

Program compiled(double bound, const Overrides& more = {}) {
  Overrides sets = kExperts;
  sets.push_back("model.moe.receive_bound=" + std::to_string(bound));
  sets.insert(sets.end(), more.begin(), more.end());
  return compile_small(sets).program;
}

Instr& find(Program& p, const std::function<bool(const Instr&)>& wanted) {
  for (Body& body : p.bodies)
    for (Instr& instr : body.instrs)
      if (wanted(instr)) return instr;
  base::fail_internal("no such instruction");
}

// The verifier's answer to a change, "" when it accepts it.
std::string answer(const std::function<void(Program&)>& change) {
  Program p = compiled(0.5);
  change(p);
  try {
    verify(p, expand(p, p.calls));
    return "";
  } catch (const base::InternalError& e) {
    return e.what();
  }
}

void expect_refused(const std::string& why, const std::function<void(Program&)>& change) {
  const std::string text = answer(change);
  EXPECT_NE(text.find(why), std::string::npos) << "expected: " << why << "\ngot: " << text;
}

bool is_end(const Instr& i) { return i.kind == InstrKind::End; }
bool is_repeat(const Instr& i) { return i.kind == InstrKind::Repeat; }
bool is_repeated_dw(const Instr& i) { return i.repeated && i.op == &graph::kGroupedLinearDw; }
bool is_repeated_exchange(const Instr& i) { return i.repeated && i.kind == InstrKind::Collective; }

TEST(Repeat, OnlyWhereMoreRowsCanArrive) {
  const auto repeats = [](const Program& p) {
    int n = 0;
    for (const Body& body : p.bodies)
      n += static_cast<int>(std::count_if(body.instrs.begin(), body.instrs.end(), is_repeat));
    return n;
  };
  EXPECT_EQ(repeats(compiled(0)), 0);
  EXPECT_EQ(repeats(compiled(4)), 0);  // 4 ranks: at most 4 times the mean
  EXPECT_EQ(repeats(compiled(1, {"model.moe.capacity_factor=1", "model.moe.pad=true"})),
            0);                        // sizes are fixed
  EXPECT_EQ(repeats(compiled(1)), 4);  // two blocks, forward and backward
}

TEST(Repeat, TextReadsBack) {
  const Program p = compiled(0.5);
  const std::string text = to_text(p, {}, {.full = true});
  EXPECT_NE(text.find("repeat stream=0"), std::string::npos);
  EXPECT_EQ(to_text(parse_text(text), {}, {.full = true}), text);
}

TEST(Repeat, RefusedWhenPassesWouldDisagree) {
  EXPECT_EQ(answer([](Program&) {}), "");
  expect_refused("is not that of the ranks whose counts", [](Program& p) {
    // Rows of further passes among other ranks than those that gathered the counts.
    Instr& exchange = find(p, is_repeated_exchange);
    std::vector<RankId>& members = p.comms[exchange.collective.comm.index()].members;
    std::swap(members[1], members[2]);
  });
  expect_refused("number of passes", [](Program& p) {
    Instr& repeat = find(p, is_repeat);
    repeat.in = {repeat.out[0]};
  });
  expect_refused("must, run on the compute stream",
                 [](Program& p) { find(p, is_repeated_exchange).stream = StreamId(1); });
}

TEST(Repeat, RefusedWhenAPassWouldSpoilTheNext) {
  expect_refused("in every pass", [](Program& p) {  // the last pass alone would be the gradient
    find(p, is_repeated_dw).accumulate = Accumulate::Never;
  });
  expect_refused("End does not read it", [](Program& p) {  // freed while the next pass needs it
    Instr& end = find(p, is_end);
    end.in.pop_back();
  });
  expect_refused("End does not read it", [](Program& p) {  // lives on, although no pass may have run
    for (Body& body : p.bodies)
      for (size_t i = 0; i < body.instrs.size(); ++i)
        if (body.instrs[i].repeated && body.instrs[i].kind == InstrKind::Free) {
          body.instrs.erase(body.instrs.begin() + static_cast<ptrdiff_t>(i));
          return;
        }
  });
  expect_refused("repeated or not", [](Program& p) { find(p, is_repeated_dw).repeated = false; });
  expect_refused("nested", [](Program& p) { find(p, is_end).kind = InstrKind::Repeat; });
}

// Room for fewer rows is less memory; the bound of the worst case is the plan without one.
TEST(Repeat, PlannedBytesFollowTheBound) {
  const Overrides large = {"model.embed=64", "model.moe.ffn=256", "batch.micro=8", "memory.recompute=none"};
  int64_t before = 0;
  for (const double bound : {0.5, 1.0, 1.5, 2.0}) {
    const int64_t bytes = compiled(bound, large).arena_bytes;
    EXPECT_GT(bytes, before) << bound;
    before = bytes;
  }
  const int64_t all = compiled(0, large).arena_bytes;
  EXPECT_GT(all, before);
  EXPECT_EQ(compiled(4, large).arena_bytes, all);
}

}  // namespace
}  // namespace quintet::program
