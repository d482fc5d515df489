// Lists of blocks as text: "0-3, 8".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quintet::config {

// Numbers from 0 and ranges "first-last" between commas; empty when the text is something else.
std::optional<std::vector<int64_t>> parse_layer_ranges(std::string_view text);
// The shortest such text of an ascending list.
std::string layer_ranges_text(const std::vector<int64_t>& layers);

}  // namespace quintet::config
