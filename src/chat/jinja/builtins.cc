// Names by table, and the global functions.
#include "chat/jinja/builtins.h"

#include <algorithm>
#include <ctime>

#include "base/printable.h"
#include "base/text.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/text.h"

namespace quintet::chat::jinja {
namespace {

const Builtin* entry_of(std::span<const Builtin> table, std::string_view name) {
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const Builtin& each) { return each.name == name; });
  return found == table.end() ? nullptr : &*found;
}

// Jinja's range, with the sandbox's limit.
Value range_global(Runtime&, Call& call) {
  if (!call.kwargs.empty()) fault("range takes no arguments by name");
  if (call.args.empty() || call.args.size() > 3) fault("range takes one to three integers");
  auto range = std::make_shared<Range>();
  const auto number = [&](size_t i) { return int_argument(call.args[i], "an argument of range"); };
  if (call.args.size() > 1) range->begin = number(0);
  range->end = number(call.args.size() == 1 ? 0 : 1);
  if (call.args.size() == 3) range->step = number(2);
  if (range->step == 0) fault("range: the step cannot be 0");
  const auto distance = static_cast<__int128>(range->end) - range->begin;
  const __int128 step = range->step;
  const __int128 count = step > 0 ? (distance + step - 1) / step : (-distance - step - 1) / -step;
  constexpr int64_t most = 100'000;
  if (count > most) fault("a range of more than {} items", most);
  range->count = std::max<int64_t>(static_cast<int64_t>(count), 0);
  if ((step > 0) != (distance > 0)) range->count = 0;
  return Value::object(std::move(range));
}

// dict(*args, **kwargs) of Python.
std::vector<std::pair<Value, Value>> dict_pairs(Runtime& runtime, const Call& call) {
  if (call.args.size() > 1) fault("'{}' takes at most one value by position", call.name);
  std::vector<std::pair<Value, Value>> pairs;
  if (!call.args.empty()) {
    const Value& from = call.args[0];
    if (from.is_dict()) {
      pairs = from.pairs();
    } else {
      for (const Value& item : list_of(from)) {
        const Values parts = list_of(item);
        if (parts.size() != 2) fault("'{}' needs pairs of a key and a value", call.name);
        runtime.step(static_cast<int64_t>(pairs.size()));
        set_key(pairs, parts[0], parts[1]);
      }
    }
  }
  for (const auto& [name, value] : call.kwargs) set_key(pairs, Value::string(name), value);
  return pairs;
}

Value dict_fromkeys(Runtime& runtime, Call& call) {
  const auto bound = call.bind({"iterable", "value"}, 1);
  std::vector<std::pair<Value, Value>> pairs;
  for (const Value& key : list_of(*bound[0])) {
    runtime.step(static_cast<int64_t>(pairs.size()));
    set_key(pairs, key, bound[1].value_or(Value::none()));
  }
  return Value::dict(std::move(pairs));
}
constexpr Builtin kFromKeys = {"dict.fromkeys", dict_fromkeys};

struct DictGlobal final : Callable, Attributes {
  std::string_view type() const override { return "TemplateDict"; }
  Value call(Runtime& runtime, Call& call) override {
    call.name = "dict";
    return Value::dict(dict_pairs(runtime, call));
  }
  std::optional<Value> attribute(Runtime&, const std::string& name) override {
    if (name != "fromkeys") return std::nullopt;
    auto function = std::make_shared<Function>();
    function->builtin = &kFromKeys;
    return Value::object(std::move(function));
  }
};

Value namespace_global(Runtime& runtime, Call& call) {
  std::vector<std::pair<std::string, Value>> attributes;
  for (const auto& [key, value] : dict_pairs(runtime, call)) {
    const std::string& name = text_argument(key, "the name of a namespace's attribute");
    if (name.starts_with('_')) fault("a namespace cannot have an attribute '{}' with an underscore", name);
    attributes.emplace_back(name, value);
  }
  return runtime.make_namespace(std::move(attributes));
}

struct Cycler final : ObjectHeap, Attributes, std::enable_shared_from_this<Cycler> {
  Values items;
  size_t at = 0;
  std::string_view type() const override { return "Cycler"; }
  std::optional<Value> attribute(Runtime& runtime, const std::string& name) override;
};
struct CyclerMethod final : Callable {
  std::shared_ptr<Cycler> cycler;
  bool reset = false;
  std::string_view type() const override { return "method"; }
  Value call(Runtime&, Call& call) override {
    call.bind({}, 0);
    const size_t now = cycler->at;
    cycler->at = reset ? 0 : (now + 1) % cycler->items.size();
    return reset ? Value::none() : cycler->items[now];
  }
};
std::optional<Value> Cycler::attribute(Runtime&, const std::string& name) {
  if (name == "current") return items[at];
  if (name != "next" && name != "reset") return std::nullopt;
  auto method = std::make_shared<CyclerMethod>();
  method->cycler = shared_from_this();
  method->reset = name == "reset";
  method->depth = depth + 1;
  return Value::object(std::move(method));
}
Value cycler_global(Runtime&, Call& call) {
  if (call.args.empty() || !call.kwargs.empty()) fault("cycler takes one or more values by position");
  auto cycler = std::make_shared<Cycler>();
  cycler->depth = depth_above(call.args);
  cycler->items = call.args;
  return Value::object(std::move(cycler));
}

struct Joiner final : Callable {
  Value separator;
  bool used = false;
  std::string_view type() const override { return "Joiner"; }
  Value call(Runtime&, Call& call) override {
    call.bind({}, 0);
    return std::exchange(used, true) ? separator : Value::string("");
  }
};
Value joiner_global(Runtime&, Call& call) {
  const auto bound = call.bind({"sep"}, 0);
  auto joiner = std::make_shared<Joiner>();
  joiner->separator = bound[0].value_or(Value::string(", "));
  joiner->depth = depth_above(joiner->separator);
  return Value::object(std::move(joiner));
}

Value raise_exception_global(Runtime&, Call& call) {
  fault("the template refuses the conversation: {}", base::printable(str_of(*call.bind({"message"}, 1)[0])));
}

Value strftime_now_global(Runtime& runtime, Call& call) {
  const std::string format = text_argument(*call.bind({"format"}, 1)[0], "the format of strftime_now");
  if (format.size() > 1000) fault("strftime_now: a format of more than 1,000 bytes");
  if (runtime.wall_seconds() < 0)
    fault(
        "the template writes today's date (strftime_now), so its text would differ from day to day; set "
        "data.chat.date = \"YYYY-MM-DD\"");
  const auto seconds = static_cast<time_t>(runtime.wall_seconds());
  std::tm local{};
  localtime_r(&seconds, &local);
  char text[20'000];
  const size_t size = std::strftime(text, sizeof text, format.c_str(), &local);
  return runtime.make_string(std::string(text, size));
}

constexpr Builtin kGlobals[] = {
    {"cycler", cycler_global},       {"joiner", joiner_global},
    {"namespace", namespace_global}, {"raise_exception", raise_exception_global},
    {"range", range_global},         {"strftime_now", strftime_now_global},
};

constexpr std::string_view kOtherFilters[] = {"random", "urlize"};

std::string unknown_name(std::string_view what, std::string_view name, std::vector<std::string> known) {
  const auto near = base::nearest_word(name, known);
  return fmt::format("there is no {} named '{}'{}", what, base::printable(name),
                     near ? "; did you mean '" + *near + "'?" : "");
}

}  // namespace

const Builtin* find_filter(std::string_view name) {
  for (const auto table : {text_filters(), list_filters(), layout_filters()})
    if (const Builtin* found = entry_of(table, name)) return found;
  return nullptr;
}
const Builtin* find_test(std::string_view name) { return entry_of(all_tests(), name); }

std::optional<Value> global_value(std::string_view name) {
  if (name == "dict") return Value::object(std::make_shared<DictGlobal>());
  const Builtin* found = entry_of(kGlobals, name);
  if (found == nullptr) return std::nullopt;
  auto function = std::make_shared<Function>();
  function->builtin = found;
  return Value::object(std::move(function));
}

std::string unknown_filter(std::string_view name) {
  if (std::find(std::begin(kOtherFilters), std::end(kOtherFilters), name) != std::end(kOtherFilters))
    return fmt::format("Jinja's filter '{}' is not supported in chat templates", name);
  std::vector<std::string> known;
  for (const auto table : {text_filters(), list_filters(), layout_filters()})
    for (const Builtin& each : table) known.emplace_back(each.name);
  return unknown_name("filter", name, std::move(known));
}

std::string unknown_test(std::string_view name) {
  std::vector<std::string> known;
  for (const Builtin& each : all_tests()) known.emplace_back(each.name);
  return unknown_name("test", name, std::move(known));
}

const char* unsupported_global(std::string_view name) {
  if (name == "lipsum") return "gives random text, which is not supported in chat templates";
  if (name == "super") return "refers to blocks of other templates, which is not supported in chat templates";
  return nullptr;
}

}  // namespace quintet::chat::jinja
