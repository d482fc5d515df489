// The tiled attention kernels against the definition in f64 (attention_reference.h): every kind of mask,
// row order, head size, soft caps, sinks and dropout, alone and in random combinations; o, lse and all
// gradients; the same bits twice where a shape asks for that. All sets of kernels: for Ampere on, and for
// Hopper, if the GPU is one, with the fused backward pass and with the deterministic one.
#include <gtest/gtest.h>

#include <iterator>
#include <random>

#include "gpu/attention_reference.h"
#include "gpu/device.h"
#include "gpu/similar.h"
#include "kernels/cuda/attention/tile_sizes.h"
#include "kernels/cuda/attention/tiled.h"

namespace quintet::kernels::cuda::test {
namespace {

using tests::expect_similar;
using tests::ReferenceAttention;
using tests::root_mean_square;

enum class Documents : uint8_t { None, Long, Short, Recurring };

struct Case {
  int64_t sequences = 2, seq_len = 200, kv_heads = 2, group = 4, head_dim = 64, value_dim = 64, window = 0;
  int64_t ranks = 1, q_first = 0, q_count = 1, k_first = 0, k_count = 1;
  Documents documents = Documents::None;
  bool causal = true, hop = false, sinks = false, portable = false, deterministic = false;
  double soft_cap = 0, dropout = 0;
};

std::ostream& operator<<(std::ostream& to, const Case& c) {
  return to << c.sequences << " x " << c.seq_len << " rows, heads " << c.kv_heads << " x " << c.group
            << " of " << c.head_dim << "/" << c.value_dim << ", window " << c.window << ", ranks " << c.ranks
            << " q " << c.q_first << "+" << c.q_count << " k " << c.k_first << "+" << c.k_count
            << ", documents " << static_cast<int>(c.documents) << ", causal " << c.causal << ", hop " << c.hop
            << ", sinks " << c.sinks << ", portable " << c.portable << ", deterministic " << c.deterministic
            << ", soft cap " << c.soft_cap << ", dropout " << c.dropout;
}

// Ids of whole sequences, in the order of k_rows.whole(), and positions within documents.
void draw_documents(const Case& c, const base::RowOrder& rows, std::mt19937& random,
                    std::vector<int32_t>& ids, std::vector<int32_t>& places) {
  ids.assign(static_cast<size_t>(c.sequences * c.seq_len), 0);
  places = ids;
  for (int64_t s = 0; s < c.sequences; ++s) {
    int32_t id = 0;
    const uint32_t longest = c.documents == Documents::Long ? 150 : 9;
    const int64_t padding = c.documents != Documents::None && random() % 3 == 0
                                ? static_cast<int64_t>(random() % static_cast<uint64_t>(c.seq_len))
                                : 0;
    int64_t left = 0, place = 0;
    for (int64_t p = 0; p < c.seq_len; ++p, --left, ++place) {
      if (left == 0) {
        id += p > 0;
        place = 0;
        left = c.documents == Documents::None ? c.seq_len : 1 + static_cast<int64_t>(random() % longest);
      }
      const auto row = static_cast<size_t>(rows.row_in_whole(s, p));
      ids[row] = p >= c.seq_len - padding ? -1 : id;
      if (c.documents == Documents::Recurring)
        ids[row] = p % 31 == 30 ? -1 : static_cast<int32_t>(p / 29 % 2);
      places[row] = static_cast<int32_t>(place);
    }
  }
}

// All sets of kernels against one reference.
template <class T, class O>
void check(Case c, uint32_t seed) {
  std::mt19937 random(seed);
  ReferenceAttention a;
  a.q_rows = {c.seq_len, c.sequences, c.ranks, c.q_first, c.q_count};
  a.k_rows = {c.seq_len, c.sequences, c.ranks, c.k_first, c.k_count};
  a.heads = c.kv_heads * c.group;
  a.kv_heads = c.kv_heads;
  a.head_dim = c.head_dim;
  a.value_dim = c.value_dim;
  a.q_stride = a.dq_stride = a.heads * c.head_dim;
  a.k_stride = a.dk_stride = c.kv_heads * c.head_dim;
  a.v_stride = a.dv_stride = c.kv_heads * c.value_dim;
  a.o_stride = a.heads * c.value_dim;
  a.window = c.window;
  a.scale = 1 / std::sqrt(static_cast<double>(c.head_dim));
  a.causal = c.causal;
  a.soft_cap = c.soft_cap;
  a.dropout_p = c.dropout;
  a.dropout_key = 0x1234567890abcdefull;
  a.head_offset = 3;
  const int64_t q_rows = a.q_rows.rows(), k_rows = a.k_rows.rows();
  std::vector<int32_t> key_documents, key_positions, documents(static_cast<size_t>(q_rows)),
      positions = documents, samples = documents;
  draw_documents(c, a.q_rows, random, key_documents, key_positions);
  for (const auto& place : ReferenceAttention::places(a.q_rows)) {
    const auto row = static_cast<size_t>(place.row), whole = static_cast<size_t>(place.whole);
    documents[row] = key_documents[whole];
    positions[row] = key_positions[whole];
    samples[row] = static_cast<int32_t>(place.sequence * 100) + documents[row];
  }
  if (c.documents != Documents::None) {
    a.documents = documents.data();
    a.key_documents = key_documents.data();
  }
  a.samples = samples.data();
  a.positions = positions.data();
  a.key_positions = key_positions.data();
  if (c.sinks) a.sinks = random_values<Bf16>(a.heads, 9);
  const auto q = random_values<T>(q_rows * a.q_stride, 1), k = random_values<T>(k_rows * a.k_stride, 2),
             v = random_values<T>(k_rows * a.v_stride, 3), dout = random_values<T>(q_rows * a.o_stride, 4);
  std::vector<double> o_before, lse_before, dq_before;
  if (c.hop) {
    o_before = random_values<float>(q_rows * a.o_stride, 5);
    lse_before = random_values<float>(a.heads * q_rows, 6);
    dq_before = random_values<float>(q_rows * a.dq_stride, 7);
  }
  const tests::ReferenceResult want = reference_attention(a, q, k, v, dout, o_before, lse_before);

  AttentionShape s;
  static_cast<AttentionGeometry&>(s) = a;
  auto d_documents = integers(documents), d_key_documents = integers(key_documents),
       d_samples = integers(samples), d_positions = integers(positions),
       d_key_positions = integers(key_positions);
  Device<uint64_t> key(1);
  require(cudaMemcpy(key.data(), &a.dropout_key, 8, cudaMemcpyHostToDevice));
  s.dropout_key = key.data();
  s.documents = s.key_documents = nullptr;
  if (c.documents != Documents::None) {
    s.documents = d_documents.data();
    s.key_documents = d_key_documents.data();
  }
  s.samples = d_samples.data();
  s.positions = d_positions.data();
  s.key_positions = d_key_positions.data();
  ASSERT_TRUE(TiledAttention::suits(s, base::DTypeOf<T>::value));
  Device<float> sinks(a.sinks), dsinks(a.heads);
  TiledOptions options{.causal = c.causal,
                       .soft_cap = c.soft_cap,
                       .sinks = c.sinks ? sinks.data() : nullptr,
                       .dsinks = c.sinks ? dsinks.data() : nullptr};
  Device<T> bq(q), bk(k), bv(v), bdout(dout), exact_o(want.o);
  Device<float> exact_lse(want.lse), bo_before(o_before), blse_before(lse_before), bdq_before(dq_before);
  const auto before = [&](Device<float>& of) { return c.hop ? of.data() : nullptr; };
  for (const int kernels : {0, 1, 2}) {
    options.portable = c.portable = kernels == 2;
    s.deterministic = c.deterministic = kernels > 0;
    SCOPED_TRACE(testing::Message() << c << ", seed " << seed);
    std::vector<std::vector<uint8_t>> bits[2];
    for (auto& run : bits) {
      Device<O> o(q_rows * a.o_stride), dq(q_rows * a.dq_stride);
      Device<float> lse(a.heads * q_rows);
      Device<T> dk(k_rows * a.dk_stride), dv(k_rows * a.dv_stride);
      const float *o_in = before(bo_before), *lse_in = before(blse_before), *dq_in = before(bdq_before);
      if constexpr (std::is_same_v<O, float>) {
        if (c.hop && seed % 4 < 2) {  // in place
          const auto copy = [](Device<float>& to, Device<float>& from, int64_t n) {
            require(cudaMemcpy(to.data(), from.data(), static_cast<size_t>(n) * 4, cudaMemcpyDeviceToDevice));
            return to.data();
          };
          o_in = copy(o, bo_before, q_rows * a.o_stride);
          lse_in = copy(lse, blse_before, a.heads * q_rows);
          dq_in = copy(dq, bdq_before, q_rows * a.dq_stride);
        }
      }
      {
        Device<uint8_t> workspace(TiledAttention::workspace_bytes(s, false));
        TiledAttention::forward<T, O>(s, options, bq.data(), bk.data(), bv.data(), o_in, lse_in, o.data(),
                                      lse.data(), workspace.data(), nullptr);
        require(cudaDeviceSynchronize());
      }
      {
        Device<uint8_t> workspace(TiledAttention::workspace_bytes(s, true));
        TiledAttention::backward<T, O>(s, options, bdout.data(), bq.data(), bk.data(), bv.data(),
                                       exact_o.data(), exact_lse.data(), dq_in, dq.data(), dk.data(),
                                       dv.data(), workspace.data(), nullptr);
        require(cudaDeviceSynchronize());
      }
      run = {o.bits(), lse.bits(), dq.bits(), dk.bits(), dv.bits()};
      if (&run != &bits[0]) break;
      const double rounding = std::is_same_v<T, Bf16> ? 0x1p-9 : 0x1p-12;
      const double delta = tests::carried_error(a.scale, a.value_dim, dout, v);
      std::vector<double> want_dq = want.dq;
      for (size_t i = 0; i < dq_before.size(); ++i) want_dq[i] += dq_before[i];
      expect_similar(o.values(), want.o, rounding, "o", root_mean_square(v));
      expect_similar(lse.values(), want.lse, 0x1p-16, "lse");
      expect_similar(dq.values(), want_dq, rounding, "dq", delta * root_mean_square(k));
      expect_similar(dk.values(), want.dk, rounding, "dk", delta * root_mean_square(q));
      expect_similar(dv.values(), want.dv, rounding, "dv", root_mean_square(dout));
      if (c.sinks) expect_similar(dsinks.values(), want.dsinks, rounding, "dsinks", 1);
    }
    if (c.deterministic) {
      EXPECT_EQ(bits[0], bits[1]);
    }
  }
}

void check_all(const Case& c, uint32_t seed) {
  if (c.hop) {
    check<Bf16, float>(c, seed);
    if (seed % 3 == 0) check<F16, float>(c, seed);
  } else {
    check<Bf16, Bf16>(c, seed);
    if (seed % 3 == 0) check<F16, F16>(c, seed);
  }
}

TEST(GpuTiledAttention, HeadSizes) {
  constexpr int64_t sizes[][2] = {{64, 64}, {96, 96}, {128, 128}, {192, 128}, {256, 256},
                                  {32, 32}, {48, 24}, {80, 80},   {128, 64},  {8, 8}};
  for (const auto& [qk, value] : sizes)
    for (const auto documents : {Documents::None, Documents::Long})
      check_all({.seq_len = under_racecheck() ? 140 : 333,
                 .kv_heads = 1,
                 .head_dim = qk,
                 .value_dim = value,
                 .documents = documents},
                3);
}

constexpr int64_t kSizes[][2] = {{64, 64}, {96, 96}, {128, 128}, {192, 128}, {256, 256}};

// Groups that fill tiles, that do not, and one that is larger than a tile.
TEST(GpuTiledAttention, Groups) {
  for (const int64_t group : {1, 2, 3, 5, 7, 8, 24, 64, 130})
    for (const auto& [qk, value] : kSizes)
      check_all({.sequences = 1,
                 .seq_len = group > 8 ? 40 : 200,
                 .kv_heads = 1,
                 .group = group,
                 .head_dim = qk,
                 .value_dim = value,
                 .documents = Documents::Short},
                2);
}

// Every pair of a head size and an option, and of two options.
TEST(GpuTiledAttention, Pairs) {
  using Change = void (*)(Case&);
  constexpr Change changes[] = {
      [](Case& c) { c.soft_cap = 5; },
      [](Case& c) { c.dropout = 0.25; },
      [](Case& c) { c.sinks = !c.hop; },
      [](Case& c) { c.causal = false; },
      [](Case& c) { c.window = 70; },
      [](Case& c) { c.documents = Documents::Long; },
      [](Case& c) { c.documents = Documents::Short; },
      [](Case& c) { c.hop = true, c.sinks = false; },
      [](Case& c) { c.seq_len = 200, c.ranks = 2, c.k_first = 1; },
      [](Case& c) { c.seq_len = 200, c.ranks = 2, c.k_count = 2; },
  };
  uint32_t seed = 0;
  for (const auto& [qk, value] : kSizes)
    for (size_t one = 0; one < std::size(changes); ++one)
      for (size_t two = one; two < std::size(changes); ++two) {
        if (under_racecheck() && two != one) continue;
        Case c{.sequences = 1, .seq_len = 197, .kv_heads = 1, .group = 3, .head_dim = qk, .value_dim = value};
        changes[one](c);
        changes[two](c);
        check_all(c, seed += 2);
        if (HasFatalFailure()) return;
      }
}

// Documents whose ids recur, and padding inside them: these use the kernels without tensor cores.
TEST(GpuTiledAttention, RecurringDocuments) {
  for (const int64_t dim : {64, 128}) {
    check_all({.head_dim = dim, .value_dim = dim, .documents = Documents::Recurring}, 1);
    check_all(
        {.head_dim = dim, .value_dim = dim, .window = 40, .documents = Documents::Recurring, .hop = true}, 1);
  }
}

// Hops with several tiles for every persistent block, which reuses shared memory from one to the next.
TEST(GpuTiledAttention, MoreTilesThanBlocks) {
  for (const int64_t dim : {64, 128})
    for (const int64_t source : {1, 0}) {  // keys of this rank, of an earlier one
      if (under_racecheck() && source == 0) continue;
      check<Bf16, float>({.sequences = under_racecheck() ? 1 : 6,
                          .seq_len = 256,
                          .kv_heads = under_racecheck() ? 70 : 32,
                          .group = dim == 64 ? 3 : 2,
                          .head_dim = dim,
                          .value_dim = dim,
                          .ranks = 2,
                          .q_first = 1,
                          .k_first = source,
                          .documents = Documents::Long,
                          .hop = true},
                         source == 0 ? 1 : 2);  // in place, or not
    }
}

// More sums of dq than fit into the fused pass's scratch: it takes the KV heads in parts.
TEST(GpuTiledAttention, KvHeadsInParts) {
  if (under_racecheck()) GTEST_SKIP() << "racecheck needs minutes for this shape: run the test without it";
  AttentionShape s;
  s.q_rows = s.k_rows = {.seq_len = 4096, .sequences = 4};
  s.heads = 33;
  s.kv_heads = 3;
  s.head_dim = s.value_dim = 128;
  s.q_stride = s.dq_stride = s.o_stride = s.heads * 128;
  s.k_stride = s.dk_stride = s.v_stride = s.dv_stride = s.kv_heads * 128;
  s.scale = 1 / std::sqrt(128.0);
  const int64_t rows = s.q_rows.rows();
  ASSERT_LT(fused_kv_heads(s), s.kv_heads);
  Device<Bf16> q(random_values<Bf16>(rows * s.q_stride, 1)), k(random_values<Bf16>(rows * s.k_stride, 2)),
      v(random_values<Bf16>(rows * s.k_stride, 3)), dout(random_values<Bf16>(rows * s.q_stride, 4)),
      o(rows * s.q_stride);
  Device<float> lse(s.heads * rows);
  std::vector<double> dq[2], dk[2];
  for (const bool deterministic : {false, true}) {
    s.deterministic = deterministic;
    Device<uint8_t> workspace(
        std::max(TiledAttention::workspace_bytes(s, false), TiledAttention::workspace_bytes(s, true)));
    const float* const none = nullptr;
    Device<Bf16> gq(rows * s.q_stride), gk(rows * s.k_stride), gv(rows * s.k_stride);
    TiledAttention::forward<Bf16, Bf16>(s, {}, q.data(), k.data(), v.data(), none, none, o.data(), lse.data(),
                                        workspace.data(), nullptr);
    TiledAttention::backward<Bf16, Bf16>(s, {}, dout.data(), q.data(), k.data(), v.data(), o.data(),
                                         lse.data(), none, gq.data(), gk.data(), gv.data(), workspace.data(),
                                         nullptr);
    require(cudaDeviceSynchronize());
    dq[deterministic] = gq.values();
    dk[deterministic] = gk.values();
  }
  // In rows with few keys one score's gradient that rounds the other way moves an element by up to 2^-7.
  expect_similar(dq[0], dq[1], 0x1p-7, "dq", root_mean_square(dq[1]));
  expect_similar(dk[0], dk[1], 0x1p-7, "dk", root_mean_square(dk[1]));
}

TEST(GpuTiledAttention, RandomCombinations) {
  std::mt19937 random(7);
  const auto pick = [&](std::initializer_list<int64_t> of) { return *(of.begin() + random() % of.size()); };
  const int rounds = under_racecheck() ? 6 : 90;
  for (int round = 0; round < rounds; ++round) {
    Case c;
    c.sequences = pick({1, 2, 3});
    c.kv_heads = pick({1, 2});
    c.group = pick({1, 2, 3, 4, 5, 8});
    constexpr int64_t sizes[][2] = {{64, 64},   {72, 64},   {128, 128}, {112, 128}, {96, 96},
                                    {192, 128}, {256, 256}, {40, 24},   {160, 104}, {200, 256}};
    const auto& size = sizes[random() % std::size(sizes)];
    c.head_dim = size[0];
    c.value_dim = size[1];
    c.window = pick({0, 0, 1, 7, 33, 100, 1000});
    c.ranks = pick({1, 1, 2, 4});
    const int64_t longest = under_racecheck() ? 90 : 300;
    c.seq_len = c.ranks == 1
                    ? 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(longest))
                    : 2 * c.ranks *
                          (1 + static_cast<int64_t>(random() % static_cast<uint64_t>(longest / 2 / c.ranks)));
    const auto rank = [&] { return static_cast<int64_t>(random() % static_cast<uint64_t>(c.ranks)); };
    switch (c.ranks == 1 ? 0 : random() % 4) {
      case 0:  // whole sequences, or a hop of a ring
        c.q_first = rank();
        c.k_first = rank();
        break;
      case 1:
        c.q_count = c.k_count = c.ranks;
        break;
      case 2:  // gathered keys
        c.q_first = rank();
        c.k_count = c.ranks;
        break;
      default:
        c.q_count = c.k_count = 2;
        c.q_first = rank() / 2 * 2;
        c.k_first = rank() / 2 * 2;
        break;
    }
    c.documents = static_cast<Documents>(random() % 4);
    c.hop = random() % 3 == 0;
    if (c.documents != Documents::Recurring) {
      c.causal = random() % 6 != 0;
      c.soft_cap = random() % 5 == 0 ? 5.0 : 0.0;
      c.sinks = !c.hop && random() % 5 == 0;
    }
    c.dropout = random() % 5 == 0 ? 0.25 : 0.0;
    check_all(c, random() % 1000);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace quintet::kernels::cuda::test
