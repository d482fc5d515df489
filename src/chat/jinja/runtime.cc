#include "chat/jinja/runtime.h"

#include <algorithm>

#include "chat/jinja/text.h"

namespace quintet::chat::jinja {

std::vector<std::optional<Value>> Call::bind(std::initializer_list<std::string_view> names,
                                             size_t required) const {
  std::vector<std::optional<Value>> bound(names.size());
  if (args.size() > names.size())
    fault("'{}' takes at most {} arguments, got {}", name, names.size(), args.size());
  std::copy(args.begin(), args.end(), bound.begin());
  for (const auto& [key, value] : kwargs) {
    const auto* found = std::find(names.begin(), names.end(), key);
    if (found == names.end()) fault("'{}' has no argument named '{}'", name, key);
    auto& slot = bound[static_cast<size_t>(found - names.begin())];
    if (slot) fault("'{}' got two values for the argument '{}'", name, key);
    slot = value;
  }
  for (size_t i = 0; i < required; ++i)
    if (!bound[i]) fault("'{}' needs the argument '{}'", name, names.begin()[i]);
  return bound;
}

Runtime::~Runtime() {
  for (const auto& each : namespaces_) each->attributes.clear();
}

void Runtime::fail_steps() { fault("more than {} steps: the template does not seem to end", kMaxSteps); }

void Runtime::require_text(int64_t bytes) {
  if (bytes > kMaxText) fault("a string of {} bytes; at most {} are allowed", bytes, kMaxText);
  step(bytes / 16);
}

void Runtime::require_items(int64_t count) {
  if (count > kMaxItems) fault("a list of {} items; at most {} are allowed", count, kMaxItems);
  step(count);
}

Value Runtime::make_string(std::string text, bool markup) {
  require_text(static_cast<int64_t>(text.size()));
  return Value::string(std::move(text), markup);
}

Value Runtime::call(const Value& function, Call& call) {
  if (function.is_undefined()) fail_undefined(function);
  if (const auto callable = function.as<Callable>()) return callable->call(*this, call);
  const auto builtin = function.as<Function>();
  if (!builtin) fault("an object of type '{}' cannot be called", type_name(function));
  call.name = builtin->builtin->name;
  if (builtin->self) call.args.insert(call.args.begin(), *builtin->self);
  return builtin->builtin->apply(*this, call);
}

Value Runtime::make_namespace(std::vector<std::pair<std::string, Value>> attributes) {
  auto made = std::make_shared<Namespace>();
  made->attributes = std::move(attributes);
  namespaces_.push_back(made);
  return Value::object(std::move(made));
}

}  // namespace quintet::chat::jinja
