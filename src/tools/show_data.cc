#include "tools/show_data.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"
#include "data/chat_source.h"
#include "data/corpus.h"
#include "data/foreign_file.h"
#include "data/text_source.h"
#include "text/record_reader.h"
#include "tokenizer/tokenizer.h"

namespace quintet::tools {
namespace {

ShownDocument shown(const tokenizer::Tokenizer& tokenizer, std::vector<int32_t> ids,
                    std::vector<uint8_t> trained) {
  ShownDocument document{std::move(ids), std::move(trained), {}};
  for (size_t begin = 0; begin < document.ids.size();) {
    size_t end = begin;
    while (end < document.ids.size() && document.trained[end] == document.trained[begin]) ++end;
    document.runs.push_back({document.trained[begin] != 0,
                             tokenizer.decode(std::span(document.ids).subspan(begin, end - begin))});
    begin = end;
  }
  return document;
}

// The prefix of token files that `path` denotes, and the manifest next to them.
std::pair<base::Path, base::Path> prepared_paths(const base::Path& path) {
  if (base::directory_exists(path)) return {path / "tokens", path / "manifest.json"};
  base::Path prefix = path;
  if (prefix.extension() == ".bin" || prefix.extension() == ".idx") prefix.replace_extension();
  const base::Path beside = prefix.string() + ".json";
  return {prefix, base::file_exists(beside) ? beside : prefix.parent_path() / "manifest.json"};
}

// Whether this is a file of JSON lines or rows, also a compressed one, or a folder with any.
bool has_conversations(const base::Path& path) {
  const auto is_chat = [](const base::Path& file) { return text::kind_of(file, {}) != text::FileKind::Text; };
  if (!base::directory_exists(path)) return base::file_exists(path) && is_chat(path);
  return std::ranges::any_of(data::text_files(path), is_chat);
}

std::string tokenizer_of(const base::Path& manifest) {
  if (!base::file_exists(manifest)) return "";
  const auto json = base::parse_json(base::read_file(manifest));
  if (!json.is_object() || !json.contains("tokenizer")) return "";
  if (const auto& tokenizer = json["tokenizer"];
      tokenizer.is_object() && tokenizer.contains("path") && tokenizer["path"].is_string())
    return tokenizer["path"].get<std::string>();
  return json["tokenizer"].is_string() ? json["tokenizer"].get<std::string>() : "";
}

// The first `count` documents of chat data, encoded as `quintet prepare --chat` would. Examples that cannot
// be used are a UserError with file and line.
std::vector<chat::Encoded> encode_first(const ChatSource& source, size_t count) {
  const chat::ChatTokenizer tokenizer(source.tokenizer, source.chat_template);
  data::ChatFormat format{source.format, source.mask, false};
  if (format.mask.wall_seconds == 0) format.mask.wall_seconds = base::wall_seconds();
  std::vector<chat::Encoded> encoded;
  data::ChatLines lines(data::chat_files({source.inputs.begin(), source.inputs.end()}), source.format);
  for (data::ChatLine line; encoded.size() < count && lines.next(line);) {
    data::ChatResult result = std::move(data::encode_lines(tokenizer, std::span(&line, 1), format, 1)[0]);
    if (!result.problem.empty()) throw base::UserError(result.problem);
    for (chat::Encoded& document : result.documents) encoded.push_back(std::move(document));
  }
  return encoded;
}

}  // namespace

bool is_prepared(const base::Path& path) {
  return base::file_exists(prepared_paths(path).first.string() + ".bin");
}

std::vector<ShownDocument> show_data(ChatSource source, size_t count) {
  const base::Path path = source.inputs.at(0);
  std::vector<ShownDocument> documents;
  const auto [prefix, manifest] = prepared_paths(path);
  if (!is_prepared(path) && has_conversations(path)) {
    if (source.tokenizer.empty()) base::fail_user("chat data needs --tokenizer, whose template renders it");
    const auto tokenizer = tokenizer::load_tokenizer(source.tokenizer);
    for (chat::Encoded& encoded : encode_first(source, count))
      documents.push_back(shown(*tokenizer, std::move(encoded.ids), std::move(encoded.trained)));
    if (documents.size() > count) documents.resize(count);
    return documents;
  }
  if (!is_prepared(path)) {
    if (!base::file_exists(path) && !base::directory_exists(path))
      base::fail_user("'{}' does not exist", base::printable(path.string()));
    base::fail_user("'{}' is neither chat data (.jsonl, .parquet) nor prepared data: there is no '{}.bin'",
                    base::printable(path.string()), base::printable(prefix.string()));
  }
  if (source.tokenizer.empty()) source.tokenizer = tokenizer_of(manifest);
  if (source.tokenizer.empty())
    base::fail_user("'{}' has no manifest that names its tokenizer; name it with --tokenizer",
                    base::printable(path.string()));
  const auto tokenizer = tokenizer::load_tokenizer(source.tokenizer);
  const auto corpus = data::open_foreign_file(prefix, tokenizer->vocab_size());
  if (!corpus)
    base::fail_user("'{}' is neither chat data (.jsonl, .parquet) nor prepared data",
                    base::printable(path.string()));
  const auto offsets = corpus->offsets();
  for (size_t i = 0; i + 1 < offsets.size() && i < count; ++i) {
    std::vector<int32_t> ids(offsets[i + 1] - offsets[i]);
    corpus->read(static_cast<int64_t>(offsets[i]), ids);
    std::vector<uint8_t> trained(ids.size(), 1);
    if (!corpus->trained().empty())
      std::copy_n(corpus->trained().begin() + static_cast<int64_t>(offsets[i]), ids.size(), trained.begin());
    documents.push_back(shown(*tokenizer, std::move(ids), std::move(trained)));
  }
  return documents;
}

}  // namespace quintet::tools
