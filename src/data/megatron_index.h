// The index of Megatron's pair, <prefix>.idx: one sequence per document.
#pragma once

#include <cstdint>
#include <functional>

#include "base/file.h"
#include "data/corpus.h"

namespace quintet::data {

// The width that Megatron's own tool chooses: 16 bits where ids fit, else 32.
TokenWidth megatron_width_for(int64_t vocab);

// Writes the whole index; `for_each_length` calls its argument with the tokens of each of `documents`
// documents in order, and is called once per table, so that nothing is held.
using ForEachLength = std::function<void(const std::function<void(int32_t)>&)>;
void write_megatron_index(base::AtomicFile& idx, TokenWidth width, int64_t documents,
                          const ForEachLength& for_each_length);

}  // namespace quintet::data
