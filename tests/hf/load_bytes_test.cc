// What loading a folder costs: bytes of files, and memory beside the weights themselves. This program
// counts the bytes that operator new has handed out.
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <new>

#include "checkpoint/reader.h"
#include "comm/local.h"
#include "support/hf_folders.h"
#include "train/load_hf.h"
#include "train/saved_state.h"

namespace {
std::atomic<int64_t> live_bytes = 0, peak_bytes = 0;

void* counted(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  const int64_t now = live_bytes += static_cast<int64_t>(malloc_usable_size(memory));
  int64_t peak = peak_bytes.load();
  while (now > peak && !peak_bytes.compare_exchange_weak(peak, now)) {
  }
  return memory;
}
void freed(void* memory) {
  if (memory != nullptr) live_bytes -= static_cast<int64_t>(malloc_usable_size(memory));
  std::free(memory);
}
}  // namespace

// Not inlined: a compiler that sees free() but not the malloc() behind new reports a mismatch.
[[gnu::noinline]] void* operator new(std::size_t size) { return counted(std::malloc(size)); }
[[gnu::noinline]] void operator delete(void* memory) noexcept { freed(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { freed(memory); }

namespace quintet {
namespace {

using test::TempFolder;

constexpr int64_t kMiB = int64_t{1} << 20;

// A folder of zeros in bf16 with the tensors that the config needs.
void write_zeros(const base::Path& folder, const std::string& config_text) {
  const std::vector<checkpoint::TensorInfo> theirs = test::begin_folder(folder, config_text);
  checkpoint::write_safetensors(
      (folder / "model.safetensors").string(), theirs, {},
      [](size_t, std::span<std::byte> out) { std::ranges::fill(out, std::byte{0}); });
}

struct Loaded {
  int64_t read = 0;      // bytes of files
  int64_t expected = 0;  // those of the rank's elements, twice for those that alternate with others
  int64_t share = 0;     // those of the rank's elements
};

std::vector<Loaded> loads_of(const base::Path& folder, std::vector<std::string> layout, int64_t ep = 1,
                             int64_t etp = 1) {
  layout.insert(layout.end(), {"model.heads=8", "model.kv_heads=8"});  // what the layout is checked against
  config::Recipe recipe = test::golden_recipe(folder, layout);
  recipe.precision = config::Precision::of(base::DType::F32);
  recipe.parallel.ep = ep, recipe.parallel.etp = etp;
  std::vector<Loaded> all(static_cast<size_t>(recipe.parallel.world()));
  comm::run_local_world(static_cast<int>(recipe.parallel.world()), [&](comm::World& world) {
    train::Rank rank(recipe, world, {.draw = false});
    hf::ModelFolder files(recipe.model.hf, recipe.model, train::model_tensors(rank));
    Loaded& mine = all[static_cast<size_t>(world.rank().value)];
    mine.read = train::load_hf(rank, files).bytes_read;
    for (const train::StatePiece& piece : train::state_pieces(rank, train::Holding::All)) {
      const std::string& name = piece.saved.tensor.name;
      if (files.map().find(name) == nullptr) continue;
      const int64_t bytes = 2 * piece.saved.region.count;
      const bool alternates =
          recipe.model.attention_sinks &&
          (name.find("experts.gate.") != std::string::npos || name.find("experts.up.") != std::string::npos);
      mine.share += bytes, mine.expected += alternates ? 2 * bytes : bytes;
    }
  });
  return all;
}

// Files in which every rank's elements are long runs: what is read is what is stored, to the byte.
TEST(HfLoadBytes, RanksReadTheirBytesAndNoOthers) {
  const TempFolder temp;
  write_zeros(temp / "llama",
              R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 512,
      "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 8, "intermediate_size": 2048,
      "vocab_size": 64, "rms_norm_eps": 1e-05})");
  for (const auto& layout :
       std::vector<std::vector<std::string>>{{},
                                             {"parallel.tp=8"},
                                             {"parallel.pp=2", "parallel.dp_shard=2", "parallel.zero=1"},
                                             {"parallel.tp=2", "parallel.dp_shard=4", "parallel.zero=3"}})
    for (const Loaded& l : loads_of(temp / "llama", layout)) {
      EXPECT_EQ(l.read, l.share) << (layout.empty() ? "one rank" : layout[0]);
      EXPECT_GT(l.share, 0);
    }
}

// GPT-OSS stores matrices transposed, gate and up element by element: each is read with the other, and
// nothing else is. What a layout cuts in the file's innermost dim is read in parts.
TEST(HfLoadBytes, AlternatingMatricesAreReadTwice) {
  const TempFolder temp;
  write_zeros(temp / "oss",
              R"({"model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"], "hidden_size": 512,
      "num_hidden_layers": 1, "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 64,
      "intermediate_size": 1024, "num_local_experts": 4, "num_experts_per_tok": 2, "vocab_size": 64,
      "sliding_window": 7})");
  for (const auto& [layout, ep, etp] : std::vector<std::tuple<std::vector<std::string>, int64_t, int64_t>>{
           {{}, 1, 1},
           {{"parallel.tp=8"}, 1, 8},
           {{"parallel.tp=2", "parallel.dp_shard=4", "parallel.zero=3"}, 2, 2},
           {{"parallel.dp_shard=4", "parallel.zero=3"}, 4, 1}})
    for (const Loaded& l : loads_of(temp / "oss", layout, ep, etp)) {
      const std::string name = layout.empty() ? "one rank" : layout[0];
      EXPECT_GE(l.read, l.share) << name;
      EXPECT_LE(static_cast<double>(l.read), 1.01 * static_cast<double>(l.expected)) << name;
      EXPECT_LT(l.expected, 2 * l.share) << name;
    }
}

// Whatever the size of the model: a buffer for each thread that reads.
TEST(HfLoadBytes, MemoryBesideTheWeightsIsBounded) {
  const TempFolder temp;
  write_zeros(temp / "wide",
              R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 1024,
      "num_hidden_layers": 1, "num_attention_heads": 8, "intermediate_size": 1024, "vocab_size": 20000,
      "rms_norm_eps": 1e-05})");
  for (const base::DType compute : {base::DType::F32, base::DType::BF16}) {
    config::Recipe recipe = test::golden_recipe(temp / "wide");
    recipe.precision = config::Precision::of(compute);
    comm::run_local_world(1, [&](comm::World& world) {
      train::Rank rank(recipe, world, {.draw = false});
      hf::ModelFolder files(recipe.model.hf, recipe.model, train::model_tensors(rank));
      const int64_t before = peak_bytes = live_bytes.load();
      const train::HfLoad load = train::load_hf(rank, files);
      const int64_t used = peak_bytes - before;
      int64_t bound = hf::WeightReader::kBufferBytes;
      if (compute == base::DType::BF16)
        bound += train::kWriteBytes;  // a master in halves is put together first
      EXPECT_LE(used, checkpoint::kReadThreads * bound + kMiB);
      EXPECT_GT(load.bytes_stored, 150 * kMiB);
      EXPECT_GT(used, 0) << "allocations are counted";
    });
  }
}

}  // namespace
}  // namespace quintet
