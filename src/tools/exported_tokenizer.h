// The tokenizer and the special tokens of an exported model, for a run that did not start from a folder
// with them.
#pragma once

#include <map>
#include <string>

#include "config/recipe.h"
#include "generate/special_tokens.h"

namespace quintet::tools {

// Files by name that AutoTokenizer opens: tokenizer.json or tokenizer.model as the recipe's tokenizer is
// (the byte tokenizer as a byte-level BPE without merges), and tokenizer_config.json. Empty for a tokenizer
// that transformers has no file for (tiktoken).
std::map<std::string, std::string> tokenizer_texts(const config::Recipe& recipe);

// `config` (config.json or generation_config.json) with the ids of the tokens that begin and end a text;
// null where there is none: transformers would assume those of its own classes.
std::string with_special_tokens(std::string_view config, const generate::SpecialTokens& tokens);

}  // namespace quintet::tools
