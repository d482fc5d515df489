#include "program/verify.h"

#include <algorithm>

#include "program/allocate.h"
#include "program/flat_ranges.h"
#include "program/verify_internal.h"

namespace quintet::program {
namespace verifier {
namespace {

struct Span {
  int64_t begin, end;
  bool empty() const { return begin >= end; }
  bool meets(const Span& o) const { return std::max(begin, o.begin) < std::min(end, o.end); }
  friend bool operator==(const Span&, const Span&) = default;
};

// Checks the instructions of one body one by one.
class InstrChecker {
 public:
  InstrChecker(const Program& p, int body) : p_(p), body_(body) {}

  void check(int index, std::vector<StreamId>& stream_of_comm) {
    index_ = index;
    const Instr& instr = p_.bodies[static_cast<size_t>(body_)].instrs[static_cast<size_t>(index)];
    if (!instr.stream.valid() || instr.stream.index() >= p_.streams.size())
      fail("stream {} does not exist", instr.stream);
    for (const auto* list : {&instr.in, &instr.out})
      for (const Operand& o : *list) check_view(o);
    check_workspace(instr);
    switch (instr.kind) {
      case InstrKind::Compute:
        check_compute(instr);
        break;
      case InstrKind::Collective:
        check_collective(instr, stream_of_comm);
        break;
      case InstrKind::LoadBatch:
        check_load(instr);
        break;
      case InstrKind::Free:
        check_free(instr);
        break;
      case InstrKind::Repeat:
      case InstrKind::End:
        break;  // check_repeats
    }
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) const {
    verifier::fail(name_of(p_, body_, index_), text, std::forward<Args>(args)...);
  }
  const std::string& name(const Operand& o) const { return p_.buffer(o.buffer).name; }
  Span span(const Operand& o) const {
    const int64_t begin = p_.buffer(o.buffer).offset + o.offset_bytes;
    return {begin, begin + o.bytes()};
  }

  void check_view(const Operand& o) const {
    if (!o.buffer.valid() || o.buffer.index() >= p_.buffers.size())
      fail("buffer {} does not exist", o.buffer);
    const Buffer& b = p_.buffer(o.buffer);
    for (const graph::DimSize& d : o.type.dims)
      if (d.size < 0) fail("{} has a dim of size {}", b.name, d.size);
    if (o.offset_bytes < 0 || o.offset_bytes + o.bytes() > b.bytes)
      fail("the view of bytes {} to {} is not inside {} of {} bytes", o.offset_bytes,
           o.offset_bytes + o.bytes(), b.name, b.bytes);
    if (o.offset_bytes % base::size_of(o.type.dtype) != 0)
      fail("the view of {} begins at byte {}, inside an element of {}", b.name, o.offset_bytes,
           base::to_string(o.type.dtype));
    if (b.bytes > 0 && b.offset < 0) fail("{} is used but has no offset", b.name);
  }

  void check_workspace(const Instr& instr) const {
    if (instr.workspace_bytes == 0) return;
    const int64_t have = p_.workspace.valid() ? p_.buffer(p_.workspace).bytes : 0;
    if (instr.workspace_bytes < 0 || instr.workspace_bytes > have)
      fail("needs {} bytes of scratch, the workspace has {}", instr.workspace_bytes, have);
  }

  void check_load(const Instr& instr) const {
    if (!instr.in.empty()) fail("loading a batch reads nothing");
    for (const Operand& o : instr.out) {
      // Entries of different sizes share inputs (Graphs::entries): each fills the beginning.
      const int64_t bytes = p_.buffer(o.buffer).bytes;
      const bool whole = o.bytes() == bytes || (p_.calls.empty() && o.offset_bytes == 0 && o.bytes() < bytes);
      if (p_.input(o.buffer) == nullptr || o.type.dtype != graph::DType::I32 || !whole)
        fail("{} is not a whole i32 input", name(o));
    }
  }

  void check_free(const Instr& instr) const {
    if (!instr.frees.valid() || instr.frees.index() >= p_.buffers.size()) fail("frees no buffer");
    const Scope scope = p_.buffer(instr.frees).scope;
    if (scope == Scope::Persistent || scope == Scope::Step)
      fail("frees {}, which lives for the whole {}", p_.buffer(instr.frees).name,
           scope == Scope::Step ? "step" : "run");
    if (!instr.in.empty() || !instr.out.empty()) fail("a free has no operands");
  }

  void check_compute(const Instr& instr) const {
    if (!instr.op) fail("has no op");
    const auto has_rows = [](const Operand& o) {
      return o.type.num_dims() > 0 && o.type.dims[0].name == graph::Dim::Tokens;
    };
    if (instr.accumulate != Accumulate::Never && std::all_of(instr.out.begin(), instr.out.end(), has_rows))
      fail("accumulates, but none of its results is a sum");
    // The number of rows is read from the counts of all experts and sources.
    for (const auto* list : {&instr.in, &instr.out})
      for (const Operand& o : *list)
        if (o.type.num_dims() == 1 && o.type.dims[0].name == graph::Dim::Counts &&
            o.bytes() != p_.buffer(o.buffer).bytes)
          fail("{} bytes of {}: not all of the counts", o.bytes(), name(o));
    // Results share bytes with nothing, except where an operand is updated in place.
    for (size_t i = 0; i < instr.out.size(); ++i) {
      const Span out = span(instr.out[i]);
      for (size_t j = 0; j < i; ++j)
        if (out.meets(span(instr.out[j]))) fail("results {} and {} overlap", j, i);
      for (size_t j = 0; j < instr.in.size(); ++j) {
        const Operand& in = instr.in[j];
        if (!out.meets(span(in)) || in.buffer == p_.scalars) continue;
        const auto& pairs = instr.op->in_place;
        const std::pair<int, int> pair(static_cast<int>(i), static_cast<int>(j));
        if (!(out == span(in)) || std::find(pairs.begin(), pairs.end(), pair) == pairs.end())
          fail("result {} overlaps operand {} in {}, which the op does not allow", i, j, name(in));
      }
    }
    check_gate(instr);
    for (const Part& part : instr.parts)
      if (part.begin < 0 || part.size < 0 ||
          part.valid != std::clamp<int64_t>(part.global - part.begin, 0, part.size))
        fail("part of {}: {} + {} of {}, {} of them valid", graph::to_string(part.dim), part.begin, part.size,
             part.global, part.valid);
    // Operand types determine all sizes except that of a vocabulary that only one operand has. Factors of
    // blocks have an entry for each block.
    const int64_t each = instr.attrs.find("block") == nullptr ? 1 : instr.attrs.integer("block");
    for (const Part& part : instr.parts)
      for (const auto* list : {&instr.in, &instr.out})
        for (const Operand& o : *list)
          for (const graph::DimSize& d : o.type.dims)
            if (d.name == part.dim && d.name == graph::Dim::Vocab && d.size != part.size &&
                d.size * each != part.size)
              fail("{} has {} {}, this rank's part is {}", name(o), graph::to_string(d.name), d.size,
                   part.size);
    if (instr.op->dims || instr.op->step.kind == graph::StepKind::Replicated)
      check_types(instr);
    else
      check_flat(instr);
  }

  // A skipped step leaves every bit of persistent state unchanged.
  void check_gate(const Instr& instr) const {
    for (const Operand& out : instr.out) {
      const Buffer& b = p_.buffer(out.buffer);
      const bool outlives = b.scope == Scope::Persistent && (b.memory_class == MemoryClass::Parameters ||
                                                             b.memory_class == MemoryClass::Optimizer);
      if (outlives && !instr.op->gated)
        fail("writes {}, which outlives the step, and is not gated", name(out));
    }
    if (!instr.op->gated) return;
    const int64_t ok = p_.scalar_slot(scalars::kOk) * kScalarBytes;
    for (const Operand& in : instr.in)
      if (in.buffer == p_.scalars && in.offset_bytes == ok) return;
    fail("writes state that outlives the step and does not read ok");
  }

  // An attribute may hold the whole size of a dim of which this rank has a part.
  static bool fits(const Instr& instr, const graph::Type& have, graph::Type wanted) {
    if (have.num_dims() == wanted.num_dims())
      for (size_t d = 0; d < have.dims.size(); ++d)
        for (const Part& part : instr.parts)
          if (part.dim == wanted.dims[d].name && part.global == wanted.dims[d].size &&
              part.size == have.dims[d].size)
            wanted.dims[d].size = part.size;
    return have == wanted;
  }

  // Ops of the model, and of the step on undivided values: results have the types that the op infers.
  void check_types(const Instr& instr) const {
    std::vector<graph::Type> in, wanted;
    for (const Operand& o : instr.in) in.push_back(o.type);
    const int n = static_cast<int>(in.size());
    if (n < instr.op->min_inputs || n > instr.op->max_inputs) fail("has {} operands", n);
    try {
      wanted = instr.op->infer(in, instr.attrs);
    } catch (const std::exception& e) {
      fail("{}", e.what());
    }
    if (wanted.size() != instr.out.size())
      fail("has {} results, the op has {}", instr.out.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i)
      if (!fits(instr, instr.out[i].type, wanted[i]))
        fail("result {} is {}, the op infers {}", i, graph::to_string(instr.out[i].type),
             graph::to_string(wanted[i]));
  }

  // Ops on flat buffers and scalars.
  void check_flat(const Instr& instr) const {
    const graph::StepKind kind = instr.op->step.kind;
    if (kind == graph::StepKind::GradientNorm) {
      if (instr.in.empty() || instr.out.size() != 1 || instr.out[0].buffer != p_.scalars)
        fail("a term of the norm has gradients, and one of the scalars as its result");
      for (const Operand& o : instr.in)
        if (o.type.dtype != instr.in[0].type.dtype) fail("gradients have different dtypes");
      check_ranges(instr, instr.in);
    } else if (kind == graph::StepKind::Average) {
      check_average(instr);
    } else if (kind == graph::StepKind::ParameterNorms) {
      check_norms(instr);
    } else if (kind == graph::StepKind::FlatPieces) {
      check_flat_pieces(p_, instr, {p_, body_, index_});
    } else if (kind == graph::StepKind::MatrixPieces) {
      check_matrix_pieces(p_, instr, {p_, body_, index_});
    } else if (kind == graph::StepKind::Update) {
      check_update(instr);
    } else {
      check_equal_sizes(instr);
    }
  }

  // All operands except the scalars have one size.
  void check_equal_sizes(const Instr& instr) const {
    int64_t count = -1;
    const bool same_dtype = instr.op == &graph::kCopy || instr.op == &graph::kAccumulate;
    for (const auto* list : {&instr.in, &instr.out})
      for (const Operand& o : *list) {
        if (o.buffer == p_.scalars) continue;
        if (count >= 0 && o.type.count() != count)
          fail("{} has {} elements, another operand {}", name(o), o.type.count(), count);
        count = o.type.count();
        if (same_dtype && o.type.dtype != instr.in[0].type.dtype) fail("operands have different dtypes");
      }
  }

  // Elements of a group for each of the operand.
  int64_t block_of(const Operand& o) const {
    for (const GroupSlot& s : p_.slots)
      if (s.buffer == o.buffer && s.block > 1) return s.block;
    return 1;
  }

  // Number of moments of the first group that an update writes.
  size_t moments_of_update(const Instr& update) const {
    int group = -1;
    for (const GroupSlot& s : p_.slots)
      if (holds_weights(s) && s.buffer == update.out[0].buffer) group = s.group;
    return static_cast<size_t>(std::count_if(p_.slots.begin(), p_.slots.end(), [&](const GroupSlot& s) {
      return s.group == group && s.role == graph::Role::Moment;
    }));
  }

  void check_norms(const Instr& instr) const {
    const size_t scalars = num_update_scalars(instr) + instr.op->step.reads_norms;
    if (instr.in.size() < scalars || instr.out.size() != 1 ||
        (instr.in.size() - scalars) % operands_of_group(instr) != 0)
      fail("norms of parameters have whole groups of operands, then {}", fmt::join(kUpdateScalars, ", "));
    const size_t each = operands_of_group(instr);
    for (size_t i = 0; i + scalars < instr.in.size(); ++i)
      if (instr.in[i].type.count() != instr.in[i - i % each].type.count())
        fail("{} has {} elements, its gradient {}", name(instr.in[i]), instr.in[i].type.count(),
             instr.in[i - i % each].type.count());
    std::vector<Operand> gradients;
    for (size_t i = 0; i + scalars < instr.in.size(); i += each) gradients.push_back(instr.in[i]);
    check_ranges(instr, gradients);
    check_origins(instr);
    const auto params = static_cast<int64_t>(instr.attrs.reals("groups").size() / 2);
    for (const FlatRange& r : flat_ranges(instr))
      if (r.row < 2 || r.row / 2 > params) fail("norms of parameter {}, of {}", r.row / 2 - 1, params);
  }

  void check_update_scalars(const Instr& instr) const {
    const size_t count = num_update_scalars(instr);
    bool whole = instr.in.size() > count;
    for (size_t i = 0; whole && i < count; ++i) {
      const Operand& scalar = instr.in[updated_groups(instr) + i];
      const std::string_view wanted =
          i < std::size(kUpdateScalars) ? kUpdateScalars[i] : scalars::kDecayRatio;
      whole = scalar.buffer == p_.scalars && scalar.offset_bytes == p_.scalar_slot(wanted) * kScalarBytes;
    }
    if (!whole) fail("an update has gradients and, after them, {}", fmt::join(kUpdateScalars, ", "));
  }

  // Every average has a weight, or the two halves of one, of its size.
  void check_average(const Instr& instr) const {
    check_update_scalars(instr);
    const size_t averages = instr.out.size(), read = updated_groups(instr);
    if (averages == 0 || (read != averages && read != 2 * averages))
      fail("{} weights do not divide among {} averages", read, averages);
    for (size_t i = 0; i < read; ++i) {
      const Operand &weight = instr.in[i], &average = instr.out[i / (read / averages)];
      if (weight.type.count() != average.type.count())
        fail("{} has {} elements, its average {}", name(weight), weight.type.count(), average.type.count());
      if (average.type.dtype != instr.out[0].type.dtype) fail("{} has another dtype", name(average));
      if (read == averages && weight.type.dtype != average.type.dtype)
        fail("{} is {}, its average {}", name(weight), base::to_string(weight.type.dtype),
             base::to_string(average.type.dtype));
    }
    check_ranges(instr, instr.out);
  }

  // Results of a group have the size of its gradient, and the dtypes of those of every other group.
  void check_update(const Instr& instr) const {
    check_update_scalars(instr);
    const size_t groups = updated_groups(instr), each = results_of_group(instr);
    if (each == 0 || instr.out.size() != groups * each)
      fail("{} results do not divide among {} groups", instr.out.size(), groups);
    // A split master is two results and has no copy.
    const bool split = has_split_master(instr);
    const size_t moments = moments_of_update(instr);
    const size_t least = 1 + split + moments, most = split ? least : least + 1;
    if (each < least || each > most)
      fail("{} results a group; {} or {} make an update with {} moments", each, least, most, moments);
    for (size_t g = 0; g < groups; ++g) {
      const Operand& gradient = instr.in[g];
      if (gradient.type.dtype != instr.in[0].type.dtype) fail("gradients have different dtypes");
      for (size_t i = 0; i < each; ++i) {
        const Operand& result = instr.out[g * each + i];
        if (result.type.count() * block_of(result) != gradient.type.count())
          fail("{} has {} elements, its gradient {}", name(result), result.type.count(),
               gradient.type.count());
        if (result.type.dtype != instr.out[i].type.dtype) fail("{} has another dtype", name(result));
      }
    }
    check_ranges(instr, std::span(instr.in).first(groups));
    check_origins(instr);
    if (const graph::AttrValue* block = instr.attrs.find("block"))
      for (const FlatRange& r : flat_ranges(instr))
        if (r.first % std::get<int64_t>(*block) != 0)
          fail("a range begins at element {}, inside a block of {}", r.first, std::get<int64_t>(*block));
    const graph::AttrValue* rates = instr.attrs.find("groups");
    const auto* pairs = rates ? std::get_if<std::vector<double>>(rates) : nullptr;
    for (const FlatRange& r : flat_ranges(instr))
      if (r.row < 0 || r.row / 2 > static_cast<int64_t>(pairs ? pairs->size() / 2 : 0))
        fail("a range of group {}, of {}", r.row / 2 - 1, pairs ? pairs->size() / 2 : 0);
  }

  // With a seed, every range says which elements of its parameter it has.
  void check_origins(const Instr& instr) const {
    const graph::AttrValue* value = instr.attrs.find("origins");
    const auto* numbers = value ? std::get_if<std::vector<int64_t>>(value) : nullptr;
    const size_t wanted = has_origins(instr) ? 5 * flat_ranges(instr).size() : 0;
    if ((numbers ? numbers->size() : 0) != wanted)
      fail("{} numbers of origins, {} wanted", numbers ? numbers->size() : 0, wanted);
    for (size_t i = 0; i < wanted; i += 5)
      if ((*numbers)[i + 1] < 0 || (*numbers)[i + 2] <= 0 || (*numbers)[i + 3] < 0 || (*numbers)[i + 4] < 0)
        fail("range {} has no place in its parameter", i / 5);
  }

  // Ranges are inside the operands, in ascending order without overlap.
  void check_ranges(const Instr& instr, std::span<const Operand> operands) const {
    const graph::AttrValue* value = instr.attrs.find("ranges");
    const auto* numbers = value ? std::get_if<std::vector<int64_t>>(value) : nullptr;
    if (!numbers || numbers->size() % 4 != 0) fail("ranges are not whole");
    int64_t operand = 0, last = 0;
    for (const FlatRange& r : flat_ranges(instr)) {
      if (r.operand < operand || r.operand >= static_cast<int64_t>(operands.size()))
        fail("a range of operand {} of {}", r.operand, operands.size());
      if (r.operand > operand) last = 0;
      operand = r.operand;
      const int64_t count = operands[static_cast<size_t>(operand)].type.count(), end = r.first + r.count;
      if (r.first < last || end < r.first || end > count)
        fail("range {} to {} of {} elements", r.first, end, count);
      last = end;
    }
  }

  void check_message(const Instr& instr, const Communicator& comm) const {
    const Collective& c = instr.collective;
    const bool sends = c.kind == CollectiveKind::Send;
    if (comm.members.size() != 2)
      fail("a message on communicator {} of {} ranks", comm.name(), comm.members.size());
    if (instr.in.size() != (sends ? 1u : 0u) || instr.out.size() != (sends ? 0u : 1u))
      fail("a send has one operand, a receive one result");
    const Operand& o = sends ? instr.in[0] : instr.out[0];
    if (o.type.dtype != c.dtype || o.type.count() != c.count || c.count <= 0)
      fail("{} does not hold the message of {} elements of {}", name(o), c.count, base::to_string(c.dtype));
  }

  // Rows between tokens and experts: with one operand the counts, with three the rows and both sides' counts.
  // The counts themselves are known only within the step (except for padded experts); their number and the
  // width of a row are checked here.
  void check_exchange(const Instr& instr, const Communicator& comm) const {
    const Collective& c = instr.collective;
    if ((instr.in.size() != 1 && instr.in.size() != 3) || instr.out.size() != 1)
      fail("an exchange has rows and two lists of counts, or counts alone, and one result");
    const Operand &in = instr.in[0], &out = instr.out[0];
    for (const Operand* o : {&in, &out})
      if (o->type.dtype != c.dtype)
        fail("{} is {}, the message {}", name(*o), base::to_string(o->type.dtype), base::to_string(c.dtype));
    if (out.type.count() != c.count || c.count <= 0)
      fail("the result holds {} elements, the message {}", out.type.count(), c.count);
    for (const char* attr : {"experts", "copies", "back", "pad"})
      if (!instr.attrs.find(attr)) fail("has no attribute {}", attr);
    for (const Operand& o : instr.in)
      if (span(o).meets(span(out))) fail("{} overlaps the result", name(o));

    const int64_t members = static_cast<int64_t>(comm.members.size());
    const int64_t experts = instr.attrs.integer("experts"), copies = instr.attrs.integer("copies");
    if (experts < 1 || copies < 1 || members % copies != 0)
      fail("{} experts in {} copies on {} ranks", experts, copies, members);
    const int64_t sent = experts * (members / copies), received = experts * members;
    const auto check_counts = [&](const Operand& o, int64_t wanted) {
      if (o.type.dtype != graph::DType::I32 || o.type.count() != wanted)
        fail("{} is {}, which does not hold {} counts", name(o), graph::to_string(o.type), wanted);
    };
    const int64_t pad = instr.attrs.integer("pad");
    if (instr.in.size() == 1) {
      check_counts(in, sent);
      check_counts(out, received);
      if (pad != 0) fail("counts padded to {}", pad);
      return;
    }
    check_counts(instr.in[1], sent);
    check_counts(instr.in[2], received);
    const auto row = [](const graph::Type& t) {
      return std::vector<graph::DimSize>(t.dims.begin() + (t.dims.empty() ? 0 : 1), t.dims.end());
    };
    for (const Operand* o : {&in, &out})
      if (o->bytes() != p_.buffer(o->buffer).bytes)
        fail("{} bytes of {} for rows of unknown number: not the whole buffer", o->bytes(), name(*o));
    if (in.type.dims.empty() || row(in.type) != row(out.type))
      fail("rows of {} become rows of {}", graph::to_string(in.type), graph::to_string(out.type));
    if (instr.attrs.integer("back") && out.type.size(0) % copies != 0)
      fail("{} rows are returned in {} copies", out.type.size(0), copies);
    if (pad < 0) fail("experts padded to {} rows", pad);
    if (pad > 0) {
      const bool back = instr.attrs.integer("back") != 0;
      const int64_t leave = pad * (back ? received : sent), come = pad * (back ? sent * copies : received);
      if (in.type.size(0) != leave || out.type.size(0) != come)
        fail("{} rows become {}, with {} of every expert {} become {}", in.type.size(0), out.type.size(0),
             pad, leave, come);
    }
  }

  void check_collective(const Instr& instr, std::vector<StreamId>& stream_of_comm) const {
    const Collective& c = instr.collective;
    if (!c.comm.valid() || c.comm.index() >= p_.comms.size()) fail("communicator {} does not exist", c.comm);
    const Communicator& comm = p_.comms[c.comm.index()];
    StreamId& stream = stream_of_comm[c.comm.index()];
    if (!stream.valid()) stream = instr.stream;
    if (stream != instr.stream)
      fail("communicator {} is used on stream {} elsewhere", comm.name(), p_.streams[stream.index()].name);
    if ((instr.stream == kComputeStream) != instr.repeated)
      fail("only a collective that is repeated may, and must, run on the compute stream");
    if (c.kind == CollectiveKind::Send || c.kind == CollectiveKind::Recv) return check_message(instr, comm);
    if (c.kind == CollectiveKind::AllToAllV) return check_exchange(instr, comm);
    if (c.kind == CollectiveKind::Exchange) return check_exchanged_pieces(p_, instr, {p_, body_, index_});
    if (instr.in.size() != 1 || instr.out.size() != 1) fail("a collective has one operand and one result");
    const Operand &in = instr.in[0], &out = instr.out[0];
    for (const Operand* o : {&in, &out})
      if (o->type.dtype != c.dtype)
        fail("{} is {}, the message {}", name(*o), base::to_string(o->type.dtype), base::to_string(c.dtype));
    if (c.count <= 0) fail("a message of {} elements", c.count);
    const int64_t n = static_cast<int64_t>(comm.members.size());
    const bool splits = c.kind == CollectiveKind::ReduceScatter || c.kind == CollectiveKind::AllToAll;
    const bool joins = c.kind == CollectiveKind::AllGather || c.kind == CollectiveKind::AllToAll;
    const int64_t want_in = splits ? c.count * n : c.count, want_out = joins ? c.count * n : c.count;
    if (in.type.count() != want_in) fail("reads {} elements, the message has {}", in.type.count(), want_in);
    if (out.type.count() != want_out)
      fail("writes {} elements, the message has {}", out.type.count(), want_out);

    const Span a = span(in), b = span(out);
    const int64_t own = comm.position * c.count * base::size_of(c.dtype);
    bool legal = !a.meets(b);
    if (c.kind == CollectiveKind::AllReduce) legal = in.buffer == out.buffer && a == b;
    if (c.kind == CollectiveKind::AllGather)
      legal = legal || (in.buffer == out.buffer && a.begin == b.begin + own);
    if (c.kind == CollectiveKind::ReduceScatter)
      legal = legal || (in.buffer == out.buffer && b.begin == a.begin + own);
    if (!legal)
      fail("operand at bytes {} to {} and result at {} to {} are not in place at position {}", a.begin, a.end,
           b.begin, b.end, comm.position);
  }

  const Program& p_;
  const int body_;
  int index_ = 0;
};

}  // namespace

void check_tables(const Program& p) {
  const std::string where = fmt::format("rank {}", p.rank);
  if (p.rank.value < 0 || p.rank.value >= p.world) fail(where, "the world has {} ranks", p.world);
  if (p.streams.empty()) fail(where, "there are no streams");
  for (const Buffer& b : p.buffers) {
    if (b.bytes < 0) fail(where, "buffer {} has {} bytes", b.name, b.bytes);
    if (b.offset < 0) {
      if (b.scope == Scope::Persistent) fail(where, "buffer {} has no offset", b.name);
      continue;  // never touched, or empty: instructions are checked separately
    }
    if (b.offset % kBufferAlign != 0)
      fail(where, "buffer {} at {} is not aligned to {} bytes", b.name, b.offset, kBufferAlign);
    const int64_t limit =
        b.scope == Scope::Persistent ? std::min(p.persistent_bytes, p.arena_bytes) : p.arena_bytes;
    if (b.bytes > 0 && b.offset + b.bytes > limit)
      fail(where, "buffer {} at {} to {} is outside the {} bytes of {}", b.name, b.offset, b.offset + b.bytes,
           limit, b.scope == Scope::Persistent ? "persistent memory" : "the arena");
  }
  for (const BufferId id : {p.scalars, p.workspace})
    if (!id.valid() || id.index() >= p.buffers.size())
      fail(where, "there is no buffer for scalars or workspace");
  for (const Communicator& c : p.comms) {
    const size_t position = static_cast<size_t>(c.position);
    if (c.position < 0 || position >= c.members.size() || c.members[position] != p.rank)
      fail(where, "communicator {} does not have the rank at position {}", c.name(), c.position);
    std::vector<RankId> sorted = c.members;
    std::sort(sorted.begin(), sorted.end());
    if (sorted.size() < 2 || std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end() ||
        sorted.front().value < 0 || sorted.back().value >= p.world)
      fail(where, "communicator {} has members that are not two or more different ranks of the world",
           c.name());
  }
}

void check_instructions(const Program& p) {
  std::vector<StreamId> stream_of_comm(p.comms.size());
  for (size_t b = 0; b < p.bodies.size(); ++b) {
    InstrChecker checker(p, static_cast<int>(b));
    for (size_t i = 0; i < p.bodies[b].instrs.size(); ++i) checker.check(static_cast<int>(i), stream_of_comm);
  }
}

}  // namespace verifier

void verify(const Program& program, const Expanded& expanded) {
  verifier::check_tables(program);
  verifier::check_instructions(program);
  verifier::check_repeats(program);
  verifier::check_issues(program, expanded);
  verifier::check_memory(program, expanded);
}

}  // namespace quintet::program
