#include "cli/number.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <optional>
#include <string>

#include "config/byte_size.h"

namespace quintet::cli {
namespace {

template <class T>
std::optional<T> parse(const std::string& text) {
  T value = 0;
  const char* const begin = text.data() + (text.starts_with('+') ? 1 : 0);
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

CLI::Validator validator(std::string bounds, std::function<bool(const std::string&)> accepts) {
  CLI::Validator made;
  made.description("").operation(
      [bounds = std::move(bounds), accepts = std::move(accepts)](std::string& text) {
        return accepts(text) ? std::string() : fmt::format("must be {}, got '{}'", bounds, text);
      });
  return made;
}

}  // namespace

CLI::Validator integer_in(int64_t min, int64_t max) {
  const std::string bounds = max == std::numeric_limits<int64_t>::max()
                                 ? fmt::format("an integer of at least {}", min)
                                 : fmt::format("an integer of at least {} and at most {}", min, max);
  CLI::Validator made;
  made.description("").operation([=](std::string& text) {
    const auto accepted = [&](int64_t v) { return v >= min && v <= max; };
    const auto value = parse<int64_t>(text);
    if (value && accepted(*value)) return std::string();
    // 1e6 is a number, but not how options spell integers.
    const auto real = parse<double>(text);
    const bool whole = !value && real && *real == std::floor(*real) && std::abs(*real) < 0x1p53;
    const bool helps = whole && accepted(static_cast<int64_t>(*real));
    return fmt::format("must be {}, got '{}'{}", bounds, text,
                       helps ? fmt::format("; did you mean {:.0f}?", *real) : std::string());
  });
  return made;
}

CLI::Validator number_in(double min, double max) {
  return validator(fmt::format("a finite number of at least {:g} and at most {:g}", min, max),
                   [=](const std::string& text) {
                     const auto value = parse<double>(text);
                     return value && std::isfinite(*value) && *value >= min && *value <= max;
                   });
}

CLI::Validator byte_size(int64_t min) {
  CLI::Validator made;
  made.description("").operation([min](std::string& text) {
    const auto bytes = config::parse_byte_size(text);
    if (!bytes || *bytes < min)
      return fmt::format("must be a size of at least {}, such as 5GB or 512MiB, got '{}'",
                         config::byte_size_text(min), text);
    text = std::to_string(*bytes);
    return std::string();
  });
  return made;
}

CLI::Validator number_above_zero(double max) {
  return validator(fmt::format("a finite number above 0 and at most {:g}", max),
                   [=](const std::string& text) {
                     const auto value = parse<double>(text);
                     return value && std::isfinite(*value) && *value > 0 && *value <= max;
                   });
}

}  // namespace quintet::cli
