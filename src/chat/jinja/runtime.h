// What filters, tests, methods and operators share while a template renders: calls, and limits on the
// work and the memory that a template, which comes from outside, may use.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "chat/jinja/value.h"

namespace quintet::chat::jinja {

constexpr int64_t kMaxText = int64_t{16} << 20;  // bytes of one string
constexpr int64_t kMaxItems = 1'000'000;         // of one list that a template makes
constexpr int64_t kMaxSteps = 5'000'000;         // of one rendering
constexpr int kMaxFrames = 1'000;                // expressions and statements within each other

class Runtime;

// The arguments of a call, evaluated.
struct Call {
  std::string_view name;  // of what is called, for messages
  Values args;
  std::vector<std::pair<std::string, Value>> kwargs;

  // The arguments in the order of `names`, which kwargs may use; absent ones are empty. A fault for one too
  // many, for an unknown name, and for a missing one among the first `required`.
  std::vector<std::optional<Value>> bind(std::initializer_list<std::string_view> names,
                                         size_t required) const;
};

// A filter, a test, a method or a global function. Filters, tests and methods get the value as args[0].
struct Builtin {
  std::string_view name;
  Value (*apply)(Runtime& runtime, Call& call);
};

struct Function final : ObjectHeap {
  const Builtin* builtin = nullptr;
  std::optional<Value> self;  // of a method
  std::string_view type() const override { return self ? "builtin_function_or_method" : "function"; }
};

// An object that can be called: macros, loops, cyclers' kin.
struct Callable : ObjectHeap {
  virtual Value call(Runtime& runtime, Call& call) = 0;
};
// An object with attributes of its own.
struct Attributes {
  virtual ~Attributes() = default;
  virtual std::optional<Value> attribute(Runtime& runtime, const std::string& name) = 0;
};

class Runtime {
 public:
  explicit Runtime(int64_t seconds) : wall_seconds_(seconds) {}
  virtual ~Runtime();
  Runtime(const Runtime&) = delete;

  void step(int64_t count = 1) {
    steps_ += count;
    if (steps_ > kMaxSteps) fail_steps();
  }
  // Memory for a new string, or a list: refused when it is too large, counted as work.
  void require_text(int64_t bytes);
  void require_items(int64_t count);
  Value make_string(std::string text, bool markup = false);

  Value call(const Value& function, Call& call);
  // Namespaces may hold each other: their attributes are dropped when the rendering ends.
  Value make_namespace(std::vector<std::pair<std::string, Value>> attributes);
  int64_t wall_seconds() const { return wall_seconds_; }

 private:
  [[noreturn]] static void fail_steps();
  int64_t steps_ = 0, wall_seconds_;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
};

}  // namespace quintet::chat::jinja
