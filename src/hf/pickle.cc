#include "hf/pickle.h"

#include <bit>
#include <charconv>
#include <cstring>
#include <map>

#include "base/error.h"

namespace quintet::hf {

class Pickle::Machine {
 public:
  Machine(std::string_view bytes, const std::string& source, std::vector<Value>& values)
      : bytes_(bytes), source_(source), values_(values) {
    values_.emplace_back();
  }

  Id run() {
    for (;;) {
      const auto op = static_cast<uint8_t>(take(1)[0]);
      if (op == '.') return pop();
      step(op);
    }
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    base::fail_user("{}: not a pickle that Quintet reads: {} at byte {}", source_, why, at_);
  }

  std::string_view take(uint64_t count) {
    if (count > bytes_.size() - at_) fail("it ends early");
    const std::string_view part = bytes_.substr(at_, count);
    at_ += count;
    return part;
  }
  template <class T>
  T number() {
    T value{};
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::string_view line() {
    const size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) fail("a line without end");
    const std::string_view text = take(end - at_);
    take(1);
    return text;
  }
  int64_t decimal(std::string_view text) const {
    if (!text.empty() && text.back() == 'L') text.remove_suffix(1);
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) fail("a number that is not one");
    return value;
  }

  Id add(Value value) {
    values_.push_back(std::move(value));
    return static_cast<Id>(values_.size() - 1);
  }
  void push(Value value) { stack_.push_back(add(std::move(value))); }
  void push_text(std::string_view text) { push({.kind = Kind::Text, .text = std::string(text)}); }
  void push_int(int64_t v) { push({.kind = Kind::Int, .integer = v}); }
  Id pop() {
    if (stack_.empty() || (!marks_.empty() && stack_.size() <= marks_.back())) fail("the stack is empty");
    const Id id = stack_.back();
    stack_.pop_back();
    return id;
  }
  Id top() {
    const Id id = pop();
    stack_.push_back(id);
    return id;
  }
  std::vector<Id> pop_to_mark() {
    if (marks_.empty()) fail("no mark");
    std::vector<Id> items(stack_.begin() + static_cast<ptrdiff_t>(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }
  void push_list(std::vector<Id> items) { push({.kind = Kind::List, .items = std::move(items)}); }
  void push_pops(size_t count) {
    std::vector<Id> items(count);
    for (size_t i = count; i-- > 0;) items[i] = pop();
    push_list(std::move(items));
  }
  void append(Id to, const std::vector<Id>& items) {
    Value& value = values_[to];
    if (value.kind != Kind::List && value.kind != Kind::Object)
      fail("an append to something that is not a list");
    value.items.insert(value.items.end(), items.begin(), items.end());
  }
  void set(Id to, const std::vector<Id>& items) {
    Value& value = values_[to];
    if (value.kind != Kind::Dict && value.kind != Kind::Object)
      fail("an item of something that is not a dict");
    if (items.size() % 2 != 0) fail("a key without a value");
    for (size_t i = 0; i < items.size(); i += 2) value.pairs.emplace_back(items[i], items[i + 1]);
  }
  void push_global(std::string_view module, std::string_view name) {
    push({.kind = Kind::Global, .text = std::string(module) + "." + std::string(name)});
  }
  void push_object() {
    const Id arguments = pop(), callee = pop();
    push({.kind = Kind::Object, .callee = callee, .arguments = arguments});
  }
  void put(uint64_t index) { memo_[index] = top(); }
  void get_memo(uint64_t index) {
    const auto found = memo_.find(index);
    if (found == memo_.end()) fail("an unknown reference");
    stack_.push_back(found->second);
  }
  void push_long(std::string_view digits) {
    if (digits.size() > 8) return push_int(0);  // larger than any size or offset: never read
    uint64_t value = 0;
    std::memcpy(&value, digits.data(), digits.size());
    const size_t bits = digits.size() * 8;
    if (bits > 0 && bits < 64 && (value >> (bits - 1) & 1) != 0) value |= ~uint64_t{0} << bits;
    push_int(static_cast<int64_t>(value));
  }

  void step(uint8_t op) {
    switch (op) {
      case 0x80:
        if (const auto version = number<uint8_t>(); version > 5) fail("protocol " + std::to_string(version));
        return;
      case 0x95:
        take(8);  // a frame header: the stream continues inside the frame
        return;
      case '(':
        marks_.push_back(stack_.size());
        return;
      case '0':
        pop();
        return;
      case '1':
        pop_to_mark();
        return;
      case '2':
        stack_.push_back(top());
        return;
      case 'N':
        return push({});
      case 0x88:
      case 0x89:
        return push({.kind = Kind::Bool, .integer = op == 0x88});
      case 'J':
        return push_int(number<int32_t>());
      case 'K':
        return push_int(number<uint8_t>());
      case 'M':
        return push_int(number<uint16_t>());
      case 0x8a:
        return push_long(take(number<uint8_t>()));
      case 0x8b:
        return push_long(take(number<uint32_t>()));
      case 'I':
      case 'L':
        return push_int(decimal(line()));
      case 'G': {
        uint64_t bits = 0;
        for (const char c : take(8)) bits = bits << 8 | static_cast<uint8_t>(c);
        return push({.kind = Kind::Float, .number = std::bit_cast<double>(bits)});
      }
      case 'F':
        return push({.kind = Kind::Float, .number = std::strtod(std::string(line()).c_str(), nullptr)});
      case 'X':
      case 'T':
      case 'B':
        return push_text(take(number<uint32_t>()));
      case 0x8c:
      case 'U':
      case 'C':
        return push_text(take(number<uint8_t>()));
      case 0x8d:
      case 0x8e:
      case 0x96:
        return push_text(take(number<uint64_t>()));
      case 'V':
      case 'S':
        return push_text(line());
      case ')':
      case ']':
      case 0x8f:
        return push_list({});
      case 't':
      case 'l':
      case 0x91:
        return push_list(pop_to_mark());
      case 0x85:
      case 0x86:
      case 0x87:
        return push_pops(op - 0x84u);
      case 'a': {
        const Id item = pop();
        return append(top(), {item});
      }
      case 'e':
      case 0x90: {
        const std::vector<Id> items = pop_to_mark();
        return append(top(), items);
      }
      case '}':
        return push({.kind = Kind::Dict});
      case 'd': {
        const std::vector<Id> items = pop_to_mark();
        push({.kind = Kind::Dict});
        return set(top(), items);
      }
      case 's': {
        const Id value = pop(), key = pop();
        return set(top(), {key, value});
      }
      case 'u': {
        const std::vector<Id> items = pop_to_mark();
        return set(top(), items);
      }
      case 'q':
        return put(number<uint8_t>());
      case 'r':
        return put(number<uint32_t>());
      case 'p':
        return put(static_cast<uint64_t>(decimal(line())));
      case 0x94:
        return put(memo_.size());
      case 'h':
        return get_memo(number<uint8_t>());
      case 'j':
        return get_memo(number<uint32_t>());
      case 'g':
        return get_memo(static_cast<uint64_t>(decimal(line())));
      case 'c': {
        const std::string_view module = line();
        return push_global(module, line());
      }
      case 0x93: {
        const Id name = pop(), module = pop();
        if (values_[name].kind != Kind::Text || values_[module].kind != Kind::Text)
          fail("a class without a name");
        return push_global(std::string(values_[module].text), std::string(values_[name].text));
      }
      case 'R':
      case 0x81:
        return push_object();
      case 0x92:
        pop();  // keyword arguments
        return push_object();
      case 'b': {
        const Id state = pop(), object = top();
        if (values_[object].kind != Kind::Object) fail("a state of something that is not an object");
        values_[object].state = state;
        return;
      }
      case 'Q': {
        const Id id = pop();
        return push({.kind = Kind::Persistent, .items = {id}});
      }
      default:
        fail("instruction " + std::to_string(op) + " is not supported");
    }
  }

  std::string_view bytes_;
  const std::string& source_;
  std::vector<Value>& values_;
  size_t at_ = 0;
  std::vector<Id> stack_;
  std::vector<size_t> marks_;
  std::map<uint64_t, Id> memo_;
};

Pickle::Pickle(std::string_view bytes, const std::string& source) {
  root_ = Machine(bytes, source, values_).run();
}

bool Pickle::is_object(Id id, std::string_view name) const {
  const Value& v = values_[id];
  return v.kind == Kind::Object && values_[v.callee].kind == Kind::Global && values_[v.callee].text == name;
}

Pickle::Id Pickle::get_id(Id id, std::string_view key) const {
  // An instance keeps its fields in its state.
  const Value* v = &values_[id];
  if (v->kind == Kind::Object && v->pairs.empty()) v = &values_[v->state];
  for (const auto& [name, value] : v->pairs)
    if (values_[name].kind == Kind::Text && values_[name].text == key) return value;
  return 0;
}

const Pickle::Value* Pickle::get(Id id, std::string_view key) const {
  const Id found = get_id(id, key);
  return found == 0 ? nullptr : &values_[found];
}

}  // namespace quintet::hf
