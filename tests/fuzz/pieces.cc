// Text of any kind, cut by the pattern of each known tokenizer: the pieces that masks of 64 bytes give are
// those of the pattern, character by character.
#include <bit>

#include "fuzz/target.h"
#include "tokenizer/piece_starts.h"
#include "tokenizer/unicode.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quintet;
  using namespace quintet::tokenizer;
  std::string storage;
  const std::string_view text = valid_utf8(fuzz::text_of(data, size), storage);
  return fuzz::run([&] {
    for (const WordPattern& pattern :
         {gpt2_pattern(), llama3_pattern(), qwen2_pattern(), cl100k_pattern(), o200k_pattern()})
      for (std::string_view rest = text; rest.size() >= kWindow;) {
        std::string_view window = rest;
        for (uint64_t starts = piece_starts(pattern, rest.data()) & ~1ull; starts != 0;
             starts &= starts - 1) {
          window.remove_prefix(first_piece(pattern, window));
          fuzz::require(window.data() == rest.data() + std::countr_zero(starts), "a piece of another length");
        }
        rest.remove_prefix(first_piece(pattern, rest));
      }
  });
}
