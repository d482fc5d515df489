#include "hf/diff.h"

#include <fmt/ranges.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/convert.h"

namespace quintet::hf {

using base::DType;

namespace {

double integer_at(const std::byte* data, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::I64:
      return static_cast<double>(reinterpret_cast<const int64_t*>(data)[i]);
    case DType::I32:
      return reinterpret_cast<const int32_t*>(data)[i];
    case DType::I16:
      return reinterpret_cast<const int16_t*>(data)[i];
    default:
      return reinterpret_cast<const uint8_t*>(data)[i];
  }
}

void to_doubles(const std::byte* data, DType dtype, std::vector<double>& out) {
  if (base::is_floating(dtype))
    return base::convert_elements(data, dtype, reinterpret_cast<std::byte*>(out.data()), DType::F64,
                                  static_cast<int64_t>(out.size()));
  for (size_t i = 0; i < out.size(); ++i) out[i] = integer_at(data, dtype, static_cast<int64_t>(i));
}

void compare_tensor(TensorSource& a, const TensorInfo& ta, TensorSource& b, const TensorInfo& tb,
                    Difference& out) {
  if (ta.shape != tb.shape) {
    out.tensors.push_back(
        {.name = ta.name,
         .what = fmt::format("shape [{}] and [{}]", fmt::join(ta.shape, ", "), fmt::join(tb.shape, ", "))});
    return;
  }
  TensorDifference d{.name = ta.name, .what = {}};
  int64_t first = 0;
  std::vector<std::byte> other;
  std::vector<double> x, y;
  a.stream(ta, [&](std::span<const std::byte> elements) {
    const auto count = static_cast<int64_t>(elements.size()) / base::size_of(ta.dtype);
    other.resize(static_cast<size_t>(count * base::size_of(tb.dtype)));
    b.read(tb, first, other);
    first += count;
    if (ta.dtype == tb.dtype && std::memcmp(elements.data(), other.data(), other.size()) == 0) return;
    x.resize(static_cast<size_t>(count)), y.resize(x.size());
    to_doubles(elements.data(), ta.dtype, x);
    to_doubles(other.data(), tb.dtype, y);
    for (size_t i = 0; i < x.size(); ++i) {
      if (x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]))) continue;
      const double size = std::abs(x[i] - y[i]);
      const double distance = std::isfinite(size) ? size : std::numeric_limits<double>::infinity();
      if (d.elements++ == 0 || distance > d.largest)
        d.largest = distance, d.at = first - count + static_cast<int64_t>(i), d.a = x[i], d.b = y[i];
    }
  });
  out.elements += first;
  if (d.elements > 0)
    out.tensors.push_back(std::move(d));
  else if (ta.dtype != tb.dtype)
    out.types.push_back(fmt::format("{}: {} and {}", ta.name, to_string(ta.dtype), to_string(tb.dtype)));
}

}  // namespace

Difference compare(TensorSource& a, TensorSource& b) {
  Difference out;
  for (const TensorInfo& t : a.tensors()) {
    const TensorInfo* const other = b.find(t.name);
    if (other == nullptr) {
      out.only_a.push_back(t.name);
      continue;
    }
    ++out.compared;
    compare_tensor(a, t, b, *other, out);
  }
  for (const TensorInfo& t : b.tensors())
    if (a.find(t.name) == nullptr) out.only_b.push_back(t.name);
  return out;
}

}  // namespace quintet::hf
