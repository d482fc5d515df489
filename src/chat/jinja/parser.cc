#include "chat/jinja/parser.h"

#include <algorithm>

#include "chat/jinja/expression_parser.h"

namespace quintet::chat::jinja {
namespace {

class Parser final : ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  std::shared_ptr<const Ast> run() {
    ast_->body = statements({});
    ast_->blocks = std::move(blocks_);
    return ast_;
  }

 private:
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
    stmt->bodies.push_back(block_body({"else", "endfor"}));
    --loops_;
    if (take().text == "else") stmt->bodies.push_back(whole_body("endfor"));
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
    const auto same = [&](const auto& block) { return block.first == stmt->text; };
    if (std::any_of(blocks_.begin(), blocks_.end(), same))
      fail(at, fmt::format("the block '{}' is defined twice", stmt->text));
    blocks_.emplace_back(stmt->text, stmt.get());
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
    if (now().type != TokenType::Name) fail(at, fmt::format("cannot assign to {}", describe(now())));
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

  int loops_ = 0;  // around the current token, within a macro
  std::vector<std::pair<std::string, const Stmt*>> blocks_;
};

}  // namespace

std::shared_ptr<const Ast> parse(std::string_view source) { return Parser(source).run(); }

}  // namespace quintet::chat::jinja
