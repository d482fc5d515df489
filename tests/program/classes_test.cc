// Ranks of a class have one program at different mesh coordinates: what is checked for one of them holds for
// all, and a rank with any other difference is found.
#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "program/support.h"
#include "program/verify.h"

namespace quintet::program {
namespace {

using namespace testing;

struct Prepared {
  std::string name;
  layout::Layout layout;
  std::vector<compiler::RankProgram> ranks;
  const Program& representative(const Program& p) const {
    const int place = layout.mesh.index(p.rank, layout.pipeline);
    return ranks[layout.mesh.group(RankId(0), layout.pipeline)[static_cast<size_t>(place)].index()].program;
  }
  std::string complaint(const Program& p) const {
    try {
      verify_member(p, representative(p), layout.mesh, layout.pipeline);
    } catch (const base::InternalError& e) {
      return e.what();
    }
    return "";
  }
};

std::vector<Prepared> prepare() {
  std::vector<Prepared> out;
  for (const testing::Layout& l : all_layouts()) {
    const config::Recipe recipe = small_recipe(l.overrides);
    out.push_back(
        {l.name, layout::make_layout(recipe.parallel, recipe.model), compiler::compile_world(recipe, {}, 1)});
  }
  return out;
}

TEST(Classes, MembersHaveOneHashAndPlacesTheirOwn) {
  for (const Prepared& p : prepare()) {
    SCOPED_TRACE(p.name);
    std::map<int, base::Hash> hashes;
    for (const compiler::RankProgram& r : p.ranks) {
      const int place = p.layout.mesh.index(r.program.rank, p.layout.pipeline);
      EXPECT_EQ(hashes.try_emplace(place, r.class_hash).first->second, r.class_hash);
      for (const auto& [other, hash] : hashes) EXPECT_EQ(other == place, hash == r.class_hash);
      EXPECT_EQ(p.complaint(r.program), "");
    }
  }
}

TEST(Classes, AreVerifiedTogetherByTheirRepresentatives) {
  for (const testing::Layout& layout : all_layouts()) {
    SCOPED_TRACE(layout.name);
    EXPECT_NO_THROW(compiler::compile_classes(small_recipe(layout.overrides), {.evaluate = true}, 1));
  }
}

// The hash includes neither the kernels' scratch nor anything else that belongs to a rank.
TEST(Classes, ScratchIsNotPartOfTheHash) {
  const config::Recipe recipe = small_recipe({"parallel.tp=2"});
  compiler::CompileOptions options{.rank = RankId(1)};
  const base::Hash plain = compiler::compile(recipe, options).class_hash;
  options.workspace_bytes = [](const Instr&) { return int64_t{512}; };
  EXPECT_EQ(compiler::compile(recipe, options).class_hash, plain);
  EXPECT_NE(compiler::compile(small_recipe({"parallel.tp=2", "model.norm_eps=1e-4"}), options).class_hash,
            plain);
}

using Rng = std::mt19937_64;
size_t below(Rng& rng, size_t n) { return static_cast<size_t>(rng() % n); }

template <class Want>
Instr* pick(Program& p, Rng& rng, const Want& want) {
  std::vector<Instr*> list;
  for (Body& body : p.bodies)
    for (Instr& i : body.instrs)
      if (want(i)) list.push_back(&i);
  return list.empty() ? nullptr : list[below(rng, list.size())];
}

bool is_compute(const Instr& i) { return i.kind == InstrKind::Compute; }
bool is_collective(const Instr& i) { return i.kind == InstrKind::Collective; }

struct Kind {
  const char* name;
  bool (*apply)(Program&, Rng&);
};

const Kind kKinds[] = {
    {"swap two instructions",
     [](Program& p, Rng& r) {
       std::vector<Instr>& list = p.bodies[below(r, p.bodies.size())].instrs;
       if (list.size() < 2) return false;
       const size_t i = below(r, list.size() - 1);
       const bool same = list[i].kind == InstrKind::LoadBatch || list[i].note == list[i + 1].note;
       std::swap(list[i], list[i + 1]);
       return !same;
     }},
    {"drop an instruction",
     [](Program& p, Rng& r) {
       std::vector<Instr>& list = p.bodies[below(r, p.bodies.size())].instrs;
       if (list.empty()) return false;
       list.erase(list.begin() + static_cast<ptrdiff_t>(below(r, list.size())));
       return true;
     }},
    {"change an op",
     [](Program& p, Rng& r) {
       Instr* i = pick(p, r, is_compute);
       return i && (i->op = i->op == &graph::kCopy ? &graph::kCast : &graph::kCopy, true);
     }},
    {"change an attribute",
     [](Program& p, Rng& r) {
       Instr* i = pick(p, r, [](const Instr& x) { return x.attrs.find("a") != nullptr; });
       return i && (i->attrs.set("a", i->attrs.integer("a") + 1), true);
     }},
    {"read another buffer",
     [](Program& p, Rng& r) {
       Instr* i = pick(p, r, [](const Instr& x) { return !x.in.empty(); });
       return i && (i->in[0].buffer = BufferId((i->in[0].buffer.value + 1) % int(p.buffers.size())), true);
     }},
    {"read one element later",
     [](Program& p, Rng& r) {
       Instr* i = pick(p, r, [](const Instr& x) { return !x.in.empty() && x.in[0].type.dims.size() > 1; });
       return i && (i->in[0].offset_bytes += base::size_of(i->in[0].type.dtype), true);
     }},
    {"hold another part",
     [](Program& p, Rng& r) {
       Instr* i = pick(p, r, [](const Instr& x) { return !x.parts.empty() && x.parts[0].size > 1; });
       return i && (i->parts[0].begin += 1, true);
     }},
    {"hold more than there is",
     [](Program& p, Rng& r) {
       Instr* i = pick(p, r, [](const Instr& x) { return !x.parts.empty(); });
       return i && (i->parts[0].valid += 1, true);
     }},
    {"change a count",
     [](Program& p, Rng& r) {
       Instr* i = pick(p, r, is_collective);
       return i && (i->collective.count += 1, true);
     }},
    {"change a reduction",
     [](Program& p, Rng& r) {
       Instr* i = pick(p, r, is_collective);
       return i && (i->collective.reduction = i->collective.reduction == graph::Reduction::Sum
                                                  ? graph::Reduction::Max
                                                  : graph::Reduction::Sum,
                    true);
     }},
    {"change a communicator",
     [](Program& p, Rng& r) {
       Instr* i = pick(p, r, is_collective);
       if (!i || p.comms.size() < 2) return false;
       i->collective.comm = CommId((i->collective.comm.value + 1) % static_cast<int>(p.comms.size()));
       return true;
     }},
    {"change a member",
     [](Program& p, Rng& r) {
       Instr* i = pick(p, r, is_collective);
       if (!i) return false;
       Communicator& c = p.comms[i->collective.comm.index()];
       RankId& m = c.members[below(r, c.members.size())];
       m = RankId((m.value + 1) % p.world);
       return true;
     }},
    {"change a stream",
     [](Program& p, Rng& r) {
       Instr* i = pick(p, r, is_compute);
       return i && (i->stream = StreamId(i->stream.value + 1), true);
     }},
    {"add instead of writing",
     [](Program& p, Rng& r) {
       Instr* i =
           pick(p, r, [](const Instr& x) { return is_compute(x) && x.accumulate == Accumulate::Never; });
       return i && (i->accumulate = Accumulate::Always, true);
     }},
    {"resize a buffer",
     [](Program& p, Rng& r) {
       const size_t b = below(r, p.buffers.size());
       return b != p.workspace.index() && (p.buffers[b].bytes += 128, true);
     }},
    {"swap two micro-batches",
     [](Program& p, Rng& r) {
       const size_t a = below(r, p.calls.size()), b = below(r, p.calls.size());
       if (p.calls[a].micro == p.calls[b].micro) return false;
       std::swap(p.calls[a].micro, p.calls[b].micro);
       return true;
     }},
};

TEST(Classes, ADifferingMemberIsFound) {
  constexpr int kTries = 12;
  const std::vector<Prepared> subjects = prepare();
  for (const Kind& kind : kKinds) {
    Rng rng(16);
    int tried = 0;
    for (const Prepared& s : subjects) {
      if (s.ranks.size() == 1) continue;
      for (int t = 0; t < kTries; ++t) {
        Program p = s.ranks[1 + below(rng, s.ranks.size() - 1)].program;
        if (s.representative(p).rank == p.rank) continue;  // a change there changes the class
        if (!kind.apply(p, rng)) continue;
        ++tried;
        const std::string found = s.complaint(p);
        EXPECT_NE(found, "") << kind.name << " in " << s.name << " rank " << p.rank.value << " try " << t;
        EXPECT_TRUE(found.empty() || found.find(fmt::format("rank {}", p.rank)) != std::string::npos)
            << found;
      }
    }
    EXPECT_GT(tried, 20) << kind.name;
  }
}

}  // namespace
}  // namespace quintet::program
