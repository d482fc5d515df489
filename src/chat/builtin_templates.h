// Chat templates by name, for tokenizers that come without one: the formats that base models are commonly
// tuned to. All mark what is trained.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace quintet::chat {

std::optional<std::string_view> builtin_template(std::string_view name);
std::vector<std::string_view> builtin_template_names();

}  // namespace quintet::chat
