// Decoders: from tokens back to text.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace quintet::tokenizer {

class Decoder {
 public:
  virtual ~Decoder() = default;
  // Rewrites the list of tokens; their concatenation is the text at the end.
  virtual void apply(std::vector<std::string>& tokens) const = 0;
};

// From the "decoder" of a tokenizer.json; null for null. An unknown type is a UserError. ByteLevel leaves
// tokens as they are: the vocabulary of a byte-level tokenizer holds bytes.
std::unique_ptr<Decoder> make_decoder(const nlohmann::json& description);

}  // namespace quintet::tokenizer
