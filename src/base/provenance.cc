#include "base/provenance.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "base/file.h"

namespace quintet::base {
namespace {

// A word as a shell reads it back.
std::string shell_word(const std::string& word) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("-_./=:,+@%").find(c) != std::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), is_plain)) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace

std::string utc_text() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  std::array<char, 32> text{};
  if (::gmtime_r(&now, &parts) == nullptr) return {};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &parts)};
}

std::string command_line() {
  constexpr const char* kFile = "/proc/self/cmdline";
  if (!file_exists(kFile)) return {};
  const std::string text = read_file(kFile);
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\0', at), text.size());
    if (!out.empty()) out += ' ';
    out += shell_word(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

std::string host_name() {
  std::array<char, 256> host = {};
  if (::gethostname(host.data(), host.size() - 1) != 0) return {};
  return host.data();
}

}  // namespace quintet::base
