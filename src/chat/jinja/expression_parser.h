// Expressions of templates, and what the parser of statements shares with them: tokens, names, limits.
#pragma once

#include <optional>
#include <unordered_map>

#include "chat/jinja/ast.h"
#include "chat/jinja/lexer.h"

namespace quintet::chat::jinja {

inline constexpr int kMaxDepth = 150;  // of nested brackets and blocks

std::string describe(const Token& token);

class ExpressionParser {
 public:
  explicit ExpressionParser(std::string_view source);

 protected:
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
    explicit Deeper(ExpressionParser& parser) : parser_(parser) {
      if (++parser.depth_ > kMaxDepth)
        parser.fail(parser.now().at, fmt::format("nested more than {} levels deep", kMaxDepth));
    }
    ~Deeper() { --parser_.depth_; }
    ExpressionParser& parser_;
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

  // ---- expressions
  // One expression, or a tuple of several with commas between.
  ExprPtr tuple_expression(bool choices = true, std::string_view end = "", bool in_parentheses = false);
  ExprPtr expression();
  // Filters of `value`, which is null for the text of a block.
  ExprPtr filters(ExprPtr value);
  ExprPtr one_filter(ExprPtr value);

  std::shared_ptr<Ast> ast_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  std::vector<MacroUse> macros_;  // of the macros around the current token

 private:
  bool at_tuple_end(std::string_view end) const;
  ExprPtr sealed(ExprPtr expr);
  ExprPtr or_expression();
  ExprPtr and_expression();
  ExprPtr not_expression();
  std::optional<CompareOp> compare_op();
  ExprPtr compare_expression();
  template <class Next>
  ExprPtr chain(std::initializer_list<std::string_view> ops, Next next);
  ExprPtr sum_expression();
  ExprPtr concat_expression();
  ExprPtr product_expression();
  ExprPtr power_expression();
  ExprPtr unary_expression(bool with_filters);
  ExprPtr constant(Value value, uint32_t at);
  ExprPtr primary();
  ExprPtr bracketed(ExprType type, std::string_view end, uint32_t at);
  ExprPtr postfix(ExprPtr value);
  ExprPtr attribute(ExprPtr value);
  ExprPtr subscript(ExprPtr value, uint32_t at);
  CallArgs call_args();
  ExprPtr call(ExprPtr function);
  std::string dotted_name();
  ExprPtr filters_and_tests(ExprPtr value);
  ExprPtr test(ExprPtr value);

  std::unordered_map<std::string, int> ids_;
};

}  // namespace quintet::chat::jinja
