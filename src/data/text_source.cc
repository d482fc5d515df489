#include "data/text_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/error.h"
#include "base/file_walk.h"
#include "base/glob.h"
#include "base/printable.h"
#include "base/text.h"
#include "config/codes.h"
#include "data/foreign_file.h"
#include "data/token_file.h"
#include "text/byte_stream.h"
#include "text/json_file.h"

namespace quintet::data {
namespace {

constexpr size_t kNamedFolders = 4;  // in Reading::text

// Whether a file or folder below `root` is left out.
bool is_skipped(const Skip& skip, const base::Path& root, const base::Path& path, bool is_folder) {
  const std::string name = path.filename().string(), inside = path.lexically_relative(root).string();
  return std::any_of(skip.begin(), skip.end(), [&](std::string_view pattern) {
    if (pattern.ends_with('/')) {
      if (!is_folder) return false;
      pattern.remove_suffix(1);
    }
    const bool whole = pattern.find('/') != std::string_view::npos;
    if (pattern.starts_with('/')) pattern.remove_prefix(1);
    return base::glob_match(pattern, whole ? inside : name);
  });
}

// What a run writes is no text to train on: its folder, and checkpoints, wherever they are. Otherwise the run
// that continues would find other data than the one that began.
bool is_run_folder(const base::Path& folder) {
  return base::file_exists(folder / "run.json") && base::file_exists(folder / "recipe.toml");
}
bool is_checkpoint(const base::Path& folder) {
  return folder.filename().string().starts_with("step-") && base::file_exists(folder / "manifest.json");
}
// The file beside checkpoints that names the newest.
bool is_pointer(const base::Path& file) {
  if (file.filename() != "latest" || base::size_of_file(file) > 64) return false;
  std::string name = base::read_file(file);
  while (name.ends_with('\n')) name.pop_back();
  return !name.empty() && name.find('/') == std::string::npos && is_checkpoint(file.parent_path() / name);
}

void add_file(const base::Path& file, bool named, const tokenizer::Tokenizer& tokenizer,
              const TextOptions& options, CorpusBuilder& corpus, Reading& reading) {
  const std::vector<std::string> columns = options.format.columns();
  if (named) text::require_fields(file, columns);
  text::RecordReader reader({file}, columns);
  std::vector<int32_t> ids;
  bool any = false;
  for (text::Record record; reader.next(record);) {
    const text::FileKind kind = record.kind;
    note_plain_array(file, kind, reading);
    const int64_t number = record.number;
    const text::Document document = text::document_of(std::move(record), options.format);
    if (document.outcome == text::Outcome::Binary) {
      if (named) base::fail_user("'{}' is not a text file: it contains NUL bytes", file.string());
      ++reading.binary;
      return;
    }
    if (document.outcome == text::Outcome::Damaged) {
      const std::string damage = text::damage_text(file, number, document.text);
      if (!options.skip_damaged)
        base::fail_user("{}; data.damaged = \"skip\" leaves such records out and counts them", damage);
      if (reading.damaged++ == 0) reading.first_damage = damage;
      continue;
    }
    any = any || kind != text::FileKind::Text || !document.text.empty();
    ids.clear();
    tokenizer.encode(document.text, ids);
    if (options.end && !ids.empty()) ids.push_back(*options.end);
    corpus.add_document(ids);
  }
  ++(any ? reading.files : reading.empty);
}

// Whether a name says what the file holds.
bool tells_kind(const base::Path& file) {
  const auto extension = text::without_compression(file).extension();
  return extension == ".jsonl" || extension == ".ndjson" || extension == ".json" || extension == ".parquet";
}

// Of the names of one file, the first that tells its kind, or else the first.
std::vector<base::Path> once_each(std::vector<base::Path> files, Reading& reading) {
  if (std::ranges::none_of(files, [](const base::Path& file) { return std::filesystem::is_symlink(file); }))
    return files;
  std::map<std::string, size_t> chosen;
  std::vector<bool> kept(files.size(), true);
  for (size_t i = 0; i < files.size(); ++i) {
    const auto [at, is_new] = chosen.emplace(std::filesystem::weakly_canonical(files[i]).string(), i);
    if (is_new) continue;
    ++reading.repeated;
    const bool better = !tells_kind(files[at->second]) && tells_kind(files[i]);
    kept[better ? at->second : i] = false;
    if (better) at->second = i;
  }
  std::vector<base::Path> out;
  for (size_t i = 0; i < files.size(); ++i)
    if (kept[i]) out.push_back(std::move(files[i]));
  return out;
}

}  // namespace

void note_plain_array(const base::Path& file, text::FileKind kind, Reading& reading) {
  if (kind == text::FileKind::Text && text::is_json(file) &&
      text::peek_json(file).shape == text::JsonShape::Array)
    ++reading.plain_arrays;
}

std::string Reading::skipped() const {
  std::vector<std::string> out;
  const auto add = [&](int64_t n, std::string_view one, std::string_view many) {
    if (n > 0) out.push_back(fmt::format("{} {}", base::thousands(n), n == 1 ? one : many));
  };
  const auto add_named = [&](const std::vector<std::string>& names, std::string_view one,
                             std::string_view many) {
    if (names.empty()) return;
    const size_t shown = std::min(names.size(), kNamedFolders);
    out.push_back(fmt::format("{} {} ({}{})", names.size(), names.size() == 1 ? one : many,
                              fmt::join(names.begin(), names.begin() + static_cast<ptrdiff_t>(shown), ", "),
                              shown < names.size() ? ", ..." : ""));
  };
  add_named(folders, "folder", "folders");
  add_named(linked_folders, "link to a folder", "links to folders");
  add(names, "file by its name", "files by their names");
  add(dangling, "link to nothing", "links to nothing");
  add(special, "pipe or device", "pipes or devices");
  add(token_files, "token file", "token files");
  add(other, "file of another kind", "files of other kinds");
  add(binary, "binary file", "binary files");
  add(empty, "empty file", "empty files");
  add(repeated, "file read already", "files read already");
  return fmt::format("{}", fmt::join(out, ", "));
}

std::string Reading::text() const {
  const std::string left_out = skipped();
  std::string out = fmt::format("{} file{}{}", base::thousands(files), files == 1 ? "" : "s",
                                left_out.empty() ? "" : "; skipped " + left_out);
  if (plain_arrays > 0)
    out +=
        fmt::format("; {} of the files read {} whose records lack the text's field, read as plain text",
                    base::thousands(plain_arrays), plain_arrays == 1 ? "is a JSON array" : "are JSON arrays");
  if (damaged > 0)
    out += fmt::format("; {} damaged record{} left out, the first: {}", base::thousands(damaged),
                       damaged == 1 ? "" : "s", first_damage);
  return out;
}

TextOptions text_options(const config::Data& data, const tokenizer::Tokenizer& tokenizer) {
  TextOptions options{
      .format = {}, .end = {}, .skip = data.skip, .skip_damaged = data.damaged == config::Damaged::Skip};
  if (!data.text_template.empty()) options.format.text = text::Template(data.text_template);
  if (!data.end.empty()) {
    options.end = tokenizer.id(data.end);
    if (!options.end)
      base::fail_user(
          "data.end: the tokenizer has no token '{}'; 'quintet tokenizer show' lists its special tokens",
          base::printable(data.end));
  }
  return options;
}

std::vector<base::Path> text_files(const base::Path& path, Reading* reading, const Skip& skip) {
  if (base::file_exists(path)) return {path};
  if (!base::directory_exists(path))
    config::fail_coded(config::kDataExists,
                       "no data at '{}': expected a text, .jsonl, .json or .parquet file, a folder of them, "
                       "or a token file pair",
                       path.string());
  Reading ignored;
  Reading& r = reading != nullptr ? *reading : ignored;
  base::FileWalk walk = base::walk_files(path, [&](const base::Path& folder) {
    const bool skipped =
        is_skipped(skip, path, folder, true) || is_run_folder(folder) || is_checkpoint(folder);
    if (skipped) r.folders.push_back(folder.lexically_relative(path).string());
    if (skipped) return false;
    r.token_files += is_token_file(folder);
    return !is_token_file(folder);
  });
  std::sort(r.folders.begin(), r.folders.end());
  for (const base::Path& link : walk.linked_folders)
    (is_skipped(skip, path, link, true) ? r.folders : r.linked_folders)
        .push_back(link.lexically_relative(path).string());
  const auto count = [&](const std::vector<base::Path>& left_out, int64_t& number) {
    for (const base::Path& file : left_out) ++(is_skipped(skip, path, file, false) ? r.names : number);
  };
  count(walk.dangling, r.dangling);
  count(walk.special, r.special);
  std::erase_if(walk.files, [&](const base::Path& file) {
    const bool name = is_skipped(skip, path, file, false) || is_pointer(file),
               tokens = !name && is_token_file(file);
    r.names += name, r.token_files += tokens;
    return name || tokens;
  });
  return once_each(std::move(walk.files), r);
}

std::vector<base::Path> text_files(std::span<const base::Path> paths, Reading* reading, const Skip& skip) {
  std::vector<base::Path> files;
  std::set<std::string> seen;
  for (const base::Path& path : paths)
    for (const base::Path& file : text_files(path, reading, skip)) {
      if (seen.insert(std::filesystem::weakly_canonical(file).string()).second)
        files.push_back(file);
      else if (reading != nullptr)
        ++reading->repeated;
    }
  return files;
}

Corpus read_text(std::span<const base::Path> paths, const tokenizer::Tokenizer& tokenizer, Reading* reading,
                 const TextOptions& options) {
  std::vector<std::string> names;
  for (const base::Path& path : paths) names.push_back(path.string());
  CorpusBuilder corpus(fmt::format("{}", fmt::join(names, ", ")), tokenizer.vocab_size());
  Reading mine;
  std::set<std::string> seen;
  for (const base::Path& path : paths) {
    const bool named = base::file_exists(path);
    for (const base::Path& file : text_files(path, &mine, options.skip)) {
      if (!seen.insert(std::filesystem::weakly_canonical(file).string()).second)
        ++mine.repeated;
      else
        add_file(file, named, tokenizer, options, corpus, mine);
    }
  }
  if (corpus.tokens() == 0)
    config::fail_coded(config::kDataHasLabels, "no text in '{}': {}", fmt::join(names, ", "), mine.text());
  if (reading != nullptr) *reading = mine;
  return corpus.finish();
}

Corpus load_corpus(const base::Path& path, const tokenizer::Tokenizer& tokenizer, Reading* reading,
                   const TextOptions& options) {
  if (!is_token_file(path)) return read_text(std::span(&path, 1), tokenizer, reading, options);
  if (auto foreign = open_foreign_file(path, tokenizer.vocab_size())) return *std::move(foreign);
  Corpus corpus = open_token_file(path);
  if (corpus.vocab() > tokenizer.vocab_size())
    base::fail_user("'{}' has a vocabulary of {}, but tokenizer \"{}\" has {} ids", corpus.name(),
                    corpus.vocab(), to_string(tokenizer.kind()), tokenizer.vocab_size());
  return corpus;
}

}  // namespace quintet::data
