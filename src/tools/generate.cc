#include "tools/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/philox.h"
#include "base/printable.h"
#include "checkpoint/reader.h"
#include "checkpoint/store.h"
#include "comm/local.h"
#include "config/parse.h"
#include "tokenizer/tokenizer.h"
#include "train/checkpointer.h"
#include "train/element.h"
#include "train/loop.h"
#include "train/rank.h"
#include "train/resume.h"
#include "train/saved_state.h"

namespace quintet::tools {

using graph::InputKind;
namespace {

constexpr double kMaxSampleFlops = 2e11;  // a few seconds on a small machine

// The run's model on one rank, for inference.
config::Recipe single_rank(config::Recipe recipe) {
  recipe.parallel = {};
  recipe.batch = {.global = 1, .micro = 1, .accumulation = 1};
  recipe.precision = config::Precision::of(recipe.precision.compute);
  recipe.optimizer.groups.clear();
  return recipe;
}

config::DeviceKind device_for(const config::Recipe& recipe, const GenerateOptions& options) {
  const config::DeviceKind wanted = options.device.value_or(recipe.run.device);
  if (wanted != config::DeviceKind::Cuda) return wanted;
  const auto missing = exec::missing(exec::Device::Cuda);
  if (!missing) return wanted;
  if (options.device)
    base::fail_user("--device cuda: {}: {}; or use --device cpu", missing->why, missing->remedy);
  if (options.log)
    options.log(fmt::format(
        "note: the run has run.device = \"cuda\", but {}: generating on the CPU, as with --device "
        "cpu",
        missing->why));
  return config::DeviceKind::Cpu;
}

// Returns the logits after the last of `ids`, which must fit in seq_len.
class Window {
 public:
  Window(const config::Recipe& recipe, comm::World& world, checkpoint::Reader& weights,
         const GenerateOptions& options)
      : recipe_(recipe), rank_(recipe, world, {.threads = options.threads, .infer = true}) {
    train::load_state(rank_, weights, {.weights_only = true, .averages = options.averages});
  }

  std::vector<double> logits(std::span<const int32_t> ids) {
    const int64_t length = static_cast<int64_t>(ids.size()), rows = recipe_.data.seq_len;
    QUINTET_CHECK(length > 0 && length <= rows, "{} tokens do not fit in a window of {}", length, rows);
    rank_.executor().run(rank_.compiled().step, [&](int, const auto& inputs) {
      for (const auto& [spec, data] : inputs)
        for (int64_t i = 0; i < rows; ++i) {
          // Rows after the text have no effect: attention is causal.
          if (spec.kind == InputKind::Ids) data[i] = i < length ? ids[static_cast<size_t>(i)] : 0;
          if (spec.kind == InputKind::Labels) data[i] = -1;
          if (spec.kind == InputKind::Positions) data[i] = static_cast<int32_t>(i);
          if (spec.kind == InputKind::Documents || spec.kind == InputKind::Samples) data[i] = 0;
        }
    });
    const int64_t row_bytes = recipe_.model.vocab * base::size_of(recipe_.precision.compute);
    const exec::HostBytes result =
        rank_.executor().read({rank_.compiled().program.result, (length - 1) * row_bytes, row_bytes});
    std::vector<double> out(static_cast<size_t>(recipe_.model.vocab));
    for (size_t v = 0; v < out.size(); ++v)
      out[v] = train::read_element(result.data(), recipe_.precision.compute, static_cast<int64_t>(v));
    return out;
  }

 private:
  const config::Recipe recipe_;
  train::Rank rank_;
};

// Samples a token from softmax(logits / temperature) with a uniform number in [0, 1).
int32_t draw(const std::vector<double>& logits, double temperature, double uniform) {
  const auto likeliest = std::max_element(logits.begin(), logits.end());
  if (!std::isfinite(*likeliest))
    base::fail_user("the model's output is not finite: the weights are damaged, or the run diverged");
  if (temperature == 0) return static_cast<int32_t>(likeliest - logits.begin());
  std::vector<double> weight(logits.size());
  double sum = 0;
  for (size_t i = 0; i < logits.size(); ++i)
    sum += weight[i] = std::exp((logits[i] - *likeliest) / temperature);
  double left = uniform * sum;
  for (size_t i = 0; i < weight.size(); ++i)
    if ((left -= weight[i]) < 0) return static_cast<int32_t>(i);
  return static_cast<int32_t>(likeliest - logits.begin());
}

int64_t parameters_in(const checkpoint::Manifest& manifest) {
  int64_t count = 0;
  for (const checkpoint::SavedTensor& t : manifest.tensors)
    if (!checkpoint::is_state_name(t.info.name)) count += t.info.count();
  return count;
}

void require_averages(const checkpoint::Reader& weights) {
  for (const checkpoint::SavedTensor& t : weights.manifest().tensors)
    if (t.info.name.ends_with("/ema")) return;
  base::fail_user("--ema: {} has no averages of the weights: its run had optimizer.ema = 0",
                  weights.folder().string());
}

}  // namespace

double generate_flops(const config::Recipe& recipe, int64_t parameters, int64_t tokens) {
  return 2.0 * static_cast<double>(parameters) * static_cast<double>(recipe.data.seq_len) *
         static_cast<double>(tokens);
}

std::string generate(const base::Path& path, const GenerateOptions& options) {
  checkpoint::Reader weights(train::find_checkpoint(path, options.step));
  if (options.averages) require_averages(weights);
  if (options.tokens < 1) base::fail_user("--tokens must be at least 1; got {}", options.tokens);
  if (!(options.temperature >= 0) || !std::isfinite(options.temperature))
    base::fail_user("--temperature must be 0 or more; got {}", options.temperature);
  config::Recipe recipe = single_rank(
      train::recipe_of(weights.manifest(), (weights.folder() / checkpoint::kManifestFile).string()));
  const auto tokenizer = tokenizer::load_tokenizer(recipe.data.tokenizer);
  std::vector<int32_t> ids = tokenizer->encode(options.prompt);
  if (ids.empty()) base::fail_user("--prompt is empty; the model needs at least one token to continue");
  const size_t prompt = ids.size();
  recipe.run.device = device_for(recipe, options);

  comm::run_local_world(1, [&](comm::World& world) {
    Window window(recipe, world, weights, options);
    const uint64_t key = base::stream_key(options.seed, "generate");
    const size_t longest = static_cast<size_t>(recipe.data.seq_len);
    // A token's text depends on its neighbours: a character may take several tokens, and the first word has
    // no space before it. So all of the text is decoded, and a last character that is not complete is held
    // back.
    size_t shown = 0;
    const auto show_new_text = [&] {
      const std::string text = tokenizer->decode(std::span<const int32_t>(ids).subspan(prompt));
      if (text.size() <= shown || text.ends_with("\uFFFD")) return;
      options.on_text(std::string_view(text).substr(shown));
      shown = text.size();
    };
    for (int64_t i = 0; i < options.tokens; ++i) {
      const std::span<const int32_t> all(ids);
      std::vector<double> logits = window.logits(all.size() > longest ? all.last(longest) : all);
      // The model may have more rows than the tokenizer has ids.
      logits.resize(std::min(logits.size(), static_cast<size_t>(tokenizer->vocab_size())));
      ids.push_back(draw(logits, options.temperature, base::uniform(key, static_cast<uint64_t>(i))));
      if (options.on_text) show_new_text();
    }
  });
  return tokenizer->decode(std::span<const int32_t>(ids).subspan(prompt));
}

std::optional<std::string> sample_of(const config::Recipe& recipe, int64_t tokens) {
  if (tokens == 0) return std::nullopt;
  const base::Path saved = checkpoint::find_checkpoint(train::checkpoint_folder(recipe));
  if (generate_flops(recipe, parameters_in(checkpoint::Reader(saved).manifest()), tokens) > kMaxSampleFlops)
    return std::nullopt;
  GenerateOptions options;
  options.tokens = tokens;
  options.seed = static_cast<uint64_t>(recipe.run.seed);
  options.threads = train::kernel_threads(recipe, 1);
  return base::printable(options.prompt + generate(saved, options));
}

}  // namespace quintet::tools
