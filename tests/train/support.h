// Small runs for tests: a tiny Llama on generated text, in a temporary folder.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/temp_folder.h"
#include "checkpoint/reader.h"
#include "checkpoint/store.h"
#include "config/parse.h"
#include "train/loop.h"

namespace quintet::test {

// About `bytes` of learnable text: words in a fixed order with slight variation.
inline std::string sample_text(size_t bytes) {
  static constexpr const char* kWords[] = {"the ",   "rank ", "sends ", "its ",
                                           "shard ", "to ",   "all ",   "others. "};
  std::string text;
  for (size_t i = 0; text.size() < bytes; ++i) text += kWords[(i + i / 64) % 8];
  return text;
}

inline std::vector<nlohmann::json> read_metrics(const base::Path& path) {
  std::vector<nlohmann::json> records;
  const std::string text = base::read_file(path);
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    if (end == std::string::npos) {
      ADD_FAILURE() << "the last line of " << path << " is truncated";
      break;
    }
    records.push_back(nlohmann::json::parse(text.substr(at, end - at)));
    at = end + 1;
  }
  return records;
}

inline nlohmann::json read_json(const base::Path& path) {
  return nlohmann::json::parse(base::read_file(path));
}

// Every tensor of a checkpoint, or of the newest one of a run folder, whole.
inline std::map<std::string, std::string> tensors_of(const base::Path& path) {
  checkpoint::Reader reader(checkpoint::find_checkpoint(path));
  std::map<std::string, std::string> out;
  for (const checkpoint::SavedTensor& t : reader.manifest().tensors) {
    std::string& bytes = out[t.info.name];
    bytes.resize(static_cast<size_t>(t.info.bytes()));
    reader.read(t, 0, std::as_writable_bytes(std::span(bytes)));
  }
  return out;
}

// A folder with data.txt and recipe.toml: 4 ranks, dp_shard 2 with zero 3, tp 2 with sequence parallel.
class SmallRun {
 public:
  SmallRun() {
    base::write_file_atomically(folder_ / "data.txt", sample_text(20000));
    base::write_file_atomically(recipe_file(), R"(name = "small"
[model]
family = "llama"
layers = 2
embed = 32
ffn = 64
heads = 4
kv_heads = 2
[data]
path = ")" + (folder_ / "data.txt").string() + R"("
seq_len = 32
validation_fraction = 0.1
[batch]
global = 8
micro = 2
[parallel]
dp_shard = 2
zero = 3
tp = 2
sequence_parallel = true
[optimizer]
lr = 1e-2
[run]
steps = 6
threads = 1
dir = ")" + run_dir().string() + R"("
)");
  }

  base::Path recipe_file() const { return folder_ / "recipe.toml"; }
  base::Path run_dir() const { return folder_ / "run"; }
  base::Path operator/(const std::string& name) const { return folder_ / name; }
  train::RunFolder run_folder() const { return train::RunFolder(run_dir()); }

  config::Recipe recipe(const std::vector<std::string>& sets = {}) const {
    return config::load(recipe_file().string(), sets);
  }
  train::RunResult train(const std::vector<std::string>& sets = {},
                         const train::RunOptions& options = {}) const {
    return train::run([&] { return recipe(sets); }, options);
  }

 private:
  TempFolder folder_;
};

inline const std::vector<std::string> kOneRank = {"parallel.dp_shard=1", "parallel.zero=0", "parallel.tp=1",
                                                  "parallel.sequence_parallel=false"};

}  // namespace quintet::test
