// Writes a folder of safetensors, as Hugging Face models are published.
#pragma once

#include "hf/tensor_source.h"

namespace quintet::hf {

struct FolderOptions {
  std::function<base::DType(const TensorInfo&)> dtype;  // of each tensor in the files
  int64_t shard_bytes = 5'000'000'000;                  // of a file, unless one tensor takes more
  std::map<std::string, std::string> texts = {};        // other files by name: config.json, ...
  std::vector<base::Path> copies = {};                  // files that are copied
  std::function<void(int64_t bytes)> written = {};      // called after every block
};

struct WrittenFolder {
  int64_t files = 0, tensors = 0, bytes = 0;
};
// The folder appears complete or not at all. It must not exist, or be empty. Memory: two blocks, whatever the
// size of the model. A path that ends with ".safetensors" becomes one file, without texts and copies.
WrittenFolder write_folder(const base::Path& folder, TensorSource& source, const FolderOptions& options);

// UserError unless the folder (or file) may be created.
void require_new(const base::Path& folder);

}  // namespace quintet::hf
