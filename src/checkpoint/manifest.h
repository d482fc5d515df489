// The manifest of a checkpoint: every tensor, where its pieces are, and the state of the run that is not a
// tensor. Grammar: docs/formats/checkpoint.md. A manifest is untrusted input: parse_manifest() accepts only
// what is consistent, so that readers need no further checks.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "checkpoint/piece_list.h"
#include "checkpoint/safetensors.h"

namespace quintet::checkpoint {

using Json = nlohmann::ordered_json;

inline constexpr const char* kManifestFile = "manifest.json";
inline constexpr int64_t kChunkBytes = int64_t{8} << 20;  // that one checksum covers

struct SavedTensor {
  TensorInfo info;
  PieceList pieces;  // every element is in exactly one
};

struct ShardFile {
  std::string name;  // in the checkpoint's folder
  int64_t bytes = 0;
  int64_t header_bytes = 0;  // before the first tensor
  uint64_t header_sum = 0;   // XXH3-64 of them
};

struct Manifest {
  int64_t step = 0;
  int64_t chunk_bytes = kChunkBytes;
  Json run = Json::object();  // everything that is not a tensor; see train/run_state.h
  std::vector<ShardFile> files;
  std::vector<SavedTensor> tensors;

  const SavedTensor* find(std::string_view name) const;  // null when absent
  int64_t tensor_bytes() const;
};

std::string to_text(const Manifest& manifest);
// The text of a manifest's file. UserError for a file that is too large to be one.
std::string read_manifest(const base::Path& file);
inline constexpr int64_t kLargestManifest = int64_t{4} << 30;
// `source` is for messages. UserError for anything that is not a manifest of this version, has another
// checksum than it says, or contradicts itself. Holds no more than the result in addition to the text.
Manifest parse_manifest(std::string_view text, const std::string& source);

// Whether a file or folder name cannot leave its folder: letters, digits, '.', '_' and '-', and no '.' first.
bool is_plain_name(std::string_view name);

// Whether a tensor is a state of a parameter ("<parameter>/<state>": moments, averages) or of the optimizer.
// Others are the model: parameters and router biases.
bool is_state_name(std::string_view name);

// A region as JSON, without what the tensor's shape implies; and back. `shape` is the tensor's. The second
// throws nlohmann's exceptions and does not check is_valid().
Json region_json(const Region& region, const std::vector<int64_t>& shape);
Region region_of(const Json& json, const std::vector<int64_t>& shape);

std::string sum_text(uint64_t sum);                        // 16 hexadecimal digits
std::optional<uint64_t> parse_sum(std::string_view text);  // empty for anything else

}  // namespace quintet::checkpoint
