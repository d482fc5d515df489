// Reads Python pickles as data. Nothing is executed: a class or function is a name, a call of one an Object
// that holds the name and the arguments. Callers recognise the few objects that they know.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quintet::hf {

class Pickle {
 public:
  using Id = uint32_t;  // of a value
  enum class Kind : uint8_t { None, Bool, Int, Float, Text, List, Dict, Global, Object, Persistent };
  struct Value {
    Kind kind = Kind::None;
    int64_t integer = 0;  // Bool, Int
    double number = 0;    // Float
    // Text: also bytes. Global: "module.name".
    std::string text = {};
    // List: tuples, lists and sets. Object: what was appended. Persistent: the id.
    std::vector<Id> items = {};
    std::vector<std::pair<Id, Id>> pairs = {};  // Dict; Object: what was set
    Id callee = 0, arguments = 0, state = 0;    // Object; state 0: none
  };

  // UserError unless it is a pickle of protocol 2 to 5 without instructions that only run code.
  Pickle(std::string_view bytes, const std::string& source);

  Id root() const { return root_; }
  const Value& operator[](Id id) const { return values_[id]; }

  // Whether an object is the result of calling `name`, or an instance of the class.
  bool is_object(Id id, std::string_view name) const;
  // The value of a text key in a Dict or Object; null when absent.
  const Value* get(Id id, std::string_view key) const;
  Id get_id(Id id, std::string_view key) const;  // 0 when absent

 private:
  class Machine;
  std::vector<Value> values_;  // [0] is None
  Id root_ = 0;
};

}  // namespace quintet::hf
