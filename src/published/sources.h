// What each collection of published runs leaves unstated, in one table: the software that ran, the network,
// and the defaults of that software.
#pragma once

#include <string_view>

#include "config/recipe.h"
#include "published/published_run.h"

namespace quintet::published {

// How blocks are assigned to pipeline stages.
enum class Split { Cost, Even };

struct Source {
  std::string_view collection;  // prefix of the row ids
  std::string_view stack;       // in stacks.toml
  std::string_view network;     // in links.toml, per port; empty: the accelerator's default
  double ports_per_device = 1;
  int64_t zero = 0;                    // if the row states only the number of data-parallel ranks
  bool reduce_f32 = true;              // dtype of gradients on the wire
  bool chunked_loss = false;           // otherwise all logits of a micro-batch exist at once
  double dropout = 0;                  // for GPT models
  int64_t micro = 0;                   // if the row states no micro-batch; 0: it must
  int64_t seq = 0;                     // if the row states no sequence length; 0: it must
  int64_t chunks = 1;                  // per pipeline rank, if the row states neither schedule nor chunks
  bool numbers_are_zero_3 = true;      // a bare number of sharding ranks means ZeRO-3; otherwise ZeRO-1
  bool pipelines_gather_once = false;  // with ZeRO-3, parameters are gathered once per step, as with ZeRO-1
  bool experts_span_tensor = false;    // tensor ranks split experts too, unless the row says "Folding"
  bool deepseek_mtp = false;           // its DeepSeek models predict several tokens, unless the row denies it
  std::string_view h100;               // the part that its H100 is; empty: SXM, 80 GB
  std::string_view dualpipe_stack;     // of rows whose schedule is DualPipe; empty: `stack`
  std::string_view recompute;          // if the row states none; in the column's words
  bool selective_by_block = false;     // "selective" recomputes every other block
  config::ContextMethod context = config::ContextMethod::Ring;
  Split split = Split::Even;
  bool driver_memory = false;         // memory as the driver reports it: with context and cached blocks
  FlopCount flops = FlopCount::Full;  // how the source counts TFLOP/s and MFU
  std::string_view why;               // where these defaults are documented
};

// nullptr if the collection is not in the table.
const Source* find_source(std::string_view collection);
// The defaults for rows of any other collection: neutral terms, ZeRO-1, a micro-batch of 1, and one block per
// chunk where the row says "interleaved" without a number of chunks.
const Source& unknown_source();

}  // namespace quintet::published
