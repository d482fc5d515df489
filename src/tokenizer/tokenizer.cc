#include "tokenizer/tokenizer.h"

#include "base/checksum.h"
#include "base/error.h"
#include "base/file.h"
#include "base/printable.h"
#include "tokenizer/files.h"

namespace quintet::tokenizer {
namespace {

// tiktoken files are lines of base 64 and a rank; SentencePiece models are protocol buffers.
bool looks_like_tiktoken(std::string_view contents) {
  const std::string_view line = contents.substr(0, contents.find('\n'));
  const size_t space = line.find(' ');
  if (space == std::string_view::npos || space == 0 || line.size() > 300) return false;
  for (const char c : line.substr(space + 1))
    if (c < '0' || c > '9') return c == '\r';
  return true;
}

}  // namespace

void Tokenizer::require_id(int32_t id, size_t position) const {
  if (id < 0 || id >= vocab_size())
    base::fail_user("token {} at position {} is not in the vocabulary: the tokenizer '{}' has ids 0 to {}",
                    id, position, to_string(kind()), vocab_size() - 1);
}

std::string vocabulary_hash(const Tokenizer& tokenizer) {
  base::Checksum sum;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string token = tokenizer.token(id);
    const auto size = static_cast<uint32_t>(token.size());
    sum.add(std::as_bytes(std::span(&size, 1)));
    sum.add(std::as_bytes(std::span(token)));
  }
  return fmt::format("{:016x}", sum.value());
}

std::optional<int32_t> first_other_token(const Tokenizer& first, const Tokenizer& second) {
  for (int32_t id = 0; id < first.vocab_size(); ++id)
    if (id >= second.vocab_size() || first.token(id) != second.token(id)) return id;
  return std::nullopt;
}

void ByteTokenizer::encode(std::string_view text, std::vector<int32_t>& ids, bool) const {
  ids.reserve(ids.size() + text.size());
  for (const char c : text) ids.push_back(static_cast<uint8_t>(c));
}

std::string ByteTokenizer::decode(std::span<const int32_t> ids, bool) const {
  std::string text;
  text.reserve(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    require_id(ids[i], i);
    text.push_back(static_cast<char>(ids[i]));
  }
  return text;
}

std::string_view to_string(Kind kind) {
  switch (kind) {
    case Kind::Bytes:
      return "bytes";
    case Kind::Bpe:
      return "BPE";
    case Kind::Unigram:
      return "Unigram";
    case Kind::WordPiece:
      return "WordPiece";
    case Kind::WordLevel:
      return "WordLevel";
    case Kind::SentencePiece:
      return "SentencePiece";
  }
  base::fail_internal("no such kind of tokenizer");
}

std::string ByteTokenizer::token(int32_t id) const {
  require_id(id, 0);
  return {static_cast<char>(id)};
}

std::optional<int32_t> ByteTokenizer::id(std::string_view token) const {
  if (token.size() != 1) return std::nullopt;
  return static_cast<uint8_t>(token[0]);
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& name_or_path) {
  if (names_byte_tokenizer(name_or_path)) return std::make_unique<ByteTokenizer>();
  const base::Path path = tokenizer_file(name_or_path);
  const std::string contents = base::read_file(path);
  const std::string file_name = path.filename().string();
  const size_t first = contents.find_first_not_of(" \t\r\n");
  try {
    std::unique_ptr<Tokenizer> loaded;
    if (first != std::string::npos && contents[first] == '{')
      loaded = load_hf_tokenizer(contents);
    else if (looks_like_tiktoken(contents))
      loaded = load_tiktoken(contents, file_name);
    else
      loaded = load_sentencepiece(contents);
    if (loaded->vocab_size() == 0) base::fail_user("its vocabulary is empty");
    return loaded;
  } catch (const base::UserError& error) {
    base::fail_user("cannot load the tokenizer '{}': {}", base::printable(path.string()), error.what());
  }
}

}  // namespace quintet::tokenizer
