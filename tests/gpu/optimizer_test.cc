#include "kernels/cuda/optimizer/optimizer.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "base/split_float.h"
#include "gpu/device.h"
#include "kernels/cpu/optimizer/optimizer.h"
#include "kernels/cuda/optimizer/blockwise.h"

namespace quintet::kernels::cuda::test {
namespace {

// Ragged ranges with gaps between them, the first of them aligned; then more than one launch takes, half of
// them aligned.
struct Range {
  int64_t first, count;
  bool decay;
};
std::vector<Range> ragged_ranges() {
  std::vector<Range> list = {{0, 4096, true},      {4100, 9001, false}, {13105, 17, true},
                             {13124, 30000, true}, {43124, 0, true},    {43127, 3, false}};
  for (int64_t i = 0; i < 140; ++i) list.push_back({43200 + 8 * i + i % 2, 5 + i % 3, i % 3 != 0});
  return list;
}
const std::vector<Range> kRanges = ragged_ranges();
constexpr int64_t kCount = 43200 + 8 * 141;

bool inside(int64_t i) {
  return std::any_of(kRanges.begin(), kRanges.end(),
                     [&](const Range& r) { return i >= r.first && i < r.first + r.count; });
}

constexpr double kLr = 0.01, kClip = 0.6, kDecay = 0.1;

// The ranges in buffers of one group; null stays null.
template <class M, class V, class G, class C>
std::vector<UpdateRange<M, V, G, C>> ranges_in(M* master, V* moment1, V* moment2, const G* gradient,
                                               C* copy) {
  std::vector<UpdateRange<M, V, G, C>> list;
  for (const Range& r : kRanges)
    list.push_back({master + r.first, moment1 ? moment1 + r.first : nullptr,
                    moment2 ? moment2 + r.first : nullptr, gradient + r.first, copy + r.first, r.count, 1.0,
                    r.decay ? kDecay : 0.0});
  return list;
}
template <class V, class G>
std::vector<SplitUpdateRange<V, G>> split_ranges_in(Bf16* weight, int16_t* remainder, V* moment1, V* moment2,
                                                    const G* gradient) {
  std::vector<SplitUpdateRange<V, G>> list;
  for (const Range& r : kRanges)
    list.push_back({weight + r.first, remainder + r.first, moment1 + r.first, moment2 + r.first,
                    gradient + r.first, r.count, 1.0, r.decay ? kDecay : 0.0});
  return list;
}

void expect_reference(const std::vector<double>& got, const std::vector<double>& want, double unit_got,
                      double unit_sum, const char* what) {
  for (size_t i = 0; i < want.size(); ++i) {
    const double bound = unit_got * std::abs(want[i]) * 1.01 + 8 * unit_sum * (std::abs(want[i]) + 1);
    ASSERT_LE(std::abs(got[i] - want[i]), bound) << what << "[" << i << "]";
  }
}

template <class M, class V, class G, class C>
void check_adamw() {
  const auto p0 = random_values<M>(kCount, 1), g = random_values<G>(kCount, 2),
             m0 = random_values<V>(kCount, 3, 0.1);
  auto v0 = random_values<V>(kCount, 4, 0.1);
  for (double& v : v0) v = std::abs(v);
  device::ThreadPool pool(1);
  std::vector<double> p = p0, m = m0, v = v0;
  const int64_t count = 7;
  const int32_t yes = 1;
  for (const Range& r : kRanges)
    cpu::adamw<double, double, double, double>(p.data() + r.first, m.data() + r.first, v.data() + r.first,
                                               g.data() + r.first, nullptr, r.count,
                                               {.lr = &kLr,
                                                .step = &count,
                                                .clip_scale = &kClip,
                                                .ok = &yes,
                                                .beta1 = 0.9,
                                                .beta2 = 0.95,
                                                .eps = 1e-8,
                                                .weight_decay = r.decay ? kDecay : 0.0},
                                               pool);
  Device<double> scalars(std::vector<double>{kLr, 7, kClip, 0});
  Device<M> bp(p0);
  Device<V> bm(m0), bv(v0);
  Device<G> bg(g);
  Device<C> copy(std::vector<double>(static_cast<size_t>(kCount), 9.0));
  const AdamWScalars k{.lr = scalars.data(),
                       .step = scalars.data() + 1,
                       .clip_scale = scalars.data() + 2,
                       .ok = scalars.data() + 3,
                       .beta1 = 0.9,
                       .beta2 = 0.95,
                       .eps = 1e-8};
  const auto ranges = ranges_in<M, V, G, C>(bp.data(), bm.data(), bv.data(), bg.data(), copy.data());
  adamw(std::span(ranges), k, nullptr);
  EXPECT_EQ(bp.values(), p0) << "a refused step changed the weights";
  EXPECT_EQ(bm.values(), m0);
  EXPECT_EQ(copy.values(), std::vector<double>(static_cast<size_t>(kCount), 9.0));
  scalars.set({kLr, 7, kClip, 1});
  adamw(std::span(ranges), k, nullptr);
  // 16-bit moments are rounded after the weights used them.
  expect_reference(bp.values(), p, unit<M>(), unit<M>(), "p");
  expect_reference(bm.values(), m, unit<V>(), unit<M>(), "m");
  expect_reference(bv.values(), v, unit<V>(), unit<M>(), "v");
  const auto master = bp.values(), low = copy.values();
  for (int64_t i = 0; i < kCount; ++i) {
    const double want = inside(i) ? value(element<C>(master[static_cast<size_t>(i)])) : 9.0;
    ASSERT_EQ(low[static_cast<size_t>(i)], want) << i;
  }
}

TEST(GpuAdamW, F64) { check_adamw<double, double, double, double>(); }
TEST(GpuAdamW, F32) { check_adamw<float, float, float, float>(); }
TEST(GpuAdamW, Bf16Copy) { check_adamw<float, float, float, Bf16>(); }
TEST(GpuAdamW, F16Copy) { check_adamw<float, float, float, F16>(); }
TEST(GpuAdamW, Bf16MomentsF16Copy) { check_adamw<float, Bf16, float, F16>(); }
TEST(GpuAdamW, Bf16CopyAndGradient) { check_adamw<float, float, Bf16, Bf16>(); }
TEST(GpuAdamW, Bf16MomentsF32Copy) { check_adamw<float, Bf16, float, float>(); }
TEST(GpuAdamW, Bf16Moments) { check_adamw<float, Bf16, float, Bf16>(); }
TEST(GpuAdamW, Bf16MomentsAndGradient) { check_adamw<float, Bf16, Bf16, Bf16>(); }

// An element's result does not depend on its position: in its vector, among its thread's vectors, after them
// or in a range without any. (The compiler may contract a multiplication and an addition at some positions
// only.)
template <class M, class V, class G, class C>
void check_places() {
  constexpr int64_t kDistinct = 61, kAligned = 3003, kElements = 7000;
  const auto periodic = [](const std::vector<double>& some) {
    std::vector<double> all;
    for (int64_t i = 0; i < kElements; ++i) all.push_back(some[static_cast<size_t>(i % kDistinct)]);
    return all;
  };
  auto squares = random_values<V>(kDistinct, 4, 0.1);
  for (double& v : squares) v = std::abs(v);
  Device<double> scalars(std::vector<double>{kLr, 7, kClip, 1});
  Device<M> p(periodic(random_values<M>(kDistinct, 1)));
  Device<V> m(periodic(random_values<V>(kDistinct, 3, 0.1))), v(periodic(squares));
  Device<G> g(periodic(random_values<G>(kDistinct, 2)));
  Device<C> copy(kElements);
  std::vector<UpdateRange<M, V, G, C>> ranges;
  for (const auto& [first, last] : {std::pair{int64_t{0}, kAligned}, std::pair{kAligned, kElements}})
    ranges.push_back({p.data() + first, m.data() + first, v.data() + first, g.data() + first,
                      copy.data() + first, last - first, 1.0, kDecay});
  const AdamWScalars k{.lr = scalars.data(),
                       .step = scalars.data() + 1,
                       .clip_scale = scalars.data() + 2,
                       .ok = scalars.data() + 3};
  for (int step = 0; step < 3; ++step) {
    adamw(std::span(std::as_const(ranges)), k, nullptr);
    sgd(std::span(std::as_const(ranges)), {.lr = scalars.data(), .momentum = 0.9}, nullptr);
  }
  const auto weights = p.values(), moments = m.values();
  for (size_t i = kDistinct; i < kElements; ++i) {
    ASSERT_EQ(weights[i], weights[i % kDistinct]) << i;
    ASSERT_EQ(moments[i], moments[i % kDistinct]) << i;
  }
}
TEST(GpuAdamW, PositionsDoNotMatter) {
  check_places<double, double, double, double>();
  check_places<float, float, float, float>();
  check_places<float, Bf16, float, Bf16>();
  check_places<float, float, Bf16, Bf16>();
}

// Combined by the host's definition.
std::vector<float> joined(Device<Bf16>& weight, Device<int16_t>& remainder) {
  const std::vector<Bf16> high = weight.get();
  const std::vector<int16_t> low = remainder.get();
  std::vector<float> all;
  for (size_t i = 0; i < high.size(); ++i) all.push_back(base::join_float(high[i], low[i]));
  return all;
}
bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// The split master equals the f32 master bit for bit.
template <class V, class G>
void check_split() {
  const auto p0 = random_values<float>(kCount, 1), g = random_values<G>(kCount, 2);
  Device<float> p(p0);
  Device<V> m(std::vector<double>(static_cast<size_t>(kCount))),
      v(std::vector<double>(static_cast<size_t>(kCount))),
      m2(std::vector<double>(static_cast<size_t>(kCount))),
      v2(std::vector<double>(static_cast<size_t>(kCount)));
  Device<G> bg(g);
  Device<Bf16> weight(kCount), copy(p0);
  Device<int16_t> remainder(kCount);
  Device<double> scalars(std::vector<double>{kLr, 1, kClip, 1});
  const AdamWScalars k{.lr = scalars.data(),
                       .step = scalars.data() + 1,
                       .clip_scale = scalars.data() + 2,
                       .ok = scalars.data() + 3};
  split_master(p.data(), weight.data(), remainder.data(), kCount, nullptr);
  EXPECT_TRUE(same_bits(joined(weight, remainder), p.get()));
  const auto ranges = ranges_in<float, V, G, Bf16>(p.data(), m.data(), v.data(), bg.data(), copy.data());
  const auto split = split_ranges_in<V, G>(weight.data(), remainder.data(), m2.data(), v2.data(), bg.data());
  for (int step = 1; step <= 5; ++step) {
    scalars.set({kLr, static_cast<double>(step), kClip, 1});
    adamw(std::span(ranges), k, nullptr);
    adamw(std::span(split), k, nullptr);
  }
  EXPECT_TRUE(same_bits(joined(weight, remainder), p.get()));
  EXPECT_TRUE(m.bits() == m2.bits());
  const auto w = weight.get();
  const auto master = p.values();
  for (size_t i = 0; i < master.size(); ++i)
    ASSERT_LE(std::abs(value(w[i]) - master[i]), unit<Bf16>() * std::abs(master[i])) << i;
}
TEST(GpuAdamWSplit, F32Moments) { check_split<float, Bf16>(); }
TEST(GpuAdamWSplit, Bf16Moments) { check_split<Bf16, Bf16>(); }

TEST(GpuAdamWSplit, EveryUpperHalf) {
  std::vector<float> host;
  for (uint32_t high = 0; high < 65536; ++high)
    for (uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const float f = std::bit_cast<float>(high << 16 | low);
      // The largest numbers round up to infinity; weights are far from there.
      if (std::isfinite(f) && (high & 0x7fff) != 0x7f7f) host.push_back(f);
    }
  const auto n = static_cast<int64_t>(host.size());
  Device<float> from(n);
  Device<Bf16> weight(n);
  Device<int16_t> remainder(n);
  require(cudaMemcpy(from.data(), host.data(), from.bytes(), cudaMemcpyHostToDevice));
  split_master(from.data(), weight.data(), remainder.data(), n, nullptr);
  EXPECT_TRUE(same_bits(joined(weight, remainder), host));
}

template <class M, class V, class G, class C>
void check_sgd(double momentum, bool nesterov) {
  const auto p0 = random_values<M>(kCount, 1), g = random_values<G>(kCount, 2),
             u0 = random_values<V>(kCount, 3);
  device::ThreadPool pool(1);
  std::vector<double> p = p0, u = u0;
  for (const Range& r : kRanges)
    cpu::sgd<double, double, double, double>(p.data() + r.first, momentum > 0 ? u.data() + r.first : nullptr,
                                             g.data() + r.first, nullptr, r.count,
                                             {.lr = &kLr,
                                              .clip_scale = &kClip,
                                              .momentum = momentum,
                                              .weight_decay = r.decay ? kDecay : 0.0,
                                              .nesterov = nesterov},
                                             pool);
  Device<double> scalars(std::vector<double>{kLr, kClip});
  Device<M> bp(p0);
  Device<V> bu(u0);
  Device<G> bg(g);
  Device<C> copy(p0);
  const auto ranges =
      ranges_in<M, V, G, C>(bp.data(), momentum > 0 ? bu.data() : nullptr, nullptr, bg.data(), copy.data());
  sgd(std::span(ranges),
      {.lr = scalars.data(), .clip_scale = scalars.data() + 1, .momentum = momentum, .nesterov = nesterov},
      nullptr);
  expect_reference(bp.values(), p, unit<M>(), unit<M>(), "p");
  expect_reference(bu.values(), u, unit<V>(), unit<M>(), "velocity");
}
TEST(GpuSgd, Plain) { check_sgd<float, float, float, Bf16>(0, false); }
TEST(GpuSgd, Momentum) { check_sgd<float, float, Bf16, Bf16>(0.9, false); }
TEST(GpuSgd, Nesterov) { check_sgd<float, Bf16, float, float>(0.9, true); }
TEST(GpuSgd, F64) { check_sgd<double, double, double, double>(0.9, true); }

// With betas of 1/2 and gradients of few bits the arithmetic is exact. What is left is rounding, by the
// random numbers that the CPU draws for the same elements. Runs of odd lengths make vectors straddle them.
template <class V>
void check_stochastic(int64_t run, int64_t stride) {
  constexpr int64_t kElements = 5000;
  const Origin origin{.key = 0x123456789abcdef0u, .first = 13, .run = run, .stride = stride, .base = 7};
  auto few_bits = [](int64_t i, int64_t factor) {
    return static_cast<double>((i * factor) % 255 - 127) / 64.0;
  };
  std::vector<double> p(kElements), g(kElements), m(kElements), v(kElements);
  for (int64_t i = 0; i < kElements; ++i) {
    const auto at = static_cast<size_t>(i);
    p[at] = few_bits(i, 31), g[at] = few_bits(i, 7919), m[at] = few_bits(i, 104729) / 256;
    v[at] = std::abs(few_bits(i, 15485863)) / 256;
  }
  cpu::test::Buffer<float> host_p(p), host_g(g);
  cpu::test::Buffer<V> host_m(m), host_v(v);
  device::ThreadPool pool(1);
  const cpu::Rounding rounding{origin, 9};
  const int64_t step = 9;
  const double one = 1;
  const int32_t yes = 1;
  cpu::adamw<float, V, float, float>(host_p.data(), host_m.data(), host_v.data(), host_g.data(), nullptr,
                                     kElements,
                                     {.lr = &kLr,
                                      .step = &step,
                                      .clip_scale = &one,
                                      .ok = &yes,
                                      .beta1 = 0.5,
                                      .beta2 = 0.5,
                                      .rounding = &rounding},
                                     pool);
  for (const int64_t shift : {0, 1}) {  // vectors, and element by element
    Device<double> scalars(std::vector<double>{kLr, 9, 1, 1});
    Device<float> bp(p, shift), bg(g, shift);
    Device<V> bm(m, shift), bv(v, shift);
    const std::vector<UpdateRange<float, V, float, float>> ranges = {
        {bp.data(), bm.data(), bv.data(), bg.data(), nullptr, kElements, 1.0, 0.0, nullptr, origin}};
    adamw(std::span(ranges),
          {.lr = scalars.data(),
           .step = scalars.data() + 1,
           .clip_scale = scalars.data() + 2,
           .ok = scalars.data() + 3,
           .beta1 = 0.5,
           .beta2 = 0.5},
          nullptr);
    const auto got_m = bm.values(), got_v = bv.values();
    for (int64_t i = 0; i < kElements; ++i) {
      const auto at = static_cast<size_t>(i);
      ASSERT_EQ(got_m[at], value(host_m.data()[i])) << i << " shift " << shift;
      ASSERT_EQ(got_v[at], value(host_v.data()[i])) << i << " shift " << shift;
    }
  }
}
TEST(GpuStochasticRounding, TheBitsOfTheCpu) {
  check_stochastic<Bf16>(1 << 20, 1 << 20);
  check_stochastic<Bf16>(64, 256);
  check_stochastic<Bf16>(37, 101);
}

// 8-bit AdamW against the CPU, three steps: codes are the same but for numbers within rounding of a border.
template <class G>
void check_adamw8bit(int64_t block, int64_t elements, int64_t shift) {
  SCOPED_TRACE(testing::Message() << block << " " << elements << " " << shift);
  const int64_t blocks = (elements + block - 1) / block;
  const auto p0 = random_values<float>(elements, 1);
  cpu::test::Buffer<float> p(p0), m_scale(std::vector<double>(static_cast<size_t>(blocks), 0.0)),
      v_scale(std::vector<double>(static_cast<size_t>(blocks), 0.0));
  std::vector<uint8_t> m(static_cast<size_t>(elements)), v(m);
  const std::vector<double> zeros(static_cast<size_t>(elements), 0.0),
      zero_scales(static_cast<size_t>(blocks), 0.0);
  Device<float> bp(p0, shift), bms(zero_scales), bvs(zero_scales);
  Device<uint8_t> bm(zeros, shift), bv(zeros, shift);
  Device<Bf16> copy(p0, shift);
  // The same with a split master, which must agree bit by bit.
  Device<Bf16> weight(elements, shift);
  Device<int16_t> remainder(elements, shift);
  Device<float> sms(zero_scales), svs(zero_scales), whole(p0);
  Device<uint8_t> sm(zeros, shift), sv(zeros, shift);
  split_master(whole.data(), weight.data(), remainder.data(), elements, nullptr);
  device::ThreadPool pool(1);
  for (int64_t step = 1; step <= 3; ++step) {
    const auto g = random_values<G>(elements, 5 + static_cast<uint64_t>(step));
    const cpu::test::Buffer<G> host_g(g);
    cpu::adamw8bit<float, G, Bf16>(
        p.data(), {m.data(), v.data(), m_scale.data(), v_scale.data(), block}, host_g.data(), nullptr,
        elements, {.lr = &kLr, .step = &step, .clip_scale = &kClip, .beta2 = 0.95, .weight_decay = kDecay},
        pool);
    Device<double> scalars(std::vector<double>{kLr, static_cast<double>(step), kClip, 1});
    Device<G> bg(g, shift);
    const AdamWScalars k{.lr = scalars.data(),
                         .step = scalars.data() + 1,
                         .clip_scale = scalars.data() + 2,
                         .ok = scalars.data() + 3,
                         .beta2 = 0.95};
    const std::vector<BlockUpdateRange<float, G, Bf16>> ranges = {{bp.data(), bm.data(), bv.data(),
                                                                   bms.data(), bvs.data(), bg.data(),
                                                                   copy.data(), elements, 1.0, kDecay}};
    const std::vector<SplitBlockUpdateRange<G>> split = {{weight.data(), remainder.data(), sm.data(),
                                                          sv.data(), sms.data(), svs.data(), bg.data(),
                                                          elements, 1.0, kDecay}};
    adamw8bit(std::span(ranges), block, k, nullptr);
    adamw8bit(std::span(split), block, k, nullptr);
    require(cudaDeviceSynchronize());
  }
  const auto got_p = bp.values();
  const auto got_m = bm.get(), got_v = bv.get();
  int64_t moved = 0;
  for (int64_t i = 0; i < elements; ++i) {
    const auto at = static_cast<size_t>(i);
    ASSERT_NEAR(got_p[at], p.data()[i], 2e-4) << i;  // a code that differs moves a later update
    ASSERT_LE(std::abs(got_m[at] - m[at]), 1) << i;
    ASSERT_LE(std::abs(got_v[at] - v[at]), 1) << i;
    moved += got_m[at] != m[at] || got_v[at] != v[at];
  }
  EXPECT_LE(moved, 1 + elements / 500);
  EXPECT_EQ(bm.bits(), sm.bits());
  EXPECT_EQ(bv.bits(), sv.bits());
  EXPECT_EQ(bms.bits(), sms.bits());
  const auto high = weight.get();
  const auto low = remainder.get();
  const auto plain = bp.get();
  for (size_t i = 0; i < plain.size(); ++i) ASSERT_EQ(base::join_float(high[i], low[i]), plain[i]) << i;
}
TEST(GpuAdamW8bit, MatchesTheCpu) {
  for (const int64_t shift : {0, 1}) {
    check_adamw8bit<float>(256, 256 * 40, shift);  // the fast path, but for shifted addresses
    check_adamw8bit<Bf16>(256, 256 * 300 + 77, shift);
    check_adamw8bit<float>(64, 5000, shift);
    check_adamw8bit<float>(8, 1001, shift);
    check_adamw8bit<Bf16>(4096, 4096 * 3 + 1, shift);
  }
}

}  // namespace
}  // namespace quintet::kernels::cuda::test
