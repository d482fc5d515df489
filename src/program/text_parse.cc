#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "program/text.h"
#include "program/text_internal.h"

namespace quintet::program {
namespace {

// Parses one line from left to right; blanks between words are ignored.
class Cursor {
 public:
  Cursor(std::string_view line, int number, const std::vector<const graph::OpDef*>& extra_ops)
      : rest_(line), number_(number), extra_ops_(&extra_ops) {
    skip();
  }

  // Null when there is no op of this name.
  const graph::OpDef* op(std::string_view name) const {
    for (const graph::OpDef* extra : *extra_ops_)
      if (extra->name == name) return extra;
    return graph::find_op(name);
  }

  bool at_end() const { return rest_.empty(); }
  bool accept(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    skip();
    return true;
  }
  void expect(std::string_view text) {
    if (!accept(text)) fail(fmt::format("'{}'", text));
  }
  std::string_view word(std::string_view what) {
    size_t n = 0;
    while (n < rest_.size() && (std::isalnum(static_cast<unsigned char>(rest_[n])) || rest_[n] == '_')) ++n;
    if (n == 0) fail(what);
    const std::string_view found = rest_.substr(0, n);
    rest_.remove_prefix(n);
    skip();
    return found;
  }
  template <class T>
  T number(std::string_view what = "a number") {
    T value{};
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc()) fail(what);
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    skip();
    return value;
  }
  template <class T>
  T field(std::string_view key) {
    expect(fmt::format("{}=", key));
    return number<T>();
  }
  std::string quoted() {
    if (!rest_.starts_with('"')) fail("a text in quotes");
    std::string out;
    for (size_t i = 1; i < rest_.size(); ++i) {
      if (rest_[i] == '"') {
        rest_.remove_prefix(i + 1);
        skip();
        return out;
      }
      if (rest_[i] == '\\' && i + 1 < rest_.size()) {
        ++i;
        out += rest_[i] == 'n' ? '\n' : rest_[i];
      } else {
        out += rest_[i];
      }
    }
    fail("a closing '\"'");
  }
  template <class Enum, class List>
  Enum one_of(const List& words, std::string_view what) {
    const Cursor before = *this;
    const std::string_view found = word(what);
    for (size_t i = 0; i < words.size(); ++i)
      if (words[i] == found) return static_cast<Enum>(i);
    before.fail(what);
  }
  // For enums with to_string and parse functions.
  template <class Enum>
  Enum named(int count, std::string_view what) {
    const Cursor before = *this;
    const std::string_view found = word(what);
    for (int i = 0; i < count; ++i)
      if (to_string(static_cast<Enum>(i)) == found) return static_cast<Enum>(i);
    before.fail(what);
  }
  bool sees(std::string_view text) const { return rest_.starts_with(text); }
  // Whether the next number has a point, an exponent or is a word (inf, nan).
  bool sees_real() const {
    return rest_.substr(0, rest_.find_first_of(" ,}]>")).find_first_of(".einf") != std::string_view::npos;
  }
  [[noreturn]] void fail(std::string_view expected) const {
    base::fail_user("program text, line {}: expected {}, got {}", number_, expected,
                    at_end() ? "the end of the line" : fmt::format("'{}'", rest_.substr(0, 40)));
  }

 private:
  void skip() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\t' || rest_[0] == '\r'))
      rest_.remove_prefix(1);
  }
  std::string_view rest_;
  int number_;
  const std::vector<const graph::OpDef*>* extra_ops_;
};

BufferId parse_id(Cursor& in) {
  if (in.accept("none")) return BufferId();
  in.expect("@");
  return BufferId(in.number<int32_t>("a buffer's number"));
}

BufferId id_field(Cursor& in, std::string_view key) {
  in.expect(fmt::format("{}=", key));
  return parse_id(in);
}

graph::DType parse_dtype(Cursor& in) {
  const Cursor before = in;
  const auto dtype = base::parse_dtype(in.word("a dtype"));
  if (!dtype) before.fail("a dtype (f64, f32, bf16, f16, i64, i32, u8)");
  return *dtype;
}

graph::Dim parse_dim(Cursor& in) {
  const Cursor before = in;
  const auto dim = graph::parse_dim(in.word("the name of a dim"));
  if (!dim) before.fail("the name of a dim (tokens, embed, ...)");
  return *dim;
}

template <class T>
std::vector<T> parse_list(Cursor& in, std::string_view open, std::string_view close) {
  std::vector<T> list;
  in.expect(open);
  while (!in.accept(close)) list.push_back(in.number<T>());
  return list;
}

std::vector<Operand> parse_operands(Cursor& in) {
  std::vector<Operand> list;
  in.expect("(");
  while (!in.accept(")")) {
    if (!list.empty()) in.expect(",");
    Operand o{.buffer = parse_id(in), .type = {}};
    in.expect("+");
    o.offset_bytes = in.number<int64_t>("an offset");
    in.expect(":");
    o.type.dtype = parse_dtype(in);
    in.expect("[");
    while (!in.accept("]")) {
      if (!o.type.dims.empty()) in.expect(",");
      const graph::Dim dim = parse_dim(in);
      in.expect("=");
      o.type.dims.push_back({dim, in.number<int64_t>("the dim's size")});
    }
    list.push_back(std::move(o));
  }
  return list;
}

graph::AttrValue parse_value(Cursor& in) {
  if (in.sees("\"")) return in.quoted();
  if (in.sees("[")) return parse_list<int64_t>(in, "[", "]");
  if (in.sees("<")) return parse_list<double>(in, "<", ">");
  if (in.sees_real()) return in.number<double>();
  return in.number<int64_t>();
}

graph::Attrs parse_attrs(Cursor& in) {
  graph::Attrs attrs;
  in.expect("{");
  while (!in.accept("}")) {
    if (!attrs.items().empty()) in.expect(",");
    const std::string name(in.word("an attribute's name"));
    in.expect("=");
    attrs.set(name, parse_value(in));
  }
  return attrs;
}

std::vector<Part> parse_parts(Cursor& in) {
  std::vector<Part> parts;
  in.expect("[");
  while (!in.accept("]")) {
    Part part{.dim = parse_dim(in)};
    for (int64_t* number : {&part.begin, &part.size, &part.valid, &part.global}) {
      in.expect(":");
      *number = in.number<int64_t>();
    }
    parts.push_back(part);
  }
  return parts;
}

// The part of an instruction's line that differs by kind, up to the stream.
void parse_verb(Cursor& in, Instr& instr) {
  if (in.accept("compute ")) {
    const Cursor before = in;
    instr.op = in.op(in.word("the name of an op"));
    if (!instr.op) before.fail("the name of an op");
  } else if (in.accept("load_batch")) {
    instr.kind = InstrKind::LoadBatch;
  } else if (in.accept("repeat ")) {
    instr.kind = InstrKind::Repeat;
  } else if (in.accept("end ")) {
    instr.kind = InstrKind::End;
  } else if (in.accept("free ")) {
    instr.kind = InstrKind::Free;
    instr.frees = parse_id(in);
  } else {
    instr.kind = InstrKind::Collective;
    Collective& c = instr.collective;
    c.kind = in.named<CollectiveKind>(text::kNumCollectiveKinds, "an instruction");
    c.comm = CommId(in.field<int32_t>("comm"));
    c.count = in.field<int64_t>("count");
    in.expect("dtype=");
    c.dtype = parse_dtype(in);
    in.expect("reduction=");
    c.reduction = in.one_of<graph::Reduction>(text::kReductions, "sum or max");
  }
}

Instr parse_instr(Cursor& in) {
  Instr instr;
  parse_verb(in, instr);
  instr.stream = StreamId(in.field<int32_t>("stream"));
  in.expect("in=");
  instr.in = parse_operands(in);
  in.expect("out=");
  instr.out = parse_operands(in);
  if (in.accept("attrs=")) instr.attrs = parse_attrs(in);
  if (in.accept("parts=")) instr.parts = parse_parts(in);
  if (in.accept("when=")) instr.when = in.one_of<When>(text::kWhen, "always, first or last");
  if (in.accept("accumulate="))
    instr.accumulate = in.one_of<Accumulate>(text::kAccumulate, "never, not_first or always");
  instr.repeated = in.accept("repeated");
  if (in.accept("workspace=")) instr.workspace_bytes = in.number<int64_t>();
  in.expect("phase=");
  const Cursor before = in;
  const std::string_view phase = in.word("a phase");
  bool known = false;
  for (int i = 0; i < text::kNumPhases; ++i)
    if (graph::to_string(static_cast<graph::Phase>(i)) == phase) {
      instr.phase = static_cast<graph::Phase>(i);
      known = true;
    }
  if (!known) before.fail("a phase (F, B, W)");
  if (in.accept("block=")) instr.block = in.number<int>();
  if (in.accept("note=")) instr.note = in.quoted();
  return instr;
}

Call parse_call(Cursor& in) {
  Call call{.body = in.field<int>("body"), .micro = in.field<int>("micro")};
  call.first = in.accept("first");
  call.last = in.accept("last");
  return call;
}

GroupSlot parse_slot(Cursor& in) {
  GroupSlot s{.group = in.number<int>()};
  s.slot = in.quoted();
  s.role = in.one_of<graph::Role>(text::kRoles, "weight, master, gradient, moment or ema");
  s.keep = in.one_of<graph::Keep>(text::kKeeps, "saved, derived or transient");
  in.expect("dtype=");
  s.dtype = parse_dtype(in);
  s.first = in.field<int64_t>("first");
  s.count = in.field<int64_t>("count");
  if (in.accept("block=")) s.block = in.number<int64_t>();
  s.buffer = id_field(in, "buffer");
  s.offset_bytes = in.field<int64_t>("offset");
  s.lower = id_field(in, "lower");
  return s;
}

// Numbers are in the text for readers; they must count up from 0.
void expect_index(Cursor& in, size_t index) {
  const Cursor before = in;
  if (in.number<size_t>("a number") != index) before.fail(fmt::format("number {}", index));
}

void parse_line(Cursor& in, Program& p) {
  if (in.accept("program ")) {
    p.rank = RankId(in.field<int32_t>("rank"));
    p.world = in.field<int>("world");
    p.arena_bytes = in.field<int64_t>("arena");
    p.persistent_bytes = in.field<int64_t>("persistent");
    p.scalars = id_field(in, "scalars");
    p.workspace = id_field(in, "workspace");
    p.result = id_field(in, "result");
  } else if (in.accept("frames ")) {
    p.frame_bytes = parse_list<int64_t>(in, "[", "]");
  } else if (in.accept("stream ")) {
    expect_index(in, p.streams.size());
    p.streams.push_back({in.quoted()});
  } else if (in.accept("comm ")) {
    expect_index(in, p.comms.size());
    const Cursor before = in;
    const std::optional<Channel> channel = parse_channel(in.quoted());
    if (!channel)
      before.fail("the name of a communicator, such as \"dp_shard+tp state\", \"up 0-1\" or \"cp ring 0-1\"");
    Communicator c{.channel = *channel};
    in.expect("atoms=");
    c.atoms = parse_list<int>(in, "[", "]");
    c.position = in.field<int>("position");
    in.expect("members=");
    for (const int r : parse_list<int>(in, "[", "]")) c.members.push_back(RankId(r));
    p.comms.push_back(std::move(c));
  } else if (in.accept("buffer ")) {
    in.expect("@");
    expect_index(in, p.buffers.size());
    Buffer b{.name = in.quoted()};
    b.memory_class = in.named<MemoryClass>(kNumMemoryClasses, "a class of memory");
    b.scope = in.one_of<Scope>(text::kScopes, "persistent, step, micro or body");
    b.offset = in.field<int64_t>("offset");
    b.bytes = in.field<int64_t>("bytes");
    p.buffers.push_back(std::move(b));
  } else if (in.accept("scalar ")) {
    ScalarDecl s{.name = in.quoted()};
    s.kind = in.one_of<ScalarKind>(text::kScalarKinds, "input, result or state");
    in.expect("dtype=");
    s.dtype = parse_dtype(in);
    s.initial = in.field<double>("initial");
    p.scalar_table.push_back(std::move(s));
  } else if (in.accept("input ")) {
    InputPlace input{.spec = graph::parse_input(in.quoted())};
    input.buffer = parse_id(in);
    for (const InputPlace& earlier : p.inputs) input.slot += earlier.spec == input.spec;
    p.inputs.push_back(std::move(input));
  } else if (in.accept("sum ")) {
    const Cursor before = in;
    const std::optional<graph::SumKind> kind = graph::parse_sum_kind(in.quoted());
    if (!kind) before.fail(graph::kSumKindWords);
    SumPlace sum{.kind = *kind};
    sum.block = in.field<int>("block");
    sum.first = in.field<int64_t>("first");
    sum.count = in.field<int64_t>("count");
    if (in.accept("scale=")) sum.scale = in.number<int>();
    p.step_sums.push_back(sum);
  } else if (in.accept("sums ")) {
    p.sums = parse_id(in);
  } else if (in.accept("state ")) {
    std::string name = in.quoted();
    p.states.push_back({std::move(name), parse_operands(in).at(0)});
  } else if (in.accept("slot ")) {
    p.slots.push_back(parse_slot(in));
  } else if (in.accept("body ")) {
    expect_index(in, p.bodies.size());
    Body body{.kind = in.named<BodyKind>(text::kNumBodyKinds, "a kind of body"), .instrs = {}};
    if (in.accept("chunk=")) body.chunk = in.number<int>();
    p.bodies.push_back(std::move(body));
  } else if (in.accept("call ")) {
    p.calls.push_back(parse_call(in));
  } else if (in.accept("eval_call ")) {
    p.eval_calls.push_back(parse_call(in));
  } else if (in.accept("variant ")) {
    StepVariant variant{.micro_batches = in.field<int>("micro_batches")};
    variant.measures = in.field<int>("measures") != 0;
    p.variants.push_back(std::move(variant));
  } else if (in.accept("variant_call ")) {
    if (p.variants.empty()) in.fail("variant");
    p.variants.back().calls.push_back(parse_call(in));
  } else {
    if (p.bodies.empty()) in.fail("program, stream, comm, buffer, scalar, input, slot, body or call");
    p.bodies.back().instrs.push_back(parse_instr(in));
  }
  if (!in.at_end()) in.fail("the end of the line");
}

}  // namespace

Program parse_text(std::string_view text, const std::vector<const graph::OpDef*>& extra) {
  Program program;
  int number = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    Cursor in(text.substr(0, end), ++number, extra);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (in.at_end() || in.sees("#")) continue;
    parse_line(in, program);
  }
  return program;
}

}  // namespace quintet::program
