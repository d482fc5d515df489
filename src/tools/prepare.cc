#include "tools/prepare.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/checksum.h"
#include "base/error.h"
#include "base/json.h"
#include "base/output_path.h"
#include "base/parallel_for.h"
#include "base/printable.h"
#include "data/foreign_file.h"
#include "data/text_source.h"
#include "tokenizer/tokenizer.h"

namespace quintet::tools {
namespace {

// Documents that are encoded together: enough to occupy all threads, little enough to hold.
constexpr size_t kBatchBytes = size_t{32} << 20;

// Collects documents, encodes a batch of them on all threads, writes it in order.
class Encoder {
 public:
  Encoder(const PrepareOptions& options, const tokenizer::Tokenizer& tokenizer, Prepared& prepared)
      : options_(options),
        tokenizer_(tokenizer),
        prepared_(prepared),
        writer_(options.out, tokenizer.vocab_size()) {
    if (options.end.empty()) return;
    end_ = tokenizer.id(options.end);
    if (!end_)
      base::fail_user(
          "--end: the tokenizer has no token '{}'; 'quintet tokenizer show' lists its special tokens",
          base::printable(options.end));
  }

  void add(std::string document) {
    if (document.empty()) {
      ++prepared_.empty;
      return;
    }
    held_ += document.size();
    documents_.push_back(std::move(document));
    if (held_ >= kBatchBytes) flush();
  }

  void finish() {
    flush();
    writer_.finish();
    prepared_.documents = writer_.documents();
    prepared_.tokens = writer_.tokens();
  }

 private:
  void flush() {
    std::vector<std::vector<int32_t>> ids(documents_.size());
    // Neighbours go to one thread, whose cache then knows their words.
    const size_t share = std::max<size_t>(1, documents_.size() / (static_cast<size_t>(options_.threads) * 8));
    base::parallel_for(options_.threads, (documents_.size() + share - 1) / share, [&](size_t part) {
      for (size_t i = part * share; i < std::min(documents_.size(), (part + 1) * share); ++i) {
        tokenizer_.encode(documents_[i], ids[i]);
        if (end_) ids[i].push_back(*end_);
      }
    });
    for (const auto& document : ids) {
      writer_.add_document(document);
      if (!document.empty()) prepared_.lengths.push_back(static_cast<int64_t>(document.size()));
    }
    documents_.clear();
    held_ = 0;
  }

  const PrepareOptions& options_;
  const tokenizer::Tokenizer& tokenizer_;
  Prepared& prepared_;
  data::MegatronWriter writer_;
  std::optional<int32_t> end_;
  std::vector<std::string> documents_;
  size_t held_ = 0;
};

// The document of one JSON line, or why there is none.
std::optional<std::string> document_of(std::string_view line, const std::string& field, std::string& why) {
  const auto json = nlohmann::json::parse(line, nullptr, false);
  if (json.is_discarded()) {
    why = "not valid JSON";
  } else if (!json.is_object() || !json.contains(field)) {
    why = fmt::format("no field \"{}\"", base::printable(field));
  } else if (!json.at(field).is_string()) {
    why = fmt::format("the field \"{}\" is not a string", base::printable(field));
  } else {
    return json.at(field).get<std::string>();
  }
  return std::nullopt;
}

void add_lines(std::string_view contents, const std::string& name, const PrepareOptions& options,
               Encoder& encoder, Prepared& prepared) {
  for (int64_t number = 1; !contents.empty(); ++number) {
    const size_t end = std::min(contents.find('\n'), contents.size());
    const std::string_view line = contents.substr(0, end);
    contents.remove_prefix(std::min(end + 1, contents.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    std::string why;
    if (auto document = document_of(line, options.field, why)) {
      encoder.add(*std::move(document));
      continue;
    }
    const std::string message = fmt::format("{}:{}: {}", name, number, why);
    if (!options.skip_damaged)
      base::fail_user("{}; --damaged skip leaves such lines out and counts them", message);
    ++prepared.damaged;
    if (prepared.first_damage.size() < 10) prepared.first_damage.push_back(message);
  }
}

}  // namespace

Prepared prepare(const PrepareOptions& options) {
  const auto tokenizer = tokenizer::load_tokenizer(options.tokenizer);
  std::vector<base::Path> files;
  for (const std::string& input : options.inputs)
    for (const base::Path& file : data::text_files(input)) files.push_back(file);
  int64_t total = 0;
  for (const base::Path& file : files) total += base::size_of_file(file);
  const std::string manifest = options.out + ".json";
  for (const std::string& path : {options.out + ".bin", options.out + ".idx", manifest})
    base::require_new_file("--out", path, options.overwrite);

  Prepared prepared;
  Encoder encoder(options, *tokenizer, prepared);
  nlohmann::ordered_json sources = nlohmann::ordered_json::array();
  for (const base::Path& file : files) {
    std::string contents = base::read_file(file);
    if (contents.find('\0') != std::string::npos) continue;  // binary
    ++prepared.files;
    prepared.bytes += static_cast<int64_t>(contents.size());
    sources.push_back(
        {{"path", file.string()},
         {"bytes", contents.size()},
         {"xxh3", fmt::format("{:016x}", base::checksum_of(std::as_bytes(std::span(contents))))}});
    if (file.extension() == ".jsonl") {
      add_lines(contents, file.string(), options, encoder, prepared);
    } else {
      encoder.add(std::move(contents));
    }
    if (options.progress) options.progress(prepared.bytes, total);
  }
  if (prepared.bytes == 0) base::fail_user("there is no text in the {} files of the input", files.size());
  encoder.finish();
  std::sort(prepared.lengths.begin(), prepared.lengths.end());

  const nlohmann::ordered_json record = {
      {"format", "megatron"},
      {"tokenizer", options.tokenizer},
      {"vocab", tokenizer->vocab_size()},
      {"end_of_document",
       options.end.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(options.end)},
      {"documents", prepared.documents},
      {"tokens", prepared.tokens},
      {"empty_documents", prepared.empty},
      {"damaged_lines", prepared.damaged},
      {"sources", sources}};
  base::write_file_atomically(manifest, base::json_text(record, 2) + "\n");
  return prepared;
}

}  // namespace quintet::tools
