// What a template says: expressions and statements, with the byte of the source where each begins.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "chat/jinja/value.h"

namespace quintet::chat::jinja {

enum class ExprType : uint8_t {
  Constant,
  Name,       // id
  List,       // args
  Tuple,      // args
  Dict,       // args: key, value, key, value, ...
  Attribute,  // args[0].text
  Item,       // args[0][args[1]]
  Slice,      // args[0][args[1]:args[2]:args[3]]; the last three may be null
  Call,       // args[0](call)
  Filter,     // args[0] | text(call); args[0] is null for the text of a block
  Test,       // args[0] is text(call)
  Not,
  And,
  Or,
  Negate,
  Plus,
  Binary,   // args[0] text args[1]
  Compare,  // args[0] ops[0] args[1] ops[1] args[2] ...
  Concat,   // args joined with ~
  Choose,   // args[0] if args[1] else args[2]; args[2] may be null
};

enum class CompareOp : uint8_t { Equal, NotEqual, Less, LessEqual, Greater, GreaterEqual, In, NotIn };

struct Builtin;
struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct CallArgs {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> keywords;
  ExprPtr more, more_keywords;  // *args, **kwargs; null if absent
};

struct Expr {
  ExprType type;
  uint32_t at = 0;
  int id = -1;  // of a name
  std::string text;
  Value constant;
  std::vector<ExprPtr> args;
  std::vector<CompareOp> ops;
  CallArgs call;
  const Builtin* function = nullptr;  // of filters and tests
  int height = 1;                     // levels of expressions, this one included
};

// Where an assignment goes: a name, an attribute of a namespace, or several of these.
struct Target {
  uint32_t at = 0;
  int id = -1;
  std::string name, attribute;  // attribute: of a namespace; else empty
  bool tuple = false;
  std::vector<Target> parts;
};

enum class StmtType : uint8_t {
  Text,
  Output,
  If,  // exprs[i] guards bodies[i]; one more body is the else
  For,
  Set,       // target = exprs[0]
  SetBlock,  // target = bodies[0], filtered by exprs[0] if there is one
  Macro,
  CallBlock,    // exprs[0] is the call; bodies[0] is what caller() gives
  FilterBlock,  // exprs[0] over bodies[0]
  With,         // targets = exprs
  Block,        // bodies[0], which sees the names of the top level only, or all (flag)
  Scope,        // bodies[0] with names of its own
  Generation,   // bodies[0] is what the assistant wrote
  Break,
  Continue,
};

struct Stmt;
using Body = std::vector<std::unique_ptr<Stmt>>;

struct Signature {
  std::string name;
  std::vector<std::pair<std::string, int>> arguments;  // with their ids
  std::vector<ExprPtr> defaults;                       // of the last arguments
  bool uses_caller = false, uses_kwargs = false, uses_varargs = false;
};

struct Stmt {
  StmtType type;
  uint32_t at = 0;
  std::string text;
  std::vector<ExprPtr> exprs;
  std::vector<Body> bodies;
  Target target;
  std::vector<Target> targets;
  Signature signature;
  int id = -1;        // of the macro's name
  bool flag = false;  // For: recursive; Block: scoped
};

struct Ast {
  std::string source;  // normalised
  Body body;
  std::vector<std::string> names;  // by id; the first ones are kFixedNames
  std::vector<std::pair<std::string, const Stmt*>> blocks;
  bool has_generation = false;
};

// Names with an id that the interpreter knows.
enum FixedName : int { kLoopName, kCallerName, kKwargsName, kVarargsName, kFixedNames };

}  // namespace quintet::chat::jinja
