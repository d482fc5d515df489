// Text generation on the GPU against the CPU's kernels on the same (rounded) operands, in double.
#include "kernels/cuda/generate/generate.h"

#include "gpu/device.h"
#include "gpu/similar.h"
#include "kernels/cpu/generate/cached_attention.h"
#include "kernels/cpu/generate/sample.h"
#include "kernels/cuda/matmul/narrow.h"

namespace quintet::kernels::cuda::test {
namespace {

using Ids = std::vector<int32_t>;

struct AttentionCase {
  const char* name;
  int64_t heads, kv_heads, d, dv, window;
  double soft_cap;
  Ids sequences, positions;
};

// Pages are in reverse order, so that a row is never where a contiguous cache would have it.
Ids reversed_table(int64_t sequences, int64_t pages) {
  Ids table;
  for (int64_t i = sequences * pages; i-- > 0;) table.push_back(static_cast<int32_t>(i));
  return table;
}

std::vector<AttentionCase> attention_cases() {
  return {
      {"one key", 4, 4, 128, 128, 0, 0, {0}, {0}},
      {"GQA of 4, splits that end anywhere", 32, 8, 128, 128, 0, 0, {0, 1, 2, 3}, {127, 128, 129, 700}},
      {"d 64, group 8", 16, 2, 64, 64, 0, 0, {2, 0, 1}, {640, 3, 255}},
      {"group 16", 32, 2, 128, 128, 0, 0, {0, 1}, {300, 17}},
      {"group 20: 16 and 4 heads", 40, 2, 128, 128, 0, 0, {0, 1}, {520, 256}},
      {"group 2, window", 8, 4, 64, 64, 200, 0, {1, 0}, {600, 150}},
      {"group 1, soft cap", 4, 4, 128, 128, 0, 5, {0, 1}, {400, 90}},
      {"rows of no sequence", 8, 2, 128, 128, 0, 0, {-1, 1, -1}, {0, 300, 0}},
      {"group 3", 6, 2, 64, 64, 0, 0, {0, 1}, {200, 5}},
      {"splits of 256, 512 and 768 keys", 2, 1, 64, 64, 0, 0, {0, 1, 2}, {8192, 8193, 17000}},
      {"a window that begins within a page", 4, 1, 128, 128, 300, 0, {0, 1}, {700, 299}},
      {"latent: d and dv differ", 4, 4, 24, 16, 33, 2, {1, 0}, {150, 40}},
  };
}

template <class T>
void check_attention(const AttentionCase& c) {
  SCOPED_TRACE(c.name);
  constexpr int64_t kPageRows = 64, kSequences = 4;
  const int64_t pages =
      std::max<int64_t>(12, *std::max_element(c.positions.begin(), c.positions.end()) / kPageRows + 1);
  const Ids table = reversed_table(kSequences, pages);
  const int64_t tokens = static_cast<int64_t>(c.sequences.size()), rows = kSequences * pages * kPageRows;
  CachedAttention a{.tokens = tokens,
                    .heads = c.heads,
                    .kv_heads = c.kv_heads,
                    .d = c.d,
                    .dv = c.dv,
                    .q_row = c.heads * c.d + 8,  // as if rows were part of something wider
                    .k_row = c.kv_heads * c.d + 16,
                    .v_row = c.kv_heads * c.dv + 24,
                    .pages = {.table = table.data(), .page_rows = kPageRows, .pages_per_sequence = pages},
                    .scores = {.window = c.window, .scale = 0.1, .soft_cap = c.soft_cap},
                    .sequences = c.sequences.data(),
                    .positions = c.positions.data()};
  Device<T> q(random_values<T>(tokens * a.q_row, 1)), k(random_values<T>(rows * c.kv_heads * c.d, 2)),
      v(random_values<T>(rows * c.kv_heads * c.dv, 3)), new_k(random_values<T>(tokens * a.k_row, 4)),
      new_v(random_values<T>(tokens * a.v_row, 5));
  // In double, from the values as rounded to T.
  device::ThreadPool pool(2);
  const auto qd = q.values(), new_kd = new_k.values(), new_vd = new_v.values();
  auto kd = k.values(), vd = v.values();
  const auto append = [&](const std::vector<double>& from, int64_t width, int64_t stride,
                          std::vector<double>& to) {
    cpu::cache_append(reinterpret_cast<const std::byte*>(from.data()), tokens, width * 8, stride * 8, a.pages,
                      a.sequences, a.positions, reinterpret_cast<std::byte*>(to.data()), pool);
  };
  append(new_kd, c.kv_heads * c.d, a.k_row, kd);
  append(new_vd, c.kv_heads * c.dv, a.v_row, vd);
  std::vector<double> expected(static_cast<size_t>(tokens * c.heads * c.dv));
  std::vector<std::byte> scratch(static_cast<size_t>(cpu::cached_attention_workspace_bytes(a, 2)));
  cpu::cached_attention<double>(a, qd.data(), kd.data(), vd.data(), expected.data(), scratch.data(), pool);

  auto table_d = integers(table), sequences = integers(c.sequences), positions = integers(c.positions);
  a.pages.table = table_d.data();
  a.sequences = sequences.data();
  a.positions = positions.data();
  const bool bf16 = std::is_same_v<T, Bf16>;
  Device<uint8_t> workspace(cached_attention_workspace_bytes(a, bf16, sizeof(Stat<T>)));
  Device<uint32_t> counters(std::vector<double>(static_cast<size_t>(cached_attention_counters(a)), 0.0));
  std::vector<uint8_t> first;
  for (int round = 0; round < 3; ++round) {  // counters are ready again, and the bits are the same
    Device<T> o(tokens * c.heads * c.dv);
    cached_attention<T>(a, q.data(), new_k.data(), new_v.data(), k.data(), v.data(), o.data(),
                        workspace.data(), counters.data(), nullptr);
    tests::expect_similar(o.values(), expected, std::max(unit<T>(), 1e-6), "o");
    if (round == 0) first = o.bits();
    EXPECT_EQ(o.bits(), first);
  }
  for (const uint32_t n : counters.get()) EXPECT_EQ(n, 0u);
  EXPECT_EQ(k.values(), kd);
  EXPECT_EQ(v.values(), vd);
}

TEST(GpuGenerate, AttentionToACache) {
  for (const AttentionCase& c : attention_cases()) {
    check_attention<Bf16>(c);
    check_attention<float>(c);
  }
  check_attention<double>(attention_cases()[4]);
  check_attention<F16>(attention_cases()[1]);
}

// A row has the same bits alone and among others.
TEST(GpuGenerate, AttentionDoesNotDependOnTheBatch) {
  constexpr int64_t kPageRows = 64, kPages = 12, kHeads = 8, kKv = 2, kD = 128;
  const Ids table = reversed_table(4, kPages), sequences = {0, 1, 2, 3}, positions = {700, 20, 256, 511};
  Device<Bf16> q(random_values<Bf16>(4 * kHeads * kD, 1)),
      k(random_values<Bf16>(4 * kPages * kPageRows * kKv * kD, 2)),
      v(random_values<Bf16>(4 * kPages * kPageRows * kKv * kD, 3));
  Device<Bf16> new_k(random_values<Bf16>(4 * kKv * kD, 4)), new_v(random_values<Bf16>(4 * kKv * kD, 5));
  auto table_d = integers(table), all_sequences = integers(sequences), all_positions = integers(positions);
  const auto run = [&](int64_t first, int64_t count) {
    CachedAttention a{
        .tokens = count,
        .heads = kHeads,
        .kv_heads = kKv,
        .d = kD,
        .dv = kD,
        .q_row = kHeads * kD,
        .k_row = kKv * kD,
        .v_row = kKv * kD,
        .pages = {.table = table_d.data(), .page_rows = kPageRows, .pages_per_sequence = kPages},
        .scores = {.scale = 0.1},
        .sequences = all_sequences.data() + first,
        .positions = all_positions.data() + first};
    Device<uint8_t> workspace(cached_attention_workspace_bytes(a, true, 4));
    Device<uint32_t> counters(std::vector<double>(static_cast<size_t>(cached_attention_counters(a)), 0.0));
    Device<Bf16> o(count * kHeads * kD);
    cached_attention<Bf16>(a, q.data() + first * kHeads * kD, new_k.data() + first * kKv * kD,
                           new_v.data() + first * kKv * kD, k.data(), v.data(), o.data(), workspace.data(),
                           counters.data(), nullptr);
    return o.bits();
  };
  const std::vector<uint8_t> whole = run(0, 4);
  for (int64_t i = 0; i < 4; ++i) {
    const std::vector<uint8_t> one = run(i, 1);
    EXPECT_TRUE(
        std::equal(one.begin(), one.end(), whole.begin() + static_cast<ptrdiff_t>(i * kHeads * kD * 2)))
        << i;
  }
}

TEST(GpuGenerate, NarrowMatmul) {
  struct Case {
    int64_t n, k;
  };
  for (const Case& c : {Case{64, 64}, Case{192, 320}, Case{1024, 4096}, Case{4096, 1088}, Case{128, 14336}})
    for (const int64_t m : {1, 3, 8, 9, 16, 17, 32})
      for (const bool add : {false, true}) {
        // Hopper has its own kernel where rows of y start at multiples of 16 bytes.
        const int64_t pitch = m % 2 == 1 && add ? c.n + 4 : c.n;
        SCOPED_TRACE(testing::Message() << m << " x " << c.n << " x " << c.k << (add ? ", added" : "")
                                        << ", rows of y " << pitch << " apart");
        Device<Bf16> x(random_values<Bf16>(m * c.k, 1)), w(random_values<Bf16>(c.n * c.k, 2)),
            addend(random_values<Bf16>(m * pitch, 3)),
            y(std::vector<double>(static_cast<size_t>(m * pitch), 0.0));
        GemmArgs g{.trans_b = true,
                   .m = m,
                   .n = c.n,
                   .k = c.k,
                   .a = x.data(),
                   .lda = c.k,
                   .b = w.data(),
                   .ldb = c.k,
                   .c = y.data(),
                   .ldc = pitch,
                   .a_type = base::DType::BF16,
                   .b_type = base::DType::BF16,
                   .c_type = base::DType::BF16,
                   .addend = add ? addend.data() : nullptr};
        ASSERT_TRUE(is_narrow(g));
        Device<uint8_t> workspace(narrow_workspace_bytes(g));
        Device<uint32_t> counters(std::vector<double>(kNarrowCounters, 0.0));
        for (const bool constant : {true, false, false})
          narrow_matmul(g, constant, workspace.data(), counters.data(), nullptr);
        const auto xs = x.values(), ws = w.values(), as = addend.values();
        std::vector<double> expected, size;
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < pitch; ++j) {
            double sum = add && j < c.n ? as[static_cast<size_t>(i * pitch + j)] : 0, all = std::abs(sum);
            for (int64_t l = 0; l < (j < c.n ? c.k : 0); ++l) {
              const double term = xs[static_cast<size_t>(i * c.k + l)] * ws[static_cast<size_t>(j * c.k + l)];
              sum += term, all += std::abs(term);
            }
            expected.push_back(sum), size.push_back(all);
          }
        expect_close(
            y, expected, 8, [&](size_t i) { return size[i]; }, "y");
        // A row alone has the same bits.
        const std::vector<uint8_t> whole = y.bits();
        Device<Bf16> one(c.n);
        g.m = 1;
        g.c = one.data();
        narrow_matmul(g, false, workspace.data(), counters.data(), nullptr);
        EXPECT_TRUE(
            std::equal(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(c.n * 2), one.bits().begin()));
      }
  GemmArgs wide{.trans_b = true, .m = 33, .n = 16, .k = 32, .lda = 32, .ldb = 32, .ldc = 16};
  EXPECT_FALSE(is_narrow(wide));
}

TEST(GpuGenerate, SampledTokensAreTheCpus) {
  constexpr int64_t kTokens = 64, kVocab = 5003, kColumns = 5008;
  const auto logits = random_values<float>(kTokens * kColumns, 4);
  std::vector<float> host;
  for (double v : logits) host.push_back(static_cast<float>(v * 4));
  Ids samples, positions, table, sequences, history;
  for (int32_t t = 0; t < kTokens; ++t)
    samples.push_back(t * 31 + 7), positions.push_back(t % 40), sequences.push_back(t);
  for (int32_t i = 0; i < kTokens; ++i) table.push_back(i);
  for (int32_t i = 0; i < kTokens * 64; ++i) history.push_back(i * 7919 % kVocab);
  device::ThreadPool pool(1);
  for (const SampleRule& rule :
       {SampleRule{.vocab = kVocab}, SampleRule{.temperature = 1, .key = 3, .vocab = kVocab},
        SampleRule{.temperature = 0.7, .top_k = 50, .key = 5, .vocab = kVocab},
        SampleRule{.temperature = 1.3, .top_p = 0.8, .key = 6, .vocab = kVocab},
        SampleRule{.temperature = 1, .min_p = 0.05, .key = 7, .vocab = kVocab},
        SampleRule{.temperature = 0.9,
        .top_k = 100,
        .top_p = 0.9,
        .min_p = 0.01,
        .repetition_penalty = 1.3,
        .key = 8,
        .vocab = kVocab}}) {
    SCOPED_TRACE(testing::Message() << rule.temperature << " " << rule.top_k << " " << rule.top_p << " "
                                    << rule.min_p);
    const bool penalty = rule.repetition_penalty != 1;
    History h;
    if (penalty) h = {history.data(), {table.data(), 64, 1}, sequences.data()};
    Ids expected(kTokens);
    std::vector<std::byte> scratch(static_cast<size_t>(cpu::sample_workspace_bytes(kVocab, 1)));
    cpu::sample<float>(host.data(), kTokens, kColumns, rule, samples.data(), positions.data(), h,
                       expected.data(), scratch.data(), pool);
    Device<float> x(std::vector<double>(host.begin(), host.end()));
    auto samples_d = integers(samples), positions_d = integers(positions), table_d = integers(table),
         sequences_d = integers(sequences), history_d = integers(history);
    if (penalty) h = {history_d.data(), {table_d.data(), 64, 1}, sequences_d.data()};
    Device<int32_t> ids(kTokens);
    sample<float>(x.data(), kTokens, kColumns, rule, samples_d.data(), positions_d.data(), h, ids.data(),
                  nullptr);
    const Ids got = ids.get();
    int different = 0;
    for (size_t t = 0; t < got.size(); ++t) different += got[t] != expected[t];
    // Probabilities are f32 here: a random number may fall on the other side of a boundary.
    EXPECT_LE(different, rule.temperature == 0 ? 0 : 1);
  }
}

TEST(GpuGenerate, LogitsThatAreNotFiniteGiveNoToken) {
  std::vector<double> logits(100, 1.0);
  logits[70] = std::numeric_limits<double>::quiet_NaN();
  Device<float> x(logits);
  auto zeros = integers(Ids{0});
  Device<int32_t> ids(1);
  sample<float>(x.data(), 1, 100, {.vocab = 100}, zeros.data(), zeros.data(), {}, ids.data(), nullptr);
  EXPECT_EQ(ids.get()[0], -1);
}

TEST(GpuGenerate, RowsAreStoredAndTaken) {
  for (const int64_t width : {8, 5}) {  // of float: in vectors, and not
    const Ids table = {2, -1, 1, 0}, sequences = {0, -1, 1, 1}, positions = {3, 2, 0, 9};
    Device<float> rows(random_values<float>(4 * width, 1)),
        cache(std::vector<double>(static_cast<size_t>(3 * 8 * width), 7.0));
    auto table_d = integers(table), sequences_d = integers(sequences), positions_d = integers(positions);
    const AppendRows list[1] = {{reinterpret_cast<const std::byte*>(rows.data()),
                                 reinterpret_cast<std::byte*>(cache.data()), width * 4}};
    cache_append(list, 1, 4, {table_d.data(), 8, 2}, sequences_d.data(), positions_d.data(), nullptr);
    std::vector<double> expected(static_cast<size_t>(3 * 8 * width), 7.0);
    const auto from = rows.values();
    const auto store = [&](int64_t t, int64_t at) {
      std::copy_n(from.begin() + static_cast<ptrdiff_t>(t * width), width,
                  expected.begin() + static_cast<ptrdiff_t>(at * width));
    };
    store(0, 2 * 8 + 3), store(2, 1 * 8), store(3, 0 * 8 + 1);
    EXPECT_EQ(cache.values(), expected);
    Device<float> taken(2 * width);
    auto wanted = integers(Ids{3, 0});
    take_rows(reinterpret_cast<const std::byte*>(rows.data()), wanted.data(), 2, width * 4,
              reinterpret_cast<std::byte*>(taken.data()), nullptr);
    std::vector<double> two(from.begin() + static_cast<ptrdiff_t>(3 * width), from.end());
    two.insert(two.end(), from.begin(), from.begin() + static_cast<ptrdiff_t>(width));
    EXPECT_EQ(taken.values(), two);
  }
}

}  // namespace
}  // namespace quintet::kernels::cuda::test
