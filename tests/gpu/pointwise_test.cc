#include "kernels/cuda/elementwise/pointwise.h"

#include "base/philox.h"
#include "gpu/device.h"
#include "kernels/cpu/elementwise/activation.h"
#include "kernels/cpu/elementwise/dropout.h"
#include "kernels/cpu/elementwise/rope.h"
#include "kernels/cuda/elementwise/activation.h"
#include "kernels/cuda/elementwise/dropout.h"
#include "kernels/cuda/elementwise/rope.h"
#include "kernels/cuda/optimizer/scalars.h"
#include "kernels/cuda/reduce/reduce.h"
#include "kernels/cuda/support/touched_bytes.h"

namespace quintet::kernels::cuda::test {
namespace {

template <class T>
class GpuPointwise : public testing::Test {};
TYPED_TEST_SUITE(GpuPointwise, cpu::test::AllTypes);

constexpr int64_t kCounts[] = {1, 7, 16, 1000, 4099, 70001};

template <class X, class Y>
void check_pair() {
  for (int64_t n : kCounts)
    for (int64_t shift : kShifts) {
      const auto x = random_values<X>(n, 1), y = random_values<Y>(n, 2);
      Device<X> bx(x, shift);
      Device<Y> to(n, shift), sum(y, shift);
      cast<X, Y>(bx.data(), to.data(), n, nullptr);
      accumulate<X, Y>(bx.data(), sum.data(), 0.75, n, nullptr);
      std::vector<double> want_cast, want_sum;
      for (size_t i = 0; i < x.size(); ++i) {
        want_cast.push_back(value(element<Y>(x[i])));
        want_sum.push_back(y[i] + 0.75 * x[i]);
      }
      // bf16 and f16 of a double go through f32: two roundings where the reference has one.
      const double twice = std::is_same_v<X, double> && cpu::test::kHalf<Y> ? 1 : 0;
      expect_close(to, want_cast, twice, "cast");
      expect_close(
          sum, want_sum, 2, [&](size_t i) { return std::abs(x[i]) + std::abs(y[i]); }, "accumulate");
    }
}

TEST(GpuConvert, AllPairs) {
  cpu::test::every_pair([]<class X, class Y>() { check_pair<X, Y>(); });
}

TYPED_TEST(GpuPointwise, AddFillScale) {
  using T = TypeParam;
  for (int64_t n : kCounts)
    for (int64_t shift : kShifts) {
      const auto a = random_values<T>(n, 1), b = random_values<T>(n, 2);
      Device<T> ba(a, shift), bb(b, shift), c(n, shift), filled(n, shift), scaled(n, shift);
      add<T>(ba.data(), bb.data(), c.data(), n, nullptr);
      fill<T>(filled.data(), 1.25, n, nullptr);
      scale<T>(ba.data(), -0.5, scaled.data(), n, nullptr);
      std::vector<double> sum, half;
      for (size_t i = 0; i < a.size(); ++i) {
        sum.push_back(a[i] + b[i]);
        half.push_back(value(element<T>(-0.5 * a[i])));  // a subnormal half may need rounding
      }
      expect_close(c, sum, 1, "add");
      EXPECT_EQ(filled.values(), std::vector<double>(a.size(), 1.25));
      EXPECT_EQ(scaled.values(), half);
      zero(c.data(), static_cast<int64_t>(c.bytes()), nullptr);
      EXPECT_EQ(c.values(), std::vector<double>(a.size(), 0.0));
    }
}

TYPED_TEST(GpuPointwise, BiasAndColumnSum) {
  using T = TypeParam;
  for (const auto& [rows, n] :
       {std::pair<int64_t, int64_t>{1, 1}, {33, 7}, {1000, 768}, {5001, 130}, {2, 40000}})
    for (int64_t shift : kShifts) {
      const auto x = random_values<T>(rows * n, 1), b = random_values<T>(n, 2),
                 old = random_values<float>(n, 3);
      Device<T> bx(x, shift), bb(b, shift), y(rows * n, shift);
      Device<Stat<T>> sums(n), more(old);
      Device<uint8_t> workspace(column_sum_workspace_bytes<T>(rows, n));
      add_bias<T>(bx.data(), bb.data(), y.data(), rows, n, nullptr);
      column_sum<T>(bx.data(), sums.data(), false, rows, n, workspace.data(), nullptr);
      column_sum<T>(bx.data(), more.data(), true, rows, n, workspace.data(), nullptr);
      std::vector<double> want(x.size()), total(static_cast<size_t>(n)), size(total), added(old);
      for (size_t i = 0; i < x.size(); ++i) {
        const size_t column = i % static_cast<size_t>(n);
        want[i] = x[i] + b[column];
        total[column] += x[i];
        added[column] += x[i];
        size[column] += std::abs(x[i]) + 1;
      }
      expect_close(y, want, 1, "add_bias");
      expect_close(
          sums, total, 64, [&](size_t i) { return size[i]; }, "column_sum");
      expect_close(
          more, added, 64, [&](size_t i) { return size[i]; }, "column_sum added");
    }
}

TEST(GpuPointwiseBytes, SwapBlocks) {
  for (const auto& [a, b, bytes] :
       {std::tuple<int64_t, int64_t, int64_t>{3, 5, 64}, {4, 2, 6}, {7, 3, 5}, {1, 9, 16}, {2, 130, 4096}}) {
    std::vector<double> x(static_cast<size_t>(a * b * bytes)), want(x.size());
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>((i * 7 + i / 251) % 256);
    for (int64_t i = 0; i < a; ++i)
      for (int64_t j = 0; j < b; ++j)
        for (int64_t k = 0; k < bytes; ++k)
          want[static_cast<size_t>((j * a + i) * bytes + k)] =
              x[static_cast<size_t>((i * b + j) * bytes + k)];
    Device<uint8_t> from(x), to(a * b * bytes);
    swap_blocks(from.data(), to.data(), a, b, bytes, nullptr);
    EXPECT_EQ(to.values(), want) << a << " x " << b << " x " << bytes;
  }
}

// Rows of whole 16-byte vectors and others; bytes between the rows are unchanged.
TEST(GpuPointwiseBytes, CopyRows) {
  for (const auto& [rows, bytes, stride] : {std::tuple<int64_t, int64_t, int64_t>{7, 64, 96},
                                            {5, 64, 64},
                                            {3, 10, 48},
                                            {300, 4112, 8192},
                                            {1, 16, 16}})
    for (const int64_t shift : kShifts) {
      std::vector<double> x(static_cast<size_t>(rows * stride)), want(x.size(), 255);
      for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>((i * 7 + i / 251) % 256);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t i = 0; i < bytes; ++i)
          want[static_cast<size_t>(r * stride + i)] = x[static_cast<size_t>(r * stride + i)];
      Device<uint8_t> from(x, shift), to(rows * stride, shift);
      copy_rows(from.data(), to.data(), rows, bytes, stride, nullptr);
      EXPECT_EQ(to.values(), want) << rows << " x " << bytes << " of " << stride;
    }
}

// The last of several, at both ends, around vectors, in several blocks.
TEST(GpuPointwiseBytes, LastChanged) {
  for (const int64_t bytes : {1, 15, 40, 5000, 100001})
    for (const int64_t shift : kShifts)
      for (const int64_t at : {int64_t{-1}, int64_t{0}, bytes / 2, bytes - 1}) {
        std::vector<double> x(static_cast<size_t>(bytes), 0x3c);
        for (int64_t i = at; i >= 0; i -= 1 + i / 3) x[static_cast<size_t>(i)] = 1;
        Device<uint8_t> data(x, shift);
        Device<unsigned long long> top(1);
        last_changed(reinterpret_cast<const std::byte*>(data.data()), bytes, 0x3c, top.data(), nullptr);
        EXPECT_EQ(top.get()[0], static_cast<unsigned long long>(at + 1)) << bytes << " bytes, at " << at;
      }
}

TYPED_TEST(GpuPointwise, SumSquaresAndNonFinite) {
  using T = TypeParam;
  for (int64_t n : {int64_t{0}, int64_t{1}, int64_t{31}, int64_t{32768}, int64_t{200003}})
    for (int64_t shift : kShifts) {
      auto x = random_values<T>(n, 1);
      Device<T> bx(x, shift);
      Device<double> out(1), more(std::vector<double>{2.5});
      Device<int32_t> flag(1);
      Device<uint8_t> workspace(reduce_workspace_bytes(n));
      sum_squares<T>(bx.data(), n, out.data(), false, workspace.data(), nullptr);
      sum_squares<T>(bx.data(), n, more.data(), true, workspace.data(), nullptr);
      any_nonfinite<T>(bx.data(), n, flag.data(), false, workspace.data(), nullptr);
      double want = 0;
      for (double v : x) want += v * v;
      EXPECT_NEAR(out.values()[0], want, 1e-11 * (want + 1));
      EXPECT_NEAR(more.values()[0], want + 2.5, 1e-11 * (want + 1));
      EXPECT_EQ(flag.values()[0], 0);
      if (n == 0) continue;
      x[static_cast<size_t>(n * 2 / 3)] = n % 2 ? std::numeric_limits<double>::infinity() : std::nan("");
      bx.set(x);
      any_nonfinite<T>(bx.data(), n, flag.data(), true, workspace.data(), nullptr);
      EXPECT_EQ(flag.values()[0], 1);
    }
}

// The fast exponential of bf16 and f16 is accurate to about 2^-21; here in units of f32.
template <class T>
constexpr double kExpUnits = cpu::test::kHalf<T> ? 64 : 16;

TYPED_TEST(GpuPointwise, Activations) {
  using T = TypeParam;
  device::ThreadPool pool(1);
  const int64_t n = 5003;
  auto x = random_values<T>(n, 1, 4.0);
  const double special[] = {0, 100, -100, 1e4, -1e4, 30, -30};
  for (size_t i = 0; i < std::size(special); ++i) x[i] = value(element<T>(special[i]));
  const auto dy = random_values<T>(n, 2);
  for (int64_t shift : kShifts) {
    Device<T> bx(x, shift), bdy(dy, shift), g(n, shift), dg(n, shift), s(n, shift), ds(n, shift);
    gelu<T>(bx.data(), g.data(), n, nullptr);
    gelu_backward<T>(bdy.data(), bx.data(), dg.data(), n, nullptr);
    silu<T>(bx.data(), s.data(), n, nullptr);
    silu_backward<T>(bdy.data(), bx.data(), ds.data(), n, nullptr);
    std::vector<double> want(x.size());
    const auto scale = [&](size_t i) { return 1 + std::abs(x[i] * (1 + std::abs(dy[i]))); };
    cpu::gelu(x.data(), want.data(), n, pool);
    expect_close(g, want, kExpUnits<T>, scale, "gelu");
    cpu::gelu_backward(dy.data(), x.data(), want.data(), n, pool);
    expect_close(dg, want, 4 * kExpUnits<T>, scale, "gelu_backward");
    cpu::silu(x.data(), want.data(), n, pool);
    expect_close(s, want, kExpUnits<T>, scale, "silu");
    cpu::silu_backward(dy.data(), x.data(), want.data(), n, pool);
    expect_close(ds, want, kExpUnits<T>, scale, "silu_backward");
  }
}

TYPED_TEST(GpuPointwise, Swiglu) {
  using T = TypeParam;
  device::ThreadPool pool(1);
  for (const auto& [rows, n] :
       {std::pair<int64_t, int64_t>{1, 1}, {33, 24}, {130, 1376}, {70000, 8}, {17, 101}})
    for (int64_t shift : kShifts) {
      SCOPED_TRACE(testing::Message() << rows << " x " << n << " + " << shift);
      const int64_t stride = 2 * n;  // packed gate and up
      const auto packed = random_values<T>(rows * stride, 1, 2.0), dy = random_values<T>(rows * n, 2);
      Device<T> bp(packed, shift), bdy(dy, shift), y(rows * n, shift), again(rows * n, shift),
          d(rows * stride, shift);
      swiglu<T>(bp.data(), bp.data() + n, stride, y.data(), rows, n, nullptr);
      swiglu_backward<T>(bdy.data(), bp.data(), bp.data() + n, stride, d.data(), d.data() + n, again.data(),
                         rows, n, nullptr);
      std::vector<double> want(dy.size()), dwant(packed.size());
      cpu::swiglu(packed.data(), packed.data() + n, stride, want.data(), rows, n, pool);
      cpu::swiglu_backward(dy.data(), packed.data(), packed.data() + n, stride, dwant.data(),
                           dwant.data() + n, static_cast<double*>(nullptr), rows, n, pool);
      const auto scale = [](size_t) { return 8.0; };
      expect_close(y, want, kExpUnits<T>, "swiglu");
      expect_close(again, want, kExpUnits<T>, "swiglu again");
      expect_close(d, dwant, kExpUnits<T>, scale, "swiglu_backward");
      // In place, as planned.
      swiglu_backward<T>(bdy.data(), bp.data(), bp.data() + n, stride, bp.data(), bp.data() + n, bdy.data(),
                         rows, n, nullptr);
      EXPECT_EQ(bp.bits(), d.bits());
      EXPECT_EQ(bdy.bits(), again.bits());
    }
}

TYPED_TEST(GpuPointwise, RopeOnPackedRows) {
  using T = TypeParam;
  device::ThreadPool pool(1);
  for (const auto& [tokens, heads, head_dim] : {std::tuple<int64_t, int64_t, int64_t>{5, 3, 128},
                                                {70, 12, 64},
                                                {9, 2, 6},
                                                {3, 1, 2048},
                                                {257, 5, 96}})
    for (bool inverse : {false, true})
      for (int64_t shift : kShifts) {
        const int64_t stride = (heads + 2) * head_dim;  // followed by two heads of V
        const auto x = random_values<T>(tokens * stride, 1);
        std::vector<double> inv_freq, positions;
        std::vector<int32_t> at;
        for (int64_t d = 0; d < head_dim / 2; ++d) inv_freq.push_back(std::pow(1e4, -2.0 * d / head_dim));
        for (int64_t t = 0; t < tokens; ++t) {
          at.push_back(static_cast<int32_t>(t * 7919 % 131072));
          positions.push_back(at.back());
        }
        Device<T> bx(x, shift), y(tokens * stride, shift);
        Device<double> freq(inv_freq);
        Device<int32_t> pos(positions);
        y.set(x);
        rope<T>(bx.data(), stride, pos.data(), freq.data(), 1.1, y.data(), stride, tokens, heads, head_dim,
                inverse, nullptr);
        std::vector<double> want = x;
        cpu::rope(x.data(), stride, at.data(), inv_freq.data(), 1.1, want.data(), stride, tokens, heads,
                  head_dim, inverse, pool);
        expect_close(
            y, want, 4, [](size_t) { return 8.0; }, "rope");
        rope<T>(bx.data(), stride, pos.data(), freq.data(), 1.1, bx.data(), stride, tokens, heads, head_dim,
                inverse, nullptr);
        EXPECT_EQ(bx.bits(), y.bits()) << "in place";
      }
}

TYPED_TEST(GpuPointwise, DropoutMasksMatchTheCpus) {
  using T = TypeParam;
  device::ThreadPool pool(1);
  for (const auto& [tokens, n, offset] :
       {std::tuple<int64_t, int64_t, int64_t>{3, 5, 0}, {40, 768, 768}, {17, 130, 3}, {9, 64, 66}})
    for (double p : {0.0, 0.1, 0.5})
      for (int64_t shift : kShifts) {
        const auto x = random_values<T>(tokens * n, 1);
        std::vector<int32_t> samples, positions;
        for (int64_t t = 0; t < tokens; ++t) {
          samples.push_back(static_cast<int32_t>(t / 7));
          positions.push_back(static_cast<int32_t>(t * 31));
        }
        cpu::test::Buffer<T> cx(x), cy(tokens * n);
        cpu::dropout<T>(cx.data(), samples.data(), positions.data(), 0x123456789abcdefull, p, offset,
                        cy.data(), tokens, n, pool);
        Device<T> bx(x, shift), y(tokens * n, shift);
        auto bs = integers(samples), bp = integers(positions);
        Device<uint64_t> key(1);
        const uint64_t word = 0x123456789abcdefull;
        require(cudaMemcpy(key.data(), &word, sizeof word, cudaMemcpyHostToDevice));
        dropout<T>(bx.data(), bs.data(), bp.data(), key.data(), p, offset, y.data(), tokens, n, nullptr);
        EXPECT_EQ(y.bits(), cy.bytes()) << tokens << " x " << n << " + " << offset << ", p = " << p;
      }
}

}  // namespace
}  // namespace quintet::kernels::cuda::test
