// Hints to the system about mapped files (base::MappedFile).
#pragma once

#include <cstddef>
#include <span>

namespace quintet::base {

// These bytes will be read soon: the system starts to fetch them from the disk. Returns at once; has no
// effect on memory that is not mapped from a file.
void will_read(std::span<const std::byte> mapped);

// A whole file that is mapped for reading is not needed for now: its pages leave the memory of the process.
void have_read(std::span<const std::byte> mapped);

}  // namespace quintet::base
