// Post-processors: the special tokens that a tokenizer puts around a sequence.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

namespace quintet::tokenizer {

struct Frame {
  std::vector<int32_t> before, after;
};

// From the "post_processor" of a tokenizer.json, for one sequence. An unknown type is a UserError.
Frame make_frame(const nlohmann::json& description);

}  // namespace quintet::tokenizer
