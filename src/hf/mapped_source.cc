#include "hf/mapped_source.h"

#include <map>

#include "base/error.h"
#include "hf/model_folder.h"

namespace quintet::hf {

MappedSource::MappedSource(std::unique_ptr<TensorSource> ours, NameMap map,
                           std::shared_ptr<TensorSource> original)
    : TensorSource(ours->path()),
      ours_(std::move(ours)),
      map_(std::move(map)),
      original_(std::move(original)) {
  std::vector<TensorInfo> tensors;
  std::map<std::string, size_t> index;
  for (size_t i = 0; i < map_.theirs().size(); ++i) {
    const TheirTensor& t = map_.theirs()[i];
    const TensorInfo* const first = ours_->find(map_.ours()[t.links[0].ours].name);
    QUINTET_CHECK(first != nullptr, "{} is missing", map_.ours()[t.links[0].ours].name);
    tensors.push_back({.name = t.name, .dtype = first->dtype, .shape = t.shape});
    index[t.name] = i;
  }
  if (original_)
    for (const TensorInfo& t : original_->tensors())
      if (is_of_other_part(map_.family(), t)) tensors.push_back(t), index[t.name] = kOriginal;
  set_tensors(std::move(tensors));
  for (const TensorInfo& t : this->tensors()) theirs_.push_back(index.at(t.name));
}

void MappedSource::read(const TensorInfo&, int64_t, std::span<std::byte>) {
  base::fail_internal("a mapped source is streamed");
}

void MappedSource::stream(const TensorInfo& tensor, const Block& block) {
  const size_t theirs = theirs_[index_of(tensor)];
  if (theirs == kOriginal) return original_->stream(*original_->find(tensor.name), block);
  stream_their_tensor(map_.theirs()[theirs], map_, *ours_, tensor.dtype, block);
}

bool MappedSource::is_state(const TensorInfo& tensor) const {
  const size_t theirs = theirs_[index_of(*find(tensor.name))];
  if (theirs == kOriginal) return false;
  const Link& link = map_.theirs()[theirs].links[0];
  return map_.ours()[link.ours].name.ends_with(".router.bias");
}

}  // namespace quintet::hf
