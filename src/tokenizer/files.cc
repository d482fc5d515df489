#include "tokenizer/files.h"

#include "base/checksum.h"
#include "base/error.h"
#include "base/printable.h"
#include "tokenizer/tokenizer.h"

namespace quintet::tokenizer {

base::Path tokenizer_file(const std::string& path) {
  if (base::directory_exists(path)) {
    for (const char* file : {"tokenizer.json", "tokenizer.model", "spiece.model"})
      if (base::file_exists(base::Path(path) / file)) return base::Path(path) / file;
    base::fail_user("the folder '{}' has no tokenizer.json, tokenizer.model or spiece.model",
                    base::printable(path));
  }
  if (!base::file_exists(path))
    base::fail_user(
        "unknown tokenizer '{}'; expected \"bytes\" (one token per byte), or the path of a tokenizer.json, a "
        "SentencePiece model, a tiktoken file, or a folder that holds one",
        base::printable(path));
  return path;
}

std::string fingerprint(const std::string& name_or_path) {
  if (names_byte_tokenizer(name_or_path)) return name_or_path;
  const base::Hash hash = base::hash_of(base::read_file(tokenizer_file(name_or_path)));
  return fmt::format("{:016x}{:016x}", hash.high, hash.low);
}

}  // namespace quintet::tokenizer
