// The entries of a zip archive that are stored as they are, as torch.save writes them.
#pragma once

#include <map>
#include <string>

#include "base/file_system.h"

namespace quintet::hf {

struct ZipEntry {
  int64_t begin = 0, bytes = 0;  // of the file
};
// The archive in bytes [begin, end) of a file. UserError for anything else, and for compressed entries.
std::map<std::string, ZipEntry> read_zip(const base::InputFile& file, int64_t begin, int64_t end);

}  // namespace quintet::hf
