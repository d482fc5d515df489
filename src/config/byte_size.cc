#include "config/byte_size.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <cmath>

namespace quintet::config {
namespace {

struct Unit {
  std::string_view name;
  int64_t bytes;
};
constexpr int64_t kKibi = 1024;
constexpr Unit kUnits[] = {{"TiB", kKibi* kKibi* kKibi* kKibi},
                           {"GiB", kKibi* kKibi* kKibi},
                           {"MiB", kKibi* kKibi},
                           {"KiB", kKibi},
                           {"TB", 1'000'000'000'000},
                           {"GB", 1'000'000'000},
                           {"MB", 1'000'000},
                           {"KB", 1'000},
                           {"B", 1}};

bool same_letters(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (std::tolower(static_cast<unsigned char>(a[i])) != std::tolower(static_cast<unsigned char>(b[i])))
      return false;
  return true;
}

}  // namespace

std::optional<int64_t> parse_byte_size(std::string_view text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  double number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + digits, number, std::chars_format::fixed);
  if (digits == 0 || error != std::errc() || end != text.data() + digits) return std::nullopt;
  std::string_view rest = text.substr(digits);
  if (rest.starts_with(' ')) rest.remove_prefix(1);
  int64_t unit = rest.empty() && digits == text.size() ? 1 : 0;
  for (const Unit& u : kUnits)
    if (same_letters(rest, u.name)) unit = u.bytes;
  const double bytes = std::floor(number * static_cast<double>(unit));
  constexpr double kMaxBytes = 4611686018427387904.0;  // 2^62
  if (unit == 0 || bytes > kMaxBytes || (number > 0 && bytes < 1)) return std::nullopt;
  return static_cast<int64_t>(bytes);
}

std::string byte_size_text(int64_t bytes) {
  for (const Unit& u : kUnits)
    if (u.name.size() == 3 && bytes > 0 && bytes % u.bytes == 0)
      return fmt::format("{}{}", bytes / u.bytes, u.name);
  return fmt::format("{}", bytes);
}

}  // namespace quintet::config
