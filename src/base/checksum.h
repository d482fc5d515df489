// XXH3-64, fed in pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace quintet::base {

class Checksum {
 public:
  Checksum();
  ~Checksum();
  void add(std::span<const std::byte> bytes);
  uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

uint64_t checksum_of(std::span<const std::byte> bytes);

}  // namespace quintet::base
