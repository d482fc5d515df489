// What is repeated for further passes of experts (InstrKind::Repeat). The other checks see the instructions
// once; here is what makes that enough for any number of passes, including none.
#include <algorithm>
#include <map>
#include <set>

#include "program/verify_internal.h"

namespace quintet::program::verifier {
namespace {

// The instruction that writes a result of `op` into a buffer; null: there is none, or several.
const Instr* writer_of(const Program& p, BufferId buffer, const graph::OpDef* op, CollectiveKind kind) {
  const Instr* found = nullptr;
  for (const Body& body : p.bodies)
    for (const Instr& instr : body.instrs)
      for (const Operand& out : instr.out) {
        if (out.buffer != buffer) continue;
        const bool fits = op != nullptr
                              ? instr.op == op
                              : instr.kind == InstrKind::Collective && instr.collective.kind == kind;
        if (!fits) return nullptr;
        // Bodies of other slots have the same instruction.
        if (found != nullptr && found->block != instr.block) return nullptr;
        found = &instr;
      }
  return found;
}

class Repeats {
 public:
  Repeats(const Program& p, int body) : p_(p), body_(body) {}

  void run() {
    const std::vector<Instr>& instrs = p_.bodies[static_cast<size_t>(body_)].instrs;
    int begin = -1;
    for (size_t i = 0; i < instrs.size(); ++i) {
      index_ = static_cast<int>(i);
      const Instr& instr = instrs[i];
      const bool marks = instr.kind == InstrKind::Repeat || instr.kind == InstrKind::End;
      if (instr.repeated != (begin >= 0 && !marks)) fail("is not marked as what it is: repeated or not");
      if (begin >= 0 || marks) check_common(instr);
      if (instr.kind == InstrKind::Repeat) {
        if (begin >= 0) fail("repetitions are not nested");
        begin = index_;
        check_begin(instr);
      } else if (instr.kind == InstrKind::End) {
        if (begin < 0) fail("ends nothing");
        check_between(instrs, begin);
        begin = -1;
      }
    }
    if (begin >= 0) verifier::fail(name_of(p_, body_, begin), "has no end");
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) const {
    verifier::fail(name_of(p_, body_, index_), text, std::forward<Args>(args)...);
  }

  void check_common(const Instr& instr) const {
    if (instr.stream != kComputeStream) fail("is repeated, but not on the compute stream");
    if (instr.when != When::Always) fail("is repeated, but not in every call");
    if (instr.kind == InstrKind::LoadBatch) fail("inputs are loaded again for further passes");
  }

  // The number of passes comes from counts that the ranks which exchange rows have gathered: it is the same
  // on all of them.
  void check_begin(const Instr& instr) {
    if (instr.in.size() != 1 || instr.out.size() != 1 || instr.in[0].bytes() != 4 ||
        instr.out[0].bytes() != 4)
      fail("has one number of passes and one pass");
    const Instr* const split = writer_of(p_, instr.in[0].buffer, &graph::kSplitRows, {});
    if (split == nullptr || split->in.size() < 2) fail("its number of passes is not that of [split_rows]");
    const Instr* const counts = writer_of(p_, split->in[1].buffer, nullptr, CollectiveKind::AllGather);
    if (counts == nullptr) fail("its number of passes does not come from gathered counts");
    members_ = p_.comms[counts->collective.comm.index()].members;
  }

  void check_between(const std::vector<Instr>& instrs, int begin) {
    const Instr& end = instrs[static_cast<size_t>(index_)];
    const int end_index = index_;
    if (!end.out.empty()) fail("writes");
    // What is first touched inside must also be freed inside; what lives longer must be read by End.
    std::set<BufferId> outside, freed;
    for (const Operand& o : end.in) outside.insert(o.buffer);
    std::set<BufferId> read;
    const auto each = [&](const auto& fn) {
      for (int i = begin + 1; i < end_index; ++i) {
        index_ = i;
        fn(instrs[static_cast<size_t>(i)]);
      }
    };
    each([&](const Instr& instr) {
      if (instr.kind == InstrKind::Free) {
        freed.insert(instr.frees);
        if (outside.contains(instr.frees)) fail("frees {}, which End reads", p_.buffer(instr.frees).name);
        return;
      }
      if (instr.kind == InstrKind::Collective) {
        const Communicator& comm = p_.comms[instr.collective.comm.index()];
        if (instr.collective.kind != CollectiveKind::AllToAllV)
          fail("only rows of experts are exchanged in further passes");
        if (comm.members != members_)
          fail("communicator {} is not that of the ranks whose counts decide the number of passes",
               comm.name());
      }
      for (const Operand& o : instr.in)
        if (outside.contains(o.buffer)) read.insert(o.buffer);
    });
    each([&](const Instr& instr) {
      for (const auto* list : {&instr.in, &instr.out})
        for (const Operand& o : *list)
          if (!outside.contains(o.buffer) && !freed.contains(o.buffer))
            fail("{} outlives the pass, but End does not read it", p_.buffer(o.buffer).name);
      for (size_t i = 0; i < instr.out.size(); ++i) check_result(instr, i, outside, read);
    });
    index_ = end_index;
  }

  // A result that outlives the pass is a sum: the instruction adds to it, or has it as the addend that it is
  // added to in place. Nothing else in the pass reads it.
  void check_result(const Instr& instr, size_t result, const std::set<BufferId>& outside,
                    const std::set<BufferId>& read) const {
    const Operand& out = instr.out[result];
    if (!outside.contains(out.buffer)) return;
    const std::string& name = p_.buffer(out.buffer).name;
    if (instr.kind != InstrKind::Compute) fail("replaces {} in every pass", name);
    const auto& overwritten = instr.op->overwritten;
    if (instr.accumulate == Accumulate::Always &&
        std::find(overwritten.begin(), overwritten.end(), static_cast<int>(result)) == overwritten.end()) {
      if (read.contains(out.buffer)) fail("{} is read in the pass that adds to it", name);
      return;
    }
    const bool adds = (instr.op == &graph::kUnpack || instr.op == &graph::kUnpackWeights) && result == 0 &&
                      instr.in.size() == 3 && instr.in[2].buffer == out.buffer &&
                      instr.in[2].offset_bytes == out.offset_bytes;
    if (!adds) fail("replaces {} in every pass", name);
  }

  const Program& p_;
  const int body_;
  int index_ = 0;
  std::vector<RankId> members_;
};

}  // namespace

void check_repeats(const Program& p) {
  for (size_t b = 0; b < p.bodies.size(); ++b) Repeats(p, static_cast<int>(b)).run();
}

}  // namespace quintet::program::verifier
