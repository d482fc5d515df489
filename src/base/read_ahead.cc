#include "base/read_ahead.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace quintet::base {

void will_read(std::span<const std::byte> mapped) {
  if (mapped.empty()) return;
  static const auto kPage = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(mapped.data()) / kPage * kPage;
  const auto end = reinterpret_cast<uintptr_t>(mapped.data()) + mapped.size();
  // A hint: a failure changes nothing.
  (void)::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_WILLNEED);
}

void have_read(std::span<const std::byte> mapped) {
  if (!mapped.empty()) (void)::madvise(const_cast<std::byte*>(mapped.data()), mapped.size(), MADV_DONTNEED);
}

}  // namespace quintet::base
