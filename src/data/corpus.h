// A corpus: the tokens of all documents stored contiguously, and the offset of each document. The tokens are
// in memory or in a mapped file, transparently to the reader. Immutable; copies share the storage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/block_checksums.h"

namespace quintet::data {

enum class TokenWidth : uint32_t { U8 = 1, U16 = 2, U32 = 4 };  // the value is the size in bytes

// The smallest width that can store every id below `vocab`.
TokenWidth width_for(int64_t vocab);

// Appends the ids in little-endian `width`. An id outside [0, vocab) is a UserError.
void pack_tokens(std::span<const int32_t> ids, int64_t vocab, TokenWidth width, std::vector<std::byte>& out);

class Corpus {
 public:
  // `offsets` has documents + 1 strictly increasing entries: the start of each document, then the number
  // of tokens. `tokens` is little endian. `trained` has a byte per token, 0 where the token is context only
  // and never predicted; empty: all tokens are trained. `owner` keeps all of them alive. `name` identifies
  // the corpus in messages.
  Corpus(std::string name, std::span<const std::byte> tokens, TokenWidth width, int64_t vocab,
         std::span<const uint64_t> offsets, std::shared_ptr<const void> owner,
         std::span<const uint8_t> trained = {});

  // The documents of several corpora, one after another. They stay where they are; the offsets of all are
  // held, 8 bytes per document. UserError if one has trained flags: data.blend takes such sets.
  static Corpus joined(std::vector<Corpus> parts);

  // Builds an in-memory corpus, see CorpusBuilder.
  static Corpus from_documents(std::string name, int64_t vocab,
                               const std::vector<std::vector<int32_t>>& documents);

  // Verifies blocks of bytes() when read() first touches them; null: none.
  void set_checksums(std::shared_ptr<const BlockChecksums> blocks) { blocks_ = std::move(blocks); }

  const std::string& name() const { return name_; }
  int64_t tokens() const { return static_cast<int64_t>(offsets_.back()); }
  int64_t documents() const { return static_cast<int64_t>(offsets_.size()) - 1; }
  int64_t vocab() const { return vocab_; }
  TokenWidth width() const { return width_; }  // of joined corpora the largest
  std::span<const uint64_t> offsets() const { return offsets_; }
  std::span<const std::byte> bytes() const { return bytes_; }  // empty of joined corpora
  // As they are stored: tokens of one document.
  std::span<const std::byte> bytes_of(int64_t begin, int64_t count) const;
  std::span<const uint8_t> trained() const { return trained_; }

  // Reads tokens [begin, begin + out.size()) into `out`. A damaged block is a UserError, and so is a token
  // outside the vocabulary, with its position. Allocates only to report an error.
  void read(int64_t begin, std::span<int32_t> out) const;

  // Tells the system that tokens [begin, begin + count) will be read soon.
  void will_read(int64_t begin, int64_t count) const;

  // The document that contains token `at`.
  int64_t document_of(int64_t at) const;

  // Reads all tokens and flags; throws at the first token outside the vocabulary, and at a flag that is
  // neither 0 nor 1.
  void check_tokens(int threads = 1) const;
  void check_flags() const;  // the flags alone
  // Whether blocks are verified when they are read, and the writer of the checksums has seen every id.
  bool has_checksums() const;
  // Whether only damage can bring an id outside the vocabulary: somebody has seen all of them.
  bool ids_are_known() const { return ids_are_known_ || has_checksums(); }
  void set_ids_are_known() { ids_are_known_ = true; }

  // A hash of tokens, their width, document offsets and trained flags. Of more than 256 MiB of tokens (or
  // flags), 64 evenly spaced parts of 1 MiB represent the rest.
  uint64_t fingerprint() const;
  // Whether every byte is in it.
  bool fingerprint_is_whole() const;

  // UserError unless a model with `model_vocab` embedding rows covers every id.
  void require_vocab(int64_t model_vocab) const;

 private:
  struct Parts;
  Corpus(const Parts& parts, std::string name, TokenWidth width, int64_t vocab);
  std::string name_;
  std::span<const std::byte> bytes_;
  TokenWidth width_;
  int64_t vocab_;
  std::span<const uint64_t> offsets_;
  std::shared_ptr<const void> owner_;
  std::span<const uint8_t> trained_;
  std::shared_ptr<const BlockChecksums> blocks_;
  bool ids_are_known_ = false;
  struct Parts {
    std::vector<Corpus> corpora;
    std::vector<int64_t> first = {0};  // token of each, then the number of tokens
    std::vector<uint64_t> offsets = {0};
  };
  std::shared_ptr<const Parts> parts_;  // of a joined corpus
  // Calls use(part, begin, count) for the tokens, by their place in the parts.
  template <class Use>
  void each_part(int64_t begin, int64_t count, const Use& use) const;
};

// Packs documents into memory, one after another. Empty documents are skipped.
class CorpusBuilder {
 public:
  CorpusBuilder(std::string name, int64_t vocab);
  // `trained` as in Corpus: a flag per id, or empty when all are trained.
  void add_document(std::span<const int32_t> ids, std::span<const uint8_t> trained = {});
  int64_t tokens() const { return static_cast<int64_t>(offsets_.back()); }
  Corpus finish();  // UserError when there are no tokens

 private:
  std::string name_;
  int64_t vocab_;
  TokenWidth width_;
  std::vector<std::byte> tokens_;
  std::vector<uint64_t> offsets_ = {0};
  std::vector<uint8_t> trained_;  // of all tokens so far, or empty
};

// UserError unless there is one flag per id, each 0 or 1, or none at all.
void require_flags(std::span<const int32_t> ids, std::span<const uint8_t> trained);

}  // namespace quintet::data
