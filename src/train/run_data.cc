#include "train/run_data.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "base/philox.h"
#include "base/plural.h"
#include "base/text.h"
#include "config/batch_ramp.h"
#include "config/blend_shares.h"
#include "config/codes.h"
#include "config/tokenizer_size.h"
#include "data/arrow_file.h"
#include "data/chat_source.h"
#include "data/npy_file.h"
#include "data/open_corpus.h"
#include "tokenizer/files.h"
#include "tokenizer/tokenizer.h"
#include "train/route_file.h"

namespace quintet::train {
namespace {

// Corpora up to this size are fully validated before the first step, which takes about a second. In larger
// ones, a damaged token is detected when a batch reads it.
constexpr int64_t kCheckedTokens = int64_t{1} << 28;
// Nobody vouches for the ids of files that others wrote without checksums: up to this size all are read
// before the first step, as fast as memory or disk are. Larger ones are refused until `quintet data check`
// has read them.
constexpr int64_t kCheckedForeignTokens = int64_t{1} << 32;

// Data up to this size are loaded to check a recipe.
constexpr int64_t kSmallBytes = int64_t{1} << 20;

constexpr std::string_view kDataIsTrainable = "data.path names data that the run can train on";  // the code's

// Threads that tokenize text at the start, or a stream during a run: few, since other threads train.
int reading_threads() { return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 16); }
int stream_threads() { return std::clamp(static_cast<int>(std::thread::hardware_concurrency() / 8), 1, 4); }

data::ChatFormat chat_format(const config::Chat& chat) {
  data::ChatFormat format;
  format.mask.loss = chat.loss == config::ChatLoss::All    ? chat::Loss::All
                     : chat.loss == config::ChatLoss::Last ? chat::Loss::Last
                                                           : chat::Loss::Assistant;
  format.mask.end_of_turn = chat.end_of_turn;
  format.mask.wall_seconds = -1;  // no date: a template that asks for one is refused
  if (!chat.date.empty()) {
    const auto number = [&](size_t at, size_t count) { return std::stoi(chat.date.substr(at, count)); };
    const std::chrono::sys_days day = std::chrono::year_month_day(
        std::chrono::year(number(0, 4)), std::chrono::month(static_cast<unsigned>(number(5, 2))),
        std::chrono::day(static_cast<unsigned>(number(8, 2))));
    // At noon, which is the same day in nearly every time zone.
    format.mask.wall_seconds =
        std::chrono::duration_cast<std::chrono::seconds>((day + std::chrono::hours(12)).time_since_epoch())
            .count();
  }
  return format;
}

std::vector<base::Path> paths_of(const std::vector<std::string>& path) {
  if (path.empty())
    config::fail_coded(
        config::kDataExists,
        "data.path is not set: training needs text files, folders of text files, or a token file");
  return {path.begin(), path.end()};
}

// Reads the corpora of a recipe.
class CorpusReader {
 public:
  CorpusReader(const config::Recipe& recipe, HostShare* share)
      : recipe_(recipe), share_(share), tokenizer_(tokenizer::load_tokenizer(recipe.data.tokenizer)) {}

  const tokenizer::Tokenizer& tokenizer() const { return *tokenizer_; }
  std::string take_reading() { return std::move(reading_); }

  data::Corpus read(const std::vector<std::string>& path) {
    const std::vector<base::Path> paths = paths_of(path);
    const bool is_mapped = data::is_tokenised(paths) && !data::is_datasets_folder(paths[0]);
    if (is_mapped || share_ == nullptr) return read_now(paths);
    return share_->through([&] { return read_now(paths); });
  }

  // The streams of a set of text; null for token files, which are mapped.
  std::optional<data::MixtureSet::Streams> streams(const std::vector<std::string>& path,
                                                   const std::optional<data::FillInTheMiddle>& fim,
                                                   const data::MaskedTokens& masked, std::string_view name) {
    const std::vector<base::Path> paths = paths_of(path);
    if (data::is_tokenised(paths)) return std::nullopt;
    data::StreamOptions options = stream_options(paths, name);
    options.fim = fim;
    options.masked = masked;
    data::MixtureSet::Streams streams;
    for (; options.part < options.parts; ++options.part)
      streams.push_back(std::make_shared<data::SampleStream>(options));
    return streams;
  }

  // What validation_fraction holds out of a streamed set, up to `tokens` tokens.
  data::Corpus held_out(const std::vector<std::string>& path, int64_t tokens) {
    const auto read = [&] { return data::stream_validation(stream_options(paths_of(path), ""), tokens); };
    return share_ == nullptr ? read() : share_->through(read);
  }

 private:
  void add_reading(const std::string& text) {
    if (!text.empty()) reading_ += (reading_.empty() ? "" : "; ") + text;
  }

  data::Corpus open_tokens(const std::vector<base::Path>& paths) {
    data::Opened opened =
        data::open_corpus(paths, *tokenizer_, kCheckedTokens, data::text_options(recipe_.data, *tokenizer_));
    add_reading(opened.reading);
    return std::move(opened.corpus);
  }

  data::Corpus read_now(const std::vector<base::Path>& paths) {
    if (recipe_.data.format == config::DataFormat::Text || data::is_tokenised(paths))
      return open_tokens(paths);
    const chat::ChatTokenizer tokenizer(recipe_.data.tokenizer, recipe_.data.chat.chat_template);
    data::ChatCorpus chat =
        data::read_chat(paths, tokenizer, chat_format(recipe_.data.chat), recipe_.data.skip,
                        recipe_.data.damaged == config::Damaged::Skip, reading_threads());
    add_reading(chat.reading);
    return std::move(chat.corpus);
  }

  data::StreamOptions stream_options(const std::vector<base::Path>& paths, std::string_view name) {
    const config::Data& d = recipe_.data;
    data::TextOptions text = data::text_options(d, *tokenizer_);
    data::Reading found;
    const bool is_chat = d.format == config::DataFormat::Chat;
    data::StreamOptions options{
        .files =
            is_chat ? data::chat_files(paths, &found, text.skip) : data::text_files(paths, &found, text.skip),
        .format = std::move(text.format),
        .tokenizer = tokenizer_,
        .end = text.end,
        .seq_len = d.seq_len,
        .separate_documents = d.pack,
        .window = d.stream_window,
        // Steps in flight, and the next one, whose inputs are read ahead.
        .held = 3 * recipe_.batch.global / d.stream_parts + d.stream_window,
        .validation_fraction = d.validation_fraction,
        .parts = d.stream_parts,
        .skip_damaged = text.skip_damaged,
        .tokenizer_id = tokenizer::fingerprint(d.tokenizer),
        .seed = base::stream_key(static_cast<uint64_t>(recipe_.run.seed), "data.stream/" + std::string(name)),
        .threads = stream_threads()};
    if (options.files.empty())
      config::fail_coded(config::kDataHasLabels, "no text in '{}': {}", paths[0].string(), found.text());
    if (!is_chat)
      for (const base::Path& path : paths)
        if (base::file_exists(path)) text::require_fields(path, options.format.columns());
    if (const std::string skipped = found.skipped();
        !skipped.empty() && reading_.find(skipped) == std::string::npos)
      add_reading("skipped " + skipped);
    if (is_chat)
      options.chat = {std::make_shared<chat::ChatTokenizer>(d.tokenizer, d.chat.chat_template),
                      chat_format(d.chat), data::trained_formats(options.files, "")};
    return options;
  }

  const config::Recipe& recipe_;
  HostShare* share_;
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  std::string reading_;
};

void check_corpus(const config::Recipe& recipe, const data::Corpus& corpus) {
  corpus.require_vocab(recipe.model.vocab);
  const int64_t ids_of_width = int64_t{1} << (8 * static_cast<int>(corpus.width()));
  const int64_t most = corpus.ids_are_known() ? kCheckedTokens : kCheckedForeignTokens;
  const bool may_be_bad = corpus.vocab() < ids_of_width;
  if (may_be_bad && !corpus.ids_are_known() && corpus.tokens() > most)
    config::fail_coded(config::kDataIsSound,
                       "'{}' has {}, too many to compare their ids with the vocabulary of {} at every start: "
                       "run 'quintet data check PATH --tokenizer {}' once, with the paths of the recipe. It "
                       "reads all of them and leaves checksums beside each file",
                       corpus.name(), base::counted(corpus.tokens(), "token"), corpus.vocab(),
                       recipe.data.tokenizer);
  if ((may_be_bad || !corpus.trained().empty()) && corpus.tokens() <= most)
    corpus.check_tokens(reading_threads());
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

// Keys that say how raw data are read have no effect if everything is a token file.
void require_effect(const config::Recipe& recipe) {
  const config::Data& d = recipe.data;
  std::vector<std::vector<std::string>> sets = {d.path};
  for (const config::BlendSet& set : d.blend) sets.push_back(set.path);
  for (const config::EvalSet& set : recipe.eval.sets) sets.push_back(set.path);
  bool any_rows = false;
  for (const std::vector<std::string>& set : sets) {
    const std::vector<base::Path> paths(set.begin(), set.end());
    if (paths.empty()) continue;
    if (!data::is_tokenised(paths)) return;
    any_rows = any_rows || data::is_datasets_folder(paths[0]);
  }
  const auto require_default = [&](const char* key, bool is_default) {
    if (!is_default)
      config::fail_coded(kDataIsTrainable,
                         "{} says how raw text is read, and has no effect here: the data are {}. Remove {}, "
                         "or name raw text in data.path",
                         key, any_rows ? "a datasets folder" : "token files", key);
  };
  const config::Data none;
  require_default("data.format", d.format == none.format);
  require_default("data.template", d.text_template == none.text_template);
  require_default("data.damaged", d.damaged == none.damaged);
  require_default("data.skip", d.skip == none.skip);
  require_default("data.end", any_rows || d.end == none.end);
}

// ---- the order of samples

// What a curriculum sorts samples by: their labels (with masked tokens, which differ from epoch to epoch,
// their tokens), or the number of their first document.
std::vector<double> ranks_of(const config::Recipe& recipe, const data::Dataset& dataset) {
  const config::Curriculum& curriculum = recipe.data.curriculum;
  std::vector<double> ranks(static_cast<size_t>(dataset.size()));
  if (curriculum.by == "length") {
    const bool masked = recipe.model.family == config::Family::Bert;
    for (size_t i = 0; i < ranks.size(); ++i) {
      const auto sample = static_cast<int64_t>(i);
      ranks[i] = static_cast<double>(masked ? dataset.inputs(sample) : dataset.valid_labels(sample));
    }
    return ranks;
  }
  const std::vector<double> column = data::read_npy_numbers(curriculum.by);
  const data::Corpus& corpus = dataset.corpus();
  if (static_cast<int64_t>(column.size()) != corpus.documents())
    config::fail_coded(config::kDataIsSound,
                       "data.curriculum.by: '{}' has {}, but '{}' has {}: one each is needed", curriculum.by,
                       base::counted(column.size(), "number"), corpus.name(),
                       base::counted(corpus.documents(), "document"));
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
  const std::vector<double> ranks = ranks_of(recipe, dataset);
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

// Masked tokens of text whose tokens are all trained.
void require_plain(const config::Recipe& recipe, const data::Corpus& corpus) {
  if (recipe.model.family == config::Family::Bert && !corpus.trained().empty())
    base::fail_user(
        "'{}' has a .mask that says which tokens are trained, but family bert chooses them itself: remove "
        "the .mask",
        corpus.name());
}

// ---- sets

struct NamedCorpus {
  std::string name;
  data::Corpus corpus;
};

class DataMaker {
 public:
  explicit DataMaker(const config::Recipe& recipe) : recipe_(recipe) {}

  // The tokenizer, if documents are rearranged or tokens masked.
  void set_tokenizer(const tokenizer::Tokenizer& tokenizer) {
    if (recipe_.data.fim.rate > 0) fim_ = fim_of(recipe_, tokenizer);
    masked_ = masked_tokens(recipe_, tokenizer, "data.mlm");
    eval_masked_ = masked_tokens(recipe_, tokenizer, "data.mlm/eval");
  }

  // Splits a training set; what is held out becomes an evaluation set.
  void add_set(const NamedCorpus& set, std::string_view stream) {
    check_corpus(recipe_, set.corpus);
    if (recipe_.data.fim.rate > 0 && !set.corpus.trained().empty())
      base::fail_user("data.fim.rate: '{}' has a .mask, whose tokens cannot be rearranged",
                      set.corpus.name());
    require_plain(recipe_, set.corpus);
    data::Splits splits = data::make_splits(set.corpus, dataset_options(recipe_));
    splits.train.set_masked_tokens(masked_);
    require_labels(splits.train);
    data::Sampler sampler = sampler_of(recipe_, splits.train, stream);
    if (fim_) splits.train.set_fill_in_the_middle(*fim_);
    sets_.emplace_back(set.name, std::move(splits.train), std::move(sampler));
    if (splits.validation)
      add_eval(set.name.empty() ? config::kValidationName : set.name, *splits.validation);
  }

  // A set that is tokenized during the run, and what was held out of it.
  void add_stream(const std::string& name, data::MixtureSet::Streams streams,
                  const std::optional<data::Corpus>& held_out) {
    if (streams[0]->options().tokenizer->vocab_size() > recipe_.model.vocab)
      base::fail_user("data.tokenizer has {} ids, but the model's vocabulary is {}",
                      streams[0]->options().tokenizer->vocab_size(), recipe_.model.vocab);
    sets_.emplace_back(name, std::move(streams));
    if (!held_out) return;
    data::Dataset dataset(*held_out, recipe_.data.seq_len, recipe_.data.pack, 0,
                          (held_out->tokens() - 1) / recipe_.data.seq_len);
    require_labels(dataset);
    add_eval(name.empty() ? config::kValidationName : name, std::move(dataset));
  }

  const std::optional<data::FillInTheMiddle>& fim() const { return fim_; }
  const data::MaskedTokens& masked() const { return masked_; }

  void add_eval_set(const NamedCorpus& set) {
    check_corpus(recipe_, set.corpus);
    require_plain(recipe_, set.corpus);
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
            ? data::Mixture(std::move(sets_[0]))
            : data::Mixture(std::move(sets_), data::Blend(*config::whole_shares(recipe_.data.blend)));
    const config::BatchRamp ramp(recipe_);
    require_lasting(mixture, ramp.end().sequences);
    RunData out{.train = data::Batches(std::move(mixture), {.global = recipe_.batch.global,
                                                            .micro = recipe_.batch.micro,
                                                            .accumulation = recipe_.batch.accumulation,
                                                            .dp = recipe_.parallel.dp()}),
                .evals = std::move(evals_),
                .reading = {},
                .tokenizer = {}};
    out.train.set_stages(batch_starts(recipe_));
    if (recipe_.data.balance) out.train.set_balanced();
    if (const auto table = open_routes(recipe_))
      out.train.set_routes([table](auto... a) { data::fill_routes(*table, a...); });
    return out;
  }

 private:
  void add_eval(std::string name, data::Dataset dataset) {
    const int64_t micro = recipe_.batch.micro, dp = recipe_.parallel.dp();
    dataset.set_masked_tokens(eval_masked_);
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
      if (recipe_.data.blend[i].repeat) continue;  // a stream may repeat
      const int64_t has = mixture.set(set).samples(), most = mixture.most_taken(set, sequences);
      const int64_t taken = most == has + 1 ? mixture.taken(set, sequences) : most;
      if (taken <= has) continue;
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
  data::MaskedTokens masked_, eval_masked_;
  std::vector<data::MixtureSet> sets_;
  std::vector<EvalData> evals_;
  std::vector<std::pair<std::string, data::Dataset>> later_;
};

}  // namespace

std::vector<data::BatchStart> batch_starts(const config::Recipe& recipe) {
  const config::BatchRamp ramp(recipe);
  std::vector<data::BatchStart> starts;
  for (const config::BatchRamp::Stage& s : ramp.stages())
    starts.push_back({.step = s.first_step, .position = s.first_sequence, .accumulation = s.accumulation});
  return starts;
}

data::DatasetOptions dataset_options(const config::Recipe& recipe) {
  data::DatasetOptions options{.seq_len = recipe.data.seq_len,
                               .separate_documents = recipe.data.pack,
                               .validation_fraction = recipe.data.validation_fraction};
  if (recipe.data.packing == config::Packing::BestFit) options.best_fit = recipe.data.long_documents;
  return options;
}

data::MaskedTokens masked_tokens(const config::Recipe& recipe, const tokenizer::Tokenizer& tokenizer,
                                 std::string_view stream) {
  if (recipe.model.family != config::Family::Bert) return {};
  const config::Mlm& mlm = recipe.data.mlm;
  const bool is_bytes = tokenizer.kind() == tokenizer::Kind::Bytes;
  const auto mask = is_bytes ? std::optional(config::kByteMask) : tokenizer.id(mlm.mask);
  if (!mask)
    base::fail_user(
        "data.mlm.mask: tokenizer \"{}\" has no token \"{}\"; name its mask token, or train a tokenizer with "
        "one: 'quintet tokenizer train --special \"{}\"'",
        recipe.data.tokenizer, mlm.mask, mlm.mask);
  if (is_bytes && mlm.mask != config::Mlm().mask)
    base::fail_user(
        "data.mlm.mask: the byte tokenizer has no token \"{}\"; its mask is id {}: remove the key", mlm.mask,
        config::kByteMask);
  auto special = std::make_shared<std::vector<uint8_t>>(static_cast<size_t>(tokenizer.vocab_size()));
  for (size_t id = 0; id < special->size(); ++id)
    (*special)[id] = tokenizer.is_special(static_cast<int32_t>(id)) ? 1 : 0;
  return {.rate = mlm.rate,
          .random = mlm.random,
          .keep = mlm.keep,
          .mask = *mask,
          .vocab = tokenizer.vocab_size(),
          .key = base::stream_key(static_cast<uint64_t>(recipe.run.seed), stream),
          .special = std::move(special)};
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
  const auto tokenizer = tokenizer::load_tokenizer(recipe.data.tokenizer);
  maker.set_tokenizer(*tokenizer);
  maker.add_set({"", corpus}, "data.order");
  RunData data = maker.finish();
  data.tokenizer = tokenizer::vocabulary_hash(*tokenizer);
  return data;
}

RunData load_data(const config::Recipe& recipe, HostShare* share) {
  require_effect(recipe);
  CorpusReader reader(recipe, share);
  DataMaker maker(recipe);
  maker.set_tokenizer(reader.tokenizer());
  bool any_stream = false;
  const auto add = [&](const std::string& name, const std::vector<std::string>& path,
                       const std::string& order) {
    if (recipe.data.stream) {
      if (auto streams = reader.streams(path, maker.fim(), maker.masked(), name)) {
        std::optional<data::Corpus> held_out;
        if (recipe.data.validation_fraction > 0 && recipe.eval.every > 0)
          held_out =
              reader.held_out(path, recipe.eval.batches * recipe.batch.global * recipe.data.seq_len + 1);
        any_stream = true;
        return maker.add_stream(name, *std::move(streams), held_out);
      }
    }
    maker.add_set({name, reader.read(path)}, order);
  };
  if (recipe.data.blend.empty()) add("", recipe.data.path, "data.order");
  for (const config::BlendSet& set : recipe.data.blend) add(set.name, set.path, "data.order/" + set.name);
  if (recipe.data.stream && !any_stream)
    config::fail_coded(kDataIsTrainable,
                       "data.stream = true, but the data are token files, which are mapped, not streamed: "
                       "remove data.stream, or name text in data.path");
  for (const config::EvalSet& set : recipe.eval.sets) maker.add_eval_set({set.name, reader.read(set.path)});
  RunData data = maker.finish();
  data.reading = reader.take_reading();
  data.tokenizer = tokenizer::vocabulary_hash(reader.tokenizer());
  return data;
}

void require_data(const config::Recipe& recipe) {
  const auto require = [](const char* key, const std::vector<std::string>& paths) {
    std::error_code none;
    for (const std::string& path : paths)
      if (!base::file_exists(path) && !base::directory_exists(path) && !base::file_exists(path + ".idx"))
        config::fail_coded(
            config::kDataExists, "{}: {}", key,
            std::filesystem::exists(path, none)
                ? fmt::format("'{}' is neither a file nor a folder; copy its contents to a file first", path)
                : fmt::format("there is no file or folder '{}'", path));
  };
  require("data.path", recipe.data.path);
  for (const config::BlendSet& set : recipe.data.blend) require("data.blend", set.path);
  for (const config::EvalSet& set : recipe.eval.sets) require("eval.sets", set.path);
  if (const std::string& by = recipe.data.curriculum.by; !by.empty() && by != "length")
    require("data.curriculum.by", {by});
  if (!recipe.data.routes.empty()) require("data.routes", {recipe.data.routes});
}

namespace {

// The size of the files that paths name, or more than `limit`: the rest is not looked at then.
int64_t bytes_of(const std::vector<std::string>& paths, int64_t limit) {
  int64_t bytes = 0;
  const auto add = [&](const base::Path& file) { return (bytes += base::size_of_file(file)) <= limit; };
  for (const std::string& path : paths) {
    if (bytes > limit) break;
    if (base::file_exists(path)) {
      add(path);
    } else if (base::directory_exists(path)) {
      std::error_code none;
      for (std::filesystem::recursive_directory_iterator it(path, none), end; it != end; it.increment(none))
        if (it->is_regular_file(none) && !add(it->path())) break;
    } else {
      bytes = limit + 1;  // a pair of token files, which are mapped
    }
  }
  return bytes;
}

bool is_small(const config::Recipe& recipe) {
  std::vector<std::string> all = recipe.data.path;
  for (const config::BlendSet& set : recipe.data.blend)
    all.insert(all.end(), set.path.begin(), set.path.end());
  for (const config::EvalSet& set : recipe.eval.sets) all.insert(all.end(), set.path.begin(), set.path.end());
  return !all.empty() && bytes_of(all, kSmallBytes) <= kSmallBytes;
}

}  // namespace

void require_loadable_if_small(const config::Recipe& recipe) {
  if (is_small(recipe)) load_data(recipe);
}

}  // namespace quintet::train
