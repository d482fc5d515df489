#include "kernels/cpu/optimizer/optimizer.h"

#include "base/split_float.h"
#include "kernels/support.h"

namespace quintet::kernels::cpu::test {
namespace {

template <class M, class V, class C>
struct Types {
  using Master = M;
  using Moment = V;
  using Copy = C;
};
template <class T>
class Optimizer : public testing::Test {};
using Instances =
    testing::Types<Types<double, double, double>, Types<double, double, float>, Types<double, double, Bf16>,
                   Types<float, float, float>, Types<float, float, Bf16>, Types<float, Bf16, float>,
                   Types<float, Bf16, Bf16>, Types<float, float, F16>, Types<float, Bf16, F16>>;
TYPED_TEST_SUITE(Optimizer, Instances);

constexpr int kSteps = 5;

TYPED_TEST(Optimizer, AdamwMatchesReference) {
  using M = typename TypeParam::Master;
  using V = typename TypeParam::Moment;
  using C = typename TypeParam::Copy;
  for (int64_t n : {1, 7, 65, 9001}) {
    const auto start = random_values<M>(n, 81);
    const double lr = 0.01, clip = 0.5, b1 = 0.9, b2 = 0.95, eps = 1e-8, wd = 0.1;
    std::vector<double> p(start), m(n), v(n);
    for (int64_t step = 1; step <= kSteps; ++step) {
      const auto g = random_values<M>(n, 82 + step);
      for (int64_t i = 0; i < n; ++i) {
        p[i] -= lr * wd * p[i];
        m[i] = b1 * m[i] + (1 - b1) * clip * g[i];
        v[i] = b2 * v[i] + (1 - b2) * clip * g[i] * clip * g[i];
        p[i] -= lr / (1 - std::pow(b1, step)) * m[i] / (std::sqrt(v[i] / (1 - std::pow(b2, step))) + eps);
      }
    }
    run_everywhere([&](ThreadPool& pool) {
      Buffer<M> bp(start);
      Buffer<V> bm(std::vector<double>(n, 0.0)), bv(std::vector<double>(n, 0.0));
      Buffer<C> copy(n);
      int64_t step = 0;
      const int32_t ok = 1, refuse = 0;
      AdamWScalars k{&lr, &step, &clip, &ok, b1, b2, eps, wd};
      for (step = 1; step <= kSteps; ++step) {
        const Buffer<M> g(random_values<M>(n, 82 + step));
        adamw<M, V, M, C>(bp.data(), bm.data(), bv.data(), g.data(), copy.data(), n, k, pool);
      }
      // Each step moves p by about lr; moments carry a relative error of their own rounding per step.
      const double moment = kSteps * (unit<V>() + 4 * unit<M>());
      expect_near(
          bp, p,
          [&](int64_t i) { return kSteps * (16 * unit<M>() * (1 + std::abs(p[i])) + 8 * lr * moment); }, "p");
      expect_near(
          bm, m, [&](int64_t) { return moment * 4; }, "m");
      expect_near(
          bv, v, [&](int64_t) { return moment * 16; }, "v");
      for (int64_t i = 0; i < n; ++i) EXPECT_EQ(copy[i], value(element<C>(bp[i])));
      const auto before = bytes_of(bp, bm, bv, copy);
      k.ok = &refuse;
      const Buffer<M> bad(std::vector<double>(n, std::nan("")));
      adamw<M, V, M, C>(bp.data(), bm.data(), bv.data(), bad.data(), copy.data(), n, k, pool);
      EXPECT_TRUE(bytes_of(bp, bm, bv, copy) == before) << "a refused step changed something";
      k.ok = nullptr;
      k.clip_scale = nullptr;
      adamw<M, V, M, C>(bp.data(), bm.data(), bv.data(), bp.data(), nullptr, n, k, pool);
      return bytes_of(bp, bm, bv, copy);
    });
  }
}

TYPED_TEST(Optimizer, SgdMatchesReference) {
  using M = typename TypeParam::Master;
  using V = typename TypeParam::Moment;
  using C = typename TypeParam::Copy;
  const int64_t n = 133;
  const auto start = random_values<M>(n, 91);
  for (bool nesterov : {false, true})
    for (double mu : {0.0, 0.9}) {
      const double lr = 0.02, clip = 0.5, wd = 0.1;
      std::vector<double> p(start), u(n);
      for (int64_t step = 1; step <= kSteps; ++step) {
        const auto g = random_values<M>(n, 92 + step);
        for (int64_t i = 0; i < n; ++i) {
          p[i] -= lr * wd * p[i];
          u[i] = mu * u[i] + clip * g[i];
          p[i] -= lr * (nesterov ? clip * g[i] + mu * u[i] : u[i]);
        }
      }
      run_everywhere([&](ThreadPool& pool) {
        Buffer<M> bp(start);
        Buffer<V> bu(std::vector<double>(n, 0.0));
        Buffer<C> copy(n);
        const int32_t ok = 1, refuse = 0;
        SgdScalars k{&lr, &clip, &ok, mu, wd, nesterov};
        for (int64_t step = 1; step <= kSteps; ++step) {
          const Buffer<M> g(random_values<M>(n, 92 + step));
          sgd<M, V, M, C>(bp.data(), mu == 0 ? nullptr : bu.data(), g.data(), copy.data(), n, k, pool);
        }
        const double moment = 8 * kSteps * (unit<V>() + 4 * unit<M>());
        expect_near(
            bp, p, [&](int64_t i) { return kSteps * (16 * unit<M>() * (1 + std::abs(p[i])) + lr * moment); },
            "p");
        if (mu != 0)
          expect_near(
              bu, u, [&](int64_t) { return moment; }, "velocity");
        for (int64_t i = 0; i < n; ++i) EXPECT_EQ(copy[i], value(element<C>(bp[i])));
        const auto before = bytes_of(bp, bu, copy);
        k.ok = &refuse;
        sgd<M, V, M, C>(bp.data(), bu.data(), bp.data(), copy.data(), n, k, pool);
        EXPECT_TRUE(bytes_of(bp, bu, copy) == before) << "a refused step changed something";
        return before;
      });
    }
}

// Adam's decay is a term of the gradient: the same as AdamW without decay on gradients that have the term.
TYPED_TEST(Optimizer, AdamIsAdamwOnDecayedGradients) {
  using M = typename TypeParam::Master;
  using V = typename TypeParam::Moment;
  using C = typename TypeParam::Copy;
  const int64_t n = 133, step = 1;
  const double lr = 0.01, wd = 0.1;
  run_everywhere([&](ThreadPool& pool) {
    Buffer<M> p(random_values<M>(n, 91)), q(random_values<M>(n, 91)), g(random_values<M>(n, 92));
    Buffer<V> m(std::vector<double>(n, 0.0)), v(std::vector<double>(n, 0.0)), m2(std::vector<double>(n, 0.0)),
        v2(std::vector<double>(n, 0.0));
    AdamWScalars k{.lr = &lr, .step = &step, .weight_decay = wd, .coupled = true};
    Buffer<M> decayed(n);
    for (int64_t i = 0; i < n; ++i) decayed.data()[i] = std::fma(M(wd), p.data()[i], g.data()[i]);
    adamw<M, V, M, C>(p.data(), m.data(), v.data(), g.data(), nullptr, n, k, pool);
    k.coupled = false;
    k.weight_decay = 0;
    adamw<M, V, M, C>(q.data(), m2.data(), v2.data(), decayed.data(), nullptr, n, k, pool);
    // They differ by the rounding of the term, which only some instruction sets fuse into the sum.
    std::vector<double> want(n);
    for (int64_t i = 0; i < n; ++i) want[static_cast<size_t>(i)] = q[i];
    expect_near(
        p, want,
        [&](int64_t i) {
          return 16 * unit<M>() * (1 + std::abs(want[static_cast<size_t>(i)])) + 8 * lr * unit<V>();
        },
        "p");
    return bytes_of(p, m, v);
  });
}

TYPED_TEST(Optimizer, LionMatchesReference) {
  using M = typename TypeParam::Master;
  using V = typename TypeParam::Moment;
  using C = typename TypeParam::Copy;
  for (int64_t n : {1, 65, 9001}) {
    const double lr = 0.01, clip = 0.5, b1 = 0.9, b2 = 0.99, wd = 0.1;
    run_everywhere([&](ThreadPool& pool) {
      Buffer<M> p(random_values<M>(n, 91));
      Buffer<V> m(std::vector<double>(n, 0.0));
      Buffer<C> copy(n);
      const int32_t ok = 1, refuse = 0;
      LionScalars k{&lr, &clip, &ok, b1, b2, wd};
      for (int64_t step = 1; step <= kSteps; ++step) {
        // From the kernel's own momentum: a sign does not tolerate the error of an earlier step.
        const Buffer<M> g(random_values<M>(n, 92 + step));
        std::vector<double> want(n), mean(n);
        for (int64_t i = 0; i < n; ++i) {
          const double u = b1 * m[i] + (1 - b1) * clip * g[i];
          want[i] = p[i] - lr * (wd * p[i] + (u > 0) - (u < 0));
          mean[i] = b2 * m[i] + (1 - b2) * clip * g[i];
        }
        lion<M, V, M, C>(p.data(), m.data(), g.data(), copy.data(), n, k, pool);
        expect_near(
            p, want, [&](int64_t i) { return 4 * unit<M>() * (1 + std::abs(want[i])); }, "p");
        expect_near(
            m, mean, [&](int64_t i) { return (unit<V>() + 4 * unit<M>()) * (1 + std::abs(mean[i])); }, "m");
        for (int64_t i = 0; i < n; ++i) EXPECT_EQ(copy[i], value(element<C>(p[i])));
      }
      const auto before = bytes_of(p, m, copy);
      k.ok = &refuse;
      lion<M, V, M, C>(p.data(), m.data(), p.data(), copy.data(), n, k, pool);
      EXPECT_TRUE(bytes_of(p, m, copy) == before) << "a refused step changed something";
      return before;
    });
  }
}

// A split master follows the f32 master bit by bit, for all types of moments and gradients.
template <class V, class G>
void expect_split_equals_whole() {
  for (const int64_t n : {1, 7, 65, 9001})
    run_everywhere([&](ThreadPool& pool) {
      Buffer<float> p(random_values<float>(n, 81)), q(random_values<float>(n, 81));
      Buffer<V> m(std::vector<double>(n, 0.0)), v(std::vector<double>(n, 0.0)),
          u(std::vector<double>(n, 0.0));
      Buffer<V> m2(std::vector<double>(n, 0.0)), v2(std::vector<double>(n, 0.0)),
          u2(std::vector<double>(n, 0.0));
      Buffer<Bf16> copy(n), weight(n), weight2(n);
      std::vector<int16_t> remainder(static_cast<size_t>(n)), remainder2(static_cast<size_t>(n));
      for (int64_t i = 0; i < n; ++i) {
        const base::SplitFloat s = base::split_float(p.data()[i]);
        weight.data()[i] = weight2.data()[i] = s.high;
        remainder[static_cast<size_t>(i)] = remainder2[static_cast<size_t>(i)] = s.low;
      }
      const double lr = 0.01, clip = 0.5;
      int64_t step = 0;
      int32_t ok = 1;
      const AdamWScalars k{&lr, &step, &clip, &ok, 0.9, 0.95, 1e-8, 0.1};
      const SgdScalars ks{&lr, &clip, &ok, 0.9, 0.1, false};
      const LionScalars kl{&lr, &clip, &ok, 0.9, 0.99, 0.1};
      const auto same = [&](const Buffer<float>& master, const Buffer<Bf16>& w,
                            const std::vector<int16_t>& r) {
        for (int64_t i = 0; i < n; ++i)
          ASSERT_EQ(std::bit_cast<uint32_t>(base::join_float(w.data()[i], r[static_cast<size_t>(i)])),
                    std::bit_cast<uint32_t>(master.data()[i]));
      };
      for (step = 1; step <= kSteps; ++step) {
        const Buffer<G> g(random_values<G>(n, 82 + step));
        adamw<float, V, G, Bf16>(p.data(), m.data(), v.data(), g.data(), copy.data(), n, k, pool);
        adamw_split<V, G>(weight.data(), remainder.data(), m2.data(), v2.data(), g.data(), n, k, pool);
        same(p, weight, remainder);
        EXPECT_TRUE(bytes_of(m, v) == bytes_of(m2, v2));
        sgd<float, V, G, Bf16>(q.data(), u.data(), g.data(), copy.data(), n, ks, pool);
        sgd_split<V, G>(weight2.data(), remainder2.data(), u2.data(), g.data(), n, ks, pool);
        same(q, weight2, remainder2);
        lion<float, V, G, Bf16>(q.data(), u.data(), g.data(), copy.data(), n, kl, pool);
        lion_split<V, G>(weight2.data(), remainder2.data(), u2.data(), g.data(), n, kl, pool);
        same(q, weight2, remainder2);
      }
      const auto before = bytes_of(weight, m2, v2);
      ok = 0;
      adamw_split<V, G>(weight.data(), remainder.data(), m2.data(), v2.data(),
                        Buffer<G>(random_values<G>(n, 99)).data(), n, k, pool);
      EXPECT_TRUE(bytes_of(weight, m2, v2) == before) << "a refused step changed something";
      return before;
    });
}

TEST(SplitOptimizer, MasterIsTheF32Master) {
  expect_split_equals_whole<float, float>();
  expect_split_equals_whole<float, Bf16>();
  expect_split_equals_whole<Bf16, float>();
  expect_split_equals_whole<Bf16, Bf16>();
}

// A bf16 gradient counts as the same f32 number.
TEST(Optimizer, NarrowGradients) {
  const int64_t n = 133;
  device::ThreadPool pool(1);
  Buffer<float> p(random_values<float>(n, 81)), q(random_values<float>(n, 81));
  Buffer<float> m(std::vector<double>(n, 0.0)), v(std::vector<double>(n, 0.0)),
      m2(std::vector<double>(n, 0.0)), v2(std::vector<double>(n, 0.0));
  Buffer<Bf16> copy(n), copy2(n);
  const double lr = 0.01;
  const int64_t step = 1;
  const AdamWScalars k{&lr, &step, nullptr, nullptr, 0.9, 0.95, 1e-8, 0.1};
  const Buffer<Bf16> narrow(random_values<Bf16>(n, 82));
  const Buffer<float> wide(random_values<Bf16>(n, 82));
  adamw<float, float, Bf16, Bf16>(p.data(), m.data(), v.data(), narrow.data(), copy.data(), n, k, pool);
  adamw<float, float, float, Bf16>(q.data(), m2.data(), v2.data(), wide.data(), copy2.data(), n, k, pool);
  EXPECT_TRUE(bytes_of(p, m, v, copy) == bytes_of(q, m2, v2, copy2));
}

}  // namespace
}  // namespace quintet::kernels::cpu::test
