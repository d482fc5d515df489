#include "tools/model_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/convert.h"
#include "base/error.h"
#include "base/json.h"
#include "base/output_path.h"
#include "base/text.h"
#include "checkpoint/store.h"
#include "comm/local.h"
#include "config/hf/config.h"
#include "config/parse.h"
#include "generate/special_tokens.h"
#include "hf/checkpoint_source.h"
#include "hf/diff.h"
#include "hf/folder_writer.h"
#include "hf/mapped_source.h"
#include "hf/model_folder.h"
#include "tokenizer/tokenizer.h"
#include "tools/exported_tokenizer.h"
#include "train/load_hf.h"
#include "train/loop.h"
#include "train/resume.h"
#include "train/run_state.h"

namespace quintet::tools {

using base::DType;
using checkpoint::TensorInfo;

namespace {

constexpr const char* kGenerationConfig = "generation_config.json";
constexpr const char* kTokenizerConfig = "tokenizer_config.json";

// What travels with the weights, where it exists.
constexpr const char* kCompanions[] = {kGenerationConfig,
                                       "tokenizer.json",
                                       kTokenizerConfig,
                                       "tokenizer.model",
                                       "special_tokens_map.json",
                                       "added_tokens.json",
                                       "vocab.json",
                                       "merges.txt",
                                       "vocab.txt",
                                       "chat_template.jinja",
                                       "chat_template.json",
                                       "preprocessor_config.json"};

std::vector<base::Path> companions(const base::Path& folder) {
  std::vector<base::Path> files;
  for (const char* name : kCompanions)
    if (base::file_exists(folder / name)) files.push_back(folder / name);
  for (const base::Path& entry : base::list_folder(folder))
    if (entry.extension() == ".tiktoken" || entry.extension() == ".py")  // what auto_map in config.json names
      files.push_back(folder / entry.filename());
  return files;
}

bool is_generation_config(const base::Path& p) { return p.filename() == kGenerationConfig; }

// Unless one is copied. Without special tokens it refers to config.json, which has those of the original.
void with_generation_config(hf::FolderOptions& folder, const std::optional<generate::SpecialTokens>& tokens) {
  if (std::any_of(folder.copies.begin(), folder.copies.end(), is_generation_config)) return;
  const std::string from_model = base::json_text({{"_from_model_config", true}}, 1) + "\n";
  folder.texts[kGenerationConfig] = tokens ? with_special_tokens(from_model, *tokens) : from_model;
}

const char* torch_name(DType t) {
  return t == DType::F64    ? "float64"
         : t == DType::F32  ? "float32"
         : t == DType::BF16 ? "bfloat16"
                            : "float16";
}

// The model of a run or checkpoint, under our names.
struct OwnModel {
  std::unique_ptr<hf::TensorSource> source;
  config::Recipe recipe;
};

OwnModel open_own(const base::Path& path, std::optional<int64_t> step) {
  auto source = std::make_unique<hf::CheckpointSource>(train::find_checkpoint(path, step));
  const std::string name = source->path().string();
  const train::RunState state = train::parse_run_state(source->manifest().run, name);
  return {.source = std::move(source), .recipe = config::parse(state.recipe, {}, name)};
}

// A run's model as the files of its family have it.
struct Exported {
  std::unique_ptr<hf::MappedSource> source;
  config::Recipe recipe;
  base::Path original;  // the folder that it started from; empty when there is none
  std::shared_ptr<hf::TensorSource> original_tensors;
  std::string config;  // of that folder
};

Exported as_exported(const base::Path& path, const ConvertOptions& options) {
  OwnModel own = open_own(path, options.step);
  const config::Model& model = own.recipe.model;
  if (model.family == config::Family::Custom)
    base::fail_user("'{}' is a custom model, for which Hugging Face has no family", path.string());
  Exported e{
      .source = nullptr, .recipe = own.recipe, .original = {}, .original_tensors = nullptr, .config = {}};
  const config::HfFamily* family = nullptr;
  if (!model.hf.empty() && base::file_exists(base::Path(model.hf) / config::kHfConfigFile)) {
    e.original = model.hf;
    e.config = base::read_file(e.original / config::kHfConfigFile);
    if (!model.moe.upcycle) {  // else the folder has another, dense family
      family = config::read_hf_config(e.config).family;
      e.original_tensors = hf::open_tensors(e.original);
    }
  } else if (!model.hf.empty() && options.log) {
    options.log(fmt::format(
        "note: '{}', where the run started, is gone: config.json is generated from the recipe", model.hf));
  }
  std::string why_not;
  if (family == nullptr) family = config::hf_family_of(model, &why_not);
  if (family == nullptr) base::fail_user("'{}' cannot be exported: {}", path.string(), why_not);
  hf::NameMap::Has has;
  if (e.original_tensors)
    has = [&](const std::string& name) { return e.original_tensors->find(name) != nullptr; };
  const std::vector<TensorInfo> ours = own.source->tensors();
  e.source = std::make_unique<hf::MappedSource>(std::move(own.source), hf::NameMap(*family, model, ours, has),
                                                e.original_tensors);
  return e;
}

// A folder must be new or empty; a file may be replaced if that was asked for.
void require_target(const base::Path& to, const ConvertOptions& options) {
  if (to.string().ends_with(".safetensors")) return base::require_new_file("TO", to, options.overwrite);
  if (options.overwrite)
    base::fail_user("--overwrite replaces a .safetensors file, but '{}' names a folder, which must be new",
                    to.string());
  hf::require_new(to);
}

std::string folder_line(const base::Path& to, const hf::WrittenFolder& w) {
  return fmt::format("{}: {} tensors, {} in {} file{}", to.string(), w.tensors, base::human_bytes(w.bytes),
                     w.files, w.files == 1 ? "" : "s");
}

// The tokenizer's files and the ids of special tokens: those of the folder that the model started from, or
// of the recipe's tokenizer.
void add_tokenizer(const Exported& e, const ConvertOptions& options, hf::FolderOptions& folder) {
  const base::Path given(e.recipe.data.tokenizer);
  const bool in_folder =
      given.filename() == "tokenizer.json" && base::file_exists(given.parent_path() / kTokenizerConfig);
  const base::Path source = !e.original.empty() ? e.original : in_folder ? given.parent_path() : given;
  if (base::directory_exists(source)) folder.copies = companions(source);
  if (!e.original.empty() && !e.recipe.model.moe.upcycle) return with_generation_config(folder, {});
  if (e.original.empty()) std::erase_if(folder.copies, is_generation_config);  // of another model
  const bool is_there = tokenizer::names_byte_tokenizer(e.recipe.data.tokenizer) ||
                        base::file_exists(given) || base::directory_exists(given);
  if (!base::directory_exists(source)) {
    auto texts = tokenizer_texts(e.recipe);
    if (texts.empty() && options.log)
      options.log(
          is_there ? fmt::format("note: {} has no form that transformers reads: the folder has no tokenizer",
                                 e.recipe.data.tokenizer)
                   : fmt::format("note: data.tokenizer '{}' does not exist: the folder has no tokenizer and "
                                 "no ids of special tokens, so that text does not end by itself",
                                 e.recipe.data.tokenizer));
    folder.texts.merge(texts);
  }
  if (!is_there) return with_generation_config(folder, {});
  const auto tokens = generate::special_tokens(e.recipe, *tokenizer::load_tokenizer(e.recipe.data.tokenizer));
  std::string& config = folder.texts.at(config::kHfConfigFile);
  config = with_special_tokens(config, tokens);
  with_generation_config(folder, tokens);
}

}  // namespace

std::string export_model(const base::Path& from, const base::Path& to, const ConvertOptions& options) {
  require_target(to, options);
  if (!hf::is_own_checkpoint(from))
    base::fail_user("'{}' is neither a checkpoint nor a run that has one; 'quintet convert' takes folders",
                    from.string());
  const Exported e = as_exported(from, options);
  const DType trained = e.recipe.precision.compute;
  hf::FolderOptions folder{.shard_bytes = options.shard_bytes};
  folder.dtype = [&](const TensorInfo& t) {
    const TensorInfo* const original = e.original_tensors ? e.original_tensors->find(t.name) : nullptr;
    if (original != nullptr && !options.dtype) return original->dtype;
    if (e.source->is_state(t)) return DType::F32;
    return options.dtype.value_or(trained);
  };
  DType main = options.dtype.value_or(trained);
  if (!options.dtype && e.original_tensors)
    for (const TensorInfo& t : e.source->tensors())
      if (const TensorInfo* const o = e.original_tensors->find(t.name)) {
        main = o->dtype;
        break;
      }
  folder.texts[config::kHfConfigFile] = config::hf_config_text(
      e.recipe.model, e.source->map().family(), e.config, torch_name(main), e.recipe.data.seq_len);
  add_tokenizer(e, options, folder);
  return folder_line(to, hf::write_folder(to, *e.source, folder));
}

std::string convert_model(const base::Path& from, const base::Path& to, const ConvertOptions& options) {
  if (hf::is_own_checkpoint(from)) return export_model(from, to, options);
  const bool one_file = to.string().ends_with(".safetensors");
  require_target(to, options);
  if (options.step) base::fail_user("--step applies to a run, which '{}' is not", from.string());
  const std::unique_ptr<hf::TensorSource> source = hf::open_tensors(from);
  hf::FolderOptions folder{.shard_bytes = options.shard_bytes};
  folder.dtype = [&](const TensorInfo& t) { return options.dtype.value_or(t.dtype); };
  if (!one_file && base::directory_exists(from)) {
    folder.copies = companions(from);
    if (const base::Path file = from / config::kHfConfigFile; base::file_exists(file)) {
      nlohmann::ordered_json json = base::parse_ordered_json(base::read_file(file));
      if (!json.is_object()) base::fail_user("{} is not a JSON object", file.string());
      json.erase("quantization_config");
      if (options.dtype)
        json[json.contains("torch_dtype") ? "torch_dtype" : "dtype"] = torch_name(*options.dtype);
      folder.texts[config::kHfConfigFile] = base::json_text(json, 3) + "\n";
    }
  }
  return folder_line(to, hf::write_folder(to, *source, folder)) + fmt::format(" (from a {})", source->kind());
}

DiffReport diff_models(const base::Path& a, const base::Path& b) {
  const bool own_a = hf::is_own_checkpoint(a), own_b = hf::is_own_checkpoint(b);
  const auto opened = [&](const base::Path& path, bool own,
                          bool other_own) -> std::unique_ptr<hf::TensorSource> {
    if (!own) return hf::open_tensors(path);
    if (other_own) return open_own(path, {}).source;
    return std::move(as_exported(path, {}).source);
  };
  std::unique_ptr<hf::TensorSource> x = opened(a, own_a, own_b), y = opened(b, own_b, own_a);
  const bool swapped = own_b && !own_a;  // what is mapped is streamed
  hf::Difference d = swapped ? hf::compare(*y, *x) : hf::compare(*x, *y);
  if (swapped) {
    std::swap(d.only_a, d.only_b);
    for (hf::TensorDifference& t : d.tensors) std::swap(t.a, t.b);
  }
  DiffReport report{.equal = d.is_equal(), .text = {}, .json = {}};
  nlohmann::ordered_json json = {{"equal", report.equal},  {"compared", d.compared},
                                 {"elements", d.elements}, {"only_a", d.only_a},
                                 {"only_b", d.only_b},     {"different", nlohmann::json::array()}};
  const hf::TensorDifference* worst = nullptr;
  for (const hf::TensorDifference& t : d.tensors) {
    json["different"].push_back({{"name", t.name},
                                 {"what", t.what},
                                 {"elements", t.elements},
                                 {"largest", t.largest},
                                 {"index", t.at},
                                 {"a", t.a},
                                 {"b", t.b}});
    if (t.what.empty() && (worst == nullptr || t.largest > worst->largest)) worst = &t;
  }
  const auto describe = [](const hf::TensorDifference& t) {
    if (!t.what.empty()) return t.name + ": " + t.what;
    return fmt::format("{}: {} elements differ; largest difference {:g} at element {}: {} and {}", t.name,
                       t.elements, t.largest, t.at, t.a, t.b);
  };
  const auto listed = [&](const std::vector<std::string>& names, const base::Path& where) {
    if (names.empty()) return;
    const size_t shown = std::min<size_t>(names.size(), 5);
    report.text += fmt::format("only in {}: {}{}\n", where.string(),
                               fmt::join(names.begin(), names.begin() + static_cast<ptrdiff_t>(shown), ", "),
                               names.size() > shown ? fmt::format(" and {} more", names.size() - shown) : "");
  };
  listed(d.only_a, a), listed(d.only_b, b);
  if (!d.tensors.empty()) report.text += "first different tensor: " + describe(d.tensors.front()) + "\n";
  if (worst != nullptr && worst != &d.tensors.front())
    report.text += "largest difference: " + describe(*worst) + "\n";
  if (!d.types.empty())
    report.text += fmt::format("{} tensors have equal values and another type, such as {}\n", d.types.size(),
                               d.types[0]);
  report.text +=
      report.equal ? fmt::format("equal: {} tensors, {} elements\n", d.compared, base::thousands(d.elements))
                   : fmt::format("{} of {} tensors differ\n", d.tensors.size(), d.compared);
  report.json = base::json_text(json, 2) + "\n";
  return report;
}

void write_logits(config::Recipe recipe, const std::vector<int32_t>& ids, const base::Path& out) {
  if (recipe.model.hf.empty()) base::fail_user("logits needs model.hf, the folder with the weights");
  const auto rows = static_cast<int64_t>(ids.size()), vocab = recipe.model.vocab;
  if (rows < 1) base::fail_user("no ids are given");
  for (const int32_t id : ids)
    if (id < 0 || id >= vocab) base::fail_user("id {} is outside the vocabulary of {}", id, vocab);
  recipe.parallel = {};
  recipe.batch = {.global = 1, .micro = 1, .accumulation = 1};
  recipe.precision = config::Precision::of(recipe.precision.compute);
  recipe.optimizer.groups.clear();
  recipe.data.seq_len = rows;
  comm::run_local_world(1, [&](comm::World& world) {
    train::Rank rank(recipe, world,
                     {.threads = train::kernel_threads(recipe, 1), .infer = true, .draw = false});
    hf::ModelFolder folder(recipe.model.hf, recipe.model, train::model_tensors(rank));
    folder.check_copies();
    train::load_hf(rank, folder);
    rank.executor().run(rank.compiled().step, [&](int, const auto& inputs) {
      for (const auto& [spec, data] : inputs)
        for (int64_t i = 0; i < rows; ++i) {
          using graph::InputKind;
          data[i] = spec.kind == InputKind::Ids         ? ids[static_cast<size_t>(i)]
                    : spec.kind == InputKind::Labels    ? -1
                    : spec.kind == InputKind::Positions ? static_cast<int32_t>(i)
                                                        : 0;
        }
    });
    const int64_t bytes = rows * vocab * base::size_of(recipe.precision.compute);
    const exec::HostBytes result = rank.executor().read({rank.compiled().program.result, 0, bytes});
    checkpoint::write_safetensors(
        out.string(), {{.name = "logits", .dtype = recipe.precision.compute, .shape = {rows, vocab}}}, {},
        [&](size_t, std::span<std::byte> to) { std::copy_n(result.data(), to.size(), to.data()); });
  });
}

}  // namespace quintet::tools
