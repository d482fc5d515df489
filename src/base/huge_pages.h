// Memory for tables with random access: with pages of 2 MiB, accesses rarely miss the TLB.
//
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>

namespace quintet::base {

// An allocator for std::vector. Asks for huge pages; without them the memory is ordinary.
template <class T>
struct HugePages {
  using value_type = T;
  static constexpr std::align_val_t kAlign{size_t{2} << 20};

  HugePages() = default;
  template <class U>
  HugePages(const HugePages<U>&) {}  // NOLINT(google-explicit-constructor): as the standard's allocators
  T* allocate(size_t count) {
    void* memory = ::operator new(count * sizeof(T), kAlign);
    (void)::madvise(memory, count * sizeof(T), MADV_HUGEPAGE);
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, size_t count) { ::operator delete(memory, count * sizeof(T), kAlign); }
  friend bool operator==(const HugePages&, const HugePages&) { return true; }
};

}  // namespace quintet::base
