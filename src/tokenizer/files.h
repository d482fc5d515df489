// The file that a tokenizer is loaded from.
#pragma once

#include <string>

#include "base/file.h"

namespace quintet::tokenizer {

// The file of load_tokenizer's argument: itself, or the one in the folder that it names. UserError if there
// is none.
base::Path tokenizer_file(const std::string& path);

// What identifies a tokenizer wherever its file lies: "bytes", or XXH3-128 of the file in hexadecimal digits.
std::string fingerprint(const std::string& name_or_path);

}  // namespace quintet::tokenizer
