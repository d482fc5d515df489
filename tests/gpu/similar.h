// Results of tensor cores compared with exact ones.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace quintet::tests {

// Probabilities and their gradients are rounded to bf16 (2^-9 of each) before they are multiplied; the errors
// of a sum grow like a random walk, so a result has an error of about 2^-9 of the root of the sum of its
// squared terms, which the root mean square of the results themselves bounds in size. 16 times that is far
// above random deviations, while a wrong mask or head causes an error of a whole root mean square. `carried`
// is a further absolute error of that kind.
inline void expect_similar(const std::vector<double>& got, const std::vector<double>& want, double rounding,
                           const char* what, double carried = 0) {
  ASSERT_EQ(got.size(), want.size());
  double squares = 0;
  int64_t finite = 0;
  for (const double w : want)
    if (std::isfinite(w)) squares += w * w, ++finite;
  const double size = std::sqrt(squares / static_cast<double>(std::max<int64_t>(finite, 1)));
  int wrong = 0;
  for (size_t i = 0; i < got.size() && wrong < 4; ++i) {
    if (got[i] == want[i]) continue;
    const double bound = 16 * rounding * (std::abs(want[i]) + size + carried);
    if (std::abs(got[i] - want[i]) <= bound) continue;
    ++wrong;
    ADD_FAILURE() << what << "[" << i << "] = " << got[i] << ", expected " << want[i] << ", allowed "
                  << bound;
  }
}
inline double root_mean_square(const std::vector<double>& values) {
  double squares = 0;
  for (const double v : values) squares += v * v;
  return std::sqrt(squares / static_cast<double>(values.size()));
}

// The backward pass reads o rounded to 16 bits, so dout . o of a row has an error of 2^-9 of the root of
// value_dim terms, each as large as dout times v where a row sees few keys. Times k it is an error of dq,
// times q one of dk, even where the terms of the result itself cancel.
inline double carried_error(double scale, int64_t value_dim, const std::vector<double>& dout,
                            const std::vector<double>& v) {
  return scale * std::sqrt(static_cast<double>(value_dim)) * root_mean_square(dout) * root_mean_square(v);
}

}  // namespace quintet::tests
