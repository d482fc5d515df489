#include "tokenizer/charsmap.h"

#include <utf8proc.h>

#include <cstring>
#include <vector>

#include "base/error.h"
#include "tokenizer/base64.h"
#include "tokenizer/unicode.h"

namespace quintet::tokenizer {
namespace {

// Units of the double array, as the Darts-clone library lays them out.
bool has_leaf(uint32_t unit) { return unit >> 8 & 1; }
uint32_t value_of(uint32_t unit) { return unit & 0x7FFFFFFFu; }
uint32_t label_of(uint32_t unit) { return unit & 0x800000FFu; }
uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & 0x200u) >> 6); }

}  // namespace

bool is_sound_charsmap(std::string_view bytes) {
  uint32_t size = 0;
  if (bytes.size() < 4) return false;
  std::memcpy(&size, bytes.data(), 4);
  if (size == 0 || size % 4 != 0 || size > bytes.size() - 4) return false;
  const size_t units = size / 4, replacements = bytes.size() - 4 - size;
  const auto unit_at = [&](size_t at) {
    uint32_t unit = 0;
    std::memcpy(&unit, bytes.data() + 4 + 4 * at, 4);
    return unit;
  };
  // From each node, every byte is looked up, so the whole block of 256 units must exist.
  std::vector<bool> seen(units);
  std::vector<uint32_t> nodes = {0};
  while (!nodes.empty()) {
    const uint32_t node = nodes.back();
    nodes.pop_back();
    const uint32_t unit = unit_at(node), base = node ^ offset_of(unit);
    if ((base | 0xFFu) >= units) return false;
    if (node != 0 && has_leaf(unit) && value_of(unit_at(base)) >= replacements) return false;
    for (uint32_t byte = 1; byte < 256; ++byte) {
      const uint32_t next = base ^ byte;
      if (label_of(unit_at(next)) != byte || seen[next]) continue;
      seen[next] = true;
      nodes.push_back(next);
    }
  }
  return true;
}

CharsMap::CharsMap(const std::string& base64) {
  const std::string bytes = decode_base64(base64);
  uint32_t size = 0;
  if (bytes.size() >= 4) std::memcpy(&size, bytes.data(), 4);
  if (bytes.size() < 4 || size % 4 != 0 || size > bytes.size() - 4 || size == 0)
    base::fail_user(
        "tokenizer file: the precompiled normalisation has {} bytes, which do not hold the {} of its trie",
        bytes.size(), size);
  trie_.resize(size / 4);
  std::memcpy(trie_.data(), bytes.data() + 4, size);
  replacements_ = bytes.substr(4 + size);
}

std::optional<std::string_view> CharsMap::replacement(std::string_view chunk) const {
  const auto unit_at = [&](uint32_t at) -> uint32_t {
    if (at >= trie_.size())
      base::fail_user("tokenizer file: the precompiled normalisation points outside its trie");
    return trie_[at];
  };
  uint32_t at = 0;
  uint32_t unit = unit_at(0);
  at ^= offset_of(unit);
  for (const char c : chunk) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte == 0) return std::nullopt;
    at ^= byte;
    unit = unit_at(at);
    if (label_of(unit) != byte) return std::nullopt;
    at ^= offset_of(unit);
    if (!has_leaf(unit)) continue;
    const uint32_t begin = value_of(unit_at(at));
    if (begin > replacements_.size()) return std::nullopt;
    return std::string_view(replacements_.c_str() + begin);
  }
  return std::nullopt;
}

// Grapheme by grapheme: a short grapheme is looked up whole, else each of its characters.
void CharsMap::apply(std::string& text) const {
  std::string result;
  result.reserve(text.size());
  const auto put = [&](std::string_view grapheme) {
    if (grapheme.size() < 6)
      if (const auto found = replacement(grapheme)) {
        result.append(*found);
        return;
      }
    while (!grapheme.empty()) {
      const auto one = grapheme.substr(0, static_cast<size_t>(utf8_length(grapheme[0])));
      const auto found = replacement(one);
      result.append(found ? *found : one);
      grapheme.remove_prefix(one.size());
    }
  };
  const char *begin = text.data(), *end = begin + text.size();
  utf8proc_int32_t state = 0, before = -1;
  for (const char* at = begin; at != end;) {
    const char* here = at;
    const auto code = static_cast<utf8proc_int32_t>(next_code(at));
    if (before >= 0 && utf8proc_grapheme_break_stateful(before, code, &state)) {
      put({begin, static_cast<size_t>(here - begin)});
      begin = here;
    }
    before = code;
  }
  if (begin != end) put({begin, static_cast<size_t>(end - begin)});
  text = std::move(result);
}

}  // namespace quintet::tokenizer
