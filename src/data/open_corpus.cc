#include "data/open_corpus.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/json.h"
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
  return base::parse_json(base::read_file(manifest));
}

// Rejected answers and prompts without answers are tokens like any others, but not to be learnt.
void require_examples(const base::Path& path, const nlohmann::json& json) {
  if (!json.is_object() || !json.contains("kind")) return;
  if (json["kind"] == "pairs")
    base::fail_user(
        "'{}' has preference pairs, and training on them is not supported yet: a loss over tokens would "
        "train the rejected answers as well. To train on the chosen ones, write each as \"messages\", or as "
        "\"prompt\" and \"completion\", and prepare those",
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
      "its ids would stand for other text. Name that tokenizer in data.tokenizer, or prepare the data again",
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
// without an index is one of nanoGPT's shards, but not beside files that only indexed tokens have: there its
// index is lost, and its bytes would be read as ids of another width.
std::vector<base::Path> prepared_in(const base::Path& folder) {
  std::vector<base::Path> prefixes, without_index;
  bool has_side_files = false;
  for (const base::Path& file : base::list_files(folder, [](const base::Path&) { return false; })) {
    const auto extension = file.extension();
    has_side_files |= extension == ".idx" || extension == ".mask" || file.filename() == "manifest.json";
    if (extension == ".idx")
      prefixes.push_back(token_file_prefix(file));
    else if (extension == ".bin" && !base::file_exists(token_file_prefix(file).string() + ".idx"))
      prefixes.push_back(without_index.emplace_back(file));
    else if (extension != ".bin" && extension != ".mask" && extension != ".json" && extension != ".npy" &&
             file.filename() != "columns.jsonl")  // columns of documents
      return {};
  }
  if (has_side_files && !without_index.empty())
    base::fail_user(
        "'{}' has no index '{}.idx' beside it: copy the index as well, or move the file out of the folder",
        without_index[0].string(), token_file_prefix(without_index[0]).filename().string());
  return prefixes;
}

// Whether a file name has one of the words that stand for held-out data, as a word of its own.
bool names_held_out(const base::Path& shard) {
  const std::string name = shard.filename().string();
  const auto is_letter = [&](size_t at) {
    return at < name.size() && std::isalpha(static_cast<unsigned char>(name[at]));
  };
  for (const std::string_view word : {"val", "valid", "validation", "test"})
    for (size_t at = name.find(word); at != std::string::npos; at = name.find(word, at + 1))
      if ((at == 0 || !is_letter(at - 1)) && !is_letter(at + word.size())) return true;
  return false;
}

// Shards of a folder are one set. Those of a validation split are not trained on by mistake.
void require_one_split(const base::Path& folder, const std::vector<base::Path>& shards) {
  const auto found = std::ranges::find_if(shards, names_held_out);
  if (found != shards.end() && !std::ranges::all_of(shards, names_held_out))
    base::fail_user(
        "'{}' has {} token files, and the name of '{}' says that it is held out: name the files instead of "
        "the folder, those to train on in data.path and the others in eval.sets",
        folder.string(), shards.size(), found->filename().string());
}

// A file that is named twice, or once by itself and once by its folder, would be trained on twice as often.
void require_distinct(const std::vector<base::Path>& files) {
  std::set<base::Path> seen;
  for (const base::Path& file : files)
    if (!seen.insert(std::filesystem::weakly_canonical(token_file_prefix(file))).second)
      base::fail_user(
          "data.path names '{}' twice: name it once. data.blend trains on a set more often than on others",
          file.string());
}

}  // namespace

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
  require_distinct(files);
  return files;
}

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
          "may be listed together, a .npy file or a datasets folder must be the only path, and data.blend "
          "takes all of them",
          paths.size(), path.string());
  Reading files;
  Corpus corpus = read_text(paths, tokenizer, &files, options);
  return {std::move(corpus), files.text()};
}

}  // namespace quintet::data
