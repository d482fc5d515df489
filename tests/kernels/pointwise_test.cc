#include "kernels/cpu/elementwise/pointwise.h"

#include "kernels/cpu/elementwise/dropout.h"
#include "kernels/cpu/embedding/embedding.h"
#include "kernels/support.h"

namespace quintet::kernels::cpu::test {
namespace {

template <class T>
class Pointwise : public testing::Test {};
TYPED_TEST_SUITE(Pointwise, AllTypes);

constexpr int64_t kSizes[] = {0, 1, 7, 65, 20001};

TYPED_TEST(Pointwise, AddScaleFill) {
  using T = TypeParam;
  using S = Stat<T>;
  for (int64_t n : kSizes) {
    const auto a = random_values<T>(n, 1), b = random_values<T>(n, 2);
    run_everywhere([&](ThreadPool& pool) {
      const Buffer<T> bb(b);
      Buffer<T> c(a), s(n), f(n), z(a);
      add<T>(c.data(), bb.data(), c.data(), n, pool);
      scale<T>(bb.data(), -0.37, s.data(), n, pool);
      fill<T>(f.data(), 1.75, n, pool);
      zero(z.data(), n * static_cast<int64_t>(sizeof(T)), pool);
      // One rounding in S and one to T: exactly what scalar code does.
      for (int64_t i = 0; i < n; ++i) {
        EXPECT_EQ(c[i], value(element<T>(static_cast<S>(static_cast<S>(a[i]) + static_cast<S>(b[i])))));
        EXPECT_EQ(s[i], value(element<T>(static_cast<S>(static_cast<S>(b[i]) * static_cast<S>(-0.37)))));
        EXPECT_EQ(f[i], 1.75);
        EXPECT_EQ(z[i], 0);
      }
      return bytes_of(c, s, f, z);
    });
  }
  const int64_t rows = 5, n = 19;
  const auto x = random_values<T>(rows * n, 3), bias = random_values<T>(n, 4);
  run_everywhere([&](ThreadPool& pool) {
    const Buffer<T> b(bias);
    Buffer<T> y(x);
    add_bias<T>(y.data(), b.data(), y.data(), rows, n, pool);
    std::vector<double> want(x);
    for (int64_t i = 0; i < rows * n; ++i) want[i] += bias[i % n];
    expect_near(
        y, want, [&](int64_t i) { return unit<S>() * std::abs(want[i]); }, "bias");
    return bytes_of(y);
  });
}

template <class X, class Y>
void check_pair() {
  using S = std::conditional_t<std::is_same_v<X, double> || std::is_same_v<Y, double>, double, float>;
  for (int64_t n : kSizes) {
    const auto x = random_values<X>(n, 5), y = random_values<Y>(n, 6);
    run_everywhere([&](ThreadPool& pool) {
      const Buffer<X> bx(x);
      Buffer<Y> sum(y), out(n);
      accumulate<X, Y>(bx.data(), sum.data(), 1.0, n, pool);
      cast<X, Y>(bx.data(), out.data(), n, pool);
      for (int64_t i = 0; i < n; ++i) {
        EXPECT_EQ(sum[i], value(element<Y>(static_cast<S>(static_cast<S>(x[i]) + static_cast<S>(y[i])))));
        EXPECT_EQ(out[i], value(element<Y>(x[i])));
      }
      accumulate<X, Y>(bx.data(), out.data(), -2.5, n, pool);
      std::vector<double> want(n);
      for (int64_t i = 0; i < n; ++i) want[i] = value(element<Y>(x[i])) - 2.5 * x[i];
      expect_near(
          out, want, [&](int64_t i) { return 4 * unit<S>() * std::abs(3.5 * x[i]); }, "scaled");
      return bytes_of(sum, out);
    });
  }
}

TEST(PointwisePairs, AccumulateAndCastEveryPair) {
  every_pair([]<class X, class Y>() { check_pair<X, Y>(); });
}

TEST(PointwisePairs, Bf16RoundsAsTheScalarTypeDoes) {
  // Every upper half with the lower halves around which rounding changes, infinities and NaNs included.
  std::vector<float> x;
  for (uint32_t high = 0; high < 65536; high += 7)
    for (uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      x.push_back(std::bit_cast<float>(high << 16 | low));
  run_everywhere([&](ThreadPool& pool) {
    Buffer<Bf16> y(static_cast<int64_t>(x.size()));
    cast<float, Bf16>(x.data(), y.data(), y.size(), pool);
    for (int64_t i = 0; i < y.size(); ++i) {
      if (y.data()[i].bits == Bf16(x[i]).bits) continue;
      ADD_FAILURE() << std::hex << std::bit_cast<uint32_t>(x[i]) << " gave " << y.data()[i].bits;
      break;
    }
    return y.bytes();
  });
}

TEST(PointwisePairs, F16RoundsAndWidensAsTheScalarTypeDoes) {
  // Every upper half with lower halves at, next to and far from those at which rounding changes; then every
  // f16 bit pattern.
  std::vector<float> x;
  for (uint32_t high = 0; high < 65536; high += 7)
    for (uint32_t low : {0u, 1u, 0x0fffu, 0x1000u, 0x1001u, 0x3000u, 0x8000u, 0xf000u, 0xffffu})
      x.push_back(std::bit_cast<float>(high << 16 | low));
  Buffer<F16> all(65536);
  for (uint32_t bits = 0; bits < 65536; ++bits) all.data()[bits].bits = static_cast<uint16_t>(bits);
  run_everywhere([&](ThreadPool& pool) {
    Buffer<F16> y(static_cast<int64_t>(x.size()));
    cast<float, F16>(x.data(), y.data(), y.size(), pool);
    for (int64_t i = 0; i < y.size(); ++i) {
      if (y.data()[i].bits == F16(x[i]).bits) continue;
      ADD_FAILURE() << std::hex << std::bit_cast<uint32_t>(x[i]) << " gave " << y.data()[i].bits;
      break;
    }
    Buffer<float> wide(all.size());
    cast<F16, float>(all.data(), wide.data(), all.size(), pool);
    for (int64_t i = 0; i < wide.size(); ++i) {
      if (std::bit_cast<uint32_t>(wide.data()[i]) ==
          std::bit_cast<uint32_t>(static_cast<float>(all.data()[i])))
        continue;
      ADD_FAILURE() << std::hex << i << " gave " << wide.data()[i];
      break;
    }
    return bytes_of(y, wide);
  });
}

TEST(PointwisePairs, DoubleToF16RoundsOnce) {
  std::vector<double> x;
  for (int k = 0; k < 1100; k += 7)
    for (double sign : {-1.0, 1.0})
      for (double beside : {-0x1p-40, 0.0, 0x1p-40})
        for (double scale : {1.0, 0x1p-3, 0x1p-20, 0x1p14})
          x.push_back(sign * (1 + (k + 0.5) * 0x1p-10 + beside) * scale);
  x.insert(x.end(), {0.0, -0.0, 1e39, -1e39, 1e-45, 65519.9, 0x1p-25, -0x1.0000000001p-25});
  run_everywhere([&](ThreadPool& pool) {
    Buffer<F16> y(static_cast<int64_t>(x.size()));
    cast<double, F16>(x.data(), y.data(), y.size(), pool);
    for (int64_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], value(element<F16>(x[i]))) << x[i];
    return y.bytes();
  });
}

TEST(PointwisePairs, DoubleToBf16RoundsOnce) {
  // Right next to the midpoints of bf16, closer than floats can be: rounding through float would tie.
  std::vector<double> x;
  for (int k = 0; k < 200; ++k)
    for (double sign : {-1.0, 1.0})
      for (double beside : {-0x1p-40, 0.0, 0x1p-40})
        x.push_back(sign * (1 + (k + 0.5) * 0x1p-7 + beside) * 0x1p-3);
  x.insert(x.end(), {0.0, -0.0, 1e39, -1e39, 1e-45, 3e38});
  run_everywhere([&](ThreadPool& pool) {
    Buffer<Bf16> y(static_cast<int64_t>(x.size()));
    cast<double, Bf16>(x.data(), y.data(), y.size(), pool);
    for (int64_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], value(element<Bf16>(x[i]))) << x[i];
    return y.bytes();
  });
}

template <class T>
class Dropout : public testing::Test {};
TYPED_TEST_SUITE(Dropout, AllTypes);

TYPED_TEST(Dropout, MaskBelongsToTheElement) {
  using T = TypeParam;
  const int64_t tokens = 13, n = 77;
  const double p = 0.3;
  const uint64_t key = base::stream_key(5, "dropout");
  const auto x = random_values<T>(tokens * n, 7);
  std::vector<int32_t> samples, positions;
  for (int64_t t = 0; t < tokens; ++t) {
    samples.push_back(static_cast<int32_t>(70000 + t / 5));
    positions.push_back(static_cast<int32_t>(t * 3));
  }
  int kept = 0;
  std::vector<double> want(tokens * n);
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t f = 0; f < n; ++f) {
      const uint64_t low = static_cast<uint64_t>(f >> 2) | static_cast<uint64_t>(positions[t]) << 32;
      const bool keep = base::philox(key, low, static_cast<uint64_t>(samples[t]))[f & 3] * 0x1p-32 >= p;
      kept += keep;
      want[t * n + f] = keep ? x[t * n + f] / (1 - p) : 0;
    }
  // Three and a half standard deviations of the binomial distribution.
  EXPECT_NEAR(kept, 0.7 * tokens * n, 3.5 * std::sqrt(0.21 * tokens * n));
  run_everywhere([&](ThreadPool& pool) {
    const Buffer<T> in(x);
    Buffer<T> y(tokens * n);
    dropout<T>(in.data(), samples.data(), positions.data(), key, p, 0, y.data(), tokens, n, pool);
    expect_near(
        y, want, [&](int64_t i) { return 3 * unit<Stat<T>>() * std::abs(want[i]); }, "y");
    // Any split of the features gives the same mask.
    for (int64_t cut : {1, 5, 32, 76}) {
      for (const auto& [begin, width] : {std::pair<int64_t, int64_t>{0, cut}, {cut, n - cut}}) {
        std::vector<double> part;
        for (int64_t t = 0; t < tokens; ++t)
          for (int64_t f = 0; f < width; ++f) part.push_back(x[t * n + begin + f]);
        Buffer<T> shard(part);
        dropout<T>(shard.data(), samples.data(), positions.data(), key, p, begin, shard.data(), tokens, width,
                   pool);
        for (int64_t t = 0; t < tokens; ++t)
          for (int64_t f = 0; f < width; ++f) EXPECT_EQ(shard[t * width + f], y[t * n + begin + f]);
      }
    }
    return bytes_of(y);
  });
}

// By the definition, in any split of the features; the gradient is the same function on dy.
TYPED_TEST(Dropout, JitterMatchesItsDefinition) {
  using T = TypeParam;
  const int64_t tokens = 13, n = 77;
  const double eps = 0.25;
  const uint64_t key = base::stream_key(5, "jitter");
  const auto x = random_values<T>(tokens * n, 7);
  std::vector<int32_t> samples, positions;
  for (int64_t t = 0; t < tokens; ++t) {
    samples.push_back(static_cast<int32_t>(70000 + t / 5));
    positions.push_back(static_cast<int32_t>(t * 3));
  }
  double sum = 0, least = 2, most = 0;
  std::vector<double> want(tokens * n);
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t f = 0; f < n; ++f) {
      const uint64_t low = static_cast<uint64_t>(f >> 2) | static_cast<uint64_t>(positions[t]) << 32;
      const uint32_t word = base::philox(key, low, static_cast<uint64_t>(samples[t]))[f & 3];
      const double factor = 1 - eps + 2 * eps * ((word >> 8) + 0.5) / 16777216;
      sum += factor, least = std::min(least, factor), most = std::max(most, factor);
      want[t * n + f] = x[t * n + f] * factor;
    }
  EXPECT_NEAR(sum / (tokens * n), 1, 4 * eps / std::sqrt(3.0 * tokens * n));
  EXPECT_TRUE(least > 0.75 && least < 0.76 && most < 1.25 && most > 1.24) << least << " " << most;
  run_everywhere([&](ThreadPool& pool) {
    const Buffer<T> in(x);
    Buffer<T> y(tokens * n);
    jitter<T>(in.data(), samples.data(), positions.data(), key, eps, 0, y.data(), tokens, n, pool);
    expect_near(
        y, want, [&](int64_t i) { return (unit<T>() + 3 * unit<Stat<T>>()) * std::abs(want[i]); }, "y");
    for (int64_t cut : {1, 5, 32, 76})
      for (const auto& [begin, width] : {std::pair<int64_t, int64_t>{0, cut}, {cut, n - cut}}) {
        std::vector<double> part;
        for (int64_t t = 0; t < tokens; ++t)
          for (int64_t f = 0; f < width; ++f) part.push_back(x[t * n + begin + f]);
        Buffer<T> shard(part);
        jitter<T>(shard.data(), samples.data(), positions.data(), key, eps, begin, shard.data(), tokens,
                  width, pool);
        for (int64_t t = 0; t < tokens; ++t)
          for (int64_t f = 0; f < width; ++f) EXPECT_EQ(shard[t * width + f], y[t * n + begin + f]);
      }
    return bytes_of(y);
  });
}

template <class T>
class Embedding : public testing::Test {};
TYPED_TEST_SUITE(Embedding, AllTypes);

TYPED_TEST(Embedding, ShardsAddUpToTheWhole) {
  using T = TypeParam;
  const int64_t vocab = 23, tokens = 301;
  for (int64_t n : {1, 7, 65, 200}) {
    const auto table = random_values<T>(vocab * n, 8), dy = random_values<T>(tokens * n, 9);
    const auto start = random_values<float>(vocab * n, 10);
    std::vector<int32_t> ids;
    for (int64_t t = 0; t < tokens; ++t)
      ids.push_back(static_cast<int32_t>(t % 11 == 3 ? -1 : t * t % vocab));
    std::vector<double> y(tokens * n), dtable(vocab * n), magnitude(vocab * n);
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t i = 0; ids[t] >= 0 && i < n; ++i) {
        y[t * n + i] = table[ids[t] * n + i];
        dtable[ids[t] * n + i] += dy[t * n + i];
        magnitude[ids[t] * n + i] += std::abs(dy[t * n + i]);
      }
    run_everywhere([&](ThreadPool& pool) {
      const Buffer<T> bt(table), bdy(dy);
      Buffer<Grad<T>> grad(vocab * n), more(start);
      std::vector<double> sum(tokens * n);
      for (const auto& [begin, count] : {std::pair<int64_t, int64_t>{0, 10}, {10, 1}, {11, 12}}) {
        Buffer<T> part(tokens * n);
        embedding<T>(bt.data() + begin * n, ids.data(), begin, count, part.data(), tokens, n, pool);
        for (int64_t i = 0; i < tokens * n; ++i) sum[i] += part[i];
        embedding_dw<T>(bdy.data(), ids.data(), begin, count, grad.data() + begin * n, false, tokens, n,
                        pool);
        embedding_dw<T>(bdy.data(), ids.data(), begin, count, more.data() + begin * n, true, tokens, n, pool);
      }
      EXPECT_EQ(sum, y);
      std::vector<double> with_start(dtable);
      for (int64_t i = 0; i < vocab * n; ++i) with_start[i] += start[i];
      const auto slack = [&](int64_t i) {
        return unit<Grad<T>>() * 64 * (magnitude[i] + std::abs(start[i]));
      };
      expect_near(grad, dtable, slack, "dtable");
      expect_near(more, with_start, slack, "accumulated dtable");
      return bytes_of(grad, more);
    });
  }
}

}  // namespace
}  // namespace quintet::kernels::cpu::test
