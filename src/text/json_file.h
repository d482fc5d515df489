// What a .json file holds, by its contents: data sets are published as JSON lines under that name (C4, Dolma)
// and as one array (Alpaca, ShareGPT), and source trees have .json files that are text like any other.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/record_reader.h"

namespace quintet::text {

enum class JsonShape {
  Other,   // no objects, or not JSON
  Single,  // one object, and nothing after it that could be another
  Lines,   // objects, one per line
  Stream,  // objects one after another that span lines
  Array,   // an array that is not empty
};
struct JsonPeek {
  JsonShape shape = JsonShape::Other;
  std::string first;  // the first value; empty when it is longer than is looked at
};
// Reads the beginning of a file, decompressed. What cannot be restored is Other: reading it says why.
JsonPeek peek_json(const base::Path& path);

// The objects of an array, or of a stream, from a position on. `number` counts them from 1. A file that
// breaks off, or whose array is not well formed between its elements, is a DamagedFile.
std::unique_ptr<FileRecords> open_json_values(const base::Path& path, const Position& start);

}  // namespace quintet::text
