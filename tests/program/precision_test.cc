// The dtype of every state, wire and activation under every policy of [precision]: what a program stores and
// sends is what the recipe says.
#include <gtest/gtest.h>

#include <set>

#include "compiler/compile.h"
#include "program/support.h"
#include "program/text.h"
#include "program/verify.h"

namespace quintet::program::testing {
namespace {

using base::DType;

struct Policy {
  Overrides sets;
  DType compute, master, moments, gradients, reduce;
};

const Policy kPolicies[] = {
    {{"precision.compute=f64"}, DType::F64, DType::F64, DType::F64, DType::F64, DType::F64},
    {{"precision.compute=f32"}, DType::F32, DType::F32, DType::F32, DType::F32, DType::F32},
    {{"precision.compute=bf16"}, DType::BF16, DType::F32, DType::F32, DType::F32, DType::F32},
    {{"precision.compute=bf16", "precision.reduce=bf16"},
     DType::BF16,
     DType::F32,
     DType::F32,
     DType::F32,
     DType::BF16},
    {{"precision.compute=bf16", "precision.gradients=bf16", "precision.moments=bf16"},
     DType::BF16,
     DType::F32,
     DType::BF16,
     DType::BF16,
     DType::BF16},
    {{"precision.compute=bf16", "precision.gradients=bf16", "precision.reduce=f32"},
     DType::BF16,
     DType::F32,
     DType::F32,
     DType::BF16,
     DType::F32},
    {{"precision.compute=bf16", "precision.master=split", "precision.moments=bf16"},
     DType::BF16,
     DType::F32,
     DType::BF16,
     DType::F32,
     DType::F32},
    {{"precision.compute=f16", "precision.reduce=bf16"},
     DType::F16,
     DType::F32,
     DType::F32,
     DType::F32,
     DType::BF16},
    {{"precision.compute=f32", "precision.moments=bf16", "precision.reduce=bf16"},
     DType::F32,
     DType::F32,
     DType::BF16,
     DType::F32,
     DType::BF16},
};

const std::vector<Overrides> kLayouts = {
    {"parallel.dp_shard=2", "parallel.zero=0"},
    {"parallel.dp_shard=2", "parallel.zero=1"},
    {"parallel.dp_shard=2", "parallel.zero=2", "parallel.tp=2", "parallel.sequence_parallel=true"},
    {"parallel.dp_shard=2", "parallel.zero=3", "parallel.dp_replicate=2"},
    {"parallel.dp_shard=2", "parallel.zero=3", "parallel.pp=2", "parallel.schedule=1f1b"},
    {"parallel.cp=2", "parallel.cp_method=ring", "parallel.zero=1"},
};

void check_states(const Program& p, const Policy& policy) {
  for (const GroupSlot& s : p.slots) {
    const DType expected = s.role == graph::Role::Gradient ? policy.gradients
                           : s.role == graph::Role::Moment ? policy.moments
                           : s.role == graph::Role::Master ? policy.master
                                                           : policy.compute;
    EXPECT_EQ(s.dtype, expected) << s.slot;
    if (s.lower.valid()) EXPECT_EQ(policy.compute, DType::BF16) << "only bf16 weights are halves of masters";
  }
}

// Gradients travel in precision.reduce over the data axes, in their own type over others; parameters in
// precision.compute; values in precision.compute or, for sums and statistics of rows, its accumulator.
void check_wires(const Program& p, const Policy& policy, std::set<std::string>& seen) {
  const DType wide = base::accumulator_of(policy.compute);
  for (const Body& body : p.bodies)
    for (const Instr& i : body.instrs) {
      if (i.kind != InstrKind::Collective) continue;
      const Communicator& comm = p.comms[i.collective.comm.index()];
      const DType on_wire = i.collective.dtype;
      const bool data = std::ranges::all_of(
          comm.axes(), [](layout::Axis a) { return layout::is_data(a) || a == layout::Axis::Cp; });
      if (i.note.starts_with("gather ")) {
        EXPECT_EQ(on_wire, policy.compute) << i.note;
        seen.insert("gather");
      } else if (i.note.starts_with("reduce ")) {
        EXPECT_EQ(on_wire, data ? policy.reduce : policy.gradients) << i.note << " over " << comm.name();
        seen.insert("reduce");
      } else if (body.kind == BodyKind::Forward || body.kind == BodyKind::Backward) {
        EXPECT_TRUE(on_wire == policy.compute || on_wire == wide)
            << i.note << " in " << base::to_string(on_wire);
        if (i.collective.kind == CollectiveKind::Send) EXPECT_EQ(on_wire, policy.compute) << i.note;
        seen.insert("values");
      } else {
        EXPECT_EQ(on_wire, DType::F64) << i.note << ": scalars of a step";
        seen.insert("scalars");
      }
    }
}

// Activations and their gradients are in precision.compute; statistics of rows and the loss in its
// accumulator.
void check_values(const Program& p, const Policy& policy) {
  const DType wide = base::accumulator_of(policy.compute);
  for (const Body& body : p.bodies) {
    if (body.kind != BodyKind::Forward && body.kind != BodyKind::Backward) continue;
    for (const Instr& i : body.instrs) {
      if (i.kind != InstrKind::Compute || i.phase == graph::Phase::W) continue;
      for (size_t o = 0; o < i.out.size(); ++o) {
        const graph::Type& t = i.out[o].type;
        const MemoryClass of = p.buffer(i.out[o].buffer).memory_class;
        if (of != MemoryClass::Activations || t.num_dims() < 2) continue;
        EXPECT_TRUE(t.dtype == policy.compute || t.dtype == wide || t.dtype == DType::I32)
            << i.op->name << " makes " << graph::to_string(t);
        if (i.op->name == "linear") EXPECT_EQ(t.dtype, policy.compute) << graph::to_string(t);
      }
    }
  }
}

// Every operand of every instruction, by the memory class of its buffer: nothing is stored in a type that
// [precision] does not name.
void check_buffers(const Program& p, const Policy& policy, std::set<MemoryClass>& classes) {
  const DType wide = base::accumulator_of(policy.compute);
  const auto allowed = [&](MemoryClass of) -> std::set<DType> {
    switch (of) {
      case MemoryClass::Parameters:  // gathered, or stored
        return {policy.compute};
      case MemoryClass::Gradients:
        return {policy.gradients};
      case MemoryClass::Optimizer:  // masters or halves of them, moments
        return {policy.master, policy.moments, DType::I16};
      case MemoryClass::Activations:  // values, statistics of rows, and what is left of them for gradients
        return {policy.compute, wide};
      case MemoryClass::Communication:  // messages between ranks: values, statistics of rows, gradients
        return {policy.compute, wide, policy.reduce};
      case MemoryClass::Inputs:  // ids, labels, positions; scalars of a step
        return {DType::I32, DType::F64, DType::I64};
      default:
        return {};
    }
  };
  for (const Body& body : p.bodies)
    for (const Instr& i : body.instrs)
      for (const auto* operands : {&i.in, &i.out})
        for (const Operand& o : *operands) {
          const Buffer& b = p.buffer(o.buffer);
          if (b.memory_class == MemoryClass::Workspace) continue;
          classes.insert(b.memory_class);
          EXPECT_TRUE(allowed(b.memory_class).contains(o.type.dtype))
              << b.name << " holds " << graph::to_string(o.type) << " for " << to_text(p, i);
        }
}

TEST(PrecisionTable, EveryStateWireAndActivationHasItsType) {
  std::set<std::string> seen;
  std::set<MemoryClass> classes;
  for (const Policy& policy : kPolicies)
    for (const Overrides& layout : kLayouts) {
      Overrides sets = policy.sets;
      sets.insert(sets.end(), layout.begin(), layout.end());
      SCOPED_TRACE(::testing::PrintToString(sets));
      const config::Recipe recipe = small_recipe(sets);
      for (const base::RankId rank :
           {base::RankId(0), base::RankId(static_cast<int32_t>(recipe.parallel.world() - 1))}) {
        const compiler::Compiled c = compiler::compile(recipe, {.rank = rank});
        check_states(c.program, policy);
        check_wires(c.program, policy, seen);
        check_values(c.program, policy);
        check_buffers(c.program, policy, classes);
      }
    }
  EXPECT_EQ(seen, (std::set<std::string>{"gather", "reduce", "values", "scalars"}));
  EXPECT_EQ(classes.size(), 6u);
}

// The wire of gradients that are reduced once exists in the last micro-batch only. In the others its bytes
// may be those of a message in flight: a Free there would not be its own.
TEST(Lifetimes, ABufferIsFreedInTheCallsThatUseIt) {
  compiler::Compiled c = compile_small({"precision.compute=bf16", "precision.reduce=bf16",
                                        "parallel.dp_shard=2", "parallel.zero=1", "batch.accumulation=2"});
  int wires = 0;
  for (Body& body : c.program.bodies)
    for (Instr& instr : body.instrs)
      if (instr.kind == InstrKind::Free && c.program.buffer(instr.frees).name.ends_with(".wire")) {
        ++wires;
        EXPECT_EQ(instr.when, When::LastCall) << c.program.buffer(instr.frees).name;
        instr.when = When::Always;
      }
  EXPECT_GT(wires, 0);
  try {
    verify(c.program, expand(c.program, c.program.calls));
    FAIL() << "not caught";
  } catch (const base::InternalError& e) {
    EXPECT_NE(std::string(e.what()).find(".wire is freed in a call that does not use it"), std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace quintet::program::testing
