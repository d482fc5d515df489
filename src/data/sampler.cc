#include "data/sampler.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/error.h"
#include "base/philox.h"

namespace quintet::data {
namespace {
// Even, so that both halves end with their original widths; enough rounds to mix small sets, whose halves are
// only a bit or two wide.
constexpr int kRounds = 8;

uint64_t low_mask(int bits) { return (uint64_t{1} << bits) - 1; }
}  // namespace

Permutation::Permutation(uint64_t key, uint64_t n) : key_(key), n_(n) {
  QUINTET_CHECK(n > 0 && n <= uint64_t{1} << 62, "permutation size {} is not in [1, 2^62]", n);
  const int bits = std::max(2, static_cast<int>(std::bit_width(n - 1)));
  low_bits_ = bits / 2;
  high_bits_ = bits - low_bits_;
}

uint64_t Permutation::once(uint64_t value) const {
  uint64_t left = value >> low_bits_, right = value & low_mask(low_bits_);
  int left_bits = high_bits_, right_bits = low_bits_;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t mixed =
        left ^ (base::philox(key_, right, static_cast<uint64_t>(round))[0] & low_mask(left_bits));
    left = right;
    right = mixed;
    std::swap(left_bits, right_bits);
  }
  return (left << low_bits_) | right;
}

uint64_t Permutation::operator()(uint64_t index) const {
  QUINTET_CHECK(index < n_, "index {} of a permutation of size {}", index, n_);
  // Cycle walking: iterating a bijection of the larger set until it falls below n is a bijection of [0, n).
  do index = once(index);
  while (index >= n_);
  return index;
}

Sampler::Sampler(uint64_t seed, int64_t samples, Order order, std::string_view stream)
    : key_(base::stream_key(seed, stream)), samples_(samples), order_(order) {
  QUINTET_CHECK(samples > 0, "a sampler needs at least one sample, got {}", samples);
}

void Sampler::set_ranking(Ranking ranking) {
  QUINTET_CHECK(static_cast<int64_t>(ranking.samples->size()) == samples_, "a ranking of {} for {} samples",
                ranking.samples->size(), samples_);
  ranking_ = std::move(ranking);
}

std::optional<int64_t> Sampler::sample_at(int64_t position) const {
  QUINTET_CHECK(position >= 0, "position {} in the global order is negative", position);
  if (order_ == Order::Sequential) return position < samples_ ? std::optional(position) : std::nullopt;
  if (position / samples_ < ranking_.epochs)
    return (*ranking_.samples)[static_cast<size_t>(position % samples_)];
  const auto words = base::philox(key_, static_cast<uint64_t>(position / samples_));
  const uint64_t epoch_key = (uint64_t{words[0]} << 32) | words[1];
  const Permutation permutation(epoch_key, static_cast<uint64_t>(samples_));
  return static_cast<int64_t>(permutation(static_cast<uint64_t>(position % samples_)));
}

}  // namespace quintet::data
