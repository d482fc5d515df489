// One host allocation that holds every buffer of a plan; buffers are offsets into it.
#pragma once

#include <cstddef>

#include "base/ids.h"

namespace quintet::device {

// The memory is zeroed, private to the process, and aligned to 2 MiB so that the kernel can back it with huge
// pages; pages are committed on first touch. Throws UserError if the system refuses the size. A size of 0
// gives data() == nullptr.
class Arena {
 public:
  explicit Arena(base::Bytes size);
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* data() const { return data_; }
  base::Bytes size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  base::Bytes size_;
};

}  // namespace quintet::device
