// How many documents have how many tokens. Exact, in memory that grows with the number of different lengths.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace quintet::prepare {

class LengthCounts {
 public:
  void add(int64_t length) { ++counts_[length], ++documents_, tokens_ += length; }
  int64_t documents() const { return documents_; }
  int64_t tokens() const { return tokens_; }
  // The smallest length that at least `share` of the documents do not exceed.
  int64_t quantile(double share) const;
  int64_t longest() const { return counts_.empty() ? 0 : counts_.rbegin()->first; }

  // Median, 90 %, 99 %, longest, and {from, to, documents} of each power of two that has any.
  nlohmann::ordered_json json() const;

 private:
  std::map<int64_t, int64_t> counts_;
  int64_t documents_ = 0, tokens_ = 0;
};

// The "lengths" of a manifest as lines for a person: quantiles, and a bar per power of two.
std::string lengths_text(const nlohmann::ordered_json& lengths);

}  // namespace quintet::prepare
