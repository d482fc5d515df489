// A corpus: tokens of all documents in one row, and where each document begins. The tokens live in memory or
// in a mapped file; who reads cannot tell. Immutable; copies share the storage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace quintet::data {

enum class TokenWidth : uint32_t { U8 = 1, U16 = 2, U32 = 4 };  // the value is the number of bytes

// The narrowest width that holds every id below `vocab`.
TokenWidth width_for(int64_t vocab);

// Appends the ids in `width`, little endian. An id outside [0, vocab) is a UserError.
void pack_tokens(std::span<const int32_t> ids, int64_t vocab, TokenWidth width, std::vector<std::byte>& out);

class Corpus {
 public:
  // `offsets` holds documents + 1 entries: 0, the starts of the other documents, the number of tokens;
  // strictly increasing. `tokens` is little endian. `owner` keeps both alive. `name` is what messages call
  // the corpus.
  Corpus(std::string name, std::span<const std::byte> tokens, TokenWidth width, int64_t vocab,
         std::span<const uint64_t> offsets, std::shared_ptr<const void> owner);

  // In memory, as CorpusBuilder makes it.
  static Corpus from_documents(std::string name, int64_t vocab,
                               const std::vector<std::vector<int32_t>>& documents);

  const std::string& name() const { return name_; }
  int64_t tokens() const { return static_cast<int64_t>(offsets_.back()); }
  int64_t documents() const { return static_cast<int64_t>(offsets_.size()) - 1; }
  int64_t vocab() const { return vocab_; }
  TokenWidth width() const { return width_; }
  std::span<const uint64_t> offsets() const { return offsets_; }
  std::span<const std::byte> bytes() const { return bytes_; }

  // Widens tokens [begin, begin + out.size()) into `out`. A token beyond the vocabulary (a damaged file) is a
  // UserError that says where. Does not allocate otherwise.
  void read(int64_t begin, std::span<int32_t> out) const;

  // The document that holds token `at`.
  int64_t document_of(int64_t at) const;

  // Reads everything once and throws at the first token beyond the vocabulary.
  void check_tokens() const;

  // UserError when a model with `model_vocab` rows could meet an id it has no row for.
  void require_vocab(int64_t model_vocab) const;

 private:
  std::string name_;
  std::span<const std::byte> bytes_;
  TokenWidth width_;
  int64_t vocab_;
  std::span<const uint64_t> offsets_;
  std::shared_ptr<const void> owner_;
};

// Packs documents into memory, one after another. Empty documents are left out.
class CorpusBuilder {
 public:
  CorpusBuilder(std::string name, int64_t vocab);
  void add_document(std::span<const int32_t> ids);
  int64_t tokens() const { return static_cast<int64_t>(offsets_.back()); }
  Corpus finish();  // no tokens at all is a UserError

 private:
  std::string name_;
  int64_t vocab_;
  TokenWidth width_;
  std::vector<std::byte> tokens_;
  std::vector<uint64_t> offsets_ = {0};
};

}  // namespace quintet::data
