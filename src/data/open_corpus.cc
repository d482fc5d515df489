#include "data/open_corpus.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"
#include "data/arrow_file.h"
#include "data/foreign_file.h"
#include "data/npy_file.h"
#include "data/text_source.h"
#include "data/token_file.h"

namespace quintet::data {
namespace {

// What `quintet prepare` wrote beside the tokens; null if there is nothing.
nlohmann::json manifest_of(const base::Path& path) {
  const base::Path manifest = token_file_prefix(path).parent_path() / "manifest.json";
  if (!base::file_exists(manifest)) return {};
  return nlohmann::json::parse(base::read_file(manifest), nullptr, false);
}

// Rejected answers and prompts without answers are tokens like any others, but not to be learnt.
void require_examples(const base::Path& path, const nlohmann::json& json) {
  if (!json.is_object() || !json.contains("kind")) return;
  if (json["kind"] == "pairs")
    base::fail_user(
        "'{}' has preference pairs, and training on them is not supported yet: a loss over tokens would "
        "train "
        "the rejected answers as well. To train on the chosen ones, write each as \"messages\", or as "
        "\"prompt\" "
        "and \"completion\", and prepare those",
        path.string());
  if (json["kind"] == "prompts")
    base::fail_user(
        "'{}' has prompts without answers, and training on them is not supported yet. Write each with its "
        "answer as \"messages\", or as \"prompt\" and \"completion\", and prepare those",
        path.string());
}

// The ids stand for the tokens of which `quintet prepare` left a hash.
void require_same_tokenizer(const base::Path& path, const nlohmann::json& json,
                            const tokenizer::Tokenizer& tokenizer) {
  if (!json.is_object() || !json.contains("tokenizer") || !json["tokenizer"].is_object()) return;
  const auto text = [&](const char* key) {
    const auto& made = json["tokenizer"];
    return made.contains(key) && made[key].is_string() ? made[key].get<std::string>() : std::string();
  };
  const std::string then = text("tokens"), now = then.empty() ? "" : tokenizer::vocabulary_hash(tokenizer);
  if (then == now) return;
  base::fail_user(
      "'{}' was prepared with the tokenizer '{}', whose tokens ({}) are not those of data.tokenizer ({}): "
      "its "
      "ids would "
      "stand for other text. Name that tokenizer in data.tokenizer, or prepare the data again",
      path.string(), base::printable(text("path")), then, now);
}

Corpus open_tokens(const base::Path& path, const tokenizer::Tokenizer& tokenizer, int64_t checked_tokens) {
  const nlohmann::json manifest = manifest_of(path);
  require_examples(path, manifest);
  require_same_tokenizer(path, manifest, tokenizer);
  if (auto foreign = open_foreign_file(path, tokenizer.vocab_size())) return *std::move(foreign);
  Corpus corpus = load_corpus(path, tokenizer);
  if (corpus.tokens() <= checked_tokens) verify_token_file(path);
  return corpus;
}

// The token files in a folder that has nothing else but their side files, sorted; else nothing. A .bin
// without an index is one of nanoGPT's shards.
std::vector<base::Path> prepared_in(const base::Path& folder) {
  std::vector<base::Path> prefixes;
  for (const base::Path& file : base::list_files(folder, [](const base::Path&) { return false; })) {
    const auto extension = file.extension();
    if (extension == ".idx")
      prefixes.push_back(token_file_prefix(file));
    else if (extension == ".bin" && !base::file_exists(token_file_prefix(file).string() + ".idx"))
      prefixes.push_back(file);
    else if (extension != ".bin" && extension != ".mask" && extension != ".json" &&
             file.filename() != "columns.jsonl")  // of prepared prompts
      return {};
  }
  return prefixes;
}

// Shards of a folder are one set. Those of a validation split are not trained on by mistake.
void require_one_split(const base::Path& folder, const std::vector<base::Path>& shards) {
  const auto is_of = [](const base::Path& shard, std::string_view word) {
    return shard.filename().string().find(word) != std::string::npos;
  };
  for (const char* word : {"val", "test"}) {
    const auto found = std::ranges::find_if(shards, [&](const base::Path& s) { return is_of(s, word); });
    if (found != shards.end() &&
        !std::ranges::all_of(shards, [&](const base::Path& s) { return is_of(s, word); }))
      base::fail_user(
          "'{}' has {} token files, and '{}' looks like one to evaluate on: list those to train on in "
          "data.path, "
          "and name the others in eval.sets",
          folder.string(), shards.size(), found->filename().string());
  }
}

// The token files that the paths name, in their order; nothing if any path is something else.
std::vector<base::Path> token_files(const std::vector<base::Path>& paths) {
  std::vector<base::Path> files;
  for (const base::Path& path : paths) {
    if (is_token_file(path)) {
      files.push_back(path);
      continue;
    }
    if (is_npy_file(path) || !base::directory_exists(path) || is_datasets_folder(path)) return {};
    const std::vector<base::Path> shards = prepared_in(path);
    if (shards.empty()) return {};
    require_one_split(path, shards);
    files.insert(files.end(), shards.begin(), shards.end());
  }
  return files;
}

}  // namespace

bool is_tokenised(const std::vector<base::Path>& paths) {
  return std::ranges::any_of(paths, [](const base::Path& path) {
    return is_npy_file(path) || is_token_file(path) ||
           (base::directory_exists(path) && (is_datasets_folder(path) || !prepared_in(path).empty()));
  });
}

Opened open_corpus(const std::vector<base::Path>& paths, const tokenizer::Tokenizer& tokenizer,
                   int64_t checked_tokens, const TextOptions& options) {
  if (paths.size() == 1 && is_npy_file(paths[0]))
    return {open_npy_file(paths[0], tokenizer.vocab_size()), {}};
  if (paths.size() == 1 && base::directory_exists(paths[0]) && is_datasets_folder(paths[0]))
    return read_datasets_folder(paths[0], tokenizer, options.end);
  if (const std::vector<base::Path> files = token_files(paths); !files.empty()) {
    std::vector<Corpus> parts;
    for (const base::Path& file : files) parts.push_back(open_tokens(file, tokenizer, checked_tokens));
    if (parts.size() == 1) return {std::move(parts[0]), {}};
    return {Corpus::joined(std::move(parts)), {}};
  }
  for (const base::Path& path : paths)
    if (is_token_file(path) || is_npy_file(path) ||
        (base::directory_exists(path) && (is_datasets_folder(path) || !prepared_in(path).empty())))
      base::fail_user(
          "data.path lists {} paths, and '{}' is a token file or a datasets folder among others: token files "
          "may "
          "be listed together, a .npy file or a datasets folder must be the only path, and data.blend takes "
          "all "
          "of them",
          paths.size(), path.string());
  Reading files;
  Corpus corpus = read_text(paths, tokenizer, &files, options);
  return {std::move(corpus), files.text()};
}

}  // namespace quintet::data
