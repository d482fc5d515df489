// NumPy's .npy files with one dimension: token ids, or a number per document.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "data/corpus.h"

namespace quintet::data {

// What a .npy file's header says.
struct NpyHeader {
  char kind = 0;       // 'u', 'i', 'f'
  int64_t width = 0;   // bytes of an element
  int64_t count = 0;   // elements
  size_t data_at = 0;  // where they begin
};

// Reads versions 1 to 3 of the format. UserError, naming `name`, for anything but a little-endian array of
// one dimension whose elements are all there.
NpyHeader parse_npy(std::span<const std::byte> file, const std::string& name);

bool is_npy_file(const base::Path& path);

// One document of uint8, uint16, uint32, int32 or int64 ids. The file is mapped, except for int64, which is
// read into memory. Ids beyond `vocab` are found when they are read.
Corpus open_npy_file(const base::Path& path, int64_t vocab);

// What comes before `count` little-endian doubles.
std::string npy_header(int64_t count);

// The numbers of a file of integers or floating-point numbers.
std::vector<double> read_npy_numbers(const base::Path& path);

}  // namespace quintet::data
