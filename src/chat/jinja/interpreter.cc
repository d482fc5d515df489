// Runs templates by walking their tree.
#include <algorithm>

#include "base/error.h"
#include "chat/jinja/ast.h"
#include "chat/jinja/builtins.h"
#include "chat/jinja/lexer.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/parser.h"
#include "chat/jinja/template.h"
#include "chat/jinja/text.h"

namespace quintet::chat::jinja {
namespace {

// Names of one level: of the template, a loop's iteration, a macro's call, ...
struct Scope {
  explicit Scope(std::shared_ptr<Scope> outer) : parent(std::move(outer)) {}
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<int, Value>> names;

  const Value* find(int id) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get())
      for (const auto& [name, value] : scope->names)
        if (name == id) return &value;
    return nullptr;
  }
  void set(int id, Value value) {
    for (auto& [name, old] : names)
      if (name == id) {
        old = std::move(value);
        return;
      }
    names.emplace_back(id, std::move(value));
  }
};
using ScopePtr = std::shared_ptr<Scope>;

enum class Flow { Next, Break, Continue };

class Interpreter;

// A macro, or the body of a call block.
struct Macro final : Callable, Attributes {
  const Stmt* stmt = nullptr;
  ScopePtr scope;
  Interpreter* interpreter = nullptr;
  std::string_view type() const override { return "Macro"; }
  std::string repr() const override;
  Value call(Runtime& runtime, Call& call) override;
  std::optional<Value> attribute(Runtime& runtime, const std::string& name) override;
};

// The items of a loop, with the condition after `if`, one at a time.
class LoopItems {
 public:
  LoopItems(Interpreter& interpreter, const Stmt& stmt, ScopePtr scope, const Value& over);
  bool next(Value& item);

 private:
  Interpreter& interpreter_;
  const Stmt& stmt_;
  ScopePtr scope_;
  std::unique_ptr<Iterator> iterator_;
};

// `loop`. Looks at items ahead of time only when asked about them, as Jinja's does.
struct Loop final : Callable, Attributes, std::enable_shared_from_this<Loop> {
  Interpreter* interpreter = nullptr;
  const Stmt* stmt = nullptr;
  ScopePtr scope;    // of the loop statement
  LoopItems* items;  // valid while the loop runs
  std::optional<int64_t> known_length;
  Values ahead;  // items read ahead, in reverse order
  int64_t index0 = -1, depth0 = 0;
  std::optional<Value> before, current, last_changed;

  std::string_view type() const override { return "LoopContext"; }
  bool next(Value& item);
  const Value* peek();
  int64_t length();
  Value call(Runtime& runtime, Call& call) override;
  std::optional<Value> attribute(Runtime& runtime, const std::string& name) override;
};
struct LoopMethod final : Callable {
  std::shared_ptr<Loop> loop;
  bool changed = false;  // else cycle
  std::string_view type() const override { return "method"; }
  Value call(Runtime& runtime, Call& call) override;
};

// `self`, whose attributes are the blocks of the template: calling one gives its text.
struct BlockReference final : Callable {
  Interpreter* interpreter = nullptr;
  const Stmt* stmt = nullptr;
  std::string_view type() const override { return "BlockReference"; }
  Value call(Runtime& runtime, Call& call) override;
};
struct TemplateReference final : ObjectHeap, Attributes {
  Interpreter* interpreter = nullptr;
  std::string_view type() const override { return "TemplateReference"; }
  std::optional<Value> attribute(Runtime& runtime, const std::string& name) override;
};

class Interpreter final : public Runtime {
 public:
  Interpreter(const Ast& ast, int64_t wall_seconds, bool spans)
      : Runtime(wall_seconds), ast_(ast), spans_(spans) {}
  ~Interpreter() override {
    for (const ScopePtr& scope : captured_) scope->names.clear();  // macros and their scopes hold each other
  }

  Rendering run(const std::vector<std::pair<std::string, Value>>& variables) {
    try {
      auto context = std::make_shared<Scope>(nullptr);
      for (size_t id = 0; id < ast_.names.size(); ++id) {
        const auto given = std::find_if(variables.begin(), variables.end(),
                                        [&](const auto& each) { return each.first == ast_.names[id]; });
        if (ast_.names[id] == "self")
          context->names.emplace_back(static_cast<int>(id), self());
        else if (given != variables.end())
          context->names.emplace_back(static_cast<int>(id), given->second);
        else if (auto global = global_value(ast_.names[id]))
          context->names.emplace_back(static_cast<int>(id), *std::move(global));
      }
      root_ = std::make_shared<Scope>(context);
      captured_.push_back(root_);
      scope_ = root_;
      out_ = &rendering_.text;
      body(ast_.body);
    } catch (const TemplateFault& problem) {
      fail_at(ast_.source, at_, problem.what());
    }
    return std::move(rendering_);
  }

  Value self() {
    auto reference = std::make_shared<TemplateReference>();
    reference->interpreter = this;
    return Value::object(std::move(reference));
  }
  const Stmt* block(const std::string& name) const {
    for (const auto& [each, stmt] : ast_.blocks)
      if (each == name) return stmt;
    return nullptr;
  }
  // What a block writes that is called: it sees the names of the template.
  std::string block_text(const Stmt& stmt) {
    const Frame frame(*this);
    return capture(root_, stmt.bodies[0], [] {});
  }

  // ---- statements
  Flow body(const Body& statements) {
    for (const auto& stmt : statements)
      if (const Flow flow = execute(*stmt); flow != Flow::Next) return flow;
    return Flow::Next;
  }

  // Runs a body within a new scope and gives what it writes.
  template <class Prepare>
  std::string capture(const ScopePtr& parent, const Body& statements, Prepare prepare, Flow* flow = nullptr) {
    std::string text;
    std::string* const out = std::exchange(out_, &text);
    ScopePtr scope = std::exchange(scope_, std::make_shared<Scope>(parent));
    prepare();
    const Flow ended = body(statements);
    if (flow != nullptr) *flow = ended;
    scope_ = std::move(scope);
    out_ = out;
    return text;
  }

  Value eval(const Expr& expr) {
    const Frame frame(*this);
    step();
    switch (expr.type) {
      case ExprType::Constant:
        return expr.constant;
      case ExprType::Name: {
        const Value* found = scope_->find(expr.id);
        if (found != nullptr) return *found;
        return Value::undefined(fmt::format("'{}' is undefined", expr.text));
      }
      case ExprType::List:
        return Value::list(eval_all(expr.args));
      case ExprType::Tuple:
        return Value::tuple(eval_all(expr.args));
      case ExprType::Dict:
        return dict(expr);
      case ExprType::Attribute: {
        const Value value = eval(*expr.args[0]);
        at_ = expr.at;
        return get_attribute(*this, value, expr.text);
      }
      case ExprType::Item: {
        const Value value = eval(*expr.args[0]), key = eval(*expr.args[1]);
        at_ = expr.at;
        return get_item(*this, value, key);
      }
      case ExprType::Slice:
        return slice(expr);
      case ExprType::Call:
        return call_expression(expr, nullptr);
      case ExprType::Filter:
        return filter(expr, eval(*expr.args[0]));
      case ExprType::Test:
        return filter(expr, eval(*expr.args[0]));
      case ExprType::Not:
        return Value::boolean(!truth(eval(*expr.args[0])));
      case ExprType::And: {
        Value left = eval(*expr.args[0]);
        return truth(left) ? eval(*expr.args[1]) : left;
      }
      case ExprType::Or: {
        Value left = eval(*expr.args[0]);
        return truth(left) ? left : eval(*expr.args[1]);
      }
      case ExprType::Negate:
      case ExprType::Plus: {
        const Value value = eval(*expr.args[0]);
        at_ = expr.at;
        return expr.type == ExprType::Negate ? negate(value) : plus(value);
      }
      case ExprType::Binary: {
        const Value left = eval(*expr.args[0]), right = eval(*expr.args[1]);
        at_ = expr.at;
        return binary(*this, expr.text, left, right);
      }
      case ExprType::Compare:
        return compare_expression(expr);
      case ExprType::Concat: {
        std::string text;
        for (const ExprPtr& part : expr.args) text += str_of(eval(*part));
        at_ = expr.at;
        return make_string(std::move(text));
      }
      case ExprType::Choose:
        if (truth(eval(*expr.args[1]))) return eval(*expr.args[0]);
        if (expr.args[2]) return eval(*expr.args[2]);
        return Value::undefined(
            "the inline if-expression evaluated to false and no else section was defined.");
    }
    return {};
  }

  void assign(const Target& target, const Value& value) {
    if (!target.tuple) {
      if (target.attribute.empty()) return scope_->set(target.id, value);
      at_ = target.at;
      const Value* found = scope_->find(target.id);
      const auto space = found == nullptr ? nullptr : found->as<Namespace>();
      if (!space) fault("'{}' is not a namespace: its attributes cannot be assigned", target.name);
      if (target.attribute.starts_with('_'))
        fault("a namespace cannot have an attribute '{}' with an underscore", target.attribute);
      if (Value* old = space->find(target.attribute))
        *old = value;
      else
        space->attributes.emplace_back(target.attribute, value);
      return;
    }
    at_ = target.at;
    if (value.is_undefined() && target.parts.empty()) return;
    const Values items = list_of(value);
    if (items.size() != target.parts.size())
      fault("{} values for {} names", items.size(), target.parts.size());
    for (size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i]);
  }

  Value call_macro(const Stmt& stmt, const ScopePtr& scope, Call& call);
  // The whole of a loop over a value, and what it writes if it is recursive.
  Flow loop_over(const Stmt& stmt, const ScopePtr& scope, const Value& over, int64_t depth);
  std::string recursive_loop(const Stmt& stmt, const ScopePtr& scope, const Value& over, int64_t depth) {
    const Frame frame(*this);
    return capture(scope, {}, [&] {
      scope_ = scope;
      loop_over(stmt, scope, over, depth);
    });
  }
  ScopePtr& scope() { return scope_; }
  void set_at(uint32_t at) { at_ = at; }

 private:
  // Counts how deep calls of this file are nested in each other.
  struct Frame {
    explicit Frame(Interpreter& interpreter) : interpreter_(interpreter) {
      if (++interpreter.frames_ > kMaxFrames)
        fault("nested more than {} levels deep: a macro or a loop may call itself forever", kMaxFrames);
    }
    ~Frame() { --interpreter_.frames_; }
    Interpreter& interpreter_;
  };

  void write(std::string_view text) {
    if (static_cast<int64_t>(out_->size() + text.size()) > kMaxText) require_text(kMaxText + 1);
    step(static_cast<int64_t>(text.size()) / 64);
    out_->append(text);
  }

  Values eval_all(const std::vector<ExprPtr>& exprs) {
    Values values;
    values.reserve(exprs.size());
    for (const ExprPtr& expr : exprs) values.push_back(eval(*expr));
    return values;
  }

  Value dict(const Expr& expr) {
    std::vector<std::pair<Value, Value>> pairs;
    for (size_t i = 0; i + 1 < expr.args.size(); i += 2) {
      Value key = eval(*expr.args[i]);
      set_key(pairs, std::move(key), eval(*expr.args[i + 1]));
    }
    return Value::dict(std::move(pairs));
  }

  Value slice(const Expr& expr) {
    const Value value = eval(*expr.args[0]);
    Value parts[3];
    const Value* given[3] = {};
    for (size_t i = 0; i < 3; ++i)
      if (expr.args[i + 1]) {
        parts[i] = eval(*expr.args[i + 1]);
        given[i] = &parts[i];
      }
    at_ = expr.at;
    return get_slice(*this, value, given[0], given[1], given[2]);
  }

  Value compare_expression(const Expr& expr) {
    Value left = eval(*expr.args[0]);
    for (size_t i = 0; i < expr.ops.size(); ++i) {
      Value right = eval(*expr.args[i + 1]);
      at_ = expr.at;
      step(expr.ops[i] == CompareOp::In || expr.ops[i] == CompareOp::NotIn ? work_of(right) : 0);
      if (!compare(expr.ops[i], left, right)) return Value::boolean(false);
      left = std::move(right);
    }
    return Value::boolean(true);
  }
  static int64_t work_of(const Value& container) {
    return container.is_string()   ? static_cast<int64_t>(container.text().size()) / 16
           : has_length(container) ? length_of(container)
                                   : 0;
  }

  Call arguments(const CallArgs& args) {
    Call call;
    call.args = eval_all(args.positional);
    for (const auto& [name, value] : args.keywords) call.kwargs.emplace_back(name, eval(*value));
    if (args.more)
      for (Value& item : list_of(eval(*args.more))) call.args.push_back(std::move(item));
    if (args.more_keywords) {
      const Value more = eval(*args.more_keywords);
      if (!more.is_dict()) fault("what follows '**' must be a dict, not a {}", type_name(more));
      for (const auto& [key, value] : more.pairs()) {
        const std::string& name = text_argument(key, "a key after '**'");
        for (const auto& [other, its] : call.kwargs)
          if (other == name) fault("the argument '{}' is given twice", name);
        call.kwargs.emplace_back(name, value);
      }
    }
    return call;
  }

  Value call_expression(const Expr& expr, const Value* caller) {
    const Value function = eval(*expr.args[0]);
    Call call = arguments(expr.call);
    if (caller != nullptr) call.kwargs.emplace_back("caller", *caller);
    at_ = expr.at;
    return Runtime::call(function, call);
  }

  // A filter or a test on a value.
  Value filter(const Expr& expr, Value value) {
    Call call = arguments(expr.call);
    call.name = expr.text;
    call.args.insert(call.args.begin(), std::move(value));
    at_ = expr.at;
    return expr.function->apply(*this, call);
  }
  // A chain of filters whose innermost value is the text of a block.
  Value filter_block(const Expr& expr, Value text) {
    return filter(expr, expr.args[0] ? filter_block(*expr.args[0], std::move(text)) : std::move(text));
  }

  Flow execute(const Stmt& stmt);
  Flow nested(const Stmt& stmt);
  Value make_macro(const Stmt& stmt) {
    auto macro = std::make_shared<Macro>();
    macro->stmt = &stmt;
    macro->scope = scope_;
    macro->interpreter = this;
    captured_.push_back(scope_);
    return Value::object(std::move(macro));
  }

  const Ast& ast_;
  bool spans_;
  Rendering rendering_;
  std::string* out_ = nullptr;
  ScopePtr scope_, root_;
  std::vector<ScopePtr> captured_;
  uint32_t at_ = 0;  // where the template is, for messages
  int frames_ = 0;
};

Flow Interpreter::execute(const Stmt& stmt) {
  step();
  switch (stmt.type) {
    case StmtType::Text:
      write(stmt.text);
      return Flow::Next;
    case StmtType::Output: {
      at_ = stmt.at;
      const Value value = eval(*stmt.exprs[0]);
      if (value.is_string())
        write(value.text());
      else
        write(str_of(value));
      return Flow::Next;
    }
    case StmtType::Set: {
      at_ = stmt.at;
      assign(stmt.target, eval(*stmt.exprs[0]));
      return Flow::Next;
    }
    case StmtType::Macro:
      scope_->set(stmt.id, make_macro(stmt));
      return Flow::Next;
    case StmtType::Break:
      return Flow::Break;
    case StmtType::Continue:
      return Flow::Continue;
    default: {
      const Frame frame(*this);
      return nested(stmt);
    }
  }
}

// Statements with statements in them.
Flow Interpreter::nested(const Stmt& stmt) {
  Flow flow = Flow::Next;
  const auto nothing = [] {};
  switch (stmt.type) {
    case StmtType::If:
      for (size_t i = 0; i < stmt.exprs.size(); ++i)
        if (truth(eval(*stmt.exprs[i]))) return body(stmt.bodies[i]);
      return stmt.bodies.size() > stmt.exprs.size() ? body(stmt.bodies.back()) : Flow::Next;
    case StmtType::For: {
      const Value over = eval(*stmt.exprs[0]);
      at_ = stmt.at;
      const ScopePtr scope = scope_;
      if (stmt.flag) {
        write(recursive_loop(stmt, scope, over, 0));
        return Flow::Next;
      }
      return loop_over(stmt, scope, over, 0);
    }
    case StmtType::SetBlock: {
      const std::string text = capture(scope_, stmt.bodies[0], nothing, &flow);
      if (flow != Flow::Next) return flow;
      Value value = make_string(text);
      assign(stmt.target, stmt.exprs[0] ? filter_block(*stmt.exprs[0], std::move(value)) : value);
      return flow;
    }
    case StmtType::FilterBlock: {
      const std::string text = capture(scope_, stmt.bodies[0], nothing, &flow);
      if (flow != Flow::Next) return flow;
      write(str_of(filter_block(*stmt.exprs[0], make_string(text))));
      return flow;
    }
    case StmtType::CallBlock: {
      const Value caller = make_macro(stmt);
      write(str_of(call_expression(*stmt.exprs[0], &caller)));
      return flow;
    }
    case StmtType::Generation: {
      if (spans_ && out_ != &rendering_.text) {
        at_ = stmt.at;
        fault(
            "a generation block within a macro, a call, a filter, a set block or a recursive loop: where its "
            "text ends up cannot be known");
      }
      const std::string text = capture(scope_, stmt.bodies[0], nothing);
      rendering_.generations.push_back({out_->size(), out_->size() + text.size()});
      write(text);
      return flow;
    }
    case StmtType::With: {
      Values values;
      for (const ExprPtr& expr : stmt.exprs) values.push_back(eval(*expr));
      const ScopePtr outer = std::exchange(scope_, std::make_shared<Scope>(scope_));
      for (size_t i = 0; i < values.size(); ++i) assign(stmt.targets[i], values[i]);
      flow = body(stmt.bodies[0]);
      scope_ = outer;
      return flow;
    }
    case StmtType::Block:
    case StmtType::Scope: {
      const bool sees_all = stmt.type == StmtType::Scope || stmt.flag;
      const ScopePtr outer = scope_;
      scope_ = std::make_shared<Scope>(sees_all ? outer : root_);
      flow = body(stmt.bodies[0]);
      scope_ = outer;
      return flow;
    }
    default:
      return flow;
  }
}

Flow Interpreter::loop_over(const Stmt& stmt, const ScopePtr& scope, const Value& over, int64_t depth) {
  auto loop = std::make_shared<Loop>();
  LoopItems items(*this, stmt, scope, over);
  loop->interpreter = this;
  loop->stmt = &stmt;
  loop->scope = scope;
  loop->items = &items;
  loop->depth0 = depth;
  if (!stmt.exprs[1] && has_length(over)) loop->known_length = length_of(over);
  bool ended_a_turn = false;
  const Value loop_value = Value::object(loop);
  for (Value item; loop->next(item);) {
    step();
    scope_ = std::make_shared<Scope>(scope);
    scope_->names.reserve(4);
    assign(stmt.target, item);
    scope_->set(kLoopName, loop_value);
    const Flow flow = body(stmt.bodies[0]);
    if (flow == Flow::Next) ended_a_turn = true;
    if (flow == Flow::Break) break;
  }
  scope_ = scope;
  loop->items = nullptr;
  loop->scope = nullptr;
  // As in Jinja, `else` runs unless an iteration ran to its end, so also if break or continue left them all.
  if (stmt.bodies.size() < 2 || ended_a_turn) return Flow::Next;
  scope_ = std::make_shared<Scope>(scope);
  const Flow flow = body(stmt.bodies[1]);
  scope_ = scope;
  return flow;
}

Value Interpreter::call_macro(const Stmt& stmt, const ScopePtr& scope, Call& call) {
  const Frame frame(*this);
  const Signature& signature = stmt.signature;
  const std::string name = signature.name.empty() ? "caller" : signature.name;
  const size_t count = signature.arguments.size();
  if (call.args.size() > count && !signature.uses_varargs)
    fault("the macro '{}' takes at most {} arguments, got {}", name, count, call.args.size());
  const auto take = [&](std::string_view key) -> std::optional<Value> {
    for (auto each = call.kwargs.begin(); each != call.kwargs.end(); ++each)
      if (each->first == key) {
        Value value = std::move(each->second);
        call.kwargs.erase(each);
        return value;
      }
    return std::nullopt;
  };
  const auto bind = [&] {
    std::vector<bool> missing(count);
    for (size_t i = 0; i < count; ++i) {
      std::optional<Value> value;
      if (i < call.args.size())
        value = call.args[i];
      else
        value = take(signature.arguments[i].first);
      missing[i] = !value;
      if (value) scope_->set(signature.arguments[i].second, *std::move(value));
    }
    if (signature.uses_caller) {
      auto caller = take("caller");
      if (caller && caller->is_none()) caller.reset();
      scope_->set(kCallerName, caller ? *std::move(caller) : Value::undefined("No caller defined"));
    }
    std::vector<std::pair<Value, Value>> more;
    if (signature.uses_kwargs)
      for (auto& [key, value] : std::exchange(call.kwargs, {}))
        more.emplace_back(Value::string(key), std::move(value));
    if (!call.kwargs.empty()) fault("the macro '{}' has no argument named '{}'", name, call.kwargs[0].first);
    if (signature.uses_kwargs) scope_->set(kKwargsName, Value::dict(std::move(more)));
    if (signature.uses_varargs)
      scope_->set(
          kVarargsName,
          Value::tuple(Values(call.args.begin() + static_cast<int64_t>(std::min(count, call.args.size())),
                              call.args.end())));
    // Defaults see the arguments before them.
    const size_t first_default = count - signature.defaults.size();
    for (size_t i = 0; i < count; ++i)
      if (missing[i])
        scope_->set(signature.arguments[i].second,
                    i < first_default ? Value::undefined(fmt::format("parameter '{}' was not provided",
                                                                     signature.arguments[i].first))
                                      : eval(*signature.defaults[i - first_default]));
  };
  const uint32_t at = at_;
  std::string text = capture(scope, stmt.bodies[0], bind);
  at_ = at;
  return make_string(std::move(text));
}

std::string Macro::repr() const {
  return stmt->signature.name.empty() ? "<Macro anonymous>" : "<Macro '" + stmt->signature.name + "'>";
}
Value Macro::call(Runtime&, Call& call) { return interpreter->call_macro(*stmt, scope, call); }
std::optional<Value> Macro::attribute(Runtime&, const std::string& name) {
  const Signature& signature = stmt->signature;
  if (name == "name") return signature.name.empty() ? Value::none() : Value::string(signature.name);
  if (name == "caller") return Value::boolean(signature.uses_caller);
  if (name == "catch_kwargs") return Value::boolean(signature.uses_kwargs);
  if (name == "catch_varargs") return Value::boolean(signature.uses_varargs);
  if (name != "arguments") return std::nullopt;
  Values names;
  for (const auto& [argument, id] : signature.arguments) names.push_back(Value::string(argument));
  return Value::tuple(std::move(names));
}

LoopItems::LoopItems(Interpreter& interpreter, const Stmt& stmt, ScopePtr scope, const Value& over)
    : interpreter_(interpreter), stmt_(stmt), scope_(std::move(scope)), iterator_(iterate(over)) {}

bool LoopItems::next(Value& item) {
  while (iterator_->next(item)) {
    if (!stmt_.exprs[1]) return true;
    const ScopePtr outer = std::exchange(interpreter_.scope(), std::make_shared<Scope>(scope_));
    interpreter_.assign(stmt_.target, item);
    const bool good = truth(interpreter_.eval(*stmt_.exprs[1]));
    interpreter_.scope() = outer;
    if (good) return true;
  }
  return false;
}

std::optional<Value> TemplateReference::attribute(Runtime&, const std::string& name) {
  const Stmt* const block = interpreter->block(name);
  if (block == nullptr) return std::nullopt;
  auto reference = std::make_shared<BlockReference>();
  reference->interpreter = interpreter;
  reference->stmt = block;
  return Value::object(std::move(reference));
}

Value BlockReference::call(Runtime& runtime, Call& call) {
  call.bind({}, 0);
  return runtime.make_string(interpreter->block_text(*stmt));
}

bool Loop::next(Value& item) {
  if (!ahead.empty()) {
    item = std::move(ahead.back());
    ahead.pop_back();
  } else if (!items->next(item)) {
    return false;
  }
  ++index0;
  before = std::move(current);
  current = item;
  return true;
}

const Value* Loop::peek() {
  if (ahead.empty() && items != nullptr) {
    Value item;
    if (items->next(item)) ahead.push_back(std::move(item));
  }
  return ahead.empty() ? nullptr : &ahead.back();
}

int64_t Loop::length() {
  if (!known_length) {
    Values rest(ahead.rbegin(), ahead.rend());
    if (items != nullptr)
      for (Value item; items->next(item);) rest.push_back(std::move(item));
    known_length = index0 + 1 + static_cast<int64_t>(rest.size());
    ahead.assign(rest.rbegin(), rest.rend());
  }
  return *known_length;
}

std::optional<Value> Loop::attribute(Runtime&, const std::string& name) {
  if (name == "index") return Value::integer(index0 + 1);
  if (name == "index0") return Value::integer(index0);
  if (name == "first") return Value::boolean(index0 == 0);
  if (name == "last") return Value::boolean(peek() == nullptr);
  if (name == "length") return Value::integer(length());
  if (name == "revindex") return Value::integer(length() - index0);
  if (name == "revindex0") return Value::integer(length() - index0 - 1);
  if (name == "depth") return Value::integer(depth0 + 1);
  if (name == "depth0") return Value::integer(depth0);
  if (name == "previtem")
    return before && index0 > 0 ? *before : Value::undefined("there is no previous item");
  if (name == "nextitem") {
    const Value* next = peek();
    return next == nullptr ? Value::undefined("there is no next item") : *next;
  }
  if (name != "cycle" && name != "changed") return std::nullopt;
  auto method = std::make_shared<LoopMethod>();
  method->loop = shared_from_this();
  method->changed = name == "changed";
  return Value::object(std::move(method));
}

Value Loop::call(Runtime& runtime, Call& call) {
  if (!stmt->flag) fault("the loop must be marked 'recursive' to be called");
  if (!scope) fault("a loop that has ended cannot be called");
  const auto bound = call.bind({"iterable"}, 1);
  return runtime.make_string(interpreter->recursive_loop(*stmt, scope, *bound[0], depth0 + 1));
}

Value LoopMethod::call(Runtime&, Call& call) {
  if (changed) {
    Value now = Value::tuple(call.args);
    const bool differs = !loop->last_changed || !equal(*loop->last_changed, now);
    loop->last_changed = std::move(now);
    return Value::boolean(differs);
  }
  if (call.args.empty()) fault("loop.cycle needs values");
  return call.args[static_cast<size_t>(loop->index0) % call.args.size()];
}

}  // namespace

Template::Template(std::string_view source) : ast_(parse(source)) {}

bool Template::has_generation() const { return ast_->has_generation; }

Rendering Template::render(const std::vector<std::pair<std::string, Value>>& variables, int64_t wall_seconds,
                           bool spans) const {
  return Interpreter(*ast_, wall_seconds, spans).run(variables);
}

}  // namespace quintet::chat::jinja
