#include "data/dataset.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"

namespace quintet::data {

Dataset::Dataset(Corpus corpus, int64_t seq_len, bool separate_documents, int64_t first_token, int64_t count)
    : corpus_(std::move(corpus)),
      seq_len_(seq_len),
      separate_(separate_documents),
      first_token_(first_token),
      count_(count) {
  QUINTET_CHECK(seq_len_ > 0 && first_token_ >= 0 && count_ > 0,
                "invalid dataset: {} samples of {} from token {}", count_, seq_len_, first_token_);
  QUINTET_CHECK((corpus_.tokens() - 1 - first_token_) / seq_len_ >= count_,
                "{} samples of {} from token {} exceed {} tokens", count_, seq_len_, first_token_,
                corpus_.tokens());
}

int64_t Dataset::begin_of(int64_t sample) const {
  QUINTET_CHECK(sample >= 0 && sample < count_, "sample {} is not below {}", sample, count_);
  return first_token_ + sample * seq_len_;
}

void Dataset::fill(int64_t sample, const SampleView& view) const {
  const int64_t begin = begin_of(sample);
  const auto length = static_cast<size_t>(seq_len_);
  for (const auto& span : {view.tokens, view.labels, view.positions, view.documents})
    QUINTET_CHECK(span.empty() || span.size() == length, "a row of {} elements for a sequence of {}",
                  span.size(), length);
  if (!view.tokens.empty()) corpus_.read(begin, view.tokens);
  if (!view.labels.empty()) corpus_.read(begin + 1, view.labels);

  const auto offsets = corpus_.offsets();
  // The end of the document that contains the current token; past the sample's end when documents are not
  // separated.
  auto next = separate_ ? offsets.begin() + corpus_.document_of(begin) + 1 : offsets.end();
  int32_t position = 0, document = 0;
  for (size_t i = 0; i < length; ++i) {
    const auto at = static_cast<uint64_t>(begin) + i;
    if (next != offsets.end() && *next == at) ++next, ++document, position = 0;
    if (!view.positions.empty()) view.positions[i] = position;
    if (!view.documents.empty()) view.documents[i] = document;
    if (!view.labels.empty() && next != offsets.end() && *next == at + 1) view.labels[i] = kIgnored;
    ++position;
  }
}

Sample Dataset::get(int64_t sample) const {
  const auto length = static_cast<size_t>(seq_len_);
  Sample out = {std::vector<int32_t>(length), std::vector<int32_t>(length), std::vector<int32_t>(length),
                std::vector<int32_t>(length)};
  fill(sample, {out.tokens, out.labels, out.positions, out.documents});
  return out;
}

int64_t Dataset::valid_labels(int64_t sample) const {
  const int64_t begin = begin_of(sample);
  if (!separate_) return seq_len_;
  // One label is ignored for each document that starts at a predicted token.
  return seq_len_ - (corpus_.document_of(begin + seq_len_) - corpus_.document_of(begin));
}

bool Dataset::has_label(int64_t sample, int64_t at) const {
  QUINTET_CHECK(at >= 0 && at < seq_len_, "position {} is not below {}", at, seq_len_);
  const int64_t token = begin_of(sample) + at;
  return !separate_ || corpus_.document_of(token) == corpus_.document_of(token + 1);
}

Splits make_splits(const Corpus& corpus, const DatasetOptions& options) {
  const auto [seq_len, separate, fraction] = options;
  if (seq_len <= 0) base::fail_user("seq_len is {}; it must be at least 1", seq_len);
  if (!(fraction >= 0 && fraction < 1))
    base::fail_user("the validation fraction is {}; it must be at least 0 and below 1", fraction);
  const int64_t tokens = corpus.tokens();
  if (tokens - 1 < seq_len) {
    const std::string remedy =
        tokens > 1 ? fmt::format("use seq_len {} or less, or more data", tokens - 1) : "use more data";
    base::fail_user("seq_len {} needs {} tokens for one sample, but '{}' has {}: {}",
                    base::thousands(seq_len), base::thousands(seq_len + 1), corpus.name(),
                    base::thousands(tokens), remedy);
  }
  if (fraction == 0) return {Dataset(corpus, seq_len, separate, 0, (tokens - 1) / seq_len), std::nullopt};

  // Each split ends with a label that is not one of its inputs, so together they need two tokens more than
  // their inputs.
  const int64_t samples = (tokens - 2) / seq_len;
  if (samples < 2)
    base::fail_user(
        "a validation split needs one sample for training and one for validation, {} tokens at seq_len {}, "
        "but '{}' has {}: use seq_len {} or less, a validation fraction of 0, or more data",
        base::thousands(2 * seq_len + 2), base::thousands(seq_len), corpus.name(), base::thousands(tokens),
        base::thousands(std::max<int64_t>(1, (tokens - 2) / 2)));
  const int64_t validation =
      std::clamp<int64_t>(std::llround(fraction * static_cast<double>(samples)), 1, samples - 1);
  const int64_t train = samples - validation;
  return {Dataset(corpus, seq_len, separate, 0, train),
          Dataset(corpus, seq_len, separate, train * seq_len + 1, validation)};
}

}  // namespace quintet::data
