#include "hf/tensor_source.h"

#include <algorithm>

#include "base/error.h"

namespace quintet::hf {
namespace {

constexpr size_t kMaxOpen = 8;

}  // namespace

const TensorInfo* TensorSource::find(std::string_view name) const {
  const auto at = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                   [](const TensorInfo& t, std::string_view n) { return t.name < n; });
  return at != tensors_.end() && at->name == name ? &*at : nullptr;
}

void TensorSource::set_tensors(std::vector<TensorInfo> tensors) {
  tensors_ = std::move(tensors);
  std::sort(tensors_.begin(), tensors_.end(),
            [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; });
  for (size_t i = 1; i < tensors_.size(); ++i)
    if (tensors_[i].name == tensors_[i - 1].name)
      base::fail_user("'{}' has tensor {} twice", path_.string(), tensors_[i].name);
}

void TensorSource::read(const TensorInfo& tensor, const Region& region, std::span<std::byte> out) {
  const int64_t size = base::size_of(tensor.dtype);
  const checkpoint::Runs runs(region);
  for (int64_t i = 0; i < runs.size(); ++i) {
    const checkpoint::Run run = runs[i];
    read(tensor, run.tensor,
         out.subspan(static_cast<size_t>(run.at * size), static_cast<size_t>(run.length * size)));
  }
}

void TensorSource::stream(const TensorInfo& tensor, const Block& block) {
  const int64_t size = base::size_of(tensor.dtype), count = tensor.count(), step = kStreamBytes / size;
  std::vector<std::byte> elements;
  for (int64_t first = 0; first < count; first += step) {
    elements.resize(static_cast<size_t>(std::min(step, count - first) * size));
    read(tensor, first, elements);
    block(elements);
  }
}

const base::InputFile& OpenFiles::opened(size_t file) {
  const auto found = std::find_if(open_.begin(), open_.end(), [&](const auto& o) { return o.first == file; });
  if (found != open_.end()) {
    std::rotate(found, found + 1, open_.end());
  } else {
    if (open_.size() == kMaxOpen) open_.erase(open_.begin());
    open_.emplace_back(file, std::make_unique<base::InputFile>(paths_[file]));
  }
  return *open_.back().second;
}

void OpenFiles::read(size_t file, int64_t position, std::span<std::byte> out) {
  opened(file).read(position, out);
  bytes_ += static_cast<int64_t>(out.size());
}

}  // namespace quintet::hf
