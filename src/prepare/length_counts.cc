#include "prepare/length_counts.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/text.h"

namespace quintet::prepare {

int64_t LengthCounts::quantile(double share) const {
  const auto needed = static_cast<int64_t>(std::ceil(share * static_cast<double>(documents_)));
  int64_t seen = 0;
  for (const auto& [length, count] : counts_)
    if ((seen += count) >= needed) return length;
  return longest();
}

nlohmann::ordered_json LengthCounts::json() const {
  std::map<int64_t, int64_t> buckets;  // by the power of two they begin with
  for (const auto& [length, count] : counts_)
    buckets[static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(length)))] += count;
  nlohmann::ordered_json histogram = nlohmann::ordered_json::array();
  for (const auto& [from, count] : buckets)
    histogram.push_back({{"from", from}, {"to", 2 * from - 1}, {"documents", count}});
  return {{"median", quantile(0.5)},
          {"90%", quantile(0.9)},
          {"99%", quantile(0.99)},
          {"longest", longest()},
          {"histogram", histogram}};
}

std::string lengths_text(const nlohmann::ordered_json& lengths) {
  const auto number = [&](const char* name) { return base::thousands(lengths.at(name).get<int64_t>()); };
  std::string text = fmt::format("lengths  median {}, 90 % up to {}, 99 % up to {}, longest {} tokens\n",
                                 number("median"), number("90%"), number("99%"), number("longest"));
  int64_t most = 1;
  for (const auto& bucket : lengths.at("histogram"))
    most = std::max(most, bucket.at("documents").get<int64_t>());
  for (const auto& bucket : lengths.at("histogram")) {
    const auto count = bucket.at("documents").get<int64_t>();
    const auto bar =
        static_cast<size_t>(std::ceil(40.0 * static_cast<double>(count) / static_cast<double>(most)));
    text += fmt::format("  {:>11} to {:>11}  {:>13}  {}\n", base::thousands(bucket.at("from").get<int64_t>()),
                        base::thousands(bucket.at("to").get<int64_t>()), base::thousands(count),
                        std::string(bar, '#'));
  }
  return text;
}

}  // namespace quintet::prepare
