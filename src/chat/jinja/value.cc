#include "chat/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "chat/jinja/text.h"
#include "tokenizer/unicode.h"

namespace quintet::chat::jinja {
namespace {

constexpr int kMaxNested = 100;  // levels of data; a template may add as many

Value convert(const nlohmann::ordered_json& json, int depth) {
  using Type = nlohmann::ordered_json::value_t;
  if (depth > kMaxNested) fault("data is nested more than {} levels deep", kMaxNested);
  switch (json.type()) {
    case Type::boolean:
      return Value::boolean(json.get<bool>());
    case Type::number_integer:
      return Value::integer(json.get<int64_t>());
    case Type::number_unsigned: {
      const auto value = json.get<uint64_t>();
      if (value > static_cast<uint64_t>(INT64_MAX)) fault("the integer {} does not fit 64 bits", value);
      return Value::integer(static_cast<int64_t>(value));
    }
    case Type::number_float:
      return Value::number(json.get<double>());
    case Type::string:
      return Value::string(json.get_ref<const std::string&>());
    case Type::array: {
      Values items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(convert(item, depth + 1));
      return Value::list(std::move(items));
    }
    case Type::object: {
      std::vector<std::pair<Value, Value>> items;
      items.reserve(json.size());
      for (const auto& [key, item] : json.items())
        items.emplace_back(Value::string(key), convert(item, depth + 1));
      return Value::dict(std::move(items));
    }
    default:
      return Value::none();
  }
}

class ListIterator final : public Iterator {
 public:
  explicit ListIterator(Value list) : list_(std::move(list)) {}
  bool next(Value& item) override {
    if (at_ == list_.items().size()) return false;
    item = list_.items()[at_++];
    return true;
  }

 private:
  Value list_;
  size_t at_ = 0;
};

class KeyIterator final : public Iterator {
 public:
  explicit KeyIterator(Value dict) : dict_(std::move(dict)) {}
  bool next(Value& item) override {
    if (at_ == dict_.pairs().size()) return false;
    item = dict_.pairs()[at_++].first;
    return true;
  }

 private:
  Value dict_;
  size_t at_ = 0;
};

class CharacterIterator final : public Iterator {
 public:
  explicit CharacterIterator(Value text) : text_(std::move(text)) {}
  bool next(Value& item) override {
    const std::string& text = text_.text();
    if (at_ == text.size()) return false;
    const auto length = static_cast<size_t>(tokenizer::utf8_length(text[at_]));
    item = Value::string(text.substr(at_, length), text_.is_markup());
    at_ += length;
    return true;
  }

 private:
  Value text_;
  size_t at_ = 0;
};

class RangeIterator final : public Iterator {
 public:
  explicit RangeIterator(std::shared_ptr<Range> range) : range_(std::move(range)) {}
  bool next(Value& item) override {
    if (at_ == range_->count) return false;
    item = Value::integer(range_->begin + range_->step * at_++);
    return true;
  }

 private:
  std::shared_ptr<Range> range_;
  int64_t at_ = 0;
};

class ViewIterator final : public Iterator {
 public:
  explicit ViewIterator(std::shared_ptr<DictView> view) : view_(std::move(view)) {}
  bool next(Value& item) override {
    if (at_ == view_->dict.pairs().size()) return false;
    item = view_->item(at_++);
    return true;
  }

 private:
  std::shared_ptr<DictView> view_;
  size_t at_ = 0;
};

class GeneratorIterator final : public Iterator {
 public:
  explicit GeneratorIterator(std::shared_ptr<Generator> generator) : generator_(std::move(generator)) {}
  bool next(Value& item) override {
    if (generator_->at == generator_->items.size()) return false;
    item = generator_->items[generator_->at++];
    return true;
  }

 private:
  std::shared_ptr<Generator> generator_;
};

class NothingIterator final : public Iterator {
 public:
  bool next(Value&) override { return false; }
};

bool equal_values(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integer() && b.is_integer()) return a.as_int() == b.as_int();
    return a.as_float() == b.as_float();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::Undefined:
    case Kind::None:
      return true;
    case Kind::Str:
      return a.text() == b.text();
    case Kind::List:
    case Kind::Tuple:
      if (a.items().size() != b.items().size()) return false;
      for (size_t i = 0; i < a.items().size(); ++i)
        if (!equal_values(a.items()[i], b.items()[i])) return false;
      return true;
    case Kind::Dict:
      if (a.pairs().size() != b.pairs().size()) return false;
      for (const auto& [key, value] : a.pairs()) {
        const Value* other = find_key(b, key);
        if (other == nullptr || !equal_values(value, *other)) return false;
      }
      return true;
    default: {
      const auto x = a.as<Range>(), y = b.as<Range>();
      if (x && y)
        return x->count == y->count &&
               (x->count == 0 || (x->begin == y->begin && (x->count == 1 || x->step == y->step)));
      return a.identity() == b.identity();
    }
  }
}

}  // namespace

// Python prints the address of such an object: no two runs would give the same text.
std::string ObjectHeap::repr() const { fault("printing an object of type '{}' is not supported", type()); }

Generator::Generator(Values values, std::string_view kind) : items(std::move(values)), name(kind) {
  depth = depth_above(items);
}

int depth_above(const Value& value) {
  const int depth = value.identity() == nullptr ? 1 : value.identity()->depth + 1;
  if (depth > 2 * kMaxNested) fault("values are nested more than {} levels deep", 2 * kMaxNested);
  return depth;
}

int depth_above(const Values& values) {
  int depth = 1;
  for (const Value& value : values) depth = std::max(depth, depth_above(value));
  return depth;
}

Value Value::boolean(bool value) {
  Value v(Kind::Bool);
  v.scalar_.integer = value ? 1 : 0;
  return v;
}
Value Value::integer(int64_t value) {
  Value v(Kind::Int);
  v.scalar_.integer = value;
  return v;
}
Value Value::number(double value) {
  Value v(Kind::Float);
  v.scalar_.number = value;
  return v;
}
Value Value::string(std::string text, bool markup) {
  Value v(Kind::Str);
  auto heap = std::make_shared<StrHeap>();
  heap->text = std::move(text);
  heap->markup = markup;
  v.heap_ = std::move(heap);
  return v;
}
Value Value::list(Values items) {
  Value v(Kind::List);
  auto heap = std::make_shared<ListHeap>();
  heap->depth = depth_above(items);
  heap->items = std::move(items);
  v.heap_ = std::move(heap);
  return v;
}
Value Value::tuple(Values items) {
  Value v = list(std::move(items));
  v.kind_ = Kind::Tuple;
  return v;
}
Value Value::group(Value grouper, Value items) {
  Value v = tuple({std::move(grouper), std::move(items)});
  static_cast<ListHeap&>(*v.heap_).group = true;
  return v;
}
Value Value::dict(std::vector<std::pair<Value, Value>> items) {
  Value v(Kind::Dict);
  auto heap = std::make_shared<DictHeap>();
  for (const auto& [key, value] : items)
    heap->depth = std::max({heap->depth, depth_above(key), depth_above(value)});
  heap->items = std::move(items);
  v.heap_ = std::move(heap);
  return v;
}
Value Value::object(std::shared_ptr<ObjectHeap> object) {
  Value v(Kind::Object);
  v.heap_ = std::move(object);
  return v;
}
Value Value::undefined(std::string why) {
  Value v(Kind::Undefined);
  auto heap = std::make_shared<UndefinedHeap>();
  heap->why = std::move(why);
  v.heap_ = std::move(heap);
  return v;
}
Value Value::from_json(const nlohmann::ordered_json& json) { return convert(json, 0); }

int64_t Value::code_points() const {
  const auto& heap = static_cast<const StrHeap&>(*heap_);
  if (heap.length < 0) heap.length = count_code_points(heap.text);
  return heap.length;
}

const std::string& Value::why_undefined() const {
  static const std::string unknown = "the value is undefined";
  return heap_ ? static_cast<const UndefinedHeap&>(*heap_).why : unknown;
}

std::string type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::Undefined:
      return "Undefined";
    case Kind::None:
      return "NoneType";
    case Kind::Bool:
      return "bool";
    case Kind::Int:
      return "int";
    case Kind::Float:
      return "float";
    case Kind::Str:
      return value.is_markup() ? "Markup" : "str";
    case Kind::List:
      return "list";
    case Kind::Tuple:
      return "tuple";
    case Kind::Dict:
      return "dict";
    case Kind::Object:
      return std::string(value.as<ObjectHeap>()->type());
  }
  return "object";
}

bool truth(const Value& value) {
  switch (value.kind()) {
    case Kind::Undefined:
    case Kind::None:
      return false;
    case Kind::Bool:
    case Kind::Int:
      return value.as_int() != 0;
    case Kind::Float:
      return value.as_float() != 0;
    case Kind::Str:
      return !value.text().empty();
    case Kind::List:
    case Kind::Tuple:
      return !value.items().empty();
    case Kind::Dict:
      return !value.pairs().empty();
    case Kind::Object:
      return !has_length(value) || length_of(value) != 0;
  }
  return true;
}

bool equal(const Value& a, const Value& b) { return equal_values(a, b); }

bool is_same(const Value& a, const Value& b) {
  if (a.kind() != b.kind()) return false;
  if (a.kind() <= Kind::Float) return equal(a, b);
  if (a.identity() == b.identity()) return true;
  return a.is_string() && a.text() == b.text() && a.code_points() <= 1;
}

int order(const Value& a, const Value& b) {
  if (a.is_undefined()) fail_undefined(a);
  if (b.is_undefined()) fail_undefined(b);
  const auto compare = [](const auto& x, const auto& y) { return x < y ? -1 : y < x ? 1 : 0; };
  if (a.is_integer() && b.is_integer()) return compare(a.as_int(), b.as_int());
  if (a.is_number() && b.is_number()) {
    if (std::isnan(a.as_float()) || std::isnan(b.as_float())) return 2;  // no comparison holds
    return compare(a.as_float(), b.as_float());
  }
  // UTF-8 orders as code points do.
  if (a.is_string() && b.is_string()) return std::min(1, std::max(-1, a.text().compare(b.text())));
  if (a.is_sequence() && a.kind() == b.kind()) {
    const size_t common = std::min(a.items().size(), b.items().size());
    for (size_t i = 0; i < common; ++i)
      if (!equal(a.items()[i], b.items()[i])) return order(a.items()[i], b.items()[i]);
    return compare(a.items().size(), b.items().size());
  }
  fault("a {} and a {} cannot be ordered", type_name(a), type_name(b));
}

bool has_length(const Value& value) {
  return value.is_undefined() || value.is_string() || value.is_sequence() || value.is_dict() ||
         value.as<Range>() || value.as<DictView>();
}

int64_t length_of(const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_string()) return value.code_points();
  if (value.is_sequence()) return static_cast<int64_t>(value.items().size());
  if (value.is_dict()) return static_cast<int64_t>(value.pairs().size());
  if (const auto range = value.as<Range>()) return range->count;
  if (const auto view = value.as<DictView>()) return static_cast<int64_t>(view->dict.pairs().size());
  fault("an object of type '{}' has no length", type_name(value));
}

std::unique_ptr<Iterator> try_iterate(const Value& value) {
  switch (value.kind()) {
    case Kind::Undefined:
      return std::make_unique<NothingIterator>();
    case Kind::Str:
      return std::make_unique<CharacterIterator>(value);
    case Kind::List:
    case Kind::Tuple:
      return std::make_unique<ListIterator>(value);
    case Kind::Dict:
      return std::make_unique<KeyIterator>(value);
    case Kind::Object:
      if (const auto range = value.as<Range>()) return std::make_unique<RangeIterator>(range);
      if (const auto view = value.as<DictView>()) return std::make_unique<ViewIterator>(view);
      if (const auto items = value.as<Generator>()) return std::make_unique<GeneratorIterator>(items);
      return nullptr;
    default:
      return nullptr;
  }
}

std::unique_ptr<Iterator> iterate(const Value& value) {
  auto iterator = try_iterate(value);
  if (!iterator) fault("an object of type '{}' cannot be iterated", type_name(value));
  return iterator;
}

Values list_of(const Value& value) {
  if (value.is_sequence()) return value.items();
  const auto iterator = iterate(value);
  Values items;
  for (Value item; iterator->next(item);) items.push_back(item);
  return items;
}

bool contains(const Value& container, const Value& item) {
  if (container.is_string()) {
    if (item.is_undefined()) fail_undefined(item);
    if (!item.is_string()) fault("'in <string>' requires a string on its left, not {}", type_name(item));
    return container.text().find(item.text()) != std::string::npos;
  }
  if (container.is_dict()) {
    require_hashable(item);
    return find_key(container, item) != nullptr;
  }
  const auto iterator = try_iterate(container);
  if (!iterator) fault("an object of type '{}' cannot be searched with 'in'", type_name(container));
  for (Value each; iterator->next(each);)
    if (equal(each, item)) return true;
  return false;
}

const Value* find_key(const Value& dict, const Value& key) {
  if (key.is_string()) return find_key(dict, std::string_view(key.text()));
  for (const auto& [each, value] : dict.pairs())
    if (equal(each, key)) return &value;
  return nullptr;
}

const Value* find_key(const Value& dict, std::string_view key) {
  for (const auto& [each, value] : dict.pairs())
    if (each.is_string() && each.text() == key) return &value;
  return nullptr;
}

void require_hashable(const Value& key) {
  if (key.kind() == Kind::List || key.is_dict()) fault("a {} cannot be the key of a dict", type_name(key));
  if (key.kind() == Kind::Tuple)
    for (const Value& item : key.items()) require_hashable(item);
}

void set_key(std::vector<std::pair<Value, Value>>& items, Value key, Value value) {
  require_hashable(key);
  for (auto& [each, old] : items)
    if (equal(each, key)) {
      old = std::move(value);
      return;
    }
  items.emplace_back(std::move(key), std::move(value));
}

void fail_undefined(const Value& value) { throw TemplateFault(value.why_undefined()); }

std::string Range::repr() const {
  return step == 1 ? fmt::format("range({}, {})", begin, end)
                   : fmt::format("range({}, {}, {})", begin, end, step);
}

std::string_view DictView::type() const {
  return of == Of::Keys ? "dict_keys" : of == Of::Values ? "dict_values" : "dict_items";
}

Value DictView::item(size_t i) const {
  const auto& [key, value] = dict.pairs()[i];
  if (of == Of::Keys) return key;
  if (of == Of::Values) return value;
  return Value::tuple({key, value});
}

std::string DictView::repr() const {
  Values items;
  for (size_t i = 0; i < dict.pairs().size(); ++i) items.push_back(item(i));
  return fmt::format("{}({})", type(), repr_of(Value::list(std::move(items))));
}

std::string Namespace::repr() const {
  std::vector<std::pair<Value, Value>> pairs;
  for (const auto& [name, value] : attributes) pairs.emplace_back(Value::string(name), value);
  return "<Namespace " + repr_of(Value::dict(std::move(pairs))) + ">";
}

Value* Namespace::find(std::string_view name) {
  for (auto& [key, value] : attributes)
    if (key == name) return &value;
  return nullptr;
}

}  // namespace quintet::chat::jinja
