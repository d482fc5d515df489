#include "tokenizer/tiktoken_families.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/printable.h"

namespace quintet::tokenizer {
namespace {

TiktokenFamily llama3(int64_t ranks) {
  TiktokenFamily family{llama3_pattern(), {}};
  const char* const named[] = {"<|begin_of_text|>",
                               "<|end_of_text|>",
                               "<|reserved_special_token_0|>",
                               "<|reserved_special_token_1|>",
                               "<|finetune_right_pad_id|>",
                               "<|step_id|>",
                               "<|start_header_id|>",
                               "<|end_header_id|>",
                               "<|eom_id|>",
                               "<|eot_id|>",
                               "<|python_tag|>"};
  constexpr int kSpecial = 256;
  int reserved = 2;
  for (int i = 0; i < kSpecial; ++i) {
    const auto id = static_cast<int32_t>(ranks + i);
    const bool has_name = i < static_cast<int>(std::size(named));
    family.special.emplace_back(
        has_name ? named[i] : fmt::format("<|reserved_special_token_{}|>", reserved++), id);
  }
  return family;
}

TiktokenFamily qwen(int64_t ranks) {
  TiktokenFamily family{qwen2_pattern(), {}};
  auto id = static_cast<int32_t>(ranks);
  for (const char* token : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"})
    family.special.emplace_back(token, id++);
  return family;
}

}  // namespace

TiktokenFamily tiktoken_family(std::string_view file_name, int64_t ranks) {
  const auto named = [&](std::string_view part) { return file_name.find(part) != std::string_view::npos; };
  if (named("o200k")) return {o200k_pattern(), {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}}};
  if (named("cl100k"))
    return {cl100k_pattern(),
            {{"<|endoftext|>", 100257},
             {"<|fim_prefix|>", 100258},
             {"<|fim_middle|>", 100259},
             {"<|fim_suffix|>", 100260},
             {"<|endofprompt|>", 100276}}};
  if (named("r50k") || named("p50k") || named("gpt2")) return {gpt2_pattern(), {{"<|endoftext|>", 50256}}};
  if (named("qwen")) return qwen(ranks);
  if (file_name == "tokenizer.model") return llama3(ranks);
  base::fail_user(
      "a tiktoken file does not say how it splits text, and its name '{}' is not a known one; known: names "
      "with o200k, cl100k, r50k, p50k, gpt2 or qwen, and Llama 3's tokenizer.model. Rename the file, or use "
      "a tokenizer.json",
      base::printable(file_name));
}

}  // namespace quintet::tokenizer
