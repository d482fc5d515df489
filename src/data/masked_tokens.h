// Masked language modelling: some tokens of a sample are chosen and become labels, the others have none. Of
// the chosen ones a share stays in the input as it is, a share becomes a random token, and the rest the mask.
// Everything is drawn by (key, position of the sample in the global order, position in the sample), so that
// every layout and every continued run masks alike, and each epoch differently.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/philox.h"

namespace quintet::data {

struct MaskedTokens {
  double rate = 0;              // share of the tokens that are chosen; 0: no masking
  double random = 0, keep = 0;  // shares of those
  int32_t mask = 0;             // token
  int64_t vocab = 0;            // random tokens are below
  uint64_t key = 0;
  std::shared_ptr<const std::vector<uint8_t>> special;  // by token, 1: never chosen; null: none is

  bool is_on() const { return rate > 0; }
  bool may_choose(int32_t token) const {
    return special == nullptr || static_cast<size_t>(token) >= special->size() ||
           (*special)[static_cast<size_t>(token)] == 0;
  }

  struct Draw {
    bool chosen = false;
    int32_t input = 0;  // in the place of the token
  };
  Draw draw(int32_t token, int64_t sample, int64_t at) const {
    if (!may_choose(token)) return {false, token};
    const auto words = base::philox(key, static_cast<uint64_t>(sample), static_cast<uint64_t>(at));
    const auto uniform = [](uint32_t word) { return static_cast<double>(word) * 0x1p-32; };
    if (!(uniform(words[0]) < rate)) return {false, token};
    const double kind = uniform(words[1]);
    if (kind < keep) return {true, token};
    if (kind >= keep + random) return {true, mask};
    const uint64_t number = uint64_t{words[3]} << 32 | words[2];
    return {true, static_cast<int32_t>(number % static_cast<uint64_t>(vocab))};
  }
};

}  // namespace quintet::data
