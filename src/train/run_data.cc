#include "train/run_data.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/philox.h"
#include "base/text.h"
#include "config/batch_ramp.h"
#include "config/blend_shares.h"
#include "config/codes.h"
#include "data/npy_file.h"
#include "data/open_corpus.h"
#include "tokenizer/tokenizer.h"

namespace quintet::train {
namespace {

// Corpora up to this size are fully validated before the first step, which takes about a second. In larger
// ones, a damaged token is detected when a batch reads it.
constexpr int64_t kCheckedTokens = int64_t{1} << 28;

data::Corpus read_set(const std::vector<std::string>& path, const config::Data& options,
                      const tokenizer::Tokenizer& tokenizer, std::string& reading) {
  if (path.empty())
    config::fail_coded(
        config::kDataExists,
        "data.path is not set: training needs text files, folders of text files, or a token file");
  data::Opened opened = data::open_corpus(std::vector<base::Path>(path.begin(), path.end()), tokenizer,
                                          kCheckedTokens, {.skip = options.skip});
  if (!opened.reading.empty()) reading += (reading.empty() ? "" : "; ") + opened.reading;
  return std::move(opened.corpus);
}

void check_corpus(const config::Recipe& recipe, const data::Corpus& corpus) {
  corpus.require_vocab(recipe.model.vocab);
  const int64_t ids_of_width = int64_t{1} << (8 * static_cast<int>(corpus.width()));
  if ((corpus.vocab() < ids_of_width || !corpus.trained().empty()) && corpus.tokens() <= kCheckedTokens)
    corpus.check_tokens();
}

void require_labels(const data::Dataset& dataset) {
  if (dataset.has_labels()) return;
  const data::Corpus& corpus = dataset.corpus();
  config::fail_coded(
      config::kDataHasLabels, "'{}' has nothing to learn from: {}", corpus.name(),
      corpus.trained().empty()
          ? "every document is a single token, and no label crosses the end of a document (data.pack = true)"
          : "its .mask trains no token that has another one before it in its document");
}

// ---- the order of samples

// What a curriculum sorts samples by: their labels, or the number of their first document.
std::vector<double> ranks_of(const config::Curriculum& curriculum, const data::Dataset& dataset) {
  std::vector<double> ranks(static_cast<size_t>(dataset.size()));
  if (curriculum.by == "length") {
    for (size_t i = 0; i < ranks.size(); ++i)
      ranks[i] = static_cast<double>(dataset.valid_labels(static_cast<int64_t>(i)));
    return ranks;
  }
  const std::vector<double> column = data::read_npy_numbers(curriculum.by);
  const data::Corpus& corpus = dataset.corpus();
  if (static_cast<int64_t>(column.size()) != corpus.documents())
    config::fail_coded(
        config::kDataIsSound,
        "data.curriculum.by: '{}' has {} numbers, but '{}' has {} documents: one each is needed",
        curriculum.by, base::thousands(static_cast<int64_t>(column.size())), corpus.name(),
        base::thousands(corpus.documents()));
  for (size_t i = 0; i < ranks.size(); ++i) {
    const auto document = static_cast<size_t>(dataset.first_document(static_cast<int64_t>(i)));
    if (std::isnan(column[document]))
      config::fail_coded(config::kDataIsSound, "data.curriculum.by: '{}' has no number for document {}",
                         curriculum.by, document);
    ranks[i] = column[document];
  }
  return ranks;
}

data::Sampler sampler_of(const config::Recipe& recipe, const data::Dataset& dataset,
                         std::string_view stream) {
  data::Sampler sampler(static_cast<uint64_t>(recipe.run.seed), dataset.size(), data::Order::Shuffled,
                        stream);
  const config::Curriculum& curriculum = recipe.data.curriculum;
  if (curriculum.by.empty()) return sampler;
  if (dataset.size() > int64_t{1} << 32)
    base::fail_user("a curriculum of {} sequences is too long: at most 2^32 are supported", dataset.size());
  const std::vector<double> ranks = ranks_of(curriculum, dataset);
  auto order = std::make_shared<std::vector<uint32_t>>(ranks.size());
  std::iota(order->begin(), order->end(), 0U);
  std::ranges::stable_sort(*order, {}, [&](uint32_t i) { return ranks[i]; });
  sampler.set_ranking({std::move(order), curriculum.epochs});
  return sampler;
}

data::FillInTheMiddle fim_of(const config::Recipe& recipe, const tokenizer::Tokenizer& tokenizer) {
  const config::Fim& fim = recipe.data.fim;
  const auto id = [&](const char* key, const std::string& token) {
    const auto found = tokenizer.id(token);
    if (!found)
      base::fail_user(
          "{}: tokenizer \"{}\" has no token \"{}\"; add it to the tokenizer, or name the one that it has",
          key, recipe.data.tokenizer, token);
    return *found;
  };
  return {.rate = fim.rate,
          .suffix_first = fim.suffix_first,
          .prefix = id("data.fim.prefix", fim.prefix),
          .middle = id("data.fim.middle", fim.middle),
          .suffix = id("data.fim.suffix", fim.suffix),
          .key = base::stream_key(static_cast<uint64_t>(recipe.run.seed), "data.fim")};
}

// ---- sets

struct NamedCorpus {
  std::string name;
  data::Corpus corpus;
};

class DataMaker {
 public:
  explicit DataMaker(const config::Recipe& recipe) : recipe_(recipe) {}

  // The tokenizer, if documents are rearranged.
  void set_tokenizer(const tokenizer::Tokenizer& tokenizer) {
    if (recipe_.data.fim.rate > 0) fim_ = fim_of(recipe_, tokenizer);
  }

  // Splits a training set; what is held out becomes an evaluation set.
  void add_set(const NamedCorpus& set, std::string_view stream) {
    check_corpus(recipe_, set.corpus);
    if (recipe_.data.fim.rate > 0 && !set.corpus.trained().empty())
      base::fail_user("data.fim.rate: '{}' has a .mask, whose tokens cannot be rearranged",
                      set.corpus.name());
    data::Splits splits = data::make_splits(set.corpus, dataset_options(recipe_));
    require_labels(splits.train);
    data::Sampler sampler = sampler_of(recipe_, splits.train, stream);
    if (fim_) splits.train.set_fill_in_the_middle(*fim_);
    sets_.push_back({set.name, std::move(splits.train), std::move(sampler)});
    if (splits.validation)
      add_eval(set.name.empty() ? config::kValidationName : set.name, *splits.validation);
  }

  void add_eval_set(const NamedCorpus& set) {
    check_corpus(recipe_, set.corpus);
    data::DatasetOptions options = dataset_options(recipe_);
    options.validation_fraction = 0;
    data::Splits splits = data::make_splits(set.corpus, options);
    require_labels(splits.train);
    later_.push_back({set.name, std::move(splits.train)});
  }

  RunData finish() {
    for (auto& [name, dataset] : later_) add_eval(name, std::move(dataset));
    data::Mixture mixture =
        sets_[0].name.empty()
            ? data::Mixture(std::move(sets_[0].dataset), std::move(sets_[0].sampler))
            : data::Mixture(std::move(sets_), data::Blend(*config::whole_shares(recipe_.data.blend)));
    const config::BatchRamp ramp(recipe_);
    require_lasting(mixture, ramp.end().sequences);
    RunData out{.train = data::Batches(std::move(mixture), {.global = recipe_.batch.global,
                                                            .micro = recipe_.batch.micro,
                                                            .accumulation = recipe_.batch.accumulation,
                                                            .dp = recipe_.parallel.dp()}),
                .evals = std::move(evals_),
                .reading = {}};
    std::vector<data::BatchStart> stages;
    for (const config::BatchRamp::Stage& s : ramp.stages())
      stages.push_back({.step = s.first_step, .position = s.first_sequence, .accumulation = s.accumulation});
    out.train.set_stages(std::move(stages));
    if (recipe_.data.balance) out.train.set_balanced();
    return out;
  }

 private:
  void add_eval(std::string name, data::Dataset dataset) {
    const int64_t micro = recipe_.batch.micro, dp = recipe_.parallel.dp();
    const data::Sampler stored(static_cast<uint64_t>(recipe_.run.seed), dataset.size(),
                               data::Order::Sequential);
    evals_.push_back({std::move(name),
                      data::Batches(std::move(dataset), stored,
                                    {.global = micro * dp, .micro = micro, .accumulation = 1, .dp = dp})});
  }

  void require_lasting(const data::Mixture& mixture, int64_t sequences) const {
    if (mixture.set(0).name.empty()) return;
    for (size_t i = 0; i < recipe_.data.blend.size(); ++i) {
      const auto set = static_cast<int64_t>(i);
      const int64_t taken = mixture.taken(set, sequences), has = mixture.dataset(set).size();
      if (recipe_.data.blend[i].repeat || taken <= has) continue;
      config::fail_coded(
          config::kDataLasts,
          "data.blend: \"{}\" has {} sequences, but the run takes {} ({:.2f} epochs) and repeat is "
          "false: lower its share, shorten the run, or remove repeat = false",
          recipe_.data.blend[i].name, base::thousands(has), base::thousands(taken),
          static_cast<double>(taken) / static_cast<double>(has));
    }
  }

  const config::Recipe& recipe_;
  std::optional<data::FillInTheMiddle> fim_;
  std::vector<data::MixtureSet> sets_;
  std::vector<EvalData> evals_;
  std::vector<std::pair<std::string, data::Dataset>> later_;
};

}  // namespace

data::DatasetOptions dataset_options(const config::Recipe& recipe) {
  data::DatasetOptions options{.seq_len = recipe.data.seq_len,
                               .separate_documents = recipe.data.pack,
                               .validation_fraction = recipe.data.validation_fraction};
  if (recipe.data.packing == config::Packing::BestFit) options.best_fit = recipe.data.long_documents;
  return options;
}

int64_t EvalData::batches_read(const config::Recipe& recipe) const {
  return std::min(recipe.eval.batches * recipe.batch.accumulation, batches.steps_per_pass());
}

int64_t EvalData::sequences_read(const config::Recipe& recipe) const {
  return std::min(batches_read(recipe) * recipe.batch.micro * recipe.parallel.dp(),
                  batches.mixture().samples());
}

RunData make_data(const config::Recipe& recipe, const data::Corpus& corpus) {
  DataMaker maker(recipe);
  if (recipe.data.fim.rate > 0) maker.set_tokenizer(*tokenizer::load_tokenizer(recipe.data.tokenizer));
  maker.add_set({"", corpus}, "data.order");
  return maker.finish();
}

RunData load_data(const config::Recipe& recipe) {
  const auto tokenizer = tokenizer::load_tokenizer(recipe.data.tokenizer);
  std::string reading;
  DataMaker maker(recipe);
  maker.set_tokenizer(*tokenizer);
  if (recipe.data.blend.empty())
    maker.add_set({"", read_set(recipe.data.path, recipe.data, *tokenizer, reading)}, "data.order");
  for (const config::BlendSet& set : recipe.data.blend)
    maker.add_set({set.name, read_set(set.path, recipe.data, *tokenizer, reading)}, "data.order/" + set.name);
  for (const config::EvalSet& set : recipe.eval.sets)
    maker.add_eval_set({set.name, read_set(set.path, recipe.data, *tokenizer, reading)});
  RunData data = maker.finish();
  data.reading = std::move(reading);
  return data;
}

void require_data(const config::Recipe& recipe) {
  const auto require = [](const char* key, const std::vector<std::string>& paths) {
    for (const std::string& path : paths)
      if (!base::file_exists(path) && !base::directory_exists(path) && !base::file_exists(path + ".idx"))
        config::fail_coded(config::kDataExists, "{}: there is no file or folder '{}'", key, path);
  };
  require("data.path", recipe.data.path);
  for (const config::BlendSet& set : recipe.data.blend) require("data.blend", set.path);
  for (const config::EvalSet& set : recipe.eval.sets) require("eval.sets", set.path);
  if (const std::string& by = recipe.data.curriculum.by; !by.empty() && by != "length")
    require("data.curriculum.by", {by});
}

}  // namespace quintet::train
