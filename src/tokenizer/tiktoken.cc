// tiktoken's files: a line per token, its bytes in base 64 and its rank. They say neither how text is split
// nor which special tokens there are; both follow from the file's name.
#include <fmt/format.h>

#include <charconv>

#include "tokenizer/base64.h"
#include "tokenizer/bpe.h"
#include "tokenizer/json_field.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/tiktoken_families.h"

namespace quintet::tokenizer {
namespace {

std::vector<std::pair<std::string, int32_t>> read_ranks(std::string_view contents) {
  std::vector<std::pair<std::string, int32_t>> tokens;
  size_t number = 0;
  while (!contents.empty()) {
    const size_t end = std::min(contents.find('\n'), contents.size());
    std::string_view line = contents.substr(0, end);
    contents.remove_prefix(std::min(end + 1, contents.size()));
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const size_t space = line.find(' ');
    int32_t rank = -1;
    if (space != std::string_view::npos)
      std::from_chars(line.data() + space + 1, line.data() + line.size(), rank);
    std::string token = decode_base64(line.substr(0, space));
    if (rank < 0 || token.empty())
      base::fail_user("line {} is '{}', not a token in base 64 and its rank", number,
                      base::printable(line.substr(0, 60)));
    tokens.emplace_back(std::move(token), rank);
  }
  return tokens;
}

}  // namespace

std::unique_ptr<Tokenizer> load_tiktoken(std::string_view contents, std::string_view file_name) {
  auto ranks = read_ranks(contents);
  const auto family = tiktoken_family(file_name, static_cast<int64_t>(ranks.size()));
  PipelineParts parts;
  parts.byte_level = true;
  parts.model = std::make_unique<Bpe>(std::move(ranks));
  parts.pre_tokenizer = make_pre_tokenizer(family.pattern);
  parts.decoder = make_decoder({{"type", "ByteLevel"}});
  for (const auto& [content, id] : family.special) {
    AddedToken token;
    token.content = content;
    token.id = id;
    token.special = true;
    parts.added.push_back(std::move(token));
  }
  return std::make_unique<Pipeline>(std::move(parts));
}

}  // namespace quintet::tokenizer
