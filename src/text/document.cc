#include "text/document.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"

namespace quintet::text {

template <class T>
bool Condition::holds(const T& value, const T& limit) const {
  switch (comparison_) {
    case Comparison::Equal:
      return value == limit;
    case Comparison::NotEqual:
      return value != limit;
    case Comparison::Less:
      return value < limit;
    case Comparison::AtMost:
      return value <= limit;
    case Comparison::Greater:
      return value > limit;
    case Comparison::AtLeast:
      return value >= limit;
  }
  base::fail_internal("no such comparison");
}

Condition::Condition(std::string_view spelled) {
  const size_t at = spelled.find_first_of("=!<>");
  const auto fail = [&] {
    base::fail_user(
        "'{}' is not a condition; expected FIELD OP VALUE with one of = != < <= > >=, such as "
        "\"lang=en\" or \"score>=0.5\"",
        base::printable(spelled));
  };
  if (at == std::string_view::npos || at == 0) fail();
  const bool two = spelled[at] != '=' && spelled.substr(at + 1).starts_with('=');
  if (spelled[at] == '!' && !two) fail();
  const auto trimmed = [](std::string_view s) {
    const size_t begin = s.find_first_not_of(' ');
    return begin == std::string_view::npos ? std::string_view()
                                           : s.substr(begin, s.find_last_not_of(' ') + 1 - begin);
  };
  field_ = trimmed(spelled.substr(0, at));
  switch (spelled[at]) {
    case '=':
      comparison_ = Comparison::Equal;
      break;
    case '!':
      comparison_ = Comparison::NotEqual;
      break;
    case '<':
      comparison_ = two ? Comparison::AtMost : Comparison::Less;
      break;
    default:
      comparison_ = two ? Comparison::AtLeast : Comparison::Greater;
  }
  word_ = trimmed(spelled.substr(at + (two ? 2 : 1)));
  if (field_.empty() || word_.empty()) fail();
  const auto [end, error] = std::from_chars(word_.data(), word_.data() + word_.size(), number_);
  is_number_ = error == std::errc() && end == word_.data() + word_.size();
}

bool Condition::matches(const nlohmann::json& object) const {
  const auto* value = value_at(object, field_);
  if (value == nullptr) return false;
  if (is_number_ && value->is_number()) return holds(value->get<double>(), number_);
  if (value->is_string()) return holds(value->get_ref<const std::string&>(), word_);
  if (value->is_boolean()) return holds<std::string>(value->get<bool>() ? "true" : "false", word_);
  return false;
}

std::vector<std::string> DocumentFormat::columns() const {
  std::vector<std::string> names = text.fields();
  for (const Condition& condition : where) names.push_back(condition.field());
  names.insert(names.end(), numbers.begin(), numbers.end());
  // {a.b} may be the column "a.b" or a field of the column "a".
  for (size_t i = 0, n = names.size(); i < n; ++i)
    for (size_t dot = names[i].find('.'); dot != std::string::npos; dot = names[i].find('.', dot + 1))
      names.push_back(names[i].substr(0, dot));
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

Document document_of(Record&& record, const DocumentFormat& format) {
  if (!record.damage.empty()) return {Outcome::Damaged, std::move(record.damage)};
  if (record.kind == FileKind::Text) {
    if (record.bytes.find('\0') != std::string::npos) return {Outcome::Binary, {}};
    return {Outcome::Document, std::move(record.bytes)};
  }
  const auto json = base::parse_json(record.bytes);
  if (json.is_discarded()) return {Outcome::Damaged, base::json_fault(record.bytes)};
  Document out;
  if (!std::ranges::all_of(format.where, [&](const Condition& c) { return c.matches(json); })) {
    out.outcome = Outcome::Filtered;
  } else if (!format.text.render(json, out.text)) {
    out.outcome = Outcome::Damaged;
  } else if (!format.numbers.empty()) {
    try {
      out.numbers = numbers_of(json, format.numbers);
    } catch (const base::UserError& error) {
      return {Outcome::Damaged, error.what()};
    }
  }
  return out;
}

std::vector<double> numbers_of(const nlohmann::json& object, const std::vector<std::string>& fields) {
  std::vector<double> numbers;
  for (const std::string& field : fields) {
    const nlohmann::json* value = value_at(object, field);
    if (value == nullptr || !value->is_number())
      base::fail_user("{} in the field \"{}\", which must hold a number",
                      value == nullptr ? "nothing" : "no number", base::printable(field));
    numbers.push_back(value->get<double>());
  }
  return numbers;
}

std::string damage_text(const base::Path& file, int64_t number, std::string_view reason) {
  // A file that breaks off names itself and the reason.
  return reason.find(file.string()) != std::string_view::npos
             ? std::string(reason)
             : fmt::format("{}:{}: {}", file.string(), number, reason);
}

}  // namespace quintet::text
