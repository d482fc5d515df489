#include "generate/source.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "checkpoint/reader.h"
#include "checkpoint/store.h"
#include "config/hf/config.h"
#include "config/parse.h"
#include "generate/special_tokens.h"
#include "hf/model_folder.h"
#include "train/load_hf.h"
#include "train/resume.h"
#include "train/saved_state.h"

namespace quintet::generate {
namespace {

config::Recipe hf_recipe(const base::Path& folder, const SourceOptions& options) {
  const config::HfConfig read = config::read_hf_config(base::read_file(folder / config::kHfConfigFile));
  if (!read.problems.empty())
    base::fail_user("{}: {}", (folder / config::kHfConfigFile).string(), fmt::join(read.problems, "\n"));
  config::Recipe recipe;
  recipe.name = folder.filename().string();
  recipe.model = read.model;
  recipe.model.hf = folder.string();
  if (config::has_tokenizer(folder))
    recipe.data.tokenizer = folder.string();
  else if (options.needs_text && options.tokenizer.empty())
    base::fail_user("{} has no tokenizer; name one with --tokenizer", folder.string());
  recipe.run.device = exec::missing(exec::Device::Cuda) ? config::DeviceKind::Cpu : config::DeviceKind::Cuda;
  recipe.precision = config::Precision::of(recipe.run.device == config::DeviceKind::Cuda ? base::DType::BF16
                                                                                         : base::DType::F32);
  return recipe;
}

config::DeviceKind device_for(const config::Recipe& recipe, const SourceOptions& options) {
  const config::DeviceKind wanted = options.device.value_or(recipe.run.device);
  if (wanted != config::DeviceKind::Cuda) return wanted;
  const auto missing = exec::missing(exec::Device::Cuda);
  if (!missing) return wanted;
  if (options.device)
    base::fail_user("--device cuda: {}: {}; or use --device cpu", missing->why, missing->remedy);
  if (options.log)
    options.log(fmt::format(
        "note: the run has run.device = \"cuda\", but {}: generating on the CPU, as with --device cpu",
        missing->why));
  return config::DeviceKind::Cpu;
}

void require_averages(const checkpoint::Reader& weights) {
  for (const checkpoint::SavedTensor& t : weights.manifest().tensors)
    if (t.info.name.ends_with("/ema")) return;
  base::fail_user("--ema: {} has no averages of the weights: its run had optimizer.ema = 0",
                  weights.folder().string());
}

config::Recipe find_weights(const base::Path& path, const SourceOptions& options, Source& source) {
  if (base::directory_exists(path) && base::file_exists(path / config::kHfConfigFile) &&
      !base::file_exists(path / checkpoint::kManifestFile)) {
    if (options.averages || options.step)
      base::fail_user("{} is a Hugging Face folder: --ema and --step apply to runs", path.string());
    source.hf = path;
    return hf_recipe(std::filesystem::absolute(path), options);
  }
  if (!base::directory_exists(path) && path.extension() == ".toml") {
    config::Recipe recipe = config::load(path.string());
    if (options.averages || options.step)
      base::fail_user("{} is a recipe: --ema and --step apply to runs", path.string());
    if (options.random_weights) return recipe;
    if (recipe.model.hf.empty())
      base::fail_user("{} is a recipe without model.hf, so it names no weights; give the folder of its run",
                      path.string());
    source.hf = recipe.model.hf;
    return recipe;
  }
  source.checkpoint = train::find_checkpoint(path, options.step);
  const checkpoint::Reader weights(source.checkpoint);
  if (options.averages) require_averages(weights);
  return train::recipe_of(weights.manifest(), (weights.folder() / checkpoint::kManifestFile).string());
}

}  // namespace

Source open_source(const base::Path& path, const SourceOptions& options) {
  Source source;
  source.averages = options.averages;
  source.name = path.string();
  config::Recipe recipe = find_weights(path, options, source);
  if (options.random_weights) source.checkpoint.clear(), source.hf.clear();
  if (recipe.model.family == config::Family::Custom)
    base::fail_user(
        "{} has a model of its own program (model.family = \"custom\"): only that program can run it",
        path.string());
  if (recipe.model.family == config::Family::Bert)
    base::fail_user(
        "{} is an encoder (model.family = \"bert\"): it predicts masked tokens from both sides, so it "
        "neither continues nor scores text; of an export ('quintet export') 'quintet logits' writes what it "
        "predicts for given ids",
        path.string());
  const int64_t tp = options.tp.value_or(recipe.parallel.tp);
  if (recipe.model.heads % tp != 0)
    base::fail_user("--tp {} does not divide the {} attention heads of {}", tp, recipe.model.heads,
                    path.string());
  recipe.parallel = {};
  recipe.parallel.tp = tp;
  recipe.batch = {.global = 1, .micro = 1, .accumulation = 1};
  recipe.precision = config::Precision::of(options.dtype.value_or(recipe.precision.compute));
  recipe.optimizer.groups.clear();
  if (recipe.data.seq_len == 0) recipe.data.seq_len = 1;  // entries have lengths of their own
  recipe.run.device = device_for(recipe, options);
  if (!options.tokenizer.empty()) recipe.data.tokenizer = options.tokenizer;
  if (options.needs_text) {
    source.tokenizer = tokenizer::load_tokenizer(recipe.data.tokenizer);
    const SpecialTokens tokens = special_tokens(recipe, *source.tokenizer);
    source.ends = tokens.ends, source.prefix = tokens.prefix();
  }
  source.recipe = std::move(recipe);
  return source;
}

int64_t Source::load(train::Rank& rank) const {
  if (!checkpoint.empty()) {
    checkpoint::Reader reader(checkpoint);
    train::LoadOptions load{.weights_only = true, .averages = averages};
    if (recipe.model.mtp.layers > 0)  // its block is used in training only
      load.rules.push_back(
          {fmt::format("blocks.{}.*", recipe.model.layers), train::LoadRule::Policy::Ignore});
    train::load_state(rank, reader, load);
    return reader.bytes_read();
  }
  if (!hf.empty()) {
    hf::ModelFolder folder(hf, recipe.model, train::model_tensors(rank));
    folder.check_copies();
    return train::load_hf(rank, folder).bytes_read;
  }
  rank.draw_weights([](const auto&, const auto&) { return true; });
  return 0;
}

}  // namespace quintet::generate
