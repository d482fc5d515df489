#include "comm/collective_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <future>
#include <limits>
#include <stdexcept>

#include "base/philox.h"

namespace quintet::comm::testing {
namespace {

using base::Bf16;
using base::DType;

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 31)) * 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 29)) * 0xD6E8FEB86659FD93u;
  return x ^ (x >> 32);
}

// Values for which a change of summation order affects the low bits.
template <class T>
T input(uint64_t seed, int member, int64_t index) {
  const uint64_t bits =
      mix(mix(seed * 1'000'003 + static_cast<uint64_t>(member)) + static_cast<uint64_t>(index));
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(bits);
  else {
    const double sign = bits & 1 ? -1.0 : 1.0, fraction = static_cast<double>(bits >> 11) * 0x1p-53;
    const double value = sign * (0.1 + fraction) * static_cast<double>(1 << (bits >> 1 & 7));
    if constexpr (std::is_same_v<T, Bf16>)
      return Bf16(static_cast<float>(value));
    else
      return static_cast<T>(value);
  }
}

template <class T>
std::vector<T> inputs(uint64_t seed, int member, int64_t count) {
  std::vector<T> v(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) v[static_cast<size_t>(i)] = input<T>(seed, member, i);
  return v;
}

// The contract, element by element: member order, bf16 in f32 and rounded once, integers wrap.
template <class T>
T reduced(uint64_t seed, int members, int64_t index, ReduceOp op) {
  if constexpr (std::is_integral_v<T>) {
    uint64_t sum = 0;
    T max = std::numeric_limits<T>::min();
    for (int m = 0; m < members; ++m) {
      const T x = input<T>(seed, m, index);
      sum += static_cast<uint64_t>(x);
      max = std::max(max, x);
    }
    return op == ReduceOp::Sum ? static_cast<T>(sum) : max;
  } else {
    using A = std::conditional_t<std::is_same_v<T, double>, double, float>;
    A acc = static_cast<A>(input<T>(seed, 0, index));
    for (int m = 1; m < members; ++m) {
      const A x = static_cast<A>(input<T>(seed, m, index));
      acc = op == ReduceOp::Sum ? acc + x : std::max(acc, x);
    }
    return static_cast<T>(acc);
  }
}

template <class T>
double printable(T x) {
  if constexpr (std::is_same_v<T, Bf16>)
    return static_cast<float>(x);
  else
    return static_cast<double>(x);
}

template <class T>
void compare(const Communicator& c, const char* what, const std::vector<T>& got,
             const std::vector<T>& expected) {
  if (got.size() != expected.size()) throw std::runtime_error(fmt::format("{}: sizes differ", what));
  for (size_t i = 0; i < got.size(); ++i)
    if (std::memcmp(&got[i], &expected[i], sizeof(T)) != 0)
      throw std::runtime_error(
          fmt::format("{} of {} {} on '{}' (size {}), member {}: element {} is {} instead of {}", what,
                      got.size(), base::to_string(base::DTypeOf<T>::value), c.name(), c.size(), c.rank(), i,
                      printable(got[i]), printable(expected[i])));
}

template <class T>
void check_type(Communicator& c, uint64_t seed, int64_t count, ReduceOp op, int root) {
  const DType dtype = base::DTypeOf<T>::value;
  const int n = c.size(), me = c.rank();
  const size_t piece = static_cast<size_t>(count);
  std::vector<T> expected_sum(piece), expected_piece(piece), gathered, expected_swap;
  for (int64_t i = 0; i < count; ++i) {
    expected_sum[static_cast<size_t>(i)] = reduced<T>(seed, n, i, op);
    expected_piece[static_cast<size_t>(i)] = reduced<T>(seed, n, me * count + i, op);
  }
  for (int m = 0; m < n; ++m) {
    const std::vector<T> whole = inputs<T>(seed, m, count * n);
    gathered.insert(gathered.end(), whole.begin(), whole.begin() + count);
    expected_swap.insert(expected_swap.end(), whole.begin() + me * count, whole.begin() + (me + 1) * count);
  }
  const std::vector<T> mine = inputs<T>(seed, me, count), whole = inputs<T>(seed, me, count * n);

  std::vector<T> data = mine;
  c.all_reduce(data.data(), count, dtype, op);
  compare(c, "all_reduce", data, expected_sum);

  std::vector<T> recv(piece * static_cast<size_t>(n));
  c.all_gather(mine.data(), recv.data(), count, dtype);
  compare(c, "all_gather", recv, gathered);
  recv.assign(recv.size(), T{});
  std::copy(mine.begin(), mine.end(), recv.begin() + me * count);
  c.all_gather(recv.data() + me * count, recv.data(), count, dtype);
  compare(c, "all_gather in place", recv, gathered);

  std::vector<T> part(piece), send = whole;
  c.reduce_scatter(send.data(), part.data(), count, dtype, op);
  compare(c, "reduce_scatter", part, expected_piece);
  compare(c, "the kept input of reduce_scatter", send, whole);
  c.reduce_scatter(send.data(), send.data() + me * count, count, dtype, op);
  part.assign(send.begin() + me * count, send.begin() + (me + 1) * count);
  compare(c, "reduce_scatter in place", part, expected_piece);

  recv.assign(recv.size(), T{});
  c.all_to_all(whole.data(), recv.data(), count, dtype);
  compare(c, "all_to_all", recv, expected_swap);

  data = mine;
  c.broadcast(data.data(), count, dtype, root);
  compare(c, "broadcast", data, inputs<T>(seed, root, count));
  c.barrier();
}

int64_t draw_count(uint64_t seed, int round) {
  const auto words = base::philox(seed, static_cast<uint64_t>(round), 0x5123);
  switch (words[0] % 8) {
    case 0:
      return 0;
    case 1:
      return 1;
    case 2:
      return 64 * (1 + words[1] % 32);
    case 3:
      return 4001 + words[1] % 4000;  // past the small-message paths of all backends with few members
    default:
      return 1 + words[1] % 700;
  }
}

}  // namespace

void check_collectives(Communicator& c, uint64_t seed, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    const int64_t count = draw_count(seed, round);
    const uint64_t key = seed * 1000 + static_cast<uint64_t>(round);
    const int root = static_cast<int>(key % static_cast<uint64_t>(c.size()));
    for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Max}) {
      check_type<double>(c, key, count, op, root);
      check_type<float>(c, key, count, op, root);
      check_type<Bf16>(c, key, count, op, root);
      check_type<int64_t>(c, key, count, op, root);
      check_type<int32_t>(c, key, count, op, root);
      check_type<uint8_t>(c, key, count, op, root);
    }
  }
}

namespace {

// Number of elements that `from` sends to `to`.
using Sizes = std::function<int64_t(int from, int to)>;

template <class T>
void check_exchange(Communicator& c, uint64_t seed, const char* what, const Sizes& sizes, bool overlap) {
  const int n = c.size(), me = c.rank();
  const auto members = static_cast<size_t>(n);
  std::vector<int64_t> out(members), in(members), out_at(members), in_at(members);
  int64_t sent = 0, filled = 3;
  for (int j = 0; j < n; ++j) {
    const auto m = static_cast<size_t>(j);
    out[m] = sizes(me, j);
    out_at[m] = overlap ? j : sent;
    sent = std::max(sent, out_at[m] + out[m]);
  }
  // Received from the last member first, with an unwritten element in between.
  for (size_t m = members; m-- > 0;) {
    in[m] = sizes(static_cast<int>(m), me);
    in_at[m] = filled;
    filled += in[m] + 1;
  }
  const T untouched = input<T>(seed, n + 1, me);
  const std::vector<T> send = inputs<T>(seed, me, sent);
  std::vector<T> recv(static_cast<size_t>(filled), untouched), expected = recv;
  for (int j = 0; j < n; ++j) {
    int64_t at = 0;
    for (int k = 0; k < me; ++k) at += overlap ? 1 : sizes(j, k);
    for (int64_t i = 0; i < in[static_cast<size_t>(j)]; ++i)
      expected[static_cast<size_t>(in_at[static_cast<size_t>(j)] + i)] = input<T>(seed, j, at + i);
  }
  c.all_to_all_v(send.data(), out_at, out, recv.data(), in_at, in, base::DTypeOf<T>::value);
  compare(c, what, recv, expected);
}

template <class T>
void check_exchanges_of(Communicator& c, uint64_t seed) {
  const auto drawn = [&](int64_t most) {
    return [=](int from, int to) {
      const uint64_t x = mix(seed * 7919 + static_cast<uint64_t>(from * 1009 + to));
      return x % 3 == 0 ? int64_t{0} : static_cast<int64_t>(x / 3 % static_cast<uint64_t>(most));
    };
  };
  const int crowd = static_cast<int>(seed % static_cast<uint64_t>(c.size()));
  for (const bool overlap : {false, true}) {
    check_exchange<T>(
        c, seed, "all_to_all_v of nothing", [](int, int) { return int64_t{0}; }, overlap);
    check_exchange<T>(c, seed + 1, "small all_to_all_v", drawn(50), overlap);
    check_exchange<T>(c, seed + 2, "all_to_all_v", drawn(20'000), overlap);
    check_exchange<T>(
        c, seed + 3, "all_to_all_v to one", [&](int, int to) { return to == crowd ? int64_t{5001} : 0; },
        overlap);
    check_exchange<T>(
        c, seed + 4, "all_to_all_v from one", [&](int from, int) { return from == crowd ? int64_t{77} : 0; },
        overlap);
    check_exchange<T>(
        c, seed + 5, "all_to_all_v that leaves one out",
        [&](int from, int to) { return from == crowd || to == crowd ? int64_t{0} : 1 + from + 2 * to; },
        overlap);
  }
}

}  // namespace

void check_exchanges(Communicator& c, uint64_t seed) {
  check_exchanges_of<double>(c, seed);
  check_exchanges_of<Bf16>(c, seed + 10);
  check_exchanges_of<int32_t>(c, seed + 20);
  check_exchanges_of<uint8_t>(c, seed + 30);
  // Nothing is transferred: no memory is needed.
  const std::vector<int64_t> none(static_cast<size_t>(c.size()));
  c.all_to_all_v(nullptr, none, none, nullptr, none, none, DType::F32);
}

void check_grid(World& world, int columns, uint64_t seed, int rounds) {
  const int rows = world.size() / columns, row = world.rank().value / columns,
            column = world.rank().value % columns;
  std::vector<base::RankId> row_members, column_members;
  for (int j = 0; j < columns; ++j) row_members.push_back(base::RankId(row * columns + j));
  for (int i = 0; i < rows; ++i) column_members.push_back(base::RankId(i * columns + column));
  const auto along_row = world.create(row_members, fmt::format("row {}", row));
  const auto along_column = world.create(column_members, fmt::format("column {}", column));
  auto other = std::async(std::launch::async, [&] {
    check_collectives(*along_row, seed + static_cast<uint64_t>(row), rounds);
    check_sends(*along_row, seed);
    check_exchanges(*along_row, seed);
  });
  check_collectives(*along_column, seed + 100 + static_cast<uint64_t>(column), rounds);
  check_sends(*along_column, seed + 1);
  check_exchanges(*along_column, seed + 1);
  other.get();
}

void check_sends(Communicator& c, uint64_t seed) {
  const int n = c.size(), me = c.rank();
  if (n == 1) return;
  for (const int64_t count : {0, 1, 333, 20000}) {
    const std::vector<float> mine = inputs<float>(seed, me, count);
    for (const int step : {1, n - 1}) {
      const int to = (me + step) % n, from = (me - step + n) % n;
      std::vector<float> got(static_cast<size_t>(count));
      // Member 0 receives first: no program may rely on buffering.
      if (me != 0) c.send(mine.data(), count, DType::F32, to);
      c.recv(got.data(), count, DType::F32, from);
      if (me == 0) c.send(mine.data(), count, DType::F32, to);
      compare(c, "ring of sends", got, inputs<float>(seed, from, count));
    }
    std::vector<float> token = inputs<float>(seed, 77, count), passed(token.size());
    if (me > 0) c.recv(passed.data(), count, DType::F32, me - 1);
    if (me + 1 < n) c.send(me > 0 ? passed.data() : token.data(), count, DType::F32, me + 1);
    if (me > 0) compare(c, "chain of sends", passed, token);
  }
}

}  // namespace quintet::comm::testing
