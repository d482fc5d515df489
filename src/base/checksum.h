// XXH3: 64 bits computed in pieces, and 128 bits of a text, to identify it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace quintet::base {

class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(Checksum&&) noexcept;
  Checksum& operator=(Checksum&&) noexcept;
  void add(std::span<const std::byte> bytes);
  uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

uint64_t checksum_of(std::span<const std::byte> bytes);

struct Hash {
  uint64_t low = 0, high = 0;
  friend bool operator==(const Hash&, const Hash&) = default;
};
Hash hash_of(std::string_view text);

}  // namespace quintet::base
