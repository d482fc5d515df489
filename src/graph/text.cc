#include "graph/text.h"

#include <fmt/format.h>

#include <charconv>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "graph/op.h"

namespace quintet::graph {
namespace {

constexpr std::string_view kInitNames[] = {"normal", "ones", "zeros"};  // in the order of Init
constexpr std::string_view kPhaseNames[] = {"F", "B", "W"};             // in the order of Phase

std::string reference(ValueId id) { return id.valid() ? fmt::format("%{}", id) : "none"; }

std::string references(const std::vector<ValueId>& ids) {
  std::string text;
  for (const ValueId id : ids) text.append(text.empty() ? "" : ", ").append(reference(id));
  return text;
}

// Parses one line from left to right; every refusal names the line and shows where it stopped.
class LineReader {
 public:
  LineReader(std::string_view line, int number) : rest_(line), number_(number) { skip_space(); }

  bool at_end() const { return rest_.empty(); }
  bool sees(std::string_view token) const { return rest_.starts_with(token); }

  bool accept(std::string_view token) {
    if (!sees(token)) return false;
    rest_.remove_prefix(token.size());
    skip_space();
    return true;
  }

  void expect(std::string_view token) {
    if (!accept(token)) fail(fmt::format("'{}'", token));
  }

  void expect_end() {
    if (!at_end()) fail("the end of the line");
  }

  // Letters, digits, and any of "_.-+".
  std::string_view word(std::string_view what) {
    size_t n = 0;
    while (n < rest_.size() &&
           (std::isalnum(static_cast<unsigned char>(rest_[n])) || is_one_of(rest_[n], "_.-+")))
      ++n;
    if (n == 0) fail(what);
    const std::string_view found = rest_.substr(0, n);
    rest_.remove_prefix(n);
    skip_space();
    return found;
  }

  template <class T>
  T number(std::string_view what) {
    T value{};
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc()) fail(what);
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    skip_space();
    return value;
  }

  std::string quoted(std::string_view what) {
    if (!sees("\"")) fail(what);
    std::string text;
    for (size_t i = 1; i < rest_.size(); ++i) {
      if (rest_[i] == '"') {
        rest_.remove_prefix(i + 1);
        skip_space();
        return text;
      }
      if (rest_[i] == '\\' && i + 1 < rest_.size()) {
        ++i;
        text += rest_[i] == 'n' ? '\n' : rest_[i];
      } else {
        text += rest_[i];
      }
    }
    fail("a closing '\"'");
  }

  ValueId value_id() {
    expect("%");
    if (sees("-")) fail("a value's number after '%'");
    return ValueId(number<int32_t>("a value's number after '%'"));
  }

  ValueId optional_value_id() { return accept("none") ? ValueId() : value_id(); }

  int integer_field(std::string_view key) {
    expect(key);
    expect("=");
    return number<int>("an integer");
  }

  bool yes_no_field(std::string_view key) {
    expect(key);
    expect("=");
    if (accept("yes")) return true;
    if (accept("no")) return false;
    fail("yes or no");
  }

  template <size_t N>
  size_t one_of(const std::string_view (&names)[N], std::string_view what) {
    const LineReader before = *this;
    const std::string_view found = word(what);
    for (size_t i = 0; i < N; ++i)
      if (names[i] == found) return i;
    before.fail(what);
  }

  [[noreturn]] void fail(std::string_view expected) const {
    base::fail_user("line {}: expected {}, got {}", number_, expected,
                    at_end() ? std::string("the end of the line") : fmt::format("'{}'", rest_.substr(0, 40)));
  }

  int line() const { return number_; }

 private:
  static bool is_one_of(char c, std::string_view set) { return set.find(c) != std::string_view::npos; }
  void skip_space() {
    while (!rest_.empty() && is_one_of(rest_[0], " \t\r")) rest_.remove_prefix(1);
  }

  std::string_view rest_;
  int number_;
};

Type parse_type(LineReader& in) {
  Type type;
  const LineReader before = in;
  const auto dtype = base::parse_dtype(in.word("a type such as f32[tokens=8]"));
  if (!dtype) before.fail("a dtype (f64, f32, bf16, f16, i64, i32, u8)");
  type.dtype = *dtype;
  in.expect("[");
  while (!in.accept("]")) {
    if (!type.dims.empty()) in.expect(",");
    const LineReader at = in;
    const auto dim = parse_dim(in.word("the name of a dim"));
    if (!dim) at.fail("the name of a dim (tokens, embed, heads, ...)");
    in.expect("=");
    const LineReader at_size = in;
    const int64_t size = in.number<int64_t>("the dim's size");
    if (size < 0) at_size.fail("a size of 0 or more");
    type.dims.push_back({*dim, size});
  }
  return type;
}

// A number is real when it has a point, an exponent or is a word (inf, nan); see to_string(Attrs).
AttrValue parse_number(LineReader& in) {
  LineReader probe = in;
  const std::string_view token = probe.word("a value");
  if (token.find_first_of(".einf") != std::string_view::npos) return in.number<double>("a real number");
  return in.number<int64_t>("an integer");
}

AttrValue parse_attr(LineReader& in) {
  if (in.sees("\"")) return in.quoted("a text");
  if (in.accept("[")) {
    std::vector<int64_t> list;
    while (!in.accept("]")) list.push_back(in.number<int64_t>("an integer or ']'"));
    return list;
  }
  if (in.accept("<")) {
    std::vector<double> list;
    while (!in.accept(">")) list.push_back(in.number<double>("a real number or '>'"));
    return list;
  }
  return parse_number(in);
}

Attrs parse_attrs(LineReader& in) {
  Attrs attrs;
  if (!in.accept("{")) return attrs;
  while (!in.accept("}")) {
    if (!attrs.items().empty()) in.expect(",");
    const LineReader at = in;
    const std::string name(in.word("an attribute's name"));
    if (attrs.find(name)) at.fail("an attribute that is not there yet");
    in.expect("=");
    attrs.set(name, parse_attr(in));
  }
  return attrs;
}

const OpDef& parse_op(LineReader& in) {
  const std::string_view name = in.word("the name of an op");
  if (const OpDef* op = find_op(name)) return *op;
  std::vector<std::string> names;
  for (const OpDef* op : all_ops()) names.emplace_back(op->name);
  const auto near = base::nearest_word(name, names);
  base::fail_user("line {}: expected the name of an op, got '{}'{}", in.line(), name,
                  near ? fmt::format("; the nearest is '{}'", *near) : "");
}

// Collects values by their numbers in the text, then builds the graph in that order.
class Parser {
 public:
  Graph parse(std::string_view text) {
    int number = 0;
    while (!text.empty()) {
      const size_t end = text.find('\n');
      LineReader in(text.substr(0, end), ++number);
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
      if (!in.at_end() && !in.sees("#")) line(in);
    }
    if (!header_)
      base::fail_user("line {}: expected a header: graph blocks=N row_chunk=N loss=%N logits=none",
                      number + 1);
    return assemble(number + 1);
  }

 private:
  void line(LineReader& in) {
    if (!header_) return header(in);
    if (in.accept("input")) {
      const ValueId id = in.value_id();
      std::string name = in.quoted("the input's name in quotes");
      InputSpec spec = parse_input(name);
      define(in, id,
             {.name = std::move(name),
              .type = parse_type(in),
              .kind = ValueKind::Input,
              .producer = {},
              .input = std::move(spec)});
    } else if (in.accept("state")) {
      const ValueId id = in.value_id();
      std::string name = in.quoted("the state's name in quotes");
      define(in, id, {.name = std::move(name), .type = parse_type(in), .kind = ValueKind::State});
    } else if (in.accept("sum")) {
      const auto before = in;
      const std::optional<SumKind> kind = parse_sum_kind(in.quoted(kSumKindWords));
      if (!kind) before.fail(kSumKindWords);
      StepSum sum{.kind = *kind};
      use(in, sum.value = in.value_id());
      sum.block = in.integer_field("block");
      if (in.sees("scale=")) sum.scale = in.integer_field("scale");
      graph_.step_sums.push_back(sum);
    } else if (in.accept("scale")) {
      ScaleDecl scale{.set = in.quoted("the first weight of the set in quotes")};
      const auto before = in;
      const std::string of = in.quoted("\"x\", \"w\" or \"dy\"");
      for (const ScaleOf known : {ScaleOf::Input, ScaleOf::Weight, ScaleOf::Gradient})
        if (of == to_string(known)) scale.of = known;
      if (of != to_string(scale.of)) before.fail("\"x\", \"w\" or \"dy\"");
      in.expect("largest=");
      scale.largest = in.number<double>("a number");
      in.expect("initial=");
      scale.initial = in.number<double>("a number");
      graph_.scales.push_back(std::move(scale));
    } else if (in.accept("bias_update")) {
      BiasUpdate update;
      use(in, update.bias = in.value_id());
      use(in, update.load = in.value_id());
      in.expect("rate=");
      update.rate = in.number<double>("a number");
      graph_.bias_updates.push_back(update);
    } else if (in.accept("param")) {
      param(in);
    } else if (in.accept("unused")) {
      result(in);
      define(in, pending_.id, {.name = pending_.name, .type = parse_type(in)});
    } else if (in.sees("%") || in.sees("=")) {
      node(in);
    } else {
      in.fail(
          "input, state, param, unused, sum, scale, bias_update or a node such as %5 = add(%3, %4) : "
          "f32[tokens=8, embed=16] F block=1");
    }
    in.expect_end();
  }

  void header(LineReader& in) {
    in.expect("graph");
    graph_.num_blocks = in.integer_field("blocks");
    in.expect("row_chunk=");
    graph_.row_chunk = in.number<int64_t>("an integer");
    in.expect("loss=");
    use(in, graph_.loss = in.optional_value_id());
    in.expect("logits=");
    use(in, graph_.logits = in.optional_value_id());
    in.expect_end();
    header_ = true;
  }

  void param(LineReader& in) {
    Param p;
    p.value = in.value_id();
    std::string name = in.quoted("the parameter's name in quotes");
    define(in, p.value, {.name = std::move(name), .type = parse_type(in), .kind = ValueKind::Param});
    in.expect("init=");
    p.init = static_cast<Init>(in.one_of(kInitNames, "normal, ones or zeros"));
    in.expect("stddev=");
    p.stddev = in.number<double>("a real number");
    p.decay = in.yes_no_field("decay");
    p.trainable = in.yes_no_field("trainable");
    if (in.accept("group=")) p.group = in.number<int>("an integer");
    p.block = in.integer_field("block");
    in.expect("grads=[");
    while (!in.accept("]")) {
      if (!p.grads.empty()) in.expect(",");
      p.grads.push_back(in.value_id());
      use(in, p.grads.back());
    }
    graph_.params().push_back(std::move(p));
  }

  void node(LineReader& in) {
    Node n;
    std::vector<Value> results;
    while (!in.accept("=")) {
      if (!results.empty()) in.expect(",");
      result(in);
      n.outputs.push_back(pending_.id);
      results.push_back({.name = pending_.name, .type = {}});
    }
    n.op = &parse_op(in);
    in.expect("(");
    while (!in.accept(")")) {
      if (!n.inputs.empty()) in.expect(",");
      n.inputs.push_back(in.value_id());
      use(in, n.inputs.back());
    }
    n.attrs = parse_attrs(in);
    in.expect(":");
    for (size_t i = 0; i < results.size(); ++i) {
      if (i > 0) in.expect(",");
      results[i].type = parse_type(in);
      results[i].producer = NodeId(static_cast<int32_t>(graph_.nodes().size()));
      define(in, n.outputs[i], std::move(results[i]));
    }
    n.phase = static_cast<Phase>(in.one_of(kPhaseNames, "a phase: F, B or W"));
    n.block = in.integer_field("block");
    if (!in.at_end() && !in.sees("repeat")) n.row_group = in.integer_field("row_group");
    if (!in.at_end()) n.repeat = in.integer_field("repeat");
    graph_.nodes().push_back(std::move(n));
  }

  // %7 or %7 "name"
  void result(LineReader& in) {
    pending_.id = in.value_id();
    pending_.name = in.sees("\"") ? in.quoted("a name") : "";
  }

  void define(const LineReader& in, ValueId id, Value value) {
    const auto [at, fresh] = values_.emplace(id, Defined{std::move(value), in.line()});
    if (!fresh) base::fail_user("line {}: %{} is already defined in line {}", in.line(), id, at->second.line);
  }

  void use(const LineReader& in, ValueId id) {
    if (id.valid()) uses_.emplace(id, in.line());
  }

  Graph assemble(int last_line) {
    for (const auto& [id, line] : uses_)
      if (!values_.contains(id)) base::fail_user("line {}: %{} is not defined anywhere", line, id);
    for (auto& [id, defined] : values_) {
      const int32_t next = static_cast<int32_t>(graph_.values().size());
      if (id.value != next)
        base::fail_user(
            "line {}: value numbers must run from 0 without gaps: %{} is missing (of {} values, the "
            "last is %{})",
            last_line, next, values_.size(), values_.rbegin()->first);
      graph_.add_value(std::move(defined.value));
    }
    return std::move(graph_);
  }

  struct Defined {
    Value value;
    int line;
  };
  struct {
    ValueId id;
    std::string name;
  } pending_;
  Graph graph_;
  bool header_ = false;
  std::map<ValueId, Defined> values_;
  std::map<ValueId, int> uses_;  // the first line that uses a value
};

}  // namespace

std::string to_text(const Graph& graph, const Node& node) {
  std::string line, types;
  for (const ValueId id : node.outputs) {
    const Value& v = graph.value(id);
    line.append(line.empty() ? "" : ", ").append(reference(id));
    if (!v.name.empty()) line.append(" ").append(quote(v.name));
    types.append(types.empty() ? "" : ", ").append(to_string(v.type));
  }
  line += fmt::format("{}= {}({})", line.empty() ? "" : " ", node.op->name, references(node.inputs));
  if (!node.attrs.items().empty()) line.append(" ").append(to_string(node.attrs));
  line +=
      fmt::format(" :{}{} {} block={}", types.empty() ? "" : " ", types, to_string(node.phase), node.block);
  if (node.row_group >= 0) line += fmt::format(" row_group={}", node.row_group);
  if (node.repeat >= 0) line += fmt::format(" repeat={}", node.repeat);
  return line;
}

std::string to_text(const Graph& graph) {
  std::string text = fmt::format("graph blocks={} row_chunk={} loss={} logits={}\n", graph.num_blocks,
                                 graph.row_chunk, reference(graph.loss), reference(graph.logits));
  std::vector<char> given(graph.values().size(), 0);
  for (const Node& node : graph.nodes())
    for (const ValueId id : node.outputs) given[id.index()] = 1;
  for (size_t i = 0; i < graph.values().size(); ++i) {
    const Value& v = graph.values()[i];
    if (v.kind == ValueKind::Input || v.kind == ValueKind::State)
      text += fmt::format("{} %{} {} {}\n", v.kind == ValueKind::Input ? "input" : "state", i, quote(v.name),
                          to_string(v.type));
  }
  for (const Param& p : graph.params()) {
    const Value& v = graph.value(p.value);
    text += fmt::format("param %{} {} {} init={} stddev={} decay={} trainable={}{} block={} grads=[{}]\n",
                        p.value, quote(v.name), to_string(v.type), kInitNames[static_cast<size_t>(p.init)],
                        p.stddev, p.decay ? "yes" : "no", p.trainable ? "yes" : "no",
                        p.group < 0 ? "" : fmt::format(" group={}", p.group), p.block, references(p.grads));
  }
  for (size_t i = 0; i < graph.values().size(); ++i) {
    const Value& v = graph.values()[i];
    if (v.kind == ValueKind::Result && !given[i])
      text +=
          fmt::format("unused %{} {}{}\n", i, v.name.empty() ? "" : quote(v.name) + " ", to_string(v.type));
  }
  for (const Node& node : graph.nodes()) text += to_text(graph, node) + "\n";
  for (const StepSum& sum : graph.step_sums)
    text += fmt::format("sum {} %{} block={}{}\n", quote(to_string(sum.kind)), sum.value, sum.block,
                        sum.scale < 0 ? "" : fmt::format(" scale={}", sum.scale));
  for (const ScaleDecl& scale : graph.scales)
    text += fmt::format("scale {} {} largest={} initial={}\n", quote(scale.set), quote(to_string(scale.of)),
                        scale.largest, scale.initial);
  for (const BiasUpdate& update : graph.bias_updates)
    text += fmt::format("bias_update %{} %{} rate={}\n", update.bias, update.load, update.rate);
  return text;
}

Graph parse_text(std::string_view text) { return Parser().parse(text); }

}  // namespace quintet::graph
