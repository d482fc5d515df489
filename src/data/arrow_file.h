// Arrow IPC files, as Hugging Face `datasets` saves them (save_to_disk: state.json, dataset_info.json and
// data-*.arrow). A small reader of the format: uncompressed record batches of a column "input_ids" (lists
// of integers) or "text" (strings). Beside input_ids, "labels" (the id, or -100 where a token is not
// trained) and "completion_mask", "assistant_masks" and "loss_mask" (1 where it is) say what is trained,
// and "attention_mask" what is padding, which is left out; other columns are skipped. Everything is checked
// before it is read, so a damaged file is a UserError.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/file.h"
#include "data/open_corpus.h"

namespace quintet::data {

struct ArrowRows {
  std::function<void(std::string_view)> text;  // a row of "text"
  // A row of "input_ids", which is preferred, without its padding; and a flag per id, or none where no column
  // says what is trained.
  std::function<void(std::span<const int32_t>, std::span<const uint8_t> trained)> tokens;
};

// Visits the rows of a file in stream or file format, in order. UserError, naming `name`, when it has neither
// column, is compressed or damaged, or has a null in the column.
void read_arrow(std::span<const std::byte> file, const std::string& name, const ArrowRows& rows);

// Whether a folder was written by `datasets`.
bool is_datasets_folder(const base::Path& folder);
// A document per row; text is tokenised, and `end` put after it.
Opened read_datasets_folder(const base::Path& folder, const tokenizer::Tokenizer& tokenizer,
                            std::optional<int32_t> end = {});

}  // namespace quintet::data
