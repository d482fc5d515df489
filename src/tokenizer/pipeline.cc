#include "tokenizer/pipeline.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdlib>

#include "base/checksum.h"
#include "base/json.h"
#include "tokenizer/json_field.h"
#include "tokenizer/piece_starts.h"
#include "tokenizer/unicode.h"
#include "tokenizer/word_cache.h"

namespace quintet::tokenizer {
namespace {

std::atomic<uint64_t> next_serial{1};

struct WordCaches {
  WordCache words;
  LongWordCache long_words;
};

// This thread's caches, emptied when another tokenizer used them last.
WordCaches& caches_for(uint64_t serial) {
  struct Owned {
    uint64_t serial = 0;
    std::unique_ptr<WordCaches> caches;
  };
  thread_local Owned owned;
  if (owned.serial != serial) {
    owned.caches = std::make_unique<WordCaches>();
    owned.serial = serial;
  }
  return *owned.caches;
}

// Appends the ids of a word that the cache of short words does not have, and keeps them. `known`: what that
// cache said, nothing (0) or that there are many.
void encode_unknown(const Model& model, WordCaches& caches, std::string_view word, const WordCache::Key& key,
                    uint64_t hash, size_t known, std::vector<int32_t>& ids) {
  const bool is_short = word.size() <= WordCache::kLongest, may_be_long = !is_short || known != 0;
  const auto long_hash = [&] { return base::checksum_of(std::as_bytes(std::span(word))); };
  if (may_be_long)
    if (const auto found = caches.long_words.find(word, long_hash()); !found.empty()) {
      ids.insert(ids.end(), found.begin(), found.end());
      return;
    }
  const size_t before = ids.size();
  model.encode(word, ids);
  const auto made = std::span(ids).subspan(before);
  if (is_short && known == 0) caches.words.insert(key, hash, made);
  if (!is_short || made.size() > WordCache::kMostIds) caches.long_words.insert(word, long_hash(), made);
}

// A number as the Rust library that `tokenizers` reads files with computes it: the digits that fit 64 bits,
// divided by a power of ten. It rounds twice, and the score of a token can differ in its last bit; two cuts
// of a word whose scores are equal but for rounding then compare as they do there.
double twice_rounded(const std::string& text) {
  uint64_t digits = 0;
  int exponent = 0;
  bool fraction = false, full = false;
  size_t at = text.starts_with('-') ? 1 : 0;
  for (; at < text.size() && text[at] != 'e' && text[at] != 'E'; ++at) {
    if (text[at] == '.') {
      fraction = true;
      continue;
    }
    const auto digit = static_cast<uint64_t>(text[at] - '0');
    full = full || digits > (~0ull - digit) / 10;
    if (!full) digits = digits * 10 + digit;
    exponent += full ? (fraction ? 0 : 1) : (fraction ? -1 : 0);
  }
  if (at < text.size()) exponent += std::atoi(text.c_str() + at + 1);
  const auto whole = static_cast<double>(digits);
  const double value = exponent < 0 ? whole / std::pow(10.0, -exponent) : whole * std::pow(10.0, exponent);
  return text.starts_with('-') ? -value : value;
}

// Builds the document as usual, but for numbers with a fraction.
struct Reader : nlohmann::detail::json_sax_dom_parser<Json> {
  explicit Reader(Json& document) : json_sax_dom_parser(document, false) {}
  bool number_float(double, const std::string& text) {
    return json_sax_dom_parser::number_float(twice_rounded(text), text);
  }
};

}  // namespace

Pipeline::Pipeline(PipelineParts parts) : parts_(std::move(parts)), serial_(next_serial++) {
  vocab_size_ = parts_.model->vocabulary().size();
  if (parts_.pre_tokenizer) pattern_ = parts_.pre_tokenizer->pattern();
  for (size_t i = 0; i < parts_.added.size(); ++i) {
    const AddedToken& token = parts_.added[i];
    if (token.content.empty()) continue;
    added_by_id_[token.id] = i;
    vocab_size_ = std::max<int64_t>(vocab_size_, token.id + int64_t{1});
    if (!token.normalized) {
      raw_.add(token, token.content);
    } else {
      std::string pattern = token.content;
      if (parts_.normalizer) parts_.normalizer->apply(pattern);
      normalized_.add(token, pattern);
    }
  }
  for (const auto* side : {&parts_.frame.before, &parts_.frame.after})
    for (const int32_t id : *side)
      if (id < 0 || id >= vocab_size_)
        base::fail_user("tokenizer file: the post-processor adds the id {}, the vocabulary has {} tokens", id,
                        vocab_size_);
}

void Pipeline::encode(std::string_view text, std::vector<int32_t>& ids, bool frame) const {
  std::string storage;
  text = valid_utf8(text, storage);
  if (frame) ids.insert(ids.end(), parts_.frame.before.begin(), parts_.frame.before.end());
  size_t from = 0;
  while (!raw_.empty()) {
    const auto found = raw_.find(text, from);
    if (found.id < 0) break;
    encode_plain(text.substr(from, found.begin - from), from == 0, ids);
    ids.push_back(found.id);
    from = found.end;
  }
  encode_plain(text.substr(from), from == 0, ids);
  if (frame) ids.insert(ids.end(), parts_.frame.after.begin(), parts_.frame.after.end());
}

void Pipeline::encode_plain(std::string_view text, bool first, std::vector<int32_t>& ids) const {
  if (text.empty()) return;
  std::string normal;
  if (parts_.normalizer) {
    normal = text;
    parts_.normalizer->apply(normal);
    text = normal;
  }
  size_t from = 0;
  while (!normalized_.empty()) {
    const auto found = normalized_.find(text, from);
    if (found.id < 0) break;
    encode_words(text.substr(from, found.begin - from), first && from == 0, ids);
    ids.push_back(found.id);
    from = found.end;
  }
  encode_words(text.substr(from), first && from == 0, ids);
}

// Words of a batch are cut, then looked up: by then memory has fetched their slots. Nearly all of them are
// known and short, and cost no branch that depends on the text.
void Pipeline::encode_pattern(std::string_view text, std::vector<int32_t>& ids) const {
  WordCaches& caches = caches_for(serial_);
  WordCache& words = caches.words;
  struct Word {
    const char* at;
    size_t size;
    WordCache::Key key;
    uint64_t hash;
  };
  constexpr size_t kBatch = 2 * kWindow, kReadable = kWindow + 16;
  std::array<Word, kBatch> batch;
  std::array<char, 2 * kReadable> tail;  // the last bytes of the text, followed by bytes that are not ASCII
  bool in_tail = false;
  const char *at = text.data(), *end = at + text.size();
  while (at != end) {
    size_t count = 0;
    const auto add = [&](size_t size) {
      Word& word = batch[count++];
      word.at = at;
      word.size = size;
      word.key = WordCache::key_of_16(at, size);
      word.hash = WordCache::hash(word.key);
      words.prefetch(word.hash);
      at += size;
    };
    while (at != end && count <= kBatch - kWindow) {
      if (const auto left = static_cast<size_t>(end - at); left < kReadable && !in_tail) {
        tail.fill(static_cast<char>(0xFF));
        at = static_cast<const char*>(std::memcpy(tail.data(), at, left));
        end = at + left;
        in_tail = true;
      }
      uint64_t starts = piece_starts(*pattern_, at) & ~1ull;
      if (starts == 0) {
        add(first_piece(*pattern_, {at, static_cast<size_t>(end - at)}));
        continue;
      }
      for (const char* const window = at; starts != 0; starts &= starts - 1)
        add(static_cast<size_t>(window + std::countr_zero(starts) - at));
    }
    size_t used = ids.size();
    ids.resize(used + WordCache::kMostIds * count);
    for (size_t i = 0; i < count; ++i) {
      const auto& [begin, size, key, hash] = batch[i];
      const size_t known = words.copy(key, hash, ids.data() + used);
      if (known - 1 < WordCache::kMostIds) {
        used += known;
        continue;
      }
      ids.resize(used);
      encode_unknown(*parts_.model, caches, {begin, size}, key, hash, known, ids);
      used = ids.size();
      ids.resize(used + WordCache::kMostIds * (count - i - 1));
    }
    ids.resize(used);
  }
}

void Pipeline::encode_words(std::string_view text, bool first, std::vector<int32_t>& ids) const {
  if (text.empty()) return;
  if (pattern_ != nullptr) return encode_pattern(text, ids);
  WordCaches& caches = caches_for(serial_);
  // Words wait in a short queue while memory fetches their slots: looked up at once, each would wait for it
  // alone.
  struct Waiting {
    std::string_view word;
    WordCache::Key key;
    uint64_t hash;
  };
  const auto encode_now = [&](const Waiting& waiting) {
    const size_t before = ids.size();
    ids.resize(before + WordCache::kMostIds);
    const size_t known = caches.words.copy(waiting.key, waiting.hash, ids.data() + before);
    const bool is_known = known - 1 < WordCache::kMostIds;
    ids.resize(before + (is_known ? known : 0));
    if (!is_known) encode_unknown(*parts_.model, caches, waiting.word, waiting.key, waiting.hash, known, ids);
  };
  std::array<Waiting, 16> queue;
  size_t waiting = 0;
  const auto flush = [&] {
    for (size_t i = 0; i < waiting; ++i) encode_now(queue[i]);
    waiting = 0;
  };
  const auto encode_word = [&](std::string_view word, bool) {
    const WordCache::Key key = WordCache::key(word);
    const Waiting next{word, key, WordCache::hash(key)};
    caches.words.prefetch(next.hash);
    // A word that is not part of the text lives no longer than this call.
    if (word.data() < text.data() || word.data() >= text.data() + text.size()) {
      flush();
      return encode_now(next);
    }
    queue[waiting++] = next;
    if (waiting == queue.size()) flush();
  };
  if (parts_.pre_tokenizer) {
    parts_.pre_tokenizer->split(text, first, encode_word);
    return flush();
  }
  for (std::string_view rest = text; !rest.empty();) {
    const size_t length = parts_.model->first_piece(rest);
    encode_word(rest.substr(0, length), false);
    rest.remove_prefix(length);
  }
  flush();
}

const AddedToken* Pipeline::added(int32_t id) const {
  const auto found = added_by_id_.find(id);
  return found == added_by_id_.end() ? nullptr : &parts_.added[found->second];
}

std::string Pipeline::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    require_id(ids[i], i);
    if (const AddedToken* token = added(ids[i])) {
      if (!(skip_special && token->special)) tokens.push_back(token->content);
    } else if (ids[i] < parts_.model->vocabulary().size()) {
      tokens.push_back(parts_.model->vocabulary().token(ids[i]));
    }
  }
  std::string text;
  if (parts_.decoder) parts_.decoder->apply(tokens);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0 && !parts_.decoder) text.push_back(' ');
    text += tokens[i];
  }
  std::string storage;
  const std::string_view valid = valid_utf8(text, storage);
  return valid.data() == text.data() ? text : storage;
}

std::string Pipeline::token(int32_t id) const {
  require_id(id, 0);
  if (const AddedToken* token = added(id)) return token->content;
  const auto& vocabulary = parts_.model->vocabulary();
  if (id >= vocabulary.size()) return "";
  return parts_.byte_level ? spelling_of_bytes(vocabulary.token(id)) : vocabulary.token(id);
}

std::optional<int32_t> Pipeline::id(std::string_view token) const {
  for (const AddedToken& added : parts_.added)
    if (added.content == token) return added.id;
  if (!parts_.byte_level) return parts_.model->vocabulary().id(token);
  const auto bytes = bytes_of_spelling(token);
  return bytes ? parts_.model->vocabulary().id(*bytes) : std::nullopt;
}

bool Pipeline::is_special(int32_t id) const {
  const AddedToken* token = added(id);
  return token && token->special;
}

std::unique_ptr<Tokenizer> load_hf_tokenizer(std::string_view json) {
  if (base::nests_too_deep(json)) base::fail_user("tokenizer file: {}", base::json_fault(json));
  Json file;
  Reader reader(file);
  if (!Json::sax_parse(json, &reader) || !file.is_object())
    base::fail_user("tokenizer file: it is not a JSON object");
  const auto part = [&](const char* key) { return file.contains(key) ? file.at(key) : Json(); };
  PipelineParts parts;
  parts.normalizer = make_normalizer(part("normalizer"), parts.byte_level);
  parts.pre_tokenizer = make_pre_tokenizer(part("pre_tokenizer"), parts.byte_level);
  if (!file.contains("model")) base::fail_user("tokenizer file: it has no \"model\"");
  parts.model = make_model(file.at("model"), parts.byte_level);
  parts.frame = make_frame(part("post_processor"));
  parts.decoder = make_decoder(part("decoder"));
  for (const Json& entry : json_list(file, "added_tokens", "the file")) {
    const std::string where = "added_tokens";
    AddedToken token;
    token.content = json_field<std::string>(entry, "content", where);
    token.id = json_field<int32_t>(entry, "id", where);
    token.special = json_field_or(entry, "special", false, where);
    token.normalized = json_field_or(entry, "normalized", !token.special, where);
    token.single_word = json_field_or(entry, "single_word", false, where);
    token.lstrip = json_field_or(entry, "lstrip", false, where);
    token.rstrip = json_field_or(entry, "rstrip", false, where);
    if (token.id < 0 || token.id > 1 << 24)
      base::fail_user("tokenizer file: the added token '{}' has the id {}", base::printable(token.content),
                      token.id);
    parts.added.push_back(std::move(token));
  }
  return std::make_unique<Pipeline>(std::move(parts));
}

}  // namespace quintet::tokenizer
