// Values of templates: what Python's None, bool, int, float, str, list, tuple, dict and a few objects are to
// Jinja. Strings are valid UTF-8 and are counted in code points. Lists and dicts never change once a template
// can see them, as in Jinja's immutable sandbox; namespaces, cyclers and iterators do.
//
// Integers have 64 bits; Python's have no limit. A result beyond 64 bits is refused.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quintet::chat::jinja {

// A template asked for something that is an error, or that Quintet does not support. The interpreter adds the
// line and the column and throws it as a UserError.
class TemplateFault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
template <class... Args>
[[noreturn]] void fault(fmt::format_string<Args...> text, Args&&... args) {
  throw TemplateFault(fmt::format(text, std::forward<Args>(args)...));
}

enum class Kind : uint8_t { Undefined, None, Bool, Int, Float, Str, List, Tuple, Dict, Object };

class Value;
struct ListHeap;
struct DictHeap;
using Values = std::vector<Value>;

// What a value of a kind from Str on (and an Undefined) points to.
struct Heap {
  virtual ~Heap() = default;
  int depth = 0;  // levels of values below it; limited, because values are walked and freed recursively
};
struct StrHeap final : Heap {
  std::string text;
  bool markup = false;          // of `safe` and `escape`: adding other text escapes that
  mutable int64_t length = -1;  // in code points, once counted
};
struct UndefinedHeap final : Heap {
  std::string why;  // the message when it is used
};

// One pass over the items of something.
class Iterator {
 public:
  virtual ~Iterator() = default;
  virtual bool next(Value& item) = 0;
};

// Anything else: functions, macros, ranges, views of dicts, generators, namespaces, loops.
struct ObjectHeap : Heap {
  virtual std::string_view type() const = 0;  // as Python names it
  virtual std::string repr() const;
};

class Value {
 public:
  Value() : kind_(Kind::Undefined) {}
  static Value none() { return Value(Kind::None); }
  static Value boolean(bool value);
  static Value integer(int64_t value);
  static Value number(double value);
  static Value string(std::string text, bool markup = false);
  static Value list(Values items);
  static Value tuple(Values items);
  static Value group(Value grouper, Value items);
  static Value dict(std::vector<std::pair<Value, Value>> items);
  static Value object(std::shared_ptr<ObjectHeap> object);
  static Value undefined(std::string why);
  static Value from_json(const nlohmann::ordered_json& json);

  Kind kind() const { return kind_; }
  bool is_undefined() const { return kind_ == Kind::Undefined; }
  bool is_none() const { return kind_ == Kind::None; }
  bool is_string() const { return kind_ == Kind::Str; }
  bool is_dict() const { return kind_ == Kind::Dict; }
  bool is_sequence() const { return kind_ == Kind::List || kind_ == Kind::Tuple; }
  bool is_integer() const { return kind_ == Kind::Int || kind_ == Kind::Bool; }  // bool is an int in Python
  bool is_number() const { return is_integer() || kind_ == Kind::Float; }

  bool as_bool() const { return scalar_.integer != 0; }
  int64_t as_int() const { return scalar_.integer; }  // of Int and Bool
  double as_float() const {
    return kind_ == Kind::Float ? scalar_.number : static_cast<double>(scalar_.integer);
  }
  const std::string& text() const { return static_cast<const StrHeap&>(*heap_).text; }
  bool is_markup() const { return is_string() && static_cast<const StrHeap&>(*heap_).markup; }
  int64_t code_points() const;  // of a string
  const Values& items() const;
  const std::vector<std::pair<Value, Value>>& pairs() const;
  bool is_group() const;
  const std::string& why_undefined() const;
  template <class T>
  std::shared_ptr<T> as() const {  // null if it is another type of object
    return kind_ == Kind::Object ? std::dynamic_pointer_cast<T>(heap_) : nullptr;
  }
  const Heap* identity() const { return heap_.get(); }

 private:
  explicit Value(Kind kind) : kind_(kind) {}
  Kind kind_;
  union {
    int64_t integer = 0;
    double number;
  } scalar_;
  std::shared_ptr<Heap> heap_;
};

struct ListHeap final : Heap {  // of lists and tuples
  Values items;
  bool group = false;  // a tuple of `groupby`, whose items have the names grouper and list
};
struct DictHeap final : Heap {
  std::vector<std::pair<Value, Value>> items;  // in order of insertion
};
inline const Values& Value::items() const { return static_cast<const ListHeap&>(*heap_).items; }
inline const std::vector<std::pair<Value, Value>>& Value::pairs() const {
  return static_cast<const DictHeap&>(*heap_).items;
}
inline bool Value::is_group() const {
  return kind_ == Kind::Tuple && static_cast<const ListHeap&>(*heap_).group;
}

// The depth of something that holds these values; a fault if it is too deep.
int depth_above(const Values& values);
int depth_above(const Value& value);

// "str", "dict", "list", "NoneType", ...
std::string type_name(const Value& value);
// Python's truth of a value: empty strings and containers, zero, None and undefined values are false.
bool truth(const Value& value);
bool equal(const Value& a, const Value& b);
bool is_same(const Value& a, const Value& b);  // Python's `is`
// -1, 0 or 1; a fault for values that Python does not order.
int order(const Value& a, const Value& b);
// Python's len(); a fault for what has no length.
int64_t length_of(const Value& value);
bool has_length(const Value& value);
// Python's iter(); null if the value is not iterable. The iterator keeps what it needs alive.
std::unique_ptr<Iterator> try_iterate(const Value& value);
std::unique_ptr<Iterator> iterate(const Value& value);  // a fault that names the type instead
Values list_of(const Value& value);
bool contains(const Value& container, const Value& item);  // Python's `in`
// The value of a key; null if there is none.
const Value* find_key(const Value& dict, const Value& key);
const Value* find_key(const Value& dict, std::string_view key);
void require_hashable(const Value& key);
// Inserts or replaces, as a Python dict does.
void set_key(std::vector<std::pair<Value, Value>>& items, Value key, Value value);
[[noreturn]] void fail_undefined(const Value& value);

// ---- objects

struct Range final : ObjectHeap {
  int64_t begin = 0, end = 0, step = 1, count = 0;
  std::string_view type() const override { return "range"; }
  std::string repr() const override;
};
// dict.keys(), .values(), .items().
struct DictView final : ObjectHeap {
  enum class Of { Keys, Values, Items } of = Of::Keys;
  Value dict;
  std::string_view type() const override;
  std::string repr() const override;
  Value item(size_t i) const;
};
// What `map`, `select`, `reverse`, ... give: can be iterated once, has no length and is always true.
struct Generator final : ObjectHeap {
  explicit Generator(Values values, std::string_view kind = "generator");
  Values items;
  size_t at = 0;
  std::string_view name;
  std::string_view type() const override { return name; }
};
struct Namespace final : ObjectHeap {
  std::vector<std::pair<std::string, Value>> attributes;
  std::string_view type() const override { return "TemplateNamespace"; }
  std::string repr() const override;  // of attributes that do not hold it
  Value* find(std::string_view name);
};

inline Value generator(Values items, std::string_view kind = "generator") {
  return Value::object(std::make_shared<Generator>(std::move(items), kind));
}

}  // namespace quintet::chat::jinja
