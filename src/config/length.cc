#include "config/length.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

namespace quintet::config {
namespace {

struct Multiple {
  char letter;
  double factor;
};
constexpr std::array<Multiple, 4> kMultiples = {{{'T', 1e12}, {'B', 1e9}, {'M', 1e6}, {'K', 1e3}}};

struct UnitName {
  std::string_view one, many;
  Length::Unit unit;
};
constexpr std::array<UnitName, 3> kUnitNames = {{{"token", "tokens", Length::Unit::Tokens},
                                                 {"sequence", "sequences", Length::Unit::Sequences},
                                                 {"step", "steps", Length::Unit::Steps}}};
constexpr double kMaxExactInteger = 9007199254740992.0;  // 2^53

void skip_space(std::string_view& text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
}

}  // namespace

std::optional<Length> parse_length(std::string_view text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  double number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + digits, number, std::chars_format::fixed);
  if (digits == 0 || error != std::errc() || end != text.data() + digits) return std::nullopt;
  text.remove_prefix(digits);
  skip_space(text);
  for (const Multiple& m : kMultiples)
    if (text.size() > 1 && text[1] == ' ' && std::toupper(static_cast<unsigned char>(text[0])) == m.letter) {
      number = std::round(number * m.factor * 1e3) / 1e3;  // 1.1M is a whole number
      text.remove_prefix(1);
      break;
    }
  skip_space(text);
  if (number != std::floor(number) || number > kMaxExactInteger) return std::nullopt;
  for (const UnitName& u : kUnitNames)
    if (text == u.many || text == u.one) return Length{u.unit, number};
  return std::nullopt;
}

std::string length_text(const Length& length) {
  if (length.unit == Length::Unit::Fraction) return fmt::format("{:g} % of the run", 100 * length.value);
  std::string number = fmt::format("{}", static_cast<int64_t>(length.value));
  for (const Multiple& m : kMultiples)
    if (length.value >= m.factor && std::fmod(length.value, m.factor) == 0) {
      number = fmt::format("{}{}", static_cast<int64_t>(length.value / m.factor), m.letter);
      break;
    }
  for (const UnitName& u : kUnitNames)
    if (u.unit == length.unit) return fmt::format("{} {}", number, length.value == 1 ? u.one : u.many);
  return number;
}

namespace {

struct TimeUnit {
  std::string_view name;
  int64_t seconds;
};
constexpr std::array<TimeUnit, 3> kTimeUnits = {{{"h", 3600}, {"min", 60}, {"s", 1}}};
constexpr int64_t kLongestInterval = int64_t{1} << 30;

}  // namespace

std::optional<SaveInterval> parse_interval(std::string_view text) {
  if (text == "auto") return SaveInterval{SaveInterval::Unit::Auto, 0};
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0 || number > kLongestInterval) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  skip_space(text);
  if (text == "steps" || text == "step") return SaveInterval{SaveInterval::Unit::Steps, number};
  for (const TimeUnit& u : kTimeUnits)
    if (text == u.name && number > 0 && number <= kLongestInterval / u.seconds)
      return SaveInterval{SaveInterval::Unit::Seconds, number * u.seconds};
  return std::nullopt;
}

std::string interval_text(const SaveInterval& interval) {
  if (interval.unit == SaveInterval::Unit::Auto) return "auto";
  if (interval.unit == SaveInterval::Unit::Steps)
    return fmt::format("{} step{}", interval.value, interval.value == 1 ? "" : "s");
  for (const TimeUnit& u : kTimeUnits)
    if (interval.value % u.seconds == 0) return fmt::format("{}{}", interval.value / u.seconds, u.name);
  return {};
}

std::string nearest_interval(std::string_view text) {
  constexpr const char* kExample = "\"10min\"";
  constexpr std::array<TimeUnit, 5> kUnits = {{{"d", 86400}, {"h", 3600}, {"min", 60}, {"m", 60}, {"s", 1}}};
  const auto nearest = [](double value, double least) {
    return static_cast<int64_t>(std::clamp(std::round(value), least, static_cast<double>(kLongestInterval)));
  };
  if (text.starts_with("auto")) return "\"auto\"";
  double seconds = 0;
  for (bool is_first = true; !text.empty(); is_first = false) {
    skip_space(text);
    double number = 0;
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
    if (error != std::errc()) return kExample;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    skip_space(text);
    if (text.empty() && is_first) return fmt::format("{}", nearest(number, 0));  // steps
    const size_t letters = std::min(text.find_first_of("0123456789. "), text.size());
    const auto unit = std::find_if(kUnits.begin(), kUnits.end(),
                                   [&](const TimeUnit& u) { return u.name == text.substr(0, letters); });
    if (unit == kUnits.end()) return kExample;
    seconds += number * static_cast<double>(unit->seconds);
    text.remove_prefix(letters);
    skip_space(text);
  }
  if (seconds <= 0) return kExample;
  return fmt::format("\"{}\"", interval_text({SaveInterval::Unit::Seconds, nearest(seconds, 1)}));
}

}  // namespace quintet::config
