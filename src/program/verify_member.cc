// Whether a rank's program is that of its class, at the rank's mesh coordinates.
#include <algorithm>

#include "program/verify.h"
#include "program/verify_internal.h"

namespace quintet::program {
namespace verifier {
namespace {

bool depends_on_rank(const graph::OpDef* op, const std::string& attribute) {
  return op != nullptr && std::ranges::any_of(op->attrs, [&](const graph::AttrSpec& spec) {
           return spec.of_rank && spec.name == attribute;
         });
}

class Member {
 public:
  Member(const Program& program, const Program& representative, const layout::Mesh& mesh,
         const layout::AtomList& pipeline)
      : p_(program), rep_(representative), mesh_(mesh), pipeline_(pipeline) {}

  void run() {
    require(mesh_.index(p_.rank, pipeline_) == mesh_.index(rep_.rank, pipeline_), "pipeline place");
    require(p_.world == rep_.world, "world");
    require(p_.streams.size() == rep_.streams.size(), "number of streams");
    for (size_t s = 0; s < p_.streams.size(); ++s)
      require(p_.streams[s].name == rep_.streams[s].name, "name of a stream");
    check_buffers();
    require(p_.comms.size() == rep_.comms.size(), "number of communicators");
    theirs_of_.assign(p_.comms.size(), CommId());
    require(p_.bodies.size() == rep_.bodies.size(), "number of bodies");
    for (size_t b = 0; b < p_.bodies.size(); ++b) check_body(static_cast<int>(b));
    for (const auto calls : {&Program::calls, &Program::eval_calls}) {
      const auto same = [](const Call& a, const Call& b) {
        return a.body == b.body && a.micro == b.micro && a.first == b.first && a.last == b.last;
      };
      require(std::equal((p_.*calls).begin(), (p_.*calls).end(), (rep_.*calls).begin(), (rep_.*calls).end(),
                         same),
              "order of calls");
      require(std::equal(p_.variants.begin(), p_.variants.end(), rep_.variants.begin(), rep_.variants.end(),
                         [&](const StepVariant& a, const StepVariant& b) {
                           return a.micro_batches == b.micro_batches && a.measures == b.measures &&
                                  std::equal(a.calls.begin(), a.calls.end(), b.calls.begin(), b.calls.end(),
                                             same);
                         }),
              "variants of a step");
    }
  }

 private:
  void require(bool same, std::string_view what) const {
    if (!same)
      fail(fmt::format("rank {}", p_.rank), "its {} is not that of rank {}, which represents its class", what,
           rep_.rank);
  }

  void check_buffers() const {
    require(p_.buffers.size() == rep_.buffers.size(), "number of buffers");
    for (size_t i = 0; i < p_.buffers.size(); ++i) {
      const Buffer &mine = p_.buffers[i], &theirs = rep_.buffers[i];
      const bool scratch = p_.workspace.valid() && p_.workspace.index() == i;  // depends on the backend
      if (mine.name != theirs.name || (mine.bytes != theirs.bytes && !scratch) ||
          mine.memory_class != theirs.memory_class || mine.scope != theirs.scope)
        fail(fmt::format("rank {}", p_.rank),
             "buffer {} is {} of {} bytes; on rank {}, which represents its class, {} of {} bytes", i,
             mine.name, mine.bytes, rep_.rank, theirs.name, theirs.bytes);
    }
  }

  void check_body(int b) {
    const Body &mine = p_.bodies[static_cast<size_t>(b)], &theirs = rep_.bodies[static_cast<size_t>(b)];
    require(mine.kind == theirs.kind && mine.chunk == theirs.chunk, "list of bodies");
    body_ = b;
    for (size_t i = 0; i < std::min(mine.instrs.size(), theirs.instrs.size()); ++i) {
      instr_ = static_cast<int>(i);
      check_instr(mine.instrs[i], theirs.instrs[i]);
    }
    if (mine.instrs.size() == theirs.instrs.size()) return;
    const bool more = mine.instrs.size() > theirs.instrs.size();
    const int last = static_cast<int>(std::min(mine.instrs.size(), theirs.instrs.size()));
    fail(more ? name_of(p_, b, last) : name_of(rep_, b, last), "rank {} has no such instruction",
         more ? rep_.rank : p_.rank);
  }

  void must(bool same, std::string_view what) const {
    if (!same)
      fail(name_of(p_, body_, instr_), "differs in its {} from {}, which represents its class", what,
           name_of(rep_, body_, instr_));
  }

  void check_instr(const Instr& a, const Instr& b) {
    must(a.kind == b.kind && a.op == b.op, "op");
    must(a.stream == b.stream, "stream");
    must(a.when == b.when && a.accumulate == b.accumulate && a.repeated == b.repeated, "condition");
    must(a.phase == b.phase && a.block == b.block && a.note == b.note, "label");
    must(a.frees == b.frees, "buffer");
    check_operands(a.in, b.in);
    check_operands(a.out, b.out);
    check_attributes(a.op, a.attrs, b.attrs);
    check_parts(a.parts, b.parts);
    if (a.kind != InstrKind::Collective) return;
    const Collective &x = a.collective, &y = b.collective;
    must(x.kind == y.kind && x.count == y.count && x.dtype == y.dtype && x.reduction == y.reduction,
         "collective");
    check_comm(x, y);
  }

  // A part of a buffer may begin later by a whole number of parts; for token rows, which are further split
  // into chunks, by a whole number of rows.
  void check_operands(const std::vector<Operand>& mine, const std::vector<Operand>& theirs) const {
    must(mine.size() == theirs.size(), "number of operands");
    for (size_t i = 0; i < mine.size(); ++i) {
      const Operand &a = mine[i], &b = theirs[i];
      must(a.buffer == b.buffer && a.type == b.type, "operands");
      if (a.offset_bytes == b.offset_bytes) continue;
      const bool rows =
          !a.type.dims.empty() && a.type.dims[0].name == graph::Dim::Tokens && a.type.size(0) > 0;
      const int64_t unit = std::max<int64_t>(1, rows ? a.bytes() / a.type.size(0) : a.bytes());
      must(a.offset_bytes > b.offset_bytes && (a.offset_bytes - b.offset_bytes) % unit == 0, "views");
    }
  }

  void check_attributes(const graph::OpDef* op, const graph::Attrs& mine, const graph::Attrs& theirs) const {
    const auto &a = mine.items(), &b = theirs.items();
    must(a.size() == b.size(), "attributes");
    for (size_t i = 0; i < a.size(); ++i)
      must(a[i].first == b[i].first && (a[i].second == b[i].second || depends_on_rank(op, a[i].first)),
           "attributes");
  }

  void check_parts(const std::vector<Part>& mine, const std::vector<Part>& theirs) const {
    must(mine.size() == theirs.size(), "parts");
    for (size_t i = 0; i < mine.size(); ++i) {
      const Part &a = mine[i], &b = theirs[i];
      must(a.dim == b.dim && a.size == b.size && a.global == b.global, "parts");
      must(a.begin >= b.begin && (a.size == 0 || (a.begin - b.begin) % a.size == 0) &&
               a.valid == std::clamp<int64_t>(a.global - a.begin, 0, a.size),
           "parts");
    }
  }

  // The communicator that the mesh has here in place of the representative's. Numbers differ, since
  // communicators are sorted by their members; each of this program's corresponds to one of theirs.
  void check_comm(const Collective& x, const Collective& y) {
    must(x.comm.valid() && x.comm.index() < p_.comms.size(), "communicator");
    CommId& theirs = theirs_of_[x.comm.index()];
    if (theirs == y.comm) return;
    must(!theirs.valid(), "communicator");
    theirs = y.comm;
    const Communicator &a = p_.comms[x.comm.index()], &b = rep_.comms[y.comm.index()];
    must(a.atoms == b.atoms && a.members.size() == b.members.size(), "communicator");
    const bool message = x.kind == CollectiveKind::Send || x.kind == CollectiveKind::Recv;
    std::vector<RankId> members;
    int position = b.position;
    if (a.atoms.empty()) {  // the same two pipeline ranks
      const std::vector<RankId> places = mesh_.group(p_.rank, pipeline_);
      for (const RankId m : b.members)
        members.push_back(places[static_cast<size_t>(mesh_.index(m, pipeline_))]);
    } else if (message) {  // the same neighbours in the ring
      const std::vector<RankId> ring = mesh_.group(p_.rank, a.atoms);
      const size_t shift = static_cast<size_t>(mesh_.index(p_.rank, a.atoms)) + ring.size() -
                           static_cast<size_t>(mesh_.index(rep_.rank, a.atoms));
      for (const RankId m : b.members)
        members.push_back(ring[(static_cast<size_t>(mesh_.index(m, a.atoms)) + shift) % ring.size()]);
    } else {
      members = mesh_.group(p_.rank, a.atoms);
      position = mesh_.index(p_.rank, a.atoms);
    }
    must(a.members == members && a.position == position, "communicator");
    must(a.channel == b.channel || (message && !a.atoms.empty()), "communicator");
  }

  const Program &p_, &rep_;
  const layout::Mesh& mesh_;
  const layout::AtomList& pipeline_;
  std::vector<CommId> theirs_of_;  // by communicator of the program
  int body_ = 0, instr_ = 0;
};

}  // namespace
}  // namespace verifier

void verify_member(const Program& program, const Program& representative, const layout::Mesh& mesh,
                   const layout::AtomList& pipeline) {
  verifier::Member(program, representative, mesh, pipeline).run();
}

}  // namespace quintet::program
