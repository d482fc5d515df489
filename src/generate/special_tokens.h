// The tokens that begin and end a text of a model.
#pragma once

#include <optional>
#include <vector>

#include "config/recipe.h"
#include "tokenizer/tokenizer.h"

namespace quintet::generate {

struct SpecialTokens {
  std::vector<int32_t> ends;          // any of them ends a text
  std::optional<int32_t> begin, end;  // of a document

  // What the model sees before a text.
  std::optional<int32_t> prefix() const { return begin ? begin : end; }
};

// As the model was trained or published: data.end, the folder in model.hf, or what is beside the
// tokenizer's file (generation_config.json, config.json, tokenizer_config.json). A tokenizer of which no
// file says more has the usual name of such a token, or none.
SpecialTokens special_tokens(const config::Recipe& recipe, const tokenizer::Tokenizer& tokenizer);

}  // namespace quintet::generate
