// Strongly typed integers: a rank is not a value id, and bytes do not add to nanoseconds.
#pragma once

#include <fmt/format.h>

#include <compare>
#include <cstdint>
#include <functional>

namespace quintet::base {

template <class Tag, class Rep = int32_t>
struct Id {
  Rep value = -1;
  constexpr Id() = default;
  constexpr explicit Id(Rep v) : value(v) {}
  constexpr bool valid() const { return value >= 0; }
  constexpr size_t index() const { return static_cast<size_t>(value); }
  friend constexpr auto operator<=>(Id, Id) = default;
};

template <class Tag>
struct Quantity {
  int64_t value = 0;
  constexpr Quantity() = default;
  constexpr explicit Quantity(int64_t v) : value(v) {}
  friend constexpr auto operator<=>(Quantity, Quantity) = default;
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return Quantity(a.value + b.value); }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return Quantity(a.value - b.value); }
  friend constexpr Quantity operator*(Quantity a, int64_t k) { return Quantity(a.value * k); }
  constexpr Quantity& operator+=(Quantity b) { return value += b.value, *this; }
};

using RankId = Id<struct RankTag>;
using Bytes = Quantity<struct BytesTag>;
using Nanos = Quantity<struct NanosTag>;

}  // namespace quintet::base

template <class Tag, class Rep>
struct std::hash<quintet::base::Id<Tag, Rep>> {
  size_t operator()(quintet::base::Id<Tag, Rep> id) const { return std::hash<Rep>()(id.value); }
};
template <class Tag, class Rep>
struct fmt::formatter<quintet::base::Id<Tag, Rep>> : fmt::formatter<Rep> {
  template <class Ctx>
  auto format(quintet::base::Id<Tag, Rep> id, Ctx& ctx) const {
    return fmt::formatter<Rep>::format(id.value, ctx);
  }
};
