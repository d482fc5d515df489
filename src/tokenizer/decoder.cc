#include "tokenizer/decoder.h"

#include <optional>

#include "tokenizer/json_field.h"
#include "tokenizer/regex.h"
#include "tokenizer/unicode.h"

namespace quintet::tokenizer {
namespace {

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = 0; !from.empty() && (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

class AsIs final : public Decoder {
 public:
  void apply(std::vector<std::string>&) const override {}
};

class Fuse final : public Decoder {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::string all;
    for (const std::string& token : tokens) all += token;
    tokens.clear();
    tokens.push_back(std::move(all));
  }
};

class ReplaceIn final : public Decoder {
 public:
  ReplaceIn(JsonPattern pattern, std::string content) : content_(std::move(content)) {
    if (pattern.regex) regex_.emplace(pattern.text);
    literal_ = std::move(pattern.text);
  }
  void apply(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) {
      if (!regex_) {
        replace_all(token, literal_, content_);
        continue;
      }
      std::string result;
      size_t from = 0;
      while (const auto match = regex_->find(token, from)) {
        if (match.end == match.begin) break;
        result.append(token, from, match.begin - from).append(content_);
        from = match.end;
      }
      token = result.append(token, from);
    }
  }

 private:
  std::optional<Regex> regex_;
  std::string literal_, content_;
};

// Removes up to this many occurrences of a character from each end of every token.
class StripFrom final : public Decoder {
 public:
  StripFrom(std::string content, size_t start, size_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) {
      std::string_view view = token;
      for (size_t i = 0; i < start_ && view.starts_with(content_); ++i) view.remove_prefix(content_.size());
      for (size_t i = 0; i < stop_ && view.ends_with(content_); ++i) view.remove_suffix(content_.size());
      token = std::string(view);
    }
  }

 private:
  std::string content_;
  size_t start_, stop_;
};

// "<0xE2>" and its like become bytes; a run of them that is not valid UTF-8 becomes one U+FFFD for each byte.
class ByteFallback final : public Decoder {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::vector<std::string> result;
    std::string bytes;
    const auto flush = [&] {
      if (bytes.empty()) return;
      std::string storage;
      if (valid_utf8(bytes, storage).data() == bytes.data()) {
        result.push_back(bytes);
      } else {
        for (size_t i = 0; i < bytes.size(); ++i) result.emplace_back("\uFFFD");
      }
      bytes.clear();
    };
    for (std::string& token : tokens) {
      const int byte = byte_of(token);
      if (byte >= 0) {
        bytes.push_back(static_cast<char>(byte));
      } else {
        flush();
        result.push_back(std::move(token));
      }
    }
    flush();
    tokens = std::move(result);
  }

 private:
  static int byte_of(std::string_view token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
    int value = 0;
    for (const char c : token.substr(3, 2)) {
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                               : -1;
      if (digit < 0) return -1;
      value = value * 16 + digit;
    }
    return value;
  }
};

class MetaspaceBack final : public Decoder {
 public:
  MetaspaceBack(std::string mark, bool drop_first) : mark_(std::move(mark)), drop_first_(drop_first) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i == 0 && drop_first_)
        while (tokens[i].starts_with(mark_)) tokens[i].erase(0, mark_.size());
      replace_all(tokens[i], mark_, " ");
    }
  }

 private:
  std::string mark_;
  bool drop_first_;
};

// Spaces that English does not write.
void clean_up(std::string& text) {
  constexpr std::pair<std::string_view, std::string_view> kRules[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kRules) replace_all(text, from, to);
}

class WordPieceBack final : public Decoder {
 public:
  WordPieceBack(std::string prefix, bool clean) : prefix_(std::move(prefix)), clean_(clean) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0) {
        if (tokens[i].starts_with(prefix_)) {
          tokens[i].erase(0, prefix_.size());
        } else {
          tokens[i].insert(0, " ");
        }
      }
      if (clean_) clean_up(tokens[i]);
    }
  }

 private:
  std::string prefix_;
  bool clean_;
};

class SuffixBack final : public Decoder {
 public:
  explicit SuffixBack(std::string suffix) : suffix_(std::move(suffix)) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i)
      replace_all(tokens[i], suffix_, i + 1 == tokens.size() ? "" : " ");
  }

 private:
  std::string suffix_;
};

class DecoderChain final : public Decoder {
 public:
  std::vector<std::unique_ptr<Decoder>> steps;
  void apply(std::vector<std::string>& tokens) const override {
    for (const auto& step : steps) step->apply(tokens);
  }
};

}  // namespace

std::unique_ptr<Decoder> make_decoder(const Json& description) {
  if (description.is_null()) return nullptr;
  const std::string where = "decoder";
  const auto type = json_field<std::string>(description, "type", where);
  if (type == "Sequence") {
    auto chain = std::make_unique<DecoderChain>();
    for (const Json& step : json_list(description, "decoders", where))
      chain->steps.push_back(make_decoder(step));
    return chain;
  }
  if (type == "ByteLevel") return std::make_unique<AsIs>();
  if (type == "Fuse") return std::make_unique<Fuse>();
  if (type == "ByteFallback") return std::make_unique<ByteFallback>();
  if (type == "Replace")
    return std::make_unique<ReplaceIn>(json_pattern(description, where),
                                       json_field<std::string>(description, "content", where));
  if (type == "Strip")
    return std::make_unique<StripFrom>(json_field_or<std::string>(description, "content", " ", where),
                                       json_field_or<uint32_t>(description, "start", 0, where),
                                       json_field_or<uint32_t>(description, "stop", 0, where));
  if (type == "Metaspace") {
    const bool old = json_field_or(description, "add_prefix_space", true, where);
    const auto scheme =
        json_field_or<std::string>(description, "prepend_scheme", old ? "always" : "never", where);
    return std::make_unique<MetaspaceBack>(
        json_field_or<std::string>(description, "replacement", "\u2581", where), scheme != "never");
  }
  if (type == "WordPiece")
    return std::make_unique<WordPieceBack>(json_field_or<std::string>(description, "prefix", "##", where),
                                           json_field_or(description, "cleanup", true, where));
  if (type == "BPEDecoder")
    return std::make_unique<SuffixBack>(json_field_or<std::string>(description, "suffix", "</w>", where));
  base::fail_user(
      "tokenizer file: the decoder '{}' is not supported; known: ByteLevel, ByteFallback, Fuse, Replace, "
      "Strip, Metaspace, WordPiece, BPEDecoder, Sequence",
      base::printable(type));
}

}  // namespace quintet::tokenizer
