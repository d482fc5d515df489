#include "hf/mapped_source.h"

#include <map>
#include <set>

#include "base/error.h"

namespace quintet::hf {

MappedSource::MappedSource(std::unique_ptr<TensorSource> ours, NameMap map)
    : TensorSource(ours->path()), ours_(std::move(ours)), map_(std::move(map)) {
  std::vector<TensorInfo> tensors;
  std::map<std::string, size_t> index;
  for (size_t i = 0; i < map_.theirs().size(); ++i) {
    const TheirTensor& t = map_.theirs()[i];
    const TensorInfo* const first = ours_->find(map_.ours()[t.links[0].ours].name);
    QUINTET_CHECK(first != nullptr, "{} is missing", map_.ours()[t.links[0].ours].name);
    tensors.push_back({.name = t.name, .dtype = first->dtype, .shape = t.shape});
    index[t.name] = i;
  }
  set_tensors(std::move(tensors));
  for (const TensorInfo& t : this->tensors()) theirs_.push_back(index.at(t.name));
}

void MappedSource::read(const TensorInfo&, int64_t, std::span<std::byte>) {
  base::fail_internal("a mapped source is streamed");
}

void MappedSource::stream(const TensorInfo& tensor, const Block& block) {
  stream_their_tensor(map_.theirs()[theirs_[index_of(tensor)]], map_, *ours_, tensor.dtype, block);
}

bool MappedSource::is_state(const TensorInfo& tensor) const {
  const Link& link = map_.theirs()[theirs_[index_of(*find(tensor.name))]].links[0];
  return map_.ours()[link.ours].name.ends_with(".router.bias");
}

namespace {

constexpr std::string_view kBlocksEnding = "_blocks";

class WithoutBlocks final : public TensorSource {
 public:
  explicit WithoutBlocks(std::unique_ptr<TensorSource> inner)
      : TensorSource(inner->path()), inner_(std::move(inner)) {
    std::vector<TensorInfo> tensors;
    for (TensorInfo t : inner_->tensors()) {
      if (is_blocks(t)) {
        t.name.resize(t.name.size() - kBlocksEnding.size());
        std::swap(t.shape[t.shape.size() - 1], t.shape[t.shape.size() - 2]);
        changed_.insert(t.name);
      }
      tensors.push_back(std::move(t));
    }
    set_tensors(std::move(tensors));
  }
  void read(const TensorInfo& tensor, int64_t first, std::span<std::byte> out) override {
    if (!changed_.contains(tensor.name)) return inner_->read(original(tensor), first, out);
    base::fail_internal("a transposed tensor is streamed");
  }
  using TensorSource::read;
  void stream(const TensorInfo& tensor, const Block& block) override {
    const TensorInfo& from = original(tensor);
    if (!changed_.contains(tensor.name)) return inner_->stream(from, block);
    const size_t rank = from.shape.size();
    const int64_t rows = from.shape[rank - 2], columns = from.shape[rank - 1], matrix = rows * columns;
    std::vector<std::byte> a(static_cast<size_t>(matrix * 2)), b(a.size());
    for (int64_t first = 0; first < from.count(); first += matrix) {
      inner_->read(from, first, a);
      copy_strided(a.data(), b.data(), {{rows, columns, 1}, {columns, 1, rows}}, 2);
      block(b);
    }
  }
  int64_t bytes_read() const override { return inner_->bytes_read(); }
  std::string kind() const override { return inner_->kind(); }

 private:
  static bool is_blocks(const TensorInfo& t) {
    return t.name.ends_with(kBlocksEnding) && t.dtype == base::DType::BF16 && t.shape.size() >= 2;
  }
  const TensorInfo& original(const TensorInfo& t) const {
    const TensorInfo* const found =
        inner_->find(changed_.contains(t.name) ? t.name + std::string(kBlocksEnding) : t.name);
    QUINTET_CHECK(found != nullptr, "{} is gone", t.name);
    return *found;
  }
  std::unique_ptr<TensorSource> inner_;
  std::set<std::string> changed_;
};

}  // namespace

std::unique_ptr<TensorSource> without_blocks(std::unique_ptr<TensorSource> source) {
  return std::make_unique<WithoutBlocks>(std::move(source));
}

}  // namespace quintet::hf
