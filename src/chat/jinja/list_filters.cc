// Filters of sequences and dicts.
#include <algorithm>

#include "chat/jinja/builtins.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/text.h"

namespace quintet::chat::jinja {
namespace {

Value folded(const Value& value, bool case_sensitive) {
  return !case_sensitive && value.is_string() ? Value::string(to_lower(value.text())) : value;
}

// The items of a value, counted as work.
Values items_of(Runtime& runtime, const Value& value) {
  Values items = list_of(value);
  runtime.step(static_cast<int64_t>(items.size()));
  return items;
}

struct Keyed {
  Value key, item;
};
void stable_by_key(Runtime& runtime, std::vector<Keyed>& items, bool reverse) {
  if (reverse) std::reverse(items.begin(), items.end());
  std::stable_sort(items.begin(), items.end(), [&](const Keyed& a, const Keyed& b) {
    runtime.step();
    return order(a.key, b.key) == -1;
  });
  if (reverse) std::reverse(items.begin(), items.end());
}

Value length_filter(Runtime&, Call& call) { return Value::integer(length_of(*call.bind({"obj"}, 1)[0])); }

Value list_filter(Runtime& runtime, Call& call) {
  return Value::list(items_of(runtime, *call.bind({"value"}, 1)[0]));
}

Value first_filter(Runtime&, Call& call) {
  const auto bound = call.bind({"seq"}, 1);
  Value item;
  if (iterate(*bound[0])->next(item)) return item;
  return Value::undefined("No first item, sequence was empty.");
}

bool is_reversible(const Value& value) {
  return value.is_undefined() || value.is_string() || value.is_sequence() || value.is_dict() ||
         value.as<Range>() || value.as<DictView>();
}

Value last_filter(Runtime& runtime, Call& call) {
  const auto bound = call.bind({"seq"}, 1);
  if (!is_reversible(*bound[0]))
    fault("'last' of a {}, which has no last item; use 'list' first", type_name(*bound[0]));
  const Values items = items_of(runtime, *bound[0]);
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value reverse_filter(Runtime& runtime, Call& call) {
  const auto bound = call.bind({"value"}, 1);
  Values items = items_of(runtime, *bound[0]);
  std::reverse(items.begin(), items.end());
  if (bound[0]->is_string()) {
    std::string text;
    for (const Value& item : items) text += item.text();
    return runtime.make_string(std::move(text), bound[0]->is_markup());
  }
  return is_reversible(*bound[0]) ? generator(std::move(items), "list_reverseiterator")
                                  : Value::list(std::move(items));
}

Value items_filter(Runtime&, Call& call) {
  const auto bound = call.bind({"value"}, 1);
  if (bound[0]->is_undefined()) return generator({});
  if (!bound[0]->is_dict()) fault("'items' needs a dict, not a {}", type_name(*bound[0]));
  Values pairs;
  for (const auto& [key, value] : bound[0]->pairs()) pairs.push_back(Value::tuple({key, value}));
  return generator(std::move(pairs));
}

Value attr_filter(Runtime& runtime, Call& call) {
  const auto bound = call.bind({"obj", "name"}, 2);
  const std::string& name = text_argument(*bound[1], "the name of 'attr'");
  // Unlike value.name, never an item.
  if (bound[0]->is_dict() && find_method(*bound[0], name) == nullptr)
    return Value::undefined(fmt::format("'dict object' has no attribute '{}'", name));
  return get_attribute(runtime, *bound[0], name);
}

Value join_filter(Runtime& runtime, Call& call) {
  const auto bound = call.bind({"value", "d", "attribute"}, 1);
  const std::string separator = bound[1] ? str_of(*bound[1]) : "";
  std::string out;
  bool first = true;
  const auto iterator = iterate(*bound[0]);
  for (Value item; iterator->next(item);) {
    if (bound[2] && !bound[2]->is_none()) item = get_path(runtime, item, *bound[2]);
    if (!first) out += separator;
    first = false;
    out += str_of(item);
    runtime.step();
    if (static_cast<int64_t>(out.size()) > kMaxText) runtime.require_text(kMaxText + 1);
  }
  return runtime.make_string(std::move(out));
}

Value map_filter(Runtime& runtime, Call& call) {
  if (call.args.empty()) fault("'map' needs a value");
  Values out;
  if (call.args.size() == 1 && !call.kwargs.empty()) {
    const Value* path = nullptr;
    const Value* fallback = nullptr;
    for (const auto& [name, value] : call.kwargs) {
      if (name != "attribute" && name != "default") fault("'map' has no argument named '{}'", name);
      (name == "attribute" ? path : fallback) = &value;
    }
    if (path == nullptr) fault("'map' needs the name of a filter, or attribute = ...");
    if (fallback != nullptr && fallback->is_none()) fallback = nullptr;
    for (const Value& item : items_of(runtime, call.args[0]))
      out.push_back(get_path(runtime, item, *path, fallback));
    return generator(std::move(out));
  }
  if (call.args.size() < 2) fault("'map' needs the name of a filter, or attribute = ...");
  const std::string& name = text_argument(call.args[1], "the filter of 'map'");
  const Builtin* filter = find_filter(name);
  if (filter == nullptr) fault("{}", unknown_filter(name));
  for (const Value& item : items_of(runtime, call.args[0])) {
    Call each{filter->name, Values(call.args.begin() + 2, call.args.end()), call.kwargs};
    each.args.insert(each.args.begin(), item);
    out.push_back(filter->apply(runtime, each));
  }
  return generator(std::move(out));
}

// select, reject, selectattr, rejectattr.
template <bool Attribute, bool Keep>
Value select_filter(Runtime& runtime, Call& call) {
  if (call.args.empty()) fault("'{}' needs a value", call.name);
  if (!truth(call.args[0])) return generator({});
  const size_t test_at = Attribute ? 2 : 1;
  if (call.args.size() < test_at) fault("'{}' needs the name of an attribute", call.name);
  const Builtin* test = nullptr;
  if (call.args.size() > test_at) {
    const std::string& name = text_argument(call.args[test_at], fmt::format("the test of '{}'", call.name));
    test = find_test(name);
    if (test == nullptr) fault("{}", unknown_test(name));
  }
  Values out;
  for (const Value& item : items_of(runtime, call.args[0])) {
    const Value tested = Attribute ? get_path(runtime, item, call.args[1]) : item;
    bool good;
    if (test == nullptr) {
      good = truth(tested);
    } else {
      Call each{test->name, Values(call.args.begin() + static_cast<int64_t>(test_at) + 1, call.args.end()),
                call.kwargs};
      each.args.insert(each.args.begin(), tested);
      good = truth(test->apply(runtime, each));
    }
    if (good == Keep) out.push_back(item);
  }
  return generator(std::move(out));
}

Value sort_filter(Runtime& runtime, Call& call) {
  const auto bound = call.bind({"value", "reverse", "case_sensitive", "attribute"}, 1);
  const bool case_sensitive = bound[2] && truth(*bound[2]);
  Values paths = {bound[3].value_or(Value::none())};
  if (paths[0].is_string()) {
    const std::string all = paths[0].text();
    paths.clear();
    for (size_t at = 0;;) {
      const size_t comma = all.find(',', at);
      paths.push_back(Value::string(all.substr(at, comma == std::string::npos ? comma : comma - at)));
      if (comma == std::string::npos) break;
      at = comma + 1;
    }
  }
  std::vector<Keyed> keyed;
  for (const Value& item : items_of(runtime, *bound[0])) {
    Values keys;
    for (const Value& path : paths) keys.push_back(folded(get_path(runtime, item, path), case_sensitive));
    keyed.push_back({Value::list(std::move(keys)), item});
  }
  stable_by_key(runtime, keyed, bound[1] && truth(*bound[1]));
  Values out;
  for (Keyed& each : keyed) out.push_back(std::move(each.item));
  return Value::list(std::move(out));
}

Value dictsort_filter(Runtime& runtime, Call& call) {
  const auto bound = call.bind({"value", "case_sensitive", "by", "reverse"}, 1);
  if (bound[0]->is_undefined()) fail_undefined(*bound[0]);
  if (!bound[0]->is_dict()) fault("'dictsort' needs a dict, not a {}", type_name(*bound[0]));
  const std::string by = bound[2] ? str_of(*bound[2]) : "key";
  if (by != "key" && by != "value") fault("'dictsort' sorts by \"key\" or \"value\", not \"{}\"", by);
  std::vector<Keyed> keyed;
  for (const auto& [key, value] : bound[0]->pairs())
    keyed.push_back(
        {folded(by == "key" ? key : value, bound[1] && truth(*bound[1])), Value::tuple({key, value})});
  stable_by_key(runtime, keyed, bound[3] && truth(*bound[3]));
  Values out;
  for (Keyed& each : keyed) out.push_back(std::move(each.item));
  return Value::list(std::move(out));
}

Value groupby_filter(Runtime& runtime, Call& call) {
  const auto bound = call.bind({"value", "attribute", "default", "case_sensitive"}, 2);
  const Value* fallback = bound[2] && !bound[2]->is_none() ? &*bound[2] : nullptr;
  const bool case_sensitive = bound[3] && truth(*bound[3]);
  std::vector<Keyed> keyed;
  for (const Value& item : items_of(runtime, *bound[0]))
    keyed.push_back({folded(get_path(runtime, item, *bound[1], fallback), case_sensitive), item});
  stable_by_key(runtime, keyed, false);
  Values out;
  for (size_t begin = 0; begin < keyed.size();) {
    size_t end = begin;
    Values members;
    while (end < keyed.size() && equal(keyed[end].key, keyed[begin].key))
      members.push_back(keyed[end++].item);
    Value grouper = get_path(runtime, members[0], *bound[1], fallback);
    out.push_back(Value::group(std::move(grouper), Value::list(std::move(members))));
    begin = end;
  }
  return Value::list(std::move(out));
}

Value unique_filter(Runtime& runtime, Call& call) {
  const auto bound = call.bind({"value", "case_sensitive", "attribute"}, 1);
  Values seen, out;
  for (const Value& item : items_of(runtime, *bound[0])) {
    Value key =
        folded(get_path(runtime, item, bound[2].value_or(Value::none())), bound[1] && truth(*bound[1]));
    require_hashable(key);
    runtime.step(static_cast<int64_t>(seen.size()));
    if (std::any_of(seen.begin(), seen.end(), [&](const Value& other) { return equal(other, key); }))
      continue;
    seen.push_back(std::move(key));
    out.push_back(item);
  }
  return generator(std::move(out));
}

template <int Sign>
Value extreme_filter(Runtime& runtime, Call& call) {
  const auto bound = call.bind({"value", "case_sensitive", "attribute"}, 1);
  const Values items = items_of(runtime, *bound[0]);
  if (items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  const auto key = [&](const Value& item) {
    return folded(get_path(runtime, item, bound[2].value_or(Value::none())), bound[1] && truth(*bound[1]));
  };
  size_t best = 0;
  Value best_key = key(items[0]);
  for (size_t i = 1; i < items.size(); ++i) {
    Value its = key(items[i]);
    if (order(its, best_key) != Sign) continue;
    best = i;
    best_key = std::move(its);
  }
  return items[best];
}

Value sum_filter(Runtime& runtime, Call& call) {
  const auto bound = call.bind({"iterable", "attribute", "start"}, 1);
  Value sum = bound[2].value_or(Value::integer(0));
  if (sum.is_string()) fault("'sum' does not add strings; use 'join'");
  for (const Value& item : items_of(runtime, *bound[0]))
    sum = binary(runtime, "+", sum, get_path(runtime, item, bound[1].value_or(Value::none())));
  return sum;
}

Value batch_filter(Runtime& runtime, Call& call) {
  const auto bound = call.bind({"value", "linecount", "fill_with"}, 2);
  const int64_t count = int_argument(*bound[1], "linecount");
  Values out, row;
  for (const Value& item : items_of(runtime, *bound[0])) {
    if (static_cast<int64_t>(row.size()) == count) out.push_back(Value::list(std::exchange(row, {})));
    row.push_back(item);
  }
  if (!row.empty()) {
    if (bound[2] && !bound[2]->is_none()) {
      runtime.require_items(count);
      while (static_cast<int64_t>(row.size()) < count) row.push_back(*bound[2]);
    }
    out.push_back(Value::list(std::move(row)));
  }
  return generator(std::move(out));
}

Value slice_filter(Runtime& runtime, Call& call) {
  const auto bound = call.bind({"value", "slices", "fill_with"}, 2);
  const Values items = items_of(runtime, *bound[0]);
  const int64_t slices = int_argument(*bound[1], "slices"), length = static_cast<int64_t>(items.size());
  if (slices == 0) fault("division by zero");
  runtime.require_items(slices);
  const int64_t share = slices > 0 ? length / slices : 0, extra = slices > 0 ? length % slices : 0;
  Values out;
  for (int64_t i = 0, at = 0; i < slices; ++i) {
    const int64_t size = share + (i < extra ? 1 : 0);
    Values part(items.begin() + at, items.begin() + at + size);
    if (bound[2] && !bound[2]->is_none() && i >= extra) part.push_back(*bound[2]);
    out.push_back(Value::list(std::move(part)));
    at += size;
  }
  return generator(std::move(out));
}

constexpr Builtin kListFilters[] = {
    {"attr", attr_filter},
    {"batch", batch_filter},
    {"count", length_filter},
    {"dictsort", dictsort_filter},
    {"first", first_filter},
    {"groupby", groupby_filter},
    {"items", items_filter},
    {"join", join_filter},
    {"last", last_filter},
    {"length", length_filter},
    {"list", list_filter},
    {"map", map_filter},
    {"max", extreme_filter<1>},
    {"min", extreme_filter<-1>},
    {"reject", select_filter<false, false>},
    {"rejectattr", select_filter<true, false>},
    {"reverse", reverse_filter},
    {"select", select_filter<false, true>},
    {"selectattr", select_filter<true, true>},
    {"slice", slice_filter},
    {"sort", sort_filter},
    {"sum", sum_filter},
    {"unique", unique_filter},
};

}  // namespace

std::span<const Builtin> list_filters() { return kListFilters; }

}  // namespace quintet::chat::jinja
