#include "graph/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "base/error.h"
#include "graph/op.h"

namespace quintet::graph {
namespace {

constexpr std::string_view kKindNames[] = {"an integer", "a real", "a text", "integers",
                                           "reals"};  // as AttrKind

bool changes_placement(const OpDef* op) { return op->op_class == OpClass::Placement; }

class Verifier {
 public:
  Verifier(const Graph& graph, std::string_view after, bool local)
      : graph_(graph), after_(after), local_(local), definition_(graph.values().size(), kUndefined) {}

  void run() {
    check_sources();
    for (size_t i = 0; i < graph_.nodes().size(); ++i) check_node(static_cast<int32_t>(i));
    for (const Param& p : graph_.params()) check_param(p);
    check_result("the loss", graph_.loss);
    check_result("the logits", graph_.logits);
    if (graph_.loss.valid() && !graph_.type(graph_.loss).dims.empty())
      fail("the loss %{} must be a scalar, is {}", graph_.loss, to_string(graph_.type(graph_.loss)));
  }

 private:
  static constexpr int32_t kUndefined = -1, kSource = -2;  // else the index of the producing node

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) const {
    base::fail_internal("after {}: {}", after_, fmt::format(text, std::forward<Args>(args)...));
  }

  template <class... Args>
  [[noreturn]] void fail_at(int32_t node, fmt::format_string<Args...> text, Args&&... args) const {
    const Node& n = graph_.nodes()[static_cast<size_t>(node)];
    fail("node {} {}: {}",
         n.outputs.empty() ? fmt::format("number {}", node) : fmt::format("%{}", n.outputs[0]),
         n.op ? n.op->name : "(no op)", fmt::format(text, std::forward<Args>(args)...));
  }

  bool exists(ValueId id) const { return id.valid() && id.index() < graph_.values().size(); }

  void check_sources() {
    std::unordered_set<std::string_view> names;
    for (size_t i = 0; i < graph_.values().size(); ++i) {
      const Value& v = graph_.values()[i];
      if (v.kind == ValueKind::Result) continue;
      definition_[i] = kSource;
      if (!names.insert(v.name).second) fail("two inputs or parameters are called {}", v.name);
    }
    std::unordered_set<int32_t> listed;
    for (const Param& p : graph_.params()) {
      if (!exists(p.value) || graph_.value(p.value).kind != ValueKind::Param)
        fail("the list of parameters names %{}, which is not a parameter", p.value);
      if (!listed.insert(p.value.value).second)
        fail("parameter {} is listed twice", graph_.value(p.value).name);
    }
    for (size_t i = 0; i < graph_.values().size(); ++i)
      if (graph_.values()[i].kind == ValueKind::Param && !listed.contains(static_cast<int32_t>(i)))
        fail("parameter {} is not in the list of parameters", graph_.values()[i].name);
  }

  void check_node(int32_t index) {
    const Node& n = graph_.nodes()[static_cast<size_t>(index)];
    if (n.op == nullptr) fail_at(index, "every node needs an op");
    check_operands(index, n);
    check_attrs(index, n);
    if (n.block < 0 || n.block >= graph_.num_blocks)
      fail_at(index, "block {} is not one of 0 to {}", n.block, graph_.num_blocks - 1);
    for (const ValueId id : n.outputs) {
      if (!exists(id)) fail_at(index, "result %{} is not a value of the graph", id);
      if (definition_[id.index()] == kSource) fail_at(index, "result %{} is an input or a parameter", id);
      if (definition_[id.index()] != kUndefined)
        fail_at(index, "result %{} is given by an earlier node too", id);
      if (graph_.value(id).producer.value != index)
        fail_at(index, "result %{} names node number {} as its producer, not {}", id,
                graph_.value(id).producer, index);
      definition_[id.index()] = index;
    }
    if (!local_ && !changes_placement(n.op)) check_types(index, n);
  }

  void check_operands(int32_t index, const Node& n) {
    const int count = static_cast<int>(n.inputs.size());
    if (count < n.op->min_inputs || count > n.op->max_inputs)
      fail_at(index, "takes {} to {} operands, has {}", n.op->min_inputs, n.op->max_inputs, count);
    for (const ValueId id : n.inputs) {
      if (!exists(id)) fail_at(index, "operand %{} is not a value of the graph", id);
      const int32_t from = definition_[id.index()];
      if (from == kUndefined) fail_at(index, "operand %{} is used before it is defined", id);
      if (from == kSource) continue;
      const Phase phase = graph_.nodes()[static_cast<size_t>(from)].phase;
      if (phase > n.phase)
        fail_at(index, "phase {} uses %{}, a result of the later phase {}", to_string(n.phase), id,
                to_string(phase));
    }
  }

  void check_attrs(int32_t index, const Node& n) {
    size_t known = 0;
    for (const AttrSpec& spec : n.op->attrs) {
      const AttrValue* value = n.attrs.find(spec.name);
      if (value == nullptr && spec.optional) continue;
      if (value == nullptr) fail_at(index, "attribute {} is missing", spec.name);
      ++known;
      if (value->index() != static_cast<size_t>(spec.kind))
        fail_at(index, "attribute {} must be {}, is {}", spec.name,
                kKindNames[static_cast<size_t>(spec.kind)], kKindNames[value->index()]);
    }
    for (const auto& [name, value] : n.attrs.items()) {
      const auto is_it = [&, &key = name](const AttrSpec& spec) { return spec.name == key; };
      if (std::none_of(n.op->attrs.begin(), n.op->attrs.end(), is_it))
        fail_at(index, "has an attribute {}, which the op does not take", name);
    }
    if (n.attrs.items().size() != known) fail_at(index, "an attribute is given twice");
  }

  void check_types(int32_t index, const Node& n) {
    std::vector<Type> inferred;
    try {
      inferred = n.op->infer(input_types(graph_, n), n.attrs);
    } catch (const base::UserError& e) {
      fail_at(index, "operands do not fit: {}", e.what());
    }
    if (inferred.size() != n.outputs.size())
      fail_at(index, "infers {} results, has {}", inferred.size(), n.outputs.size());
    for (size_t i = 0; i < inferred.size(); ++i)
      if (inferred[i] != graph_.type(n.outputs[i]))
        fail_at(index, "result %{} must be {}, is {}", n.outputs[i], to_string(inferred[i]),
                to_string(graph_.type(n.outputs[i])));
  }

  void check_result(std::string_view what, ValueId id) {
    if (id.valid() && (!exists(id) || definition_[id.index()] < 0))
      fail("{} %{} is computed by no node", what, id);
  }

  void check_param(const Param& p) {
    const Value& v = graph_.value(p.value);
    if (p.block < 0 || p.block >= graph_.num_blocks)
      fail("parameter {}: block {} is not one of 0 to {}", v.name, p.block, graph_.num_blocks - 1);
    if (!p.trainable && !p.grads.empty())
      fail("parameter {} is frozen, yet has a gradient %{}", v.name, p.grads[0]);
    for (const ValueId id : p.grads) {
      if (!exists(id) || definition_[id.index()] < 0)
        fail("parameter {}: gradient %{} is computed by no node", v.name, id);
      if (!local_ && graph_.type(id).dims != v.type.dims)
        fail("parameter {}: gradient %{} must have the dims of {}, is {}", v.name, id, to_string(v.type),
             to_string(graph_.type(id)));
    }
  }

  const Graph& graph_;
  std::string_view after_;
  bool local_;
  std::vector<int32_t> definition_;
};

}  // namespace

void verify(const Graph& graph, std::string_view after, bool local) { Verifier(graph, after, local).run(); }

}  // namespace quintet::graph
