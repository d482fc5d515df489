#include "base/convert.h"

#include <cstring>

#include "base/error.h"
#include "base/f16.h"

namespace quintet::base {
namespace {

// f64 is narrowed in one step to f32, and through f32 to the 16-bit types, as everywhere in the engine.
template <class From, class To>
To converted(From v) {
  if constexpr (std::is_same_v<From, double> && std::is_same_v<To, double>)
    return v;
  else if constexpr (std::is_same_v<To, double> || std::is_same_v<To, float>)
    return static_cast<To>(static_cast<std::conditional_t<std::is_same_v<From, double>, double, float>>(v));
  else
    return To(static_cast<float>(v));
}

template <class From, class To>
void convert_loop(const std::byte* from, std::byte* to, int64_t count) {
  const From* const a = reinterpret_cast<const From*>(from);
  To* const b = reinterpret_cast<To*>(to);
  for (int64_t i = 0; i < count; ++i) b[i] = converted<From, To>(a[i]);
}

template <class From>
void convert_from(const std::byte* from, std::byte* to, DType to_type, int64_t count) {
  switch (to_type) {
    case DType::F64:
      return convert_loop<From, double>(from, to, count);
    case DType::F32:
      return convert_loop<From, float>(from, to, count);
    case DType::BF16:
      return convert_loop<From, Bf16>(from, to, count);
    case DType::F16:
      return convert_loop<From, F16>(from, to, count);
    default:
      fail_internal("elements cannot be converted to {}", to_string(to_type));
  }
}

}  // namespace

void convert_elements(const std::byte* from, DType from_type, std::byte* to, DType to_type, int64_t count) {
  if (from_type == to_type) {
    std::memcpy(to, from, static_cast<size_t>(count * size_of(to_type)));
    return;
  }
  switch (from_type) {
    case DType::F64:
      return convert_from<double>(from, to, to_type, count);
    case DType::F32:
      return convert_from<float>(from, to, to_type, count);
    case DType::BF16:
      return convert_from<Bf16>(from, to, to_type, count);
    case DType::F16:
      return convert_from<F16>(from, to, to_type, count);
    default:
      fail_internal("elements of {} cannot be converted", to_string(from_type));
  }
}

}  // namespace quintet::base
