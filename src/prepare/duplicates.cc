#include "prepare/duplicates.h"

#include <compare>

#include "prepare/external_sort.h"

namespace quintet::prepare {
namespace {

struct KeyedDocument {
  uint64_t high = 0, low = 0;
  int64_t document = 0;
  auto operator<=>(const KeyedDocument&) const = default;
};
struct BandedDocument {
  uint64_t key = 0;
  int64_t document = 0;
  auto operator<=>(const BandedDocument&) const = default;
};

// Sorts the dropped documents, which may repeat, into a file.
DropList drop_list(ExternalSort<int64_t>& dropped, const base::Path& path) {
  base::AtomicFile file(path);
  int64_t last = -1;
  dropped.for_each([&](int64_t document) {
    if (document != last) file.write(std::as_bytes(std::span(&document, 1)));
    last = document;
  });
  file.commit();
  return DropList(path);
}

}  // namespace

DropList find_exact(int64_t documents, const std::function<base::Hash(int64_t)>& key_of,
                    const SortSpace& space) {
  ExternalSort<KeyedDocument> keys(space.folder, "exact", space.memory * 3 / 4);
  for (int64_t i = 0; i < documents; ++i) {
    const base::Hash key = key_of(i);
    keys.add({key.high, key.low, i});
  }
  ExternalSort<int64_t> dropped(space.folder, "exact-dropped", space.memory / 4);
  std::optional<base::Hash> last;
  keys.for_each([&](const KeyedDocument& d) {
    const base::Hash key{.low = d.low, .high = d.high};
    if (last && *last == key) dropped.add(d.document);
    last = key;
  });
  return drop_list(dropped, space.folder / "exact.drop");
}

DropList find_near(int64_t documents, const SignatureOf& signature_of, double threshold, const DropList& skip,
                   const SortSpace& space) {
  const Bands bands = bands_for(threshold);
  ExternalSort<BandedDocument> keys(space.folder, "near", space.memory * 3 / 4);
  auto left_out = skip.documents();
  for (int64_t i = 0; i < documents; ++i) {
    if (!left_out.empty() && left_out.front() == i) {
      left_out = left_out.subspan(1);
      continue;
    }
    for (int band = 0; band < bands.bands; ++band) keys.add({band_key(signature_of(i), bands, band), i});
  }
  ExternalSort<int64_t> dropped(space.folder, "near-dropped", space.memory / 4);
  std::optional<uint64_t> group;
  std::vector<int64_t> seeds;
  keys.for_each([&](const BandedDocument& d) {
    if (group != d.key) seeds.clear();
    group = d.key;
    for (const int64_t seed : seeds)
      if (similarity(signature_of(seed), signature_of(d.document)) >= threshold)
        return dropped.add(d.document);
    if (seeds.size() < kSeeds) seeds.push_back(d.document);
  });
  return drop_list(dropped, space.folder / "near.drop");
}

}  // namespace quintet::prepare
