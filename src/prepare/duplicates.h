// Documents that repeat earlier ones. The result depends on the documents and their order alone, not on the
// memory.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/checksum.h"
#include "base/file.h"
#include "prepare/minhash.h"

namespace quintet::prepare {

// Indices of dropped documents, ascending, in a file.
class DropList {
 public:
  DropList() = default;
  explicit DropList(const base::Path& path) : file_(base::MappedFile(path)) {}
  std::span<const int64_t> documents() const {
    if (!file_) return {};
    const auto bytes = file_->bytes();
    return {reinterpret_cast<const int64_t*>(bytes.data()), bytes.size() / sizeof(int64_t)};
  }

 private:
  std::optional<base::MappedFile> file_;
};

// Where sorted runs go, and how much is sorted in memory at a time.
struct SortSpace {
  base::Path folder;
  int64_t memory = 0;
};

// Of documents with equal keys all but the first.
DropList find_exact(int64_t documents, const std::function<base::Hash(int64_t)>& key_of,
                    const SortSpace& space);

// A document whose estimated similarity to an earlier one is at least `threshold`. Compared are documents
// that share a band; in a group that shares one, each with the first kSeeds that differ. Documents in
// `skip` are left out.
inline constexpr size_t kSeeds = 16;
using SignatureOf = std::function<std::span<const uint32_t, kHashes>(int64_t)>;
DropList find_near(int64_t documents, const SignatureOf& signature_of, double threshold, const DropList& skip,
                   const SortSpace& space);

}  // namespace quintet::prepare
