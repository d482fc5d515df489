#include "kernels/cpu/experts/dispatch.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "kernels/support.h"

namespace quintet::kernels::cpu::test {
namespace {

using Indices = std::vector<int32_t>;

struct Routed {
  Indices order, send;
};

Routed run_route(const Indices& kept, int64_t choices, int64_t experts, int64_t pad) {
  const int64_t pairs = static_cast<int64_t>(kept.size()), slots = pad > 0 ? experts * pad : pairs;
  Buffer<uint8_t> workspace(route_workspace_bytes(experts));
  Routed r{Indices(static_cast<size_t>(slots), 99), Indices(static_cast<size_t>(experts), 99)};
  route(kept.data(), pairs / choices, choices, experts, pad > 0, slots, r.order.data(), r.send.data(),
        workspace.data());
  return r;
}

// Three tokens with two choices, four experts; one pair is dropped.
const Indices kKept = {2, 0, -1, 2, 0, 3};

TEST(Dispatch, RouteOrdersByExpertThenRowThenChoice) {
  const Routed r = run_route(kKept, 2, 4, 0);
  EXPECT_EQ(r.order, (Indices{1, 4, 0, 3, 5, -1}));
  EXPECT_EQ(r.send, (Indices{2, 0, 2, 1}));
}

TEST(Dispatch, RoutePadsEveryExpertAlike) {
  const Routed r = run_route(kKept, 2, 4, 3);
  EXPECT_EQ(r.order, (Indices{1, 4, -1, -1, -1, -1, 0, 3, -1, 5, -1, -1}));
  EXPECT_EQ(r.send, (Indices{3, 3, 3, 3}));
}

TEST(Dispatch, RouteTakesAllDroppedAndNoTokens) {
  EXPECT_EQ(run_route({-1, -1}, 1, 2, 0).order, (Indices{-1, -1}));
  EXPECT_EQ(run_route({-1, -1}, 1, 2, 0).send, (Indices{0, 0}));
  EXPECT_EQ(run_route({}, 2, 2, 0).send, (Indices{0, 0}));
  EXPECT_EQ(run_route({1, 1, 1}, 1, 2, 0).order, (Indices{0, 1, 2}));
}

TEST(Dispatch, RouteRefusesWhatDoesNotFit) {
  EXPECT_THROW(run_route({0, 0}, 1, 2, 1), base::InternalError);  // two rows, padded to one
  EXPECT_THROW(run_route({0, 2}, 1, 2, 0), base::InternalError);  // no such expert
}

template <class T>
class DispatchRows : public testing::Test {};
TYPED_TEST_SUITE(DispatchRows, AllTypes);

// 50 tokens with 3 choices over 7 experts, some dropped.
Indices many_kept() {
  Indices kept;
  for (int i = 0; i < 150; ++i) kept.push_back(i % 11 == 0 ? -1 : (i * i + i / 3) % 7);
  for (int i = 30; i < 33; ++i) kept[static_cast<size_t>(i)] = -1;  // a token without an expert
  return kept;
}

TYPED_TEST(DispatchRows, PackAndUnpack) {
  using T = TypeParam;
  const Indices kept = many_kept();
  const int64_t tokens = 50, choices = 3, experts = 7;
  for (const int64_t n : {1, 5, 40})
    for (const int64_t pad : {0, 40}) {
      SCOPED_TRACE(testing::Message() << n << " columns, pad " << pad);
      const Routed r = run_route(kept, choices, experts, pad);
      const int64_t slots = static_cast<int64_t>(r.order.size());
      const std::vector<double> x = random_values<T>(tokens * n, 5);
      std::vector<double> y = random_values<T>(slots * n, 6), sums(static_cast<size_t>(tokens * n), 0.0),
                          sizes(static_cast<size_t>(tokens * n), 0.0);
      for (int64_t s = 0; s < slots; ++s)
        for (int64_t i = 0; i < n; ++i) {
          const int32_t pair = r.order[static_cast<size_t>(s)];
          double& value = y[static_cast<size_t>(s * n + i)];
          if (pair < 0) {
            value = std::nan("");  // must not be read
            continue;
          }
          sums[static_cast<size_t>(pair / choices * n + i)] += value;
          sizes[static_cast<size_t>(pair / choices * n + i)] += std::abs(value);
        }
      run_everywhere([&](ThreadPool& pool) {
        const Buffer<T> bx(x), by(y);
        Buffer<T> packed(slots * n), unpacked(tokens * n);
        const std::vector<uint8_t> before = packed.bytes();
        Buffer<uint8_t> workspace(unpack_rows_workspace_bytes(tokens, choices));
        pack_rows(reinterpret_cast<const std::byte*>(bx.data()), r.order.data(), choices, pad > 0,
                  reinterpret_cast<std::byte*>(packed.data()), slots, n * int64_t{sizeof(T)}, pool);
        const std::vector<uint8_t> after = packed.bytes();
        for (int64_t s = 0; s < slots; ++s)
          for (int64_t i = 0; i < n; ++i) {
            const int32_t pair = r.order[static_cast<size_t>(s)];
            if (pair >= 0) {
              EXPECT_EQ(packed[s * n + i], x[static_cast<size_t>(pair / choices * n + i)]);
            } else if (pad > 0) {
              EXPECT_EQ(packed[s * n + i], 0);
            } else {
              const size_t at = static_cast<size_t>(s * n + i) * sizeof(T);
              EXPECT_EQ(std::memcmp(&after[at], &before[at], sizeof(T)), 0) << "an unused slot was written";
            }
          }
        unpack_rows<T>(by.data(), r.order.data(), slots, choices, nullptr, unpacked.data(), tokens, n,
                       workspace.data(), pool);
        expect_near(
            unpacked, sums, [&](int64_t i) { return 3 * unit<Stat<T>>() * sizes[static_cast<size_t>(i)]; },
            "unpacked");
        // Added to x, and in place.
        Buffer<T> added(tokens * n), in_place(x);
        unpack_rows<T>(by.data(), r.order.data(), slots, choices, bx.data(), added.data(), tokens, n,
                       workspace.data(), pool);
        unpack_rows<T>(by.data(), r.order.data(), slots, choices, in_place.data(), in_place.data(), tokens, n,
                       workspace.data(), pool);
        std::vector<double> totals = sums;
        for (size_t i = 0; i < totals.size(); ++i) totals[i] += x[i];
        expect_near(
            added, totals,
            [&](int64_t i) {
              const auto at = static_cast<size_t>(i);
              return 4 * unit<Stat<T>>() * (sizes[at] + std::abs(x[at]));
            },
            "added");
        EXPECT_EQ(added.bytes(), in_place.bytes());
        return bytes_of(packed, unpacked, added);
      });
    }
}

TYPED_TEST(DispatchRows, Weights) {
  using S = Stat<TypeParam>;
  for (const int64_t pad : {0, 3}) {
    const Routed r = run_route(kKept, 2, 4, pad);
    const int64_t slots = static_cast<int64_t>(r.order.size());
    const Buffer<S> weights(std::vector<double>{1, 2, 3, 4, 5, 6});
    Buffer<S> packed(std::vector<double>(static_cast<size_t>(slots), 9)), back(6);
    pack_weights<S>(weights.data(), r.order.data(), pad > 0, packed.data(), slots);
    for (int64_t s = 0; s < slots; ++s) {
      const int32_t pair = r.order[static_cast<size_t>(s)];
      EXPECT_EQ(packed[s], pair >= 0 ? weights[pair] : pad > 0 ? 0 : 9);
    }
    unpack_weights<S>(packed.data(), r.order.data(), slots, nullptr, back.data(), 6);
    EXPECT_EQ(back.values(), (std::vector<double>{1, 2, 0, 4, 5, 6}));
    // Added to another, and in place.
    const Buffer<S> addend(std::vector<double>{7, 7, 7, 7, 7, 7});
    Buffer<S> in_place(std::vector<double>{8, 8, 8, 8, 8, 8});
    unpack_weights<S>(packed.data(), r.order.data(), slots, addend.data(), back.data(), 6);
    EXPECT_EQ(back.values(), (std::vector<double>{8, 9, 7, 11, 12, 13}));
    unpack_weights<S>(packed.data(), r.order.data(), slots, in_place.data(), in_place.data(), 6);
    EXPECT_EQ(in_place.values(), (std::vector<double>{9, 10, 8, 12, 13, 14}));
  }
}

// Every row is sent in exactly one pass, members agree on what they exchange in it and on the number of
// passes, and no rank receives more than it has room for.
TEST(Dispatch, PassesSplitAllRows) {
  for (const int64_t copies : {1, 2})
    for (const int64_t rows : {1, 3, 7, 1000})
      for (const uint64_t seed : {1, 2, 3}) {
        const int64_t ranks = 3, experts = 2, all = ranks * experts, members = ranks * copies;
        std::vector<Indices> orders;
        Indices counts;
        int32_t pair = 0;
        for (int64_t m = 0; m < members; ++m) {
          Indices& order = orders.emplace_back();
          for (int64_t e = 0; e < all; ++e) {
            // Some empty, the last expert with most.
            const auto n = static_cast<int32_t>(seed * 7 + static_cast<uint64_t>(m * 5 + e * 3)) % 4;
            counts.push_back(e == all - 1 ? 4 * n : n);
            for (int32_t i = 0; i < counts.back(); ++i) order.push_back(pair++);
          }
          order.resize(order.size() + 2, -1);  // unused slots
        }
        const auto shape = [&](int64_t m) {
          return PassShape{.members = members,
                           .all_experts = all,
                           .experts = experts,
                           .copies = copies,
                           .rows = rows,
                           .position = m,
                           .slots = static_cast<int64_t>(orders[static_cast<size_t>(m)].size())};
        };
        std::vector<Indices> sent(static_cast<size_t>(members));  // pairs, over all passes, by expert
        int64_t passes = 1;
        for (int64_t pass = 0; pass < passes; ++pass) {
          std::vector<Indices> send, received;
          for (int64_t m = 0; m < members; ++m) {
            const Indices& order = orders[static_cast<size_t>(m)];
            Indices of_pass(order.size(), 99);
            send.emplace_back(static_cast<size_t>(all), 99);
            received.emplace_back(static_cast<size_t>(members * experts), 99);
            const int64_t n = split_rows(shape(m), order.data(), counts.data(), pass, of_pass.data(),
                                         send.back().data(), received.back().data());
            if (pass == 0 && m == 0) passes = n;
            EXPECT_EQ(n, passes);
            const auto used = std::accumulate(send.back().begin(), send.back().end(), int64_t{0});
            for (size_t s = 0; s < of_pass.size(); ++s) {
              EXPECT_EQ(of_pass[s] >= 0, static_cast<int64_t>(s) < used);
              if (of_pass[s] >= 0) sent[static_cast<size_t>(m)].push_back(of_pass[s]);
            }
            EXPECT_LE(std::accumulate(received.back().begin(), received.back().end(), int64_t{0}), rows);
          }
          for (int64_t m = 0; m < members; ++m)
            for (int64_t from = 0; from < members; ++from)
              for (int64_t x = 0; x < experts; ++x)
                EXPECT_EQ(received[static_cast<size_t>(m)][static_cast<size_t>(from * experts + x)],
                          send[static_cast<size_t>(from)][static_cast<size_t>(m / copies * experts + x)]);
        }
        EXPECT_EQ(passes == 1, rows == 1000);
        for (int64_t m = 0; m < members; ++m) {
          Indices all_pairs = orders[static_cast<size_t>(m)];
          all_pairs.resize(all_pairs.size() - 2);
          std::sort(sent[static_cast<size_t>(m)].begin(), sent[static_cast<size_t>(m)].end());
          EXPECT_EQ(sent[static_cast<size_t>(m)], all_pairs);
        }
      }
}

TEST(Dispatch, RegroupTransposesSourcesAndExperts) {
  const int64_t sources = 3, experts = 2, row = 3, rows = 16;
  const Indices received = {2, 1, 0, 4, 3, 0};  // [source][expert]
  // Rows as they arrive: source, expert and the index among those of both.
  std::vector<double> arrive, grouped;
  for (int64_t s = 0; s < sources; ++s)
    for (int64_t e = 0; e < experts; ++e)
      for (int32_t i = 0; i < received[static_cast<size_t>(s * experts + e)]; ++i)
        for (const double v : {double(s), double(e), double(i)}) arrive.push_back(v);
  for (int64_t e = 0; e < experts; ++e)
    for (int64_t s = 0; s < sources; ++s)
      for (int32_t i = 0; i < received[static_cast<size_t>(s * experts + e)]; ++i)
        for (const double v : {double(s), double(e), double(i)}) grouped.push_back(v);
  arrive.resize(static_cast<size_t>(rows * row), 77);
  grouped.resize(static_cast<size_t>(rows * row), 55);
  run_everywhere([&](ThreadPool& pool) {
    const Buffer<double> x(arrive);
    Buffer<double> y(std::vector<double>(static_cast<size_t>(rows * row), 55)),
        back(std::vector<double>(static_cast<size_t>(rows * row), 77));
    Buffer<uint8_t> workspace(regroup_workspace_bytes(sources, experts));
    const auto run = [&](const Buffer<double>& from, Buffer<double>& to, bool inverse) {
      regroup(reinterpret_cast<const std::byte*>(from.data()), received.data(), sources, experts, inverse,
              reinterpret_cast<std::byte*>(to.data()), rows, row * 8, workspace.data(), pool);
    };
    run(x, y, false);
    EXPECT_EQ(y.values(), grouped);
    run(y, back, true);
    EXPECT_EQ(back.values(), arrive);
    EXPECT_THROW(
        regroup(nullptr, received.data(), sources, experts, false, nullptr, 9, 8, workspace.data(), pool),
        base::InternalError);
    return bytes_of(y, back);
  });
}

// Enough rows that every worker starts in the middle of a block.
TEST(Dispatch, RegroupOfManyRows) {
  const int64_t sources = 4, experts = 3, rows = 60000;
  const Indices received = {5000, 0, 20000, 1, 7000, 0, 0, 0, 9000, 3000, 12000, 2};
  std::vector<double> x(static_cast<size_t>(rows));
  std::iota(x.begin(), x.end(), 0.0);
  run_everywhere([&](ThreadPool& pool) {
    const Buffer<double> bx(x);
    Buffer<double> y(rows), back(x);
    Buffer<uint8_t> workspace(regroup_workspace_bytes(sources, experts));
    regroup(reinterpret_cast<const std::byte*>(bx.data()), received.data(), sources, experts, false,
            reinterpret_cast<std::byte*>(y.data()), rows, 8, workspace.data(), pool);
    EXPECT_EQ(y[0], 0);         // expert 0: source 0,
    EXPECT_EQ(y[5000], 25000);  // source 1,
    EXPECT_EQ(y[5001], 41001);  // source 3
    EXPECT_EQ(y[8001], 25001);  // expert 1: source 1
    EXPECT_EQ(y[27001], 5000);  // expert 2: source 0
    std::fill_n(back.data(), 56003, 0.0);
    regroup(reinterpret_cast<const std::byte*>(y.data()), received.data(), sources, experts, true,
            reinterpret_cast<std::byte*>(back.data()), rows, 8, workspace.data(), pool);
    EXPECT_EQ(back.values(), x);
    return bytes_of(y);
  });
}

TYPED_TEST(DispatchRows, SumCopies) {
  using T = TypeParam;
  for (const int64_t copies : {1, 2, 5})
    for (const int64_t n : {1, 7, 9001}) {
      const std::vector<double> x = random_values<T>(copies * n, 8);
      std::vector<double> sums(static_cast<size_t>(n), 0.0), sizes(static_cast<size_t>(n), 0.0);
      for (int64_t i = 0; i < copies * n; ++i) {
        sums[static_cast<size_t>(i % n)] += x[static_cast<size_t>(i)];
        sizes[static_cast<size_t>(i % n)] += std::abs(x[static_cast<size_t>(i)]);
      }
      run_everywhere([&](ThreadPool& pool) {
        const Buffer<T> bx(x);
        Buffer<T> y(n);
        sum_copies<T>(bx.data(), copies, y.data(), n, pool);
        expect_near(
            y, sums, [&](int64_t i) { return 5 * unit<Stat<T>>() * sizes[static_cast<size_t>(i)]; }, "y");
        return bytes_of(y);
      });
    }
}

}  // namespace
}  // namespace quintet::kernels::cpu::test
