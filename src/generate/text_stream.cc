#include "generate/text_stream.h"

#include <algorithm>

namespace quintet::generate {
namespace {

constexpr size_t kContext = 6;  // tokens: enough for any tokenizer's rule about what precedes a word

}  // namespace

TextStream::TextStream(const tokenizer::Tokenizer& tokenizer, std::span<const int32_t> prompt,
                       std::vector<std::string> stops)
    : tokenizer_(tokenizer), stops_(std::move(stops)) {
  const auto tail = prompt.last(std::min(prompt.size(), kContext));
  ids_.assign(tail.begin(), tail.end());
  known_ = ids_.size();
}

std::string TextStream::add(int32_t id) {
  if (stopped_) return {};
  ids_.push_back(id);
  return show(false);
}

std::string TextStream::finish() { return stopped_ ? std::string() : show(true); }

std::string TextStream::show(bool all) {
  const std::span<const int32_t> ids(ids_);
  const std::string before = tokenizer_.decode(ids.first(known_)), now = tokenizer_.decode(ids);
  // A character that is not complete decodes to U+FFFD.
  if (now.size() > before.size() && (all || !now.ends_with("\uFFFD"))) {
    held_ += now.substr(before.size());
    if (known_ > kContext) ids_.erase(ids_.begin(), ids_.begin() + static_cast<ptrdiff_t>(known_ - kContext));
    known_ = ids_.size();
  }
  size_t end = std::string::npos;
  for (const std::string& stop : stops_) end = std::min(end, held_.find(stop));
  stopped_ = end != std::string::npos;
  if (!stopped_) {
    end = held_.size();
    for (const std::string& stop : stops_)
      for (size_t n = std::min(stop.size() - 1, held_.size()); n > 0 && !all; --n)
        if (held_.ends_with(std::string_view(stop).substr(0, n))) end = std::min(end, held_.size() - n);
  }
  const std::string visible = held_.substr(0, end);
  held_.erase(0, stopped_ ? held_.size() : end);
  text_ += visible;
  return visible;
}

}  // namespace quintet::generate
