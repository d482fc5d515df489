#include "data/text_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "data/token_file.h"

namespace quintet::data {
namespace {

bool is_hidden(const base::Path& path) { return path.filename().string().starts_with('.'); }

bool is_searched(const base::Path& folder) {
  const std::string name = folder.filename().string();
  return !is_hidden(folder) && !name.starts_with("build") && name != "runs";
}

bool is_binary(std::string_view contents) { return contents.find('\0') != std::string_view::npos; }

void add_file(const base::Path& file, bool named, const Tokenizer& tokenizer, CorpusBuilder& corpus) {
  const std::string contents = base::read_file(file);
  if (is_binary(contents)) {
    if (named) base::fail_user("'{}' is not a text file: it contains NUL bytes", file.string());
    return;
  }
  std::vector<int32_t> ids;
  const auto add = [&](std::string_view text) {
    ids.clear();
    tokenizer.encode(text, ids);
    corpus.add_document(ids);
  };
  if (file.extension() == ".jsonl")
    for (const std::string& text : parse_jsonl(contents, file.string())) add(text);
  else
    add(contents);
}

}  // namespace

std::vector<base::Path> text_files(const base::Path& path) {
  if (base::file_exists(path)) return {path};
  if (!base::directory_exists(path))
    base::fail_user(
        "no data at '{}': expected a text file, a .jsonl file, a folder of them, or a token file pair",
        path.string());
  std::vector<base::Path> files = base::list_files(path, is_searched);
  std::erase_if(files, [](const base::Path& file) { return is_hidden(file) || is_token_file(file); });
  return files;
}

std::vector<std::string> parse_jsonl(std::string_view contents, std::string_view name) {
  std::vector<std::string> documents;
  for (int64_t number = 1; !contents.empty(); ++number) {
    const size_t end = std::min(contents.find('\n'), contents.size());
    const std::string_view line = contents.substr(0, end);
    contents.remove_prefix(std::min(end + 1, contents.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (json.is_discarded()) base::fail_user("{}:{}: not valid JSON", name, number);
    const auto text = json.is_object() ? json.find("text") : json.end();
    if (text == json.end() || !text->is_string())
      base::fail_user("{}:{}: expected an object with a string in \"text\"", name, number);
    documents.push_back(text->get<std::string>());
  }
  return documents;
}

Corpus read_text(std::span<const base::Path> paths, const Tokenizer& tokenizer) {
  std::vector<std::string> names;
  for (const base::Path& path : paths) names.push_back(path.string());
  CorpusBuilder corpus(fmt::format("{}", fmt::join(names, ", ")), tokenizer.vocab_size());
  int64_t looked_at = 0;
  for (const base::Path& path : paths) {
    const bool named = base::file_exists(path);
    for (const base::Path& file : text_files(path)) {
      ++looked_at;
      add_file(file, named, tokenizer, corpus);
    }
  }
  if (corpus.tokens() == 0)
    base::fail_user(
        "no text in '{}': read {} file{}, all empty or binary (hidden names and folders named build* or runs "
        "are skipped)",
        fmt::join(names, ", "), base::thousands(looked_at), looked_at == 1 ? "" : "s");
  return corpus.finish();
}

Corpus load_corpus(const base::Path& path, const Tokenizer& tokenizer) {
  if (!is_token_file(path)) return read_text(std::span(&path, 1), tokenizer);
  Corpus corpus = open_token_file(path);
  if (corpus.vocab() > tokenizer.vocab_size())
    base::fail_user("'{}' has a vocabulary of {}, but tokenizer \"{}\" has {} ids", corpus.name(),
                    corpus.vocab(), tokenizer.name(), tokenizer.vocab_size());
  return corpus;
}

}  // namespace quintet::data
