// What each collection of published runs leaves unsaid, in one table: the software that ran, the network, and
// the defaults of that software.
#pragma once

#include <string_view>

#include "config/recipe.h"
#include "published/published_run.h"

namespace quintet::published {

// How blocks lie on pipeline stages.
enum class Split { Cost, Even };

struct Source {
  std::string_view collection;  // ids begin with it
  std::string_view stack;       // stacks.toml
  std::string_view network;     // links.toml, of one port; empty: the accelerator's usual one
  double ports_per_device = 1;
  int64_t zero = 0;                // where the row says only how many data-parallel ranks there are
  bool reduce_f32 = true;          // gradients on the wire
  bool chunked_loss = false;       // else all logits of a micro-batch exist at once
  double dropout = 0;              // of GPT models
  int64_t micro = 0;               // where the row names no micro-batch; 0: the row must
  int64_t seq = 0;                 // where the row names no sequence length; 0: the row must
  int64_t chunks = 1;              // of a pipeline rank, where the row names neither schedule nor chunks
  bool numbers_are_zero_3 = true;  // what a plain number of sharding ranks means; else ZeRO-1
  std::string_view recompute;      // where the row names none; the words of the column
  config::ContextMethod context = config::ContextMethod::Ring;
  Split split = Split::Even;
  bool driver_memory = false;         // memory as the driver shows it: with the context and what is cached
  FlopCount flops = FlopCount::Full;  // how the source counts TFLOP/s and MFU
  std::string_view why;               // where these habits are documented
};

// Null where the collection is not in the table.
const Source* find_source(std::string_view collection);

}  // namespace quintet::published
