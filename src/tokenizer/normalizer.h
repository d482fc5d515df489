// Normalisers: what a tokenizer does to text before it splits it.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace quintet::tokenizer {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(std::string& text) const = 0;  // valid UTF-8 to valid UTF-8
};

// From the "normalizer" of a tokenizer.json; null for null. A type that is not known is a UserError. A
// byte-level normaliser is not part of the result but sets `byte_level` (see pre_tokenizer.h).
std::unique_ptr<Normalizer> make_normalizer(const nlohmann::json& description, bool& byte_level);

}  // namespace quintet::tokenizer
