// A hint to the system about mapped files (base::MappedFile).
#pragma once

#include <cstddef>
#include <span>

namespace quintet::base {

// These bytes will be read soon: the system fetches them from the disk meanwhile. Returns at once; has no
// effect on memory that is not of a file.
void will_read(std::span<const std::byte> mapped);

}  // namespace quintet::base
