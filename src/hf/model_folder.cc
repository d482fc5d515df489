#include "hf/model_folder.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "base/convert.h"
#include "base/error.h"
#include "base/glob.h"
#include "base/text.h"

namespace quintet::hf {
namespace {

constexpr size_t kMaxListed = 20;

config::HfConfig config_of(const base::Path& folder) {
  const base::Path file = folder / config::kHfConfigFile;
  config::HfConfig config = config::read_hf_config(base::read_file(file));
  if (!config.problems.empty())
    base::fail_user("{} cannot be used:\n  {}", file.string(), fmt::join(config.problems, "\n  "));
  return config;
}

}  // namespace

bool is_of_other_part(const config::HfFamily& family, const TensorInfo& tensor) {
  return std::any_of(family.other_parts.begin(), family.other_parts.end(),
                     [&](std::string_view pattern) { return base::glob_match(pattern, tensor.name); });
}

ModelFolder::ModelFolder(const base::Path& folder, const config::Model& model, std::vector<TensorInfo> ours)
    : source_(open_tensors(folder)), map_([&] {
        const config::HfConfig config = config_of(folder);
        return std::make_unique<NameMap>(
            *config.family, model, std::move(ours),
            [&](const std::string& name) { return source_->find(name) != nullptr; });
      }()) {
  check(model, config_of(folder).predict_layers);
}

ModelFolder::OpenReader ModelFolder::open_reader() const {
  std::unique_ptr<TensorSource> source = open_tensors(source_->path());
  WeightReader weights(*source, *map_);
  return {std::move(source), std::move(weights)};
}

void ModelFolder::check(const config::Model& model, int64_t predict_layers) {
  std::vector<std::string> problems;
  std::set<std::string> used, types;
  for (const TheirTensor& t : map_->theirs()) {
    used.insert(t.name);
    const TensorInfo* const found = source_->find(t.name);
    if (found == nullptr) {
      problems.push_back(fmt::format("{} is missing", t.name));
      continue;
    }
    if (found->shape != t.shape)
      problems.push_back(fmt::format("{} has shape [{}], but the model needs [{}]", t.name,
                                     fmt::join(found->shape, ", "), fmt::join(t.shape, ", ")));
    if (!base::is_floating(found->dtype))
      problems.push_back(
          fmt::format("{} has type {}; expected f64, f32, bf16 or f16", t.name, to_string(found->dtype)));
  }
  if (model.tied)
    for (const config::HfWeight& row : map_->family().weights(model))
      if (row.ours == "head.weight" && row.theirs.starts_with('/'))
        tied_heads_.push_back(map_->outer_name(row.theirs.substr(1)));
  int64_t left_out = 0, of_other_parts = 0;
  for (const TensorInfo& t : source_->tensors()) {
    if (used.contains(t.name)) continue;
    bool known = std::ranges::count(tied_heads_, t.name) > 0;
    for (const std::string_view pattern : map_->family().unused)
      known = known || base::glob_match(pattern, t.name);
    if (is_of_other_part(map_->family(), t)) known = true, ++of_other_parts;
    for (int64_t i = 0; i < predict_layers; ++i)
      if (t.name.starts_with(fmt::format("{}layers.{}.", map_->prefix(), model.layers + i)))
        known = true, ++left_out;
    if (!known) problems.push_back(fmt::format("{} is unexpected: the model has no such parameter", t.name));
  }
  if (!problems.empty()) {
    const size_t listed = std::min(problems.size(), kMaxListed);
    const std::vector<std::string> first(problems.begin(), problems.begin() + static_cast<ptrdiff_t>(listed));
    base::fail_user("the weights in '{}' are not those of its config.json:\n  {}{}", source_->path().string(),
                    fmt::join(first, "\n  "),
                    problems.size() > listed ? fmt::format("\n  and {} more", problems.size() - listed) : "");
  }
  if (of_other_parts > 0)
    notes_.push_back(fmt::format(
        "{} tensors of the parts for images are left out: the text part is trained. An export has them again",
        of_other_parts));
  if (left_out > 0 && model.mtp.layers == 0)
    notes_.push_back(fmt::format(
        "{} tensors of the layers for multi-token prediction are left out; model.mtp.layers = 1 trains them",
        left_out));
}

bool ModelFolder::is_equal(const TensorInfo& a, const TensorInfo& b) {
  if (a.shape != b.shape || a.dtype != b.dtype) return false;
  const int64_t size = base::size_of(a.dtype), step = WeightReader::kBufferBytes / size;
  std::vector<std::byte> x, y;
  for (int64_t at = 0; at < a.count(); at += step) {
    const int64_t n = std::min(step, a.count() - at);
    x.resize(static_cast<size_t>(n * size)), y.resize(x.size());
    source_->read(a, at, x), source_->read(b, at, y);
    if (std::memcmp(x.data(), y.data(), x.size()) != 0) return false;
  }
  return true;
}

void ModelFolder::check_copies() {
  const auto stored = [&](const std::string& ours) -> const TensorInfo& {
    return *source_->find(map_->theirs()[map_->find(ours)->front().theirs].name);
  };
  for (const std::string& name : tied_heads_) {
    const TensorInfo* const head = source_->find(name);
    if (head != nullptr && map_->find("embed.weight") != nullptr && !is_equal(*head, stored("embed.weight")))
      base::fail_user(
          "'{}': config.json has tie_word_embeddings = true, but {} differs from {}; set it to false to "
          "train both, or remove {}",
          source_->path().string(), name, stored("embed.weight").name, name);
  }
  for (const TheirTensor& t : map_->theirs()) {
    if (!t.copy) continue;
    const TensorInfo& original = stored(map_->ours()[t.links[0].ours].name);
    if (!is_equal(*source_->find(t.name), original))
      base::fail_user(
          "'{}': {} differs from {}, but the model has one parameter for both{}", source_->path().string(),
          t.name, original.name,
          t.name.starts_with(map_->prefix() + "layers.")
              ? ": multi-token prediction shares its embedding and head. Leave model.mtp.layers out to train "
                "without it"
              : "");
  }
}

}  // namespace quintet::hf
