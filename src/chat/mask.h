// Tokens of examples, and which of them are trained.
//
// Ids are always those of the whole rendered text, as transformers gives them. Trained are the tokens that
// overlap a trained part of the text: what `generation` blocks wrote, or, where the template has none, what a
// rendering gains with a message of the assistant (compared with the generation prompt before it).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "chat/example.h"
#include "chat/tokenizer.h"

namespace quintet::chat {

enum class Loss {
  Assistant,  // messages of the assistant, except those with the flag false
  Last,       // the last of these
  All,        // every token
};

struct MaskOptions {
  Loss loss = Loss::Assistant;
  std::string end_of_turn;   // text that ends a turn, where no special token does
  int64_t wall_seconds = 0;  // what strftime_now sees; negative: it is refused
};

struct Encoded {
  std::vector<int32_t> ids;
  std::vector<uint8_t> trained;  // a flag per id; all 0 for prompts
  std::string text;              // what was encoded
  int64_t turns = 0, ended = 0;  // trained parts, and those whose last token ends a turn
  int64_t straddling = 0;        // cuts that fall within a token
};

// UserError if no token would be trained, or if the trained parts cannot be found.
Encoded encode_example(const ChatTokenizer& tokenizer, const Example& example, const MaskOptions& options);

// The prompt of an example up to where the assistant begins; nothing is trained.
Encoded encode_prompt(const ChatTokenizer& tokenizer, const Example& example, const MaskOptions& options);

// One flag per token of `text`: whether it overlaps a span. `spans` are sorted and do not overlap; they begin
// and end between characters.
std::vector<uint8_t> flag_tokens(const tokenizer::Tokenizer& tokenizer, std::string_view text,
                                 const std::vector<int32_t>& ids, const std::vector<Span>& spans,
                                 int64_t& straddling);

}  // namespace quintet::chat
