#include "device/arena.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace quintet::device {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

int64_t mapped_bytes(int64_t size) { return (size + kHugePage - 1) / kHugePage * kHugePage; }

}  // namespace

Arena::Arena(base::Bytes size) : size_(size) {
  QUINTET_CHECK(size.value >= 0, "an arena of {} bytes", size.value);
  if (size.value == 0) return;
  constexpr int64_t kLargest = INT64_MAX - 4 * kHugePage;
  const int64_t bytes = size.value <= kLargest ? mapped_bytes(size.value) : kLargest;
  // Reserves one huge page more than needed, then unmaps what lies outside the aligned range.
  void* raw = size.value <= kLargest
                  ? mmap(nullptr, static_cast<size_t>(bytes + kHugePage), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                  : (errno = ENOMEM, MAP_FAILED);
  if (raw == MAP_FAILED)
    base::fail_user(
        "cannot reserve {} bytes of host memory: {}; use a smaller micro-batch or shard over more ranks",
        size.value, std::strerror(errno));
  auto* first = static_cast<std::byte*>(raw);
  const auto misfit = static_cast<int64_t>(reinterpret_cast<uintptr_t>(raw) % kHugePage);
  const int64_t head = misfit == 0 ? 0 : kHugePage - misfit;
  if (head > 0) munmap(first, static_cast<size_t>(head));
  if (head < kHugePage) munmap(first + head + bytes, static_cast<size_t>(kHugePage - head));
  data_ = first + head;
  madvise(data_, static_cast<size_t>(bytes),
          MADV_HUGEPAGE);  // A hint: without it the arena uses small pages.
}

Arena::~Arena() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(mapped_bytes(size_.value)));
}

Arena::Arena(Arena&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, base::Bytes(0))) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace quintet::device
