// Ops of text generation (ops/cache.cc), the dims of caches, and the inputs that only such graphs have.
#pragma once

#include "graph/op.h"

namespace quintet::graph {

extern const OpDef kCacheAppend, kCachedAttention, kTakeRows, kSample, kLogProb;

Dim pages_dim();      // pages of a cache; also the entries of its page table
Dim page_rows_dim();  // positions in one page

// A state that holds rows of earlier positions: [pages, page_rows, ...]. It is never saved.
bool is_cache(const Value& value);

InputSpec sequences_input();   // i32[tokens]: the row of the page table; -1: of no sequence
InputSpec page_table_input();  // i32[pages]: the pages of each sequence, one after another; -1: none
InputSpec last_rows_input();   // i32[tokens=n]: the rows whose logits are wanted

}  // namespace quintet::graph
