#include "train/run_data.h"

#include "base/error.h"
#include "config/batch_ramp.h"
#include "config/codes.h"
#include "data/foreign_file.h"
#include "data/text_source.h"
#include "data/token_file.h"

namespace quintet::train {
namespace {

// Corpora up to this size are fully validated before the first step, which takes about a second. In larger
// ones, a damaged token is detected when a batch reads it.
constexpr int64_t kCheckedTokens = int64_t{1} << 28;

data::Corpus read_corpus(const config::Recipe& recipe, std::string& reading) {
  const auto tokenizer = tokenizer::load_tokenizer(recipe.data.tokenizer);
  const std::vector<base::Path> paths(recipe.data.path.begin(), recipe.data.path.end());
  if (paths.empty())
    config::fail_coded(
        config::kDataExists,
        "data.path is not set: training needs text files, folders of text files, or a token file");
  if (paths.size() == 1 && data::is_token_file(paths[0])) {
    if (auto foreign = data::open_foreign_file(paths[0], tokenizer->vocab_size())) return *std::move(foreign);
    data::Corpus corpus = data::load_corpus(paths[0], *tokenizer);
    // Reads every token, which larger files are too long for.
    if (corpus.tokens() <= kCheckedTokens) data::verify_token_file(paths[0]);
    return corpus;
  }
  for (const base::Path& path : paths)
    if (data::is_token_file(path))
      base::fail_user(
          "data.path lists {} paths, and '{}' is a token file; a token file must be the only path",
          paths.size(), path.string());
  data::Reading files;
  data::Corpus corpus = data::read_text(paths, *tokenizer, &files);
  reading = files.text();
  return corpus;
}

}  // namespace

int64_t RunData::evaluation_batches(const config::Recipe& recipe) const {
  return validation ? std::min(recipe.eval.batches * recipe.batch.accumulation, validation->steps_per_pass())
                    : 0;
}

RunData make_data(const config::Recipe& recipe, const data::Corpus& corpus) {
  corpus.require_vocab(recipe.model.vocab);
  const int64_t ids_of_width = int64_t{1} << (8 * static_cast<int>(corpus.width()));
  if (corpus.vocab() < ids_of_width && corpus.tokens() <= kCheckedTokens) corpus.check_tokens();
  data::Splits splits = data::make_splits(corpus, {.seq_len = recipe.data.seq_len,
                                                   .separate_documents = recipe.data.pack,
                                                   .validation_fraction = recipe.data.validation_fraction});
  const uint64_t seed = static_cast<uint64_t>(recipe.run.seed);
  const int64_t dp = recipe.parallel.dp(), micro = recipe.batch.micro;
  const data::Sampler shuffled(seed, splits.train.size(), data::Order::Shuffled);
  if (!splits.train.has_labels())
    config::fail_coded(config::kDataHasLabels, "'{}' has nothing to learn from: {}", corpus.name(),
                       corpus.trained().empty()
                           ? "every document is a single token, and no label crosses the end of a document "
                             "(data.pack = true)"
                           : "its .mask trains no token that has another one before it in its document");
  RunData out{.train = data::Batches(std::move(splits.train), shuffled,
                                     {.global = recipe.batch.global,
                                      .micro = micro,
                                      .accumulation = recipe.batch.accumulation,
                                      .dp = dp}),
              .validation = {},
              .reading = {}};
  std::vector<data::BatchStart> stages;
  const config::BatchRamp ramp(recipe);
  for (const config::BatchRamp::Stage& s : ramp.stages())
    stages.push_back({.step = s.first_step, .position = s.first_sequence, .accumulation = s.accumulation});
  out.train.set_stages(std::move(stages));
  if (splits.validation) {
    const data::Sampler stored(seed, splits.validation->size(), data::Order::Sequential);
    out.validation.emplace(
        std::move(*splits.validation), stored,
        data::BatchLayout{.global = micro * dp, .micro = micro, .accumulation = 1, .dp = dp});
  }
  return out;
}

RunData load_data(const config::Recipe& recipe) {
  std::string reading;
  RunData data = make_data(recipe, read_corpus(recipe, reading));
  data.reading = std::move(reading);
  return data;
}

void require_data(const config::Recipe& recipe) {
  for (const std::string& path : recipe.data.path)
    if (!base::file_exists(path) && !base::directory_exists(path) && !base::file_exists(path + ".idx"))
      config::fail_coded(config::kDataExists, "data.path: there is no file or folder '{}'", path);
}

}  // namespace quintet::train
