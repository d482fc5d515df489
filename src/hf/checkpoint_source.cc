#include "hf/checkpoint_source.h"

#include "base/error.h"

namespace quintet::hf {

CheckpointSource::CheckpointSource(const base::Path& folder, bool all)
    : TensorSource(folder), reader_(folder) {
  std::vector<TensorInfo> tensors;
  for (const checkpoint::SavedTensor& t : reader_.manifest().tensors)
    if (all || t.info.name.find('/') == std::string::npos) tensors.push_back(t.info);
  set_tensors(std::move(tensors));
}

void CheckpointSource::read(const TensorInfo& tensor, int64_t first, std::span<std::byte> out) {
  Region region = Region::whole(tensor.shape);
  region.first = first;
  region.count = static_cast<int64_t>(out.size()) / base::size_of(tensor.dtype);
  read(tensor, region, out);
}

void CheckpointSource::read(const TensorInfo& tensor, const Region& region, std::span<std::byte> out) {
  if (region.count == 0) return;
  const checkpoint::SavedTensor* const saved = reader_.manifest().find(tensor.name);
  QUINTET_CHECK(saved != nullptr, "{} is not in the manifest", tensor.name);
  reader_.read(*saved, region, out);
  bytes_ += static_cast<int64_t>(out.size());
}

}  // namespace quintet::hf
