#include "chat/jinja/parser.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "base/printable.h"
#include "chat/jinja/builtins.h"
#include "chat/jinja/lexer.h"

namespace quintet::chat::jinja {
namespace {

constexpr int kMostDepth = 150;   // of nested brackets and blocks
constexpr int kMostHeight = 500;  // of an expression; chains such as a + b + c nest too

ExprPtr make(ExprType type, uint32_t at) {
  auto expr = std::make_unique<Expr>();
  expr->type = type;
  expr->at = at;
  return expr;
}
template <class... Parts>
ExprPtr make_of(ExprType type, uint32_t at, Parts... parts) {
  auto expr = make(type, at);
  (expr->args.push_back(std::move(parts)), ...);
  return expr;
}

std::string describe(const Token& token) {
  switch (token.type) {
    case TokenType::Data:
      return "text";
    case TokenType::VariableBegin:
      return "'{{'";
    case TokenType::VariableEnd:
      return "'}}'";
    case TokenType::BlockBegin:
      return "'{%'";
    case TokenType::BlockEnd:
      return "'%}'";
    case TokenType::Name:
    case TokenType::Operator:
      return "'" + token.text + "'";
    case TokenType::String:
      return "a string";
    case TokenType::Integer:
    case TokenType::Float:
      return "a number";
    case TokenType::End:
      return "the end of the template";
  }
  return "";
}

class Parser {
 public:
  explicit Parser(std::string_view source) : ast_(std::make_shared<Ast>()) {
    ast_->source = normalized_source(source);
    if (ast_->source.size() > (size_t{1} << 24))
      base::fail_user("chat template: {} bytes; at most 16 MiB are read", ast_->source.size());
    tokens_ = tokenize(ast_->source);
    for (const char* name : {"loop", "caller", "kwargs", "varargs"}) id_of(name);
  }

  std::shared_ptr<const Ast> run() {
    ast_->body = statements({});
    return ast_;
  }

 private:
  // ---- tokens
  const Token& now() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& take() {
    const Token& token = tokens_[at_];
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  [[noreturn]] void fail(uint32_t at, std::string_view message) { fail_at(ast_->source, at, message); }
  bool skip_op(std::string_view op) {
    if (!now().is_operator(op)) return false;
    take();
    return true;
  }
  bool skip_name(std::string_view name) {
    if (!now().is_name(name)) return false;
    take();
    return true;
  }
  void expect_op(std::string_view op) {
    if (!skip_op(op)) fail(now().at, fmt::format("expected '{}', got {}", op, describe(now())));
  }
  void expect(TokenType type) {
    if (now().type != type)
      fail(now().at, fmt::format("expected {}, got {}", describe({type, "", {}, 0}), describe(now())));
    take();
  }
  std::string expect_name() {
    if (now().type != TokenType::Name)
      fail(now().at, fmt::format("expected a name, got {}", describe(now())));
    return take().text;
  }
  // Nested brackets and blocks use the stack here, and wherever the tree is walked.
  struct Deeper {
    explicit Deeper(Parser& parser) : parser_(parser) {
      if (++parser.depth_ > kMostDepth)
        parser.fail(parser.now().at, fmt::format("nested more than {} levels deep", kMostDepth));
    }
    ~Deeper() { --parser_.depth_; }
    Parser& parser_;
  };

  // ---- names
  int id_of(const std::string& name) {
    const auto [entry, added] = ids_.emplace(name, static_cast<int>(ast_->names.size()));
    if (added) ast_->names.push_back(name);
    return entry->second;
  }
  // Which of the special names of macros a body uses before it assigns them.
  struct MacroUse {
    bool used[kFixedNames] = {}, assigned[kFixedNames] = {};
  };
  void note_load(int id) {
    if (id < kFixedNames)
      for (MacroUse& macro : macros_)
        if (!macro.assigned[id]) macro.used[id] = true;
  }
  void note_store(int id) {
    if (id < kFixedNames)
      for (MacroUse& macro : macros_) macro.assigned[id] = true;
  }

  // ---- statements
  using Ends = std::vector<std::string_view>;

  Body statements(const Ends& ends) {
    const Deeper deeper(*this);
    Body body;
    const uint32_t begin = now().at;
    for (;;) {
      const Token& token = now();
      if (token.type == TokenType::End) {
        if (ends.empty()) return body;
        fail(begin, fmt::format("the block that begins here has no end: expected '{{% {} %}}'", ends.back()));
      }
      if (token.type == TokenType::Data) {
        auto text = make_stmt(StmtType::Text, token.at);
        text->text = take().text;
        body.push_back(std::move(text));
      } else if (token.type == TokenType::VariableBegin) {
        take();
        auto output = make_stmt(StmtType::Output, now().at);
        output->exprs.push_back(tuple_expression());
        expect(TokenType::VariableEnd);
        body.push_back(std::move(output));
      } else {
        expect(TokenType::BlockBegin);
        if (now().type == TokenType::Name && std::find(ends.begin(), ends.end(), now().text) != ends.end())
          return body;
        statement(ends, body);
        expect(TokenType::BlockEnd);
      }
    }
  }

  // The body of a block up to one of `ends`, which is left as the current token.
  Body block_body(const Ends& ends) {
    skip_op(":");
    expect(TokenType::BlockEnd);
    return statements(ends);
  }
  Body whole_body(std::string_view end) {
    Body body = block_body({end});
    take();
    return body;
  }

  static std::unique_ptr<Stmt> make_stmt(StmtType type, uint32_t at) {
    auto stmt = std::make_unique<Stmt>();
    stmt->type = type;
    stmt->at = at;
    return stmt;
  }

  void statement(const Ends& ends, Body& body) {
    const Token tag = now();
    if (tag.type != TokenType::Name)
      fail(tag.at, fmt::format("expected the name of a statement, got {}", describe(tag)));
    take();
    const std::string& word = tag.text;
    if (word == "for")
      body.push_back(for_statement(tag.at));
    else if (word == "if")
      body.push_back(if_statement(tag.at));
    else if (word == "set")
      body.push_back(set_statement(tag.at));
    else if (word == "macro")
      body.push_back(macro_statement(tag.at));
    else if (word == "call")
      body.push_back(call_statement(tag.at));
    else if (word == "filter")
      body.push_back(filter_statement(tag.at));
    else if (word == "with")
      body.push_back(with_statement(tag.at));
    else if (word == "print")
      print_statement(tag.at, body);
    else if (word == "block")
      body.push_back(block_statement(tag.at));
    else if (word == "autoescape")
      body.push_back(autoescape_statement(tag.at));
    else if (word == "generation")
      body.push_back(generation_statement(tag.at));
    else if (word == "break" || word == "continue")
      body.push_back(loop_control(tag.at, word == "break"));
    else
      fail_tag(tag, ends);
  }

  [[noreturn]] void fail_tag(const Token& tag, const Ends& ends) {
    for (const char* other : {"extends", "include", "import", "from"})
      if (tag.text == other)
        fail(tag.at, fmt::format("'{}' needs other templates, and chat templates have none", other));
    for (const char* other : {"do", "trans", "debug"})
      if (tag.text == other)
        fail(tag.at, fmt::format("'{}' belongs to a Jinja extension that chat templates do not have", other));
    std::string expected;
    for (const std::string_view end : ends)
      expected += fmt::format("{}'{}'", expected.empty() ? "" : " or ", end);
    fail(tag.at, fmt::format("unknown statement '{}'{}{}", tag.text,
                             expected.empty() ? "" : "; the innermost open block needs ", expected));
  }

  std::unique_ptr<Stmt> for_statement(uint32_t at) {
    auto stmt = make_stmt(StmtType::For, at);
    stmt->target = target(false, "in");
    if (names_loop(stmt->target)) fail(stmt->target.at, "the target of a loop cannot be named 'loop'");
    if (!skip_name("in")) fail(now().at, fmt::format("expected 'in', got {}", describe(now())));
    stmt->exprs.push_back(tuple_expression(false, "recursive"));
    stmt->exprs.push_back(skip_name("if") ? expression() : nullptr);
    stmt->flag = skip_name("recursive");
    ++loops_;
    stmt->bodies.push_back(block_body({"endfor", "else"}));
    --loops_;
    if (take().text == "else")
      stmt->bodies.push_back(whole_body("endfor"));
    return stmt;
  }
  static bool names_loop(const Target& target) {
    if (target.tuple) return std::any_of(target.parts.begin(), target.parts.end(), names_loop);
    return target.id == kLoopName;
  }

  std::unique_ptr<Stmt> if_statement(uint32_t at) {
    auto stmt = make_stmt(StmtType::If, at);
    for (;;) {
      stmt->exprs.push_back(tuple_expression(false));
      stmt->bodies.push_back(block_body({"elif", "else", "endif"}));
      const Token end = take();
      if (end.text == "elif") continue;
      if (end.text == "else") stmt->bodies.push_back(whole_body("endif"));
      return stmt;
    }
  }

  std::unique_ptr<Stmt> set_statement(uint32_t at) {
    auto stmt = make_stmt(StmtType::Set, at);
    Target to = target(true, "");
    if (loops_ > 0 && names_loop(to)) fail(to.at, "'loop' cannot be assigned within a loop");
    if (skip_op("=")) {
      stmt->exprs.push_back(tuple_expression());
    } else {
      stmt->type = StmtType::SetBlock;
      stmt->exprs.push_back(now().is_operator("|") ? filters(nullptr) : nullptr);
      stmt->bodies.push_back(whole_body("endset"));
    }
    stmt->target = std::move(to);
    return stmt;
  }

  void signature(Signature& to) {
    expect_op("(");
    while (!now().is_operator(")")) {
      if (!to.arguments.empty()) expect_op(",");
      const uint32_t at = now().at;
      const std::string name = expect_name();
      to.arguments.emplace_back(name, id_of(name));
      note_store(to.arguments.back().second);
      if (skip_op("="))
        to.defaults.push_back(expression());
      else if (!to.defaults.empty())
        fail(at, fmt::format("the argument '{}' without a default follows one with a default", name));
    }
    take();
  }

  // The arguments and the body of a macro or a call block, with the special names that the body uses.
  void macro_body(Stmt& stmt, bool with_signature, std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    macros_.emplace_back();
    if (with_signature) signature(stmt.signature);
    if (stmt.type == StmtType::CallBlock) {
      const MacroUse outside = std::exchange(macros_.back(), MacroUse{});
      const uint32_t at = now().at;
      stmt.exprs.push_back(expression());
      if (stmt.exprs[0]->type != ExprType::Call) fail(at, "expected a call after 'call'");
      macros_.back() = outside;
    }
    stmt.bodies.push_back(whole_body(end));
    const MacroUse use = macros_.back();
    macros_.pop_back();
    loops_ = loops;
    stmt.signature.uses_caller = use.used[kCallerName];
    stmt.signature.uses_kwargs = use.used[kKwargsName];
    stmt.signature.uses_varargs = use.used[kVarargsName];
    for (const auto& [name, id] : stmt.signature.arguments)
      if (id == kCallerName)
        fail(stmt.at, "an argument named 'caller' is not supported: it has a meaning of its own in macros");
  }

  std::unique_ptr<Stmt> macro_statement(uint32_t at) {
    auto stmt = make_stmt(StmtType::Macro, at);
    stmt->signature.name = expect_name();
    stmt->id = id_of(stmt->signature.name);
    note_store(stmt->id);
    macro_body(*stmt, true, "endmacro");
    return stmt;
  }

  std::unique_ptr<Stmt> call_statement(uint32_t at) {
    auto stmt = make_stmt(StmtType::CallBlock, at);
    macro_body(*stmt, now().is_operator("("), "endcall");
    return stmt;
  }

  std::unique_ptr<Stmt> filter_statement(uint32_t at) {
    auto stmt = make_stmt(StmtType::FilterBlock, at);
    stmt->exprs.push_back(filters(one_filter(nullptr)));
    stmt->bodies.push_back(whole_body("endfilter"));
    return stmt;
  }

  std::unique_ptr<Stmt> with_statement(uint32_t at) {
    auto stmt = make_stmt(StmtType::With, at);
    while (now().type != TokenType::BlockEnd) {
      if (!stmt->targets.empty()) expect_op(",");
      stmt->targets.push_back(target(false, ""));
      expect_op("=");
      stmt->exprs.push_back(expression());
    }
    stmt->bodies.push_back(whole_body("endwith"));
    return stmt;
  }

  void print_statement(uint32_t at, Body& body) {
    bool first = true;
    while (now().type != TokenType::BlockEnd) {
      if (!first) expect_op(",");
      first = false;
      auto output = make_stmt(StmtType::Output, at);
      output->exprs.push_back(expression());
      body.push_back(std::move(output));
    }
  }

  std::unique_ptr<Stmt> block_statement(uint32_t at) {
    auto stmt = make_stmt(StmtType::Block, at);
    stmt->text = expect_name();
    if (std::find(blocks_.begin(), blocks_.end(), stmt->text) != blocks_.end())
      fail(at, fmt::format("the block '{}' is defined twice", stmt->text));
    blocks_.push_back(stmt->text);
    stmt->flag = skip_name("scoped");
    if (now().is_name("required")) fail(now().at, "'required' blocks belong to templates that others extend");
    const int loops = std::exchange(loops_, 0);
    stmt->bodies.push_back(whole_body("endblock"));
    loops_ = loops;
    if (now().type == TokenType::Name) {
      if (now().text != stmt->text)
        fail(now().at, fmt::format("'endblock {}' ends the block '{}'", now().text, stmt->text));
      take();
    }
    return stmt;
  }

  std::unique_ptr<Stmt> autoescape_statement(uint32_t at) {
    auto stmt = make_stmt(StmtType::Scope, at);
    const ExprPtr value = expression();
    if (value->type != ExprType::Constant || truth(value->constant))
      fail(at, "'autoescape' is supported with the value false only: chat templates are not HTML");
    stmt->bodies.push_back(whole_body("endautoescape"));
    return stmt;
  }

  std::unique_ptr<Stmt> generation_statement(uint32_t at) {
    auto stmt = make_stmt(StmtType::Generation, at);
    const int loops = std::exchange(loops_, 0);
    stmt->bodies.push_back(whole_body("endgeneration"));
    loops_ = loops;
    ast_->has_generation = true;
    return stmt;
  }

  std::unique_ptr<Stmt> loop_control(uint32_t at, bool is_break) {
    if (loops_ == 0) fail(at, fmt::format("'{}' outside a loop", is_break ? "break" : "continue"));
    return make_stmt(is_break ? StmtType::Break : StmtType::Continue, at);
  }

  // ---- targets
  Target one_target(bool namespaces) {
    const Deeper deeper(*this);
    const uint32_t at = now().at;
    if (skip_op("(")) {
      Target inner = target(namespaces, "");
      expect_op(")");
      return inner;
    }
    Target to;
    to.at = at;
    if (now().type != TokenType::Name)
      fail(at, fmt::format("cannot assign to {}", describe(now())));
    to.name = take().text;
    for (const char* constant : {"true", "false", "none", "True", "False", "None"})
      if (to.name == constant) fail(at, fmt::format("cannot assign to '{}'", to.name));
    to.id = id_of(to.name);
    if (namespaces && skip_op(".")) {
      to.attribute = expect_name();
      note_load(to.id);
    } else {
      note_store(to.id);
    }
    return to;
  }

  Target target(bool namespaces, std::string_view end) {
    Target all;
    all.at = now().at;
    all.tuple = true;
    for (;;) {
      all.parts.push_back(one_target(namespaces));
      if (!skip_op(",")) break;
      if (now().is_operator(")") || now().type == TokenType::BlockEnd || now().is_operator("=") ||
          (!end.empty() && now().is_name(end)))
        return all;
    }
    if (all.parts.size() == 1) {
      Target only = std::move(all.parts[0]);
      return only;
    }
    return all;
  }

  // ---- expressions
  bool at_tuple_end(std::string_view end) const {
    return now().type == TokenType::VariableEnd || now().type == TokenType::BlockEnd ||
           now().is_operator(")") || (!end.empty() && now().is_name(end));
  }

  // One expression, or a tuple of several with commas between.
  ExprPtr tuple_expression(bool choices = true, std::string_view end = "", bool in_parentheses = false) {
    const uint32_t at = now().at;
    std::vector<ExprPtr> items;
    bool tuple = false;
    for (;;) {
      if (!items.empty()) expect_op(",");
      if (at_tuple_end(end)) break;
      items.push_back(choices ? expression() : or_expression());
      if (!now().is_operator(",")) break;
      tuple = true;
    }
    if (!tuple) {
      if (!items.empty()) return std::move(items[0]);
      if (!in_parentheses) fail(at, fmt::format("expected an expression, got {}", describe(now())));
    }
    auto expr = make(ExprType::Tuple, at);
    expr->args = std::move(items);
    return sealed(std::move(expr));
  }

  ExprPtr expression() {
    const Deeper deeper(*this);
    const uint32_t at = now().at;
    ExprPtr value = or_expression();
    while (skip_name("if")) {
      ExprPtr condition = or_expression();
      ExprPtr otherwise = skip_name("else") ? expression() : nullptr;
      value =
          sealed(make_of(ExprType::Choose, at, std::move(value), std::move(condition), std::move(otherwise)));
    }
    return value;
  }

  // Refuses an expression that is too high to be walked by functions that call themselves.
  ExprPtr sealed(ExprPtr expr) {
    const auto grow = [&](const ExprPtr& child) {
      if (child) expr->height = std::max(expr->height, child->height + 1);
    };
    for (const ExprPtr& child : expr->args) grow(child);
    for (const ExprPtr& child : expr->call.positional) grow(child);
    for (const auto& [name, child] : expr->call.keywords) grow(child);
    grow(expr->call.more);
    grow(expr->call.more_keywords);
    if (expr->height > kMostHeight)
      fail(expr->at, fmt::format("an expression of more than {} levels", kMostHeight));
    return expr;
  }

  ExprPtr or_expression() {
    const uint32_t at = now().at;
    ExprPtr left = and_expression();
    while (skip_name("or")) {
      left = sealed(make_of(ExprType::Or, at, std::move(left), and_expression()));
    }
    return left;
  }

  ExprPtr and_expression() {
    const uint32_t at = now().at;
    ExprPtr left = not_expression();
    while (skip_name("and")) {
      left = sealed(make_of(ExprType::And, at, std::move(left), not_expression()));
    }
    return left;
  }

  ExprPtr not_expression() {
    const Deeper deeper(*this);
    const uint32_t at = now().at;
    if (skip_name("not")) return sealed(make_of(ExprType::Not, at, not_expression()));
    return compare_expression();
  }

  std::optional<CompareOp> compare_op() {
    static constexpr std::pair<std::string_view, CompareOp> ops[] = {
        {"==", CompareOp::Equal},    {"!=", CompareOp::NotEqual}, {"<", CompareOp::Less},
        {"<=", CompareOp::LessEqual}, {">", CompareOp::Greater},  {">=", CompareOp::GreaterEqual}};
    for (const auto& [text, op] : ops)
      if (skip_op(text)) return op;
    if (skip_name("in")) return CompareOp::In;
    if (now().is_name("not") && ahead().is_name("in")) {
      take();
      take();
      return CompareOp::NotIn;
    }
    return std::nullopt;
  }

  ExprPtr compare_expression() {
    const uint32_t at = now().at;
    ExprPtr first = sum_expression();
    ExprPtr compare;
    while (const auto op = compare_op()) {
      if (!compare) compare = make_of(ExprType::Compare, at, std::move(first));
      compare->ops.push_back(*op);
      compare->args.push_back(sum_expression());
    }
    return compare ? sealed(std::move(compare)) : std::move(first);
  }

  template <class Next>
  ExprPtr chain(std::initializer_list<std::string_view> ops, Next next) {
    ExprPtr left = next();
    for (;;) {
      const Token& token = now();
      if (token.type != TokenType::Operator || std::find(ops.begin(), ops.end(), token.text) == ops.end())
        return left;
      const uint32_t at = token.at;
      std::string op = take().text;
      left = sealed(make_of(ExprType::Binary, at, std::move(left), next()));
      left->text = std::move(op);
    }
  }

  ExprPtr sum_expression() {
    return chain({"+", "-"}, [&] { return concat_expression(); });
  }
  ExprPtr concat_expression() {
    const uint32_t at = now().at;
    ExprPtr first = product_expression();
    if (!now().is_operator("~")) return first;
    ExprPtr all = make_of(ExprType::Concat, at, std::move(first));
    while (skip_op("~")) all->args.push_back(product_expression());
    return sealed(std::move(all));
  }
  ExprPtr product_expression() {
    return chain({"*", "/", "//", "%"}, [&] { return power_expression(); });
  }
  ExprPtr power_expression() {
    return chain({"**"}, [&] { return unary_expression(true); });
  }

  ExprPtr unary_expression(bool with_filters) {
    const Deeper deeper(*this);
    const uint32_t at = now().at;
    ExprPtr value;
    if (skip_op("-"))
      value = sealed(make_of(ExprType::Negate, at, unary_expression(false)));
    else if (skip_op("+"))
      value = sealed(make_of(ExprType::Plus, at, unary_expression(false)));
    else
      value = primary();
    value = postfix(std::move(value));
    return with_filters ? filters_and_tests(std::move(value)) : std::move(value);
  }

  ExprPtr constant(Value value, uint32_t at) {
    auto expr = make(ExprType::Constant, at);
    expr->constant = std::move(value);
    return expr;
  }

  ExprPtr primary() {
    const Deeper deeper(*this);
    const Token& token = now();
    const uint32_t at = token.at;
    switch (token.type) {
      case TokenType::Name: {
        const std::string name = take().text;
        if (name == "true" || name == "True") return constant(Value::boolean(true), at);
        if (name == "false" || name == "False") return constant(Value::boolean(false), at);
        if (name == "none" || name == "None") return constant(Value::none(), at);
        if (const char* why = unsupported_global(name)) fail(at, fmt::format("'{}' {}", name, why));
        auto expr = make(ExprType::Name, at);
        expr->id = id_of(name);
        expr->text = name;
        note_load(expr->id);
        return expr;
      }
      case TokenType::String: {
        std::string text = take().text;
        while (now().type == TokenType::String) text += take().text;
        return constant(Value::string(std::move(text)), at);
      }
      case TokenType::Integer:
      case TokenType::Float:
        return constant(take().number, at);
      default:
        break;
    }
    if (skip_op("(")) {
      ExprPtr value = tuple_expression(true, "", true);
      expect_op(")");
      return value;
    }
    if (skip_op("[")) return bracketed(ExprType::List, "]", at);
    if (skip_op("{")) return bracketed(ExprType::Dict, "}", at);
    fail(at, fmt::format("expected an expression, got {}", describe(token)));
  }

  ExprPtr bracketed(ExprType type, std::string_view end, uint32_t at) {
    auto expr = make(type, at);
    while (!now().is_operator(end)) {
      if (!expr->args.empty()) expect_op(",");
      if (now().is_operator(end)) break;
      expr->args.push_back(expression());
      if (type == ExprType::Dict) {
        expect_op(":");
        expr->args.push_back(expression());
      }
    }
    take();
    return sealed(std::move(expr));
  }

  ExprPtr postfix(ExprPtr value) {
    for (;;) {
      const uint32_t at = now().at;
      if (skip_op(".")) {
        value = attribute(std::move(value));
      } else if (skip_op("[")) {
        value = subscript(std::move(value), at);
      } else if (now().is_operator("(")) {
        value = call(std::move(value));
      } else {
        return value;
      }
    }
  }

  ExprPtr attribute(ExprPtr value) {
    const Token token = take();
    if (token.type == TokenType::Name) {
      auto expr = make_of(ExprType::Attribute, token.at, std::move(value));
      expr->text = token.text;
      return sealed(std::move(expr));
    }
    if (token.type != TokenType::Integer)
      fail(token.at, fmt::format("expected a name or a number after '.', got {}", describe(token)));
    return sealed(make_of(ExprType::Item, token.at, std::move(value), constant(token.number, token.at)));
  }

  ExprPtr subscript(ExprPtr value, uint32_t at) {
    if (now().is_operator("]")) fail(at, "expected an index between '[' and ']'");
    const auto part = [&]() -> ExprPtr {
      return now().is_operator(":") || now().is_operator("]") || now().is_operator(",") ? nullptr : expression();
    };
    ExprPtr first = part();
    if (now().is_operator(",")) fail(now().at, "an index of several parts is not supported");
    if (!skip_op(":")) {
      expect_op("]");
      return sealed(make_of(ExprType::Item, at, std::move(value), std::move(first)));
    }
    ExprPtr second = part();
    ExprPtr third = skip_op(":") ? part() : nullptr;
    expect_op("]");
    return sealed(
        make_of(ExprType::Slice, at, std::move(value), std::move(first), std::move(second), std::move(third)));
  }

  CallArgs call_args() {
    CallArgs args;
    const uint32_t at = now().at;
    expect_op("(");
    const auto require = [&](bool good) {
      if (!good) fail(at, "arguments of a call are out of order: values, then names = values, *list, **dict");
    };
    bool first = true;
    while (!now().is_operator(")")) {
      if (!first) {
        expect_op(",");
        if (now().is_operator(")")) break;
      }
      first = false;
      if (skip_op("*")) {
        require(!args.more && !args.more_keywords);
        args.more = expression();
      } else if (skip_op("**")) {
        require(!args.more_keywords);
        args.more_keywords = expression();
      } else if (now().type == TokenType::Name && ahead().is_operator("=")) {
        require(!args.more_keywords);
        const Token name = take();
        take();
        for (const auto& [other, value] : args.keywords)
          if (other == name.text) fail(name.at, fmt::format("the argument '{}' is given twice", name.text));
        args.keywords.emplace_back(name.text, expression());
      } else {
        require(!args.more && !args.more_keywords && args.keywords.empty());
        args.positional.push_back(expression());
      }
    }
    take();
    return args;
  }

  ExprPtr call(ExprPtr function) {
    auto expr = make_of(ExprType::Call, now().at, std::move(function));
    expr->call = call_args();
    return sealed(std::move(expr));
  }

  std::string dotted_name() {
    std::string name = expect_name();
    while (skip_op(".")) name += "." + expect_name();
    return name;
  }

  ExprPtr one_filter(ExprPtr value) {
    auto expr = make_of(ExprType::Filter, now().at, std::move(value));
    expr->text = dotted_name();
    expr->function = find_filter(expr->text);
    if (expr->function == nullptr) fail(expr->at, unknown_filter(expr->text));
    if (now().is_operator("(")) expr->call = call_args();
    return sealed(std::move(expr));
  }

  ExprPtr filters(ExprPtr value) {
    while (skip_op("|")) {
      value = one_filter(std::move(value));
    }
    return value;
  }

  ExprPtr filters_and_tests(ExprPtr value) {
    for (;;) {
      if (now().is_operator("|")) {
        value = filters(std::move(value));
      } else if (now().is_name("is")) {
        value = test(std::move(value));
      } else if (now().is_operator("(")) {
        value = call(std::move(value));
      } else {
        return value;
      }
    }
  }

  ExprPtr test(ExprPtr value) {
    const uint32_t at = take().at;
    const bool negated = skip_name("not");
    auto expr = make_of(ExprType::Test, now().at, std::move(value));
    expr->text = dotted_name();
    expr->function = find_test(expr->text);
    if (expr->function == nullptr) fail(expr->at, unknown_test(expr->text));
    const Token& token = now();
    if (token.is_operator("(")) {
      expr->call = call_args();
    } else if ((token.type == TokenType::Name && token.text != "else" && token.text != "or" &&
                token.text != "and") ||
               token.type == TokenType::String || token.type == TokenType::Integer ||
               token.type == TokenType::Float || token.is_operator("[") || token.is_operator("{")) {
      if (token.is_name("is")) fail(token.at, "tests with 'is' cannot be chained");
      expr->call.positional.push_back(postfix(primary()));
    }
    expr = sealed(std::move(expr));
    return negated ? sealed(make_of(ExprType::Not, at, std::move(expr))) : std::move(expr);
  }

  std::shared_ptr<Ast> ast_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0, loops_ = 0;
  std::unordered_map<std::string, int> ids_;
  std::vector<MacroUse> macros_;
  std::vector<std::string> blocks_;
};

}  // namespace

std::shared_ptr<const Ast> parse(std::string_view source) { return Parser(source).run(); }

}  // namespace quintet::chat::jinja
