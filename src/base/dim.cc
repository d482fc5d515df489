#include "base/dim.h"

#include <algorithm>
#include <array>
#include <deque>
#include <limits>
#include <mutex>
#include <string>

#include "base/error.h"

namespace quintet::base {
namespace {

constexpr std::array<std::string_view, kNumBuiltInDims> kBuiltIn = {
    "tokens",     "embed", "heads",   "kv_heads", "head_dim", "ffn",     "vocab",
    "positions",  "flat",  "context", "latent",   "routes",   "choices", "experts",
    "expert_ffn", "slots", "routed",  "counts",   "types"};

struct UserDims {
  std::mutex mutex;
  std::deque<std::string> names;  // addresses stay
};
UserDims& user_dims() {
  static UserDims dims;
  return dims;
}

// With the mutex held.
std::optional<Dim> find_user_dim(const UserDims& dims, std::string_view name) {
  for (size_t i = 0; i < dims.names.size(); ++i)
    if (dims.names[i] == name) return static_cast<Dim>(kNumBuiltInDims + i);
  return std::nullopt;
}

}  // namespace

Dim intern_dim(std::string_view name) {
  if (const auto known = parse_dim(name)) return *known;
  const auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
  if (name.empty() || !std::all_of(name.begin(), name.end(), plain))
    fail_user("a dim's name is lower-case letters, digits and '_', got \"{}\"", name);
  UserDims& dims = user_dims();
  const std::lock_guard lock(dims.mutex);
  if (const auto known = find_user_dim(dims, name)) return *known;
  const size_t id = kNumBuiltInDims + dims.names.size();
  if (id > std::numeric_limits<uint16_t>::max()) fail_user("more than {} dims", id);
  dims.names.emplace_back(name);
  return static_cast<Dim>(id);
}

std::string_view to_string(Dim d) {
  if (!is_user_dim(d)) return kBuiltIn[static_cast<size_t>(d)];
  UserDims& dims = user_dims();
  const std::lock_guard lock(dims.mutex);
  const size_t i = static_cast<size_t>(d) - kNumBuiltInDims;
  QUINTET_CHECK(i < dims.names.size(), "dim {} was not interned", static_cast<int>(d));
  return dims.names[i];
}

std::optional<Dim> parse_dim(std::string_view text) {
  for (size_t i = 0; i < kBuiltIn.size(); ++i)
    if (kBuiltIn[i] == text) return static_cast<Dim>(i);
  UserDims& dims = user_dims();
  const std::lock_guard lock(dims.mutex);
  return find_user_dim(dims, text);
}

int64_t demanded(const DimDemands& demands, Dim dim) {
  int64_t size = 0;
  for (const DimDemand& d : demands)
    if (d.dim == dim) size = std::max(size, d.size);
  return size;
}

}  // namespace quintet::base
