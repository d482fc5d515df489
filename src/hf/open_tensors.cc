#include <algorithm>
#include <set>

#include "base/error.h"
#include "checkpoint/store.h"
#include "hf/checkpoint_source.h"
#include "hf/safetensors_source.h"
#include "hf/tensor_source.h"
#include "hf/torch_source.h"

namespace quintet::hf {
namespace {

constexpr const char* kSafetensorsIndex = "model.safetensors.index.json";
constexpr const char* kTorchIndex = "pytorch_model.bin.index.json";

std::vector<base::Path> files_with(const base::Path& folder, std::string_view ending) {
  std::vector<base::Path> files;
  for (const base::Path& entry : base::list_folder(folder))
    if (entry.string().ends_with(ending) && base::file_exists(folder / entry.filename()))
      files.push_back(folder / entry.filename());
  return files;
}

// The files that an index names, in order, all of which must exist.
std::vector<base::Path> indexed(const base::Path& folder, const std::map<std::string, std::string>& listed) {
  std::set<std::string> names;
  for (const auto& [tensor, file] : listed) names.insert(file);
  std::vector<base::Path> files;
  std::string missing;
  for (const std::string& name : names) {
    if (!base::file_exists(folder / name)) missing += (missing.empty() ? "" : ", ") + name;
    files.push_back(folder / name);
  }
  if (!missing.empty())
    base::fail_user("'{}' lacks {}, which its index lists; is the download complete?", folder.string(),
                    missing);
  return files;
}

// What to do with a file that others write and that has no reader here; empty for any other name.
std::string remedy_for(const std::string& name) {
  const auto has = [&](std::string_view part) { return name.find(part) != std::string::npos; };
  if (name.ends_with(".gguf"))
    return "is quantised for llama.cpp; take the model's original folder of safetensors instead";
  if (has("zero_pp_rank_") || name.starts_with("global_step") || name == "zero_to_fp32.py")
    return "belongs to a checkpoint of DeepSpeed; make a folder of it with the script that DeepSpeed puts "
           "beside it: python zero_to_fp32.py . OUT --safe_serialization";
  if (name.starts_with("mp_rank_") || name == "latest_checkpointed_iteration.txt")
    return "belongs to a checkpoint of Megatron in its old format (torch); save it with --ckpt-format "
           "torch_dist, or convert it to a Hugging Face folder with Megatron's tools/checkpoint/convert.py";
  if (name.ends_with(".h5") || name.ends_with(".msgpack") || name.ends_with(".npz") ||
      name.ends_with(".onnx"))
    return "has the weights for another framework; take the folder's safetensors, or save the model again "
           "with PyTorch";
  return "";
}

// Which of the two transformers reads depends on its version.
void refuse_both(const base::Path& folder, const char* index, const char* single) {
  if (base::file_exists(folder / index) && base::file_exists(folder / single))
    base::fail_user("'{}' has weights twice: {}, and the shards of {}. Remove those that are out of date",
                    folder.string(), single, index);
}

std::unique_ptr<TensorSource> open_folder(const base::Path& folder) {
  refuse_both(folder, kSafetensorsIndex, "model.safetensors");
  if (base::file_exists(folder / kSafetensorsIndex)) {
    const auto listed = parse_weight_index(base::read_file(folder / kSafetensorsIndex),
                                           (folder / kSafetensorsIndex).string());
    return std::make_unique<SafetensorsSource>(folder, indexed(folder, listed), listed);
  }
  if (base::file_exists(folder / "model.safetensors"))
    return std::make_unique<SafetensorsSource>(folder, std::vector{folder / "model.safetensors"},
                                               std::map<std::string, std::string>());
  if (base::file_exists(folder / ".metadata")) return open_distributed(folder);
  const std::vector<base::Path> tensors = files_with(folder, ".safetensors");
  if (std::any_of(tensors.begin(), tensors.end(), [](const base::Path& p) {
        return p.filename().string().find("-of-") != std::string::npos;
      }))
    base::fail_user("'{}' has {} safetensors files but no {}; is the download complete?", folder.string(),
                    tensors.size(), kSafetensorsIndex);
  if (!tensors.empty())
    return std::make_unique<SafetensorsSource>(folder, tensors, std::map<std::string, std::string>());
  refuse_both(folder, kTorchIndex, "pytorch_model.bin");
  if (base::file_exists(folder / kTorchIndex)) {
    const auto listed =
        parse_weight_index(base::read_file(folder / kTorchIndex), (folder / kTorchIndex).string());
    return open_torch(folder, indexed(folder, listed));
  }
  if (base::file_exists(folder / "pytorch_model.bin"))
    return open_torch(folder, {folder / "pytorch_model.bin"});
  for (const base::Path& entry : base::list_folder(folder))
    if (const std::string remedy = remedy_for(entry.filename().string()); !remedy.empty())
      base::fail_user("'{}' has no weights that can be read: {} {}", folder.string(),
                      entry.filename().string(), remedy);
  const std::vector<base::Path> pickles = files_with(folder, ".bin");
  if (!pickles.empty()) return open_torch(folder, pickles);
  base::fail_user(
      "'{}' has no weights: expected *.safetensors, {}, pytorch_model*.bin, or .metadata of a distributed "
      "checkpoint",
      folder.string(), kSafetensorsIndex);
}

}  // namespace

bool is_own_checkpoint(const base::Path& path) {
  if (base::file_exists(path)) return path.filename() == checkpoint::kManifestFile;
  if (path.filename() == checkpoint::kManifestFile || base::file_exists(path / checkpoint::kManifestFile))
    return true;
  for (const base::Path& folder : {path, path / checkpoint::kStoreFolder})
    if (checkpoint::Store(folder).newest()) return true;
  return false;
}

std::unique_ptr<TensorSource> open_tensors(const base::Path& path) {
  if (base::file_exists(path)) {
    const std::string name = path.filename().string();
    if (name.ends_with(".safetensors"))
      return std::make_unique<SafetensorsSource>(path, std::vector{path},
                                                 std::map<std::string, std::string>());
    for (const char* ending : {".bin", ".pt", ".pth"})
      if (name.ends_with(ending)) return open_torch(path, {path});
    if (const std::string remedy = remedy_for(name); !remedy.empty())
      base::fail_user("'{}' {}", path.string(), remedy);
    if (name != checkpoint::kManifestFile)
      base::fail_user("'{}' is not a file of weights: expected .safetensors, .bin, .pt or .pth",
                      path.string());
  }
  if (is_own_checkpoint(path)) return std::make_unique<CheckpointSource>(checkpoint::find_checkpoint(path));
  if (!base::directory_exists(path)) base::fail_user("'{}' does not exist", path.string());
  return open_folder(path);
}

}  // namespace quintet::hf
