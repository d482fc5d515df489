// Texts: a document per text file, and per object of JSON and row of Parquet.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/printable.h"
#include "prepare/encoder.h"
#include "prepare/prepare.h"

namespace quintet::prepare {
namespace {

text::DocumentFormat format_of(const Options& options) {
  text::DocumentFormat format;
  format.text = options.text_template.empty() ? text::Template::of_field(options.field)
                                              : text::Template(options.text_template);
  for (const std::string& where : options.where) format.where.emplace_back(where);
  format.numbers = options.columns;
  return format;
}

std::vector<Source> text_sources(const Options& options, const std::vector<std::string>& fields,
                                 data::Reading& reading) {
  std::vector<Source> sources;
  std::set<std::string> seen;
  for (const std::string& input : options.inputs) {
    const bool named = base::file_exists(input);
    for (const base::Path& file : data::text_files(input, &reading)) {
      if (!seen.insert(std::filesystem::weakly_canonical(file).string()).second) {
        ++reading.repeated;
        continue;
      }
      if (is_inside(file, options.out)) continue;
      if (named) text::require_fields(file, fields);
      sources.push_back({file, named, text::kind_of(file, fields)});
      data::note_plain_array(file, sources.back().kind, reading);
    }
  }
  require_sources(options, sources, !seen.empty());
  return sources;
}

class TextEncoder : public Encoder {
 public:
  explicit TextEncoder(const Options& options)
      : options_(options),
        format_(format_of(options)),
        sources_(text_sources(options, format_.columns(), reading_)),
        tokenizer_(tokenizer::load_tokenizer(options.tokenizer)) {
    if (options.end.empty()) return;
    end_ = tokenizer_->id(options.end);
    if (!end_)
      base::fail_user(
          "--end: the tokenizer has no token '{}'; 'quintet tokenizer show' lists its special tokens",
          base::printable(options.end));
  }

  const tokenizer::Tokenizer& tokenizer() const override { return *tokenizer_; }
  const std::vector<Source>& sources() const override { return sources_; }
  const data::Reading& reading() const override { return reading_; }
  std::vector<std::string> fields() const override { return format_.columns(); }

  void encode(const text::Record& record, EncodedRecord& out) const override {
    text::Document document = text::document_of(text::Record(record), format_);
    out.outcome = document.outcome;
    if (out.outcome == text::Outcome::Damaged) out.why = std::move(document.text);
    if (out.outcome != text::Outcome::Document || document.text.empty()) return;
    EncodedDocument encoded;
    tokenizer_->encode(document.text, encoded.ids);
    if (encoded.ids.empty()) return;
    if (end_) encoded.ids.push_back(*end_);
    encoded.text = std::move(document.text);
    out.documents.push_back(std::move(encoded));
    out.numbers = std::move(document.numbers);
  }

  void add_to_manifest(nlohmann::ordered_json& manifest, const Counts&) const override {
    const auto text_or_null = [](const std::string& s) {
      return s.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(s);
    };
    manifest["end_of_document"] = text_or_null(options_.end);
    manifest["field"] = options_.text_template.empty() ? text_or_null(options_.field) : nullptr;
    manifest["template"] = text_or_null(options_.text_template);
  }
  void refuse(const std::string& message) const override { base::fail_user("{}", message); }

 private:
  const Options& options_;
  text::DocumentFormat format_;
  data::Reading reading_;
  std::vector<Source> sources_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  std::optional<int32_t> end_;
};

}  // namespace

bool is_inside(const base::Path& file, const base::Path& folder) {
  return std::filesystem::weakly_canonical(file).string().starts_with(
      std::filesystem::weakly_canonical(folder).string() + "/");
}

void require_sources(const Options& options, const std::vector<Source>& sources, bool any_inside) {
  if (!sources.empty()) return;
  if (any_inside)
    base::fail_user("'{}', the folder that is written, contains all of the files to read: choose another one",
                    options.out.string());
  base::fail_user("there are no files in '{}'", fmt::join(options.inputs, "', '"));
}

std::unique_ptr<Encoder> make_text_encoder(const Options& options) {
  return std::make_unique<TextEncoder>(options);
}

}  // namespace quintet::prepare
