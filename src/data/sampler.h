// The global order of samples: a pure function of (seed, position), where position is the number of samples
// the whole run has consumed. It does not depend on ranks, so a run can continue in any layout, and the
// position is its only state.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace quintet::data {

// A keyed bijection of [0, n): a Feistel network with Philox as round function on the smallest power
// of two >= n, iterated until the result is below n. Constant memory; at most two iterations on
// average.
class Permutation {
 public:
  Permutation(uint64_t key, uint64_t n);
  uint64_t operator()(uint64_t index) const;

 private:
  uint64_t once(uint64_t value) const;
  uint64_t key_, n_;
  int high_bits_, low_bits_;
};

enum class Order {
  Shuffled,    // endless: every epoch is a new permutation that visits each sample once
  Sequential,  // one pass in stored order (evaluation)
};

// Samples in a given order, for the first epochs of a run.
struct Ranking {
  std::shared_ptr<const std::vector<uint32_t>> samples;  // each once
  int64_t epochs = 0;
};

class Sampler {
 public:
  // `stream` names the random numbers of the order: sets of a blend have their own.
  Sampler(uint64_t seed, int64_t samples, Order order, std::string_view stream = "data.order");
  // Shuffled, but for the epochs of the ranking.
  void set_ranking(Ranking ranking);
  int64_t samples() const { return samples_; }
  Order order() const { return order_; }
  int64_t epoch_of(int64_t position) const { return position / samples_; }
  // The sample at a position of the global order; empty past the end of a sequential pass.
  std::optional<int64_t> sample_at(int64_t position) const;

 private:
  uint64_t key_;
  int64_t samples_;
  Order order_;
  Ranking ranking_;
};

}  // namespace quintet::data
