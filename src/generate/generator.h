// Generates text with one rank's part of a model: prompts are prefilled one by one and decoded together, as
// many as there are sequences in the cache; a sequence that ends makes room for the next prompt.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "compiler/compile.h"
#include "generate/source.h"
#include "train/rank.h"

namespace quintet::generate {

struct Request {
  std::vector<int32_t> prompt;  // at least one token
  int64_t new_tokens = 0;
  // Selects, with the seed, its random numbers: the same in any batch. See number_requests().
  int32_t number = 0;
};

// Numbers that depend on the prompt and on how often it occurred before, not on the other prompts.
void number_requests(std::vector<Request>& requests);

enum class Finish : uint8_t { Length, Stop };  // all new tokens; the caller stopped it

struct GeneratorOptions {
  int64_t batch = 32;      // sequences decoded at once, at most
  int64_t page_rows = 64;  // positions in a page of the cache
  graph::Sampling sampling = {};
  int threads = 1;
  bool poison = false;  // see exec::ExecutorOptions
  int64_t local_rank = 0;
  bool draw = true;  // see train::RankOptions
  bool capture = true;
  std::function<void(const std::string&)> log = {};
};

// The program for these requests: a Prefill for every padded length, a Decode for every number of sequences
// of a ladder (powers of two), and pages for the longest of them. UserError when the model cannot hold them.
compiler::Serving serving_for(const config::Recipe& recipe, std::span<const Request> requests,
                              const GeneratorOptions& options);

struct Times {
  int64_t prefill_ns = 0, decode_ns = 0;
  int64_t prompts = 0, prompt_tokens = 0, steps = 0, new_tokens = 0;
  std::vector<int64_t> step_ns;
};

class Generator {
 public:
  // Compiles, allocates and draws the weights. Collective over the world.
  Generator(const config::Recipe& recipe, comm::World& world, compiler::Serving serving,
            const GeneratorOptions& options);

  train::Rank& rank() { return rank_; }
  const compiler::Serving& serving() const { return serving_; }
  int64_t cache_bytes() const;  // of this rank

  // Called with every new token, in the order of time; true ends the sequence. Must give all ranks of a world
  // the same answer.
  using OnToken = std::function<bool(size_t request, int32_t id)>;
  std::vector<Finish> run(std::span<const Request> requests, const OnToken& on_token, Times* times = nullptr);

  // For tests: the logits of which the tokens were chosen last, by row.
  std::vector<double> logits(int64_t row);

 private:
  struct Sequence {
    size_t request;
    int32_t slot;
    std::vector<int32_t> pages;
    int32_t last = 0;      // token
    int64_t position = 0;  // of `last`
    int64_t made = 0;      // new tokens
  };

  Sequence admit(size_t index, const Request& request);
  void prefill(Sequence& sequence, const Request& request);
  void decode(std::vector<Sequence>& active, std::span<const Request> requests);
  void release(const Sequence& sequence);
  const program::Expanded& entry(graph::Mode mode, int64_t rows) const;
  std::vector<int32_t> answers(int64_t rows);

  compiler::Serving serving_;
  train::Rank rank_;
  int64_t vocab_;
  base::DType dtype_;
  std::vector<int32_t> table_;  // the page table
  std::vector<int32_t> free_pages_, free_slots_;
};

}  // namespace quintet::generate
