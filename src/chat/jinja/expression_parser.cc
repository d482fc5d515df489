#include "chat/jinja/expression_parser.h"

#include <algorithm>

#include "base/error.h"
#include "chat/jinja/builtins.h"

namespace quintet::chat::jinja {
namespace {

constexpr int kMaxHeight = 500;  // of an expression; chains such as a + b + c nest too

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

}  // namespace

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

ExpressionParser::ExpressionParser(std::string_view source) : ast_(std::make_shared<Ast>()) {
  ast_->source = normalized_source(source);
  if (ast_->source.size() > (size_t{1} << 24))
    base::fail_user("chat template: {} bytes; at most 16 MiB are read", ast_->source.size());
  tokens_ = tokenize(ast_->source);
  for (const char* name : {"loop", "caller", "kwargs", "varargs"}) id_of(name);
}

bool ExpressionParser::at_tuple_end(std::string_view end) const {
  return now().type == TokenType::VariableEnd || now().type == TokenType::BlockEnd ||
         now().is_operator(")") || (!end.empty() && now().is_name(end));
}

// One expression, or a tuple of several with commas between.
ExprPtr ExpressionParser::tuple_expression(bool choices, std::string_view end, bool in_parentheses) {
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

ExprPtr ExpressionParser::expression() {
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
ExprPtr ExpressionParser::sealed(ExprPtr expr) {
  const auto grow = [&](const ExprPtr& child) {
    if (child) expr->height = std::max(expr->height, child->height + 1);
  };
  for (const ExprPtr& child : expr->args) grow(child);
  for (const ExprPtr& child : expr->call.positional) grow(child);
  for (const auto& [name, child] : expr->call.keywords) grow(child);
  grow(expr->call.more);
  grow(expr->call.more_keywords);
  if (expr->height > kMaxHeight)
    fail(expr->at, fmt::format("an expression of more than {} levels", kMaxHeight));
  return expr;
}

ExprPtr ExpressionParser::or_expression() {
  const uint32_t at = now().at;
  ExprPtr left = and_expression();
  while (skip_name("or")) {
    left = sealed(make_of(ExprType::Or, at, std::move(left), and_expression()));
  }
  return left;
}

ExprPtr ExpressionParser::and_expression() {
  const uint32_t at = now().at;
  ExprPtr left = not_expression();
  while (skip_name("and")) {
    left = sealed(make_of(ExprType::And, at, std::move(left), not_expression()));
  }
  return left;
}

ExprPtr ExpressionParser::not_expression() {
  const Deeper deeper(*this);
  const uint32_t at = now().at;
  if (skip_name("not")) return sealed(make_of(ExprType::Not, at, not_expression()));
  return compare_expression();
}

std::optional<CompareOp> ExpressionParser::compare_op() {
  static constexpr std::pair<std::string_view, CompareOp> ops[] = {
      {"==", CompareOp::Equal},     {"!=", CompareOp::NotEqual}, {"<", CompareOp::Less},
      {"<=", CompareOp::LessEqual}, {">", CompareOp::Greater},   {">=", CompareOp::GreaterEqual}};
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

ExprPtr ExpressionParser::compare_expression() {
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
ExprPtr ExpressionParser::chain(std::initializer_list<std::string_view> ops, Next next) {
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

ExprPtr ExpressionParser::sum_expression() {
  return chain({"+", "-"}, [&] { return concat_expression(); });
}
ExprPtr ExpressionParser::concat_expression() {
  const uint32_t at = now().at;
  ExprPtr first = product_expression();
  if (!now().is_operator("~")) return first;
  ExprPtr all = make_of(ExprType::Concat, at, std::move(first));
  while (skip_op("~")) all->args.push_back(product_expression());
  return sealed(std::move(all));
}
ExprPtr ExpressionParser::product_expression() {
  return chain({"*", "/", "//", "%"}, [&] { return power_expression(); });
}
ExprPtr ExpressionParser::power_expression() {
  return chain({"**"}, [&] { return unary_expression(true); });
}

ExprPtr ExpressionParser::unary_expression(bool with_filters) {
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

ExprPtr ExpressionParser::constant(Value value, uint32_t at) {
  auto expr = make(ExprType::Constant, at);
  expr->constant = std::move(value);
  return expr;
}

ExprPtr ExpressionParser::primary() {
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

ExprPtr ExpressionParser::bracketed(ExprType type, std::string_view end, uint32_t at) {
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

ExprPtr ExpressionParser::postfix(ExprPtr value) {
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

ExprPtr ExpressionParser::attribute(ExprPtr value) {
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

ExprPtr ExpressionParser::subscript(ExprPtr value, uint32_t at) {
  if (now().is_operator("]")) fail(at, "expected an index between '[' and ']'");
  const auto part = [&]() -> ExprPtr {
    return now().is_operator(":") || now().is_operator("]") || now().is_operator(",") ? nullptr
                                                                                      : expression();
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

CallArgs ExpressionParser::call_args() {
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

ExprPtr ExpressionParser::call(ExprPtr function) {
  auto expr = make_of(ExprType::Call, now().at, std::move(function));
  expr->call = call_args();
  return sealed(std::move(expr));
}

std::string ExpressionParser::dotted_name() {
  std::string name = expect_name();
  while (skip_op(".")) name += "." + expect_name();
  return name;
}

ExprPtr ExpressionParser::one_filter(ExprPtr value) {
  auto expr = make_of(ExprType::Filter, now().at, std::move(value));
  expr->text = dotted_name();
  expr->function = find_filter(expr->text);
  if (expr->function == nullptr) fail(expr->at, unknown_filter(expr->text));
  if (now().is_operator("(")) expr->call = call_args();
  return sealed(std::move(expr));
}

ExprPtr ExpressionParser::filters(ExprPtr value) {
  while (skip_op("|")) {
    value = one_filter(std::move(value));
  }
  return value;
}

ExprPtr ExpressionParser::filters_and_tests(ExprPtr value) {
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

ExprPtr ExpressionParser::test(ExprPtr value) {
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

}  // namespace quintet::chat::jinja
