#include "hf/torch_source.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>

#include "base/error.h"
#include "hf/pickle.h"
#include "hf/zip.h"

namespace quintet::hf {

using base::DType;

namespace {

using Id = Pickle::Id;
using Kind = Pickle::Kind;

std::optional<DType> torch_dtype(std::string_view name) {
  constexpr std::pair<std::string_view, DType> kNames[] = {
      {"torch.FloatStorage", DType::F32}, {"torch.DoubleStorage", DType::F64},
      {"torch.HalfStorage", DType::F16},  {"torch.BFloat16Storage", DType::BF16},
      {"torch.LongStorage", DType::I64},  {"torch.IntStorage", DType::I32},
      {"torch.ShortStorage", DType::I16}, {"torch.ByteStorage", DType::U8},
      {"torch.CharStorage", DType::U8},   {"torch.BoolStorage", DType::U8},
      {"torch.float32", DType::F32},      {"torch.float64", DType::F64},
      {"torch.float16", DType::F16},      {"torch.bfloat16", DType::BF16},
      {"torch.int64", DType::I64},        {"torch.int32", DType::I32},
      {"torch.int16", DType::I16},        {"torch.uint8", DType::U8},
      {"torch.int8", DType::U8},          {"torch.bool", DType::U8}};
  for (const auto& [text, dtype] : kNames)
    if (text == name) return dtype;
  return std::nullopt;
}

// The integers of a tuple, or of torch.Size, which is called with one.
std::optional<std::vector<int64_t>> integers(const Pickle& p, Id id) {
  if (p.is_object(id, "torch.Size")) {
    const Pickle::Value& arguments = p[p[id].arguments];
    if (arguments.items.size() != 1) return std::nullopt;
    id = arguments.items[0];
  }
  if (p[id].kind != Kind::List) return std::nullopt;
  std::vector<int64_t> values;
  for (const Id item : p[id].items) {
    if (p[item].kind != Kind::Int || p[item].integer < 0) return std::nullopt;
    values.push_back(p[item].integer);
  }
  return values;
}

struct TorchTensor {
  DType dtype = DType::F32;
  std::vector<int64_t> shape;
  std::string storage;  // the key of the archive's data
  int64_t offset = 0;   // elements
};

// What torch._utils._rebuild_tensor_v2 and its relatives were called with; empty: not a tensor.
std::optional<TorchTensor> tensor_of(const Pickle& p, Id id, const std::string& name,
                                     const std::string& source) {
  if (p.is_object(id, "torch._utils._rebuild_parameter") && !p[p[id].arguments].items.empty())
    id = p[p[id].arguments].items[0];
  const bool v3 = p.is_object(id, "torch._utils._rebuild_tensor_v3");
  if (!v3 && !p.is_object(id, "torch._utils._rebuild_tensor_v2") &&
      !p.is_object(id, "torch._utils._rebuild_tensor"))
    return std::nullopt;
  const auto fail = [&](const std::string& why) { base::fail_user("{}: tensor {} {}", source, name, why); };
  const std::vector<Id>& a = p[p[id].arguments].items;
  if (a.size() < 4 || p[a[0]].kind != Kind::Persistent || p[p[a[0]].items[0]].items.size() < 5)
    fail("has no storage that Quintet reads");
  const std::vector<Id>& storage = p[p[a[0]].items[0]].items;  // ("storage", class, key, device, elements)
  const auto shape = integers(p, a[2]), stride = integers(p, a[3]);
  if (p[storage[2]].kind != Kind::Text || p[a[1]].kind != Kind::Int || p[a[1]].integer < 0 || !shape ||
      !stride)
    fail("is not described as expected");
  const std::string& type = v3 && a.size() > 6 ? p[a[6]].text : p[storage[1]].text;
  const auto dtype = torch_dtype(type);
  if (!dtype) fail(fmt::format("has type {}, which is not supported", type));
  int64_t expected = 1;
  for (size_t d = shape->size(); d-- > 0;) {
    if (stride->size() != shape->size() || ((*shape)[d] > 1 && (*stride)[d] != expected))
      fail(fmt::format("is not contiguous (shape [{}], strides [{}]); save it with .contiguous()",
                       fmt::join(*shape, ", "), fmt::join(*stride, ", ")));
    if (__builtin_mul_overflow(expected, (*shape)[d], &expected)) fail("is too large");
  }
  return TorchTensor{
      .dtype = *dtype, .shape = *shape, .storage = p[storage[2]].text, .offset = p[a[1]].integer};
}

struct Archive {
  std::string prefix;  // of entry names
  std::map<std::string, ZipEntry> entries;
  std::unique_ptr<Pickle> pickle;
};

Archive open_archive(const base::InputFile& file, int64_t begin, int64_t end) {
  Archive archive{.prefix = {}, .entries = read_zip(file, begin, end), .pickle = nullptr};
  for (const auto& [name, entry] : archive.entries) {
    if (!name.ends_with("/data.pkl") && name != "data.pkl") continue;
    archive.prefix = name.substr(0, name.size() - std::string_view("data.pkl").size());
    std::string text(static_cast<size_t>(entry.bytes), '\0');
    file.read(entry.begin, std::as_writable_bytes(std::span(text)));
    archive.pickle = std::make_unique<Pickle>(text, file.path().string());
    return archive;
  }
  base::fail_user("{} is not a file of torch.save: it has no data.pkl", file.path().string());
}

ZipEntry data_of(const Archive& archive, const TorchTensor& t, const std::string& name,
                 const std::string& source) {
  const auto found = archive.entries.find(archive.prefix + "data/" + t.storage);
  int64_t bytes = 0, offset = 0;
  const TensorInfo info{.name = name, .dtype = t.dtype, .shape = t.shape};
  const bool fits = found != archive.entries.end() &&
                    !__builtin_mul_overflow(info.count(), base::size_of(t.dtype), &bytes) &&
                    !__builtin_mul_overflow(t.offset, base::size_of(t.dtype), &offset) &&
                    offset <= found->second.bytes && bytes <= found->second.bytes - offset;
  if (!fits) base::fail_user("{}: the data of tensor {} are not in the file; is it truncated?", source, name);
  return {.begin = found->second.begin + offset, .bytes = bytes};
}

class TorchSource final : public TensorSource {
 public:
  TorchSource(const base::Path& path, const std::vector<base::Path>& files)
      : TensorSource(path), files_(files) {
    std::map<std::string, Stored> stored;
    std::vector<TensorInfo> tensors;
    for (size_t f = 0; f < files.size(); ++f) {
      const base::InputFile file(files[f]);
      const Archive archive = open_archive(file, 0, file.size());
      const std::string source = files[f].string();
      for (const auto& [name, t] : tensors_in(*archive.pickle, source)) {
        const ZipEntry data = data_of(archive, t, name, source);
        if (!stored.emplace(name, Stored{f, data.begin, data.begin + data.bytes}).second)
          base::fail_user("'{}' has tensor {} twice", path.string(), name);
        tensors.push_back({.name = name, .dtype = t.dtype, .shape = t.shape});
      }
    }
    if (tensors.empty())
      base::fail_user(
          "'{}' holds no tensors: expected a state dict, as torch.save(model.state_dict(), ...) writes it",
          path.string());
    set_tensors(std::move(tensors));
    for (const TensorInfo& t : this->tensors()) stored_.push_back(stored.at(t.name));
  }
  using TensorSource::read;
  void read(const TensorInfo& tensor, int64_t first, std::span<std::byte> out) override {
    const Stored& s = stored_[index_of(tensor)];
    files_.read(s.file, s.begin + first * base::size_of(tensor.dtype), out);
  }
  int64_t bytes_read() const override { return files_.bytes_read(); }
  std::string file_of(const TensorInfo& t) const override {
    return files_.path(stored_[index_of(t)].file).string();
  }
  std::string kind() const override { return "PyTorch file"; }

 private:
  struct Stored {
    size_t file = 0;
    int64_t begin = 0, end = 0;
  };

  // Tensors of nested dicts have names with dots. A dict named "model", "state_dict" or "module" that has all
  // of them adds nothing to their names.
  static std::map<std::string, TorchTensor> tensors_in(const Pickle& p, const std::string& source) {
    Id root = p.root();
    for (const char* wrapper : {"model_state_dict", "state_dict", "model", "module"})
      if (const Id inner = p.get_id(root, wrapper); inner != 0 && !p[inner].pairs.empty()) {
        root = inner;
        break;
      }
    std::map<std::string, TorchTensor> tensors;
    std::set<Id> seen;  // a dict may contain itself
    std::vector<std::pair<Id, std::string>> open = {{root, ""}};
    while (!open.empty()) {
      const auto [id, prefix] = open.back();
      open.pop_back();
      for (const auto& [key, value] : p[id].pairs) {
        if (p[key].kind != Kind::Text) continue;
        const std::string name = prefix + p[key].text;
        if (auto t = tensor_of(p, value, name, source))
          tensors.emplace(name, std::move(*t));
        else if (!p[value].pairs.empty() && seen.insert(value).second)
          open.emplace_back(value, name + ".");
      }
    }
    return tensors;
  }

  OpenFiles files_;
  std::vector<Stored> stored_;
};

class DistributedSource final : public TensorSource {
 public:
  explicit DistributedSource(const base::Path& folder) : TensorSource(folder) {
    const std::string source = (folder / ".metadata").string();
    const Pickle p(base::read_file(folder / ".metadata"), source);
    const Id tensors = p.get_id(p.root(), "state_dict_metadata"), places = p.get_id(p.root(), "storage_data");
    if (tensors == 0 || places == 0)
      base::fail_user("{} is not the metadata of a torch.distributed.checkpoint", source);
    std::map<std::string, std::vector<Piece>> pieces;
    std::vector<TensorInfo> infos;
    std::map<std::pair<std::string, std::vector<int64_t>>, std::vector<int64_t>> sizes;
    for (const auto& [key, value] : p[tensors].pairs) {
      const Id size = p.get_id(value, "size"), chunks = p.get_id(value, "chunks"),
               props = p.get_id(value, "properties");
      if (size == 0 || chunks == 0 || p[key].kind != Kind::Text) continue;  // bytes: no tensor
      const std::string& name = p[key].text;
      const auto shape = integers(p, size);
      const auto dtype = dtype_of(p, props);
      if (!shape || !dtype)
        base::fail_user("{}: tensor {} has a type or shape that is not supported", source, name);
      infos.push_back({.name = name, .dtype = *dtype, .shape = *shape});
      for (const Id chunk : p[chunks].items) {
        const auto begin = integers(p, p.get_id(chunk, "offsets")),
                   extent = integers(p, p.get_id(chunk, "sizes"));
        if (!begin || !extent || begin->size() != shape->size() || extent->size() != shape->size())
          base::fail_user("{}: a piece of tensor {} is not described as expected", source, name);
        sizes[{name, *begin}] = *extent;
      }
    }
    set_tensors(std::move(infos));
    for (const auto& [key, value] : p[places].pairs) {
      const Pickle::Value* const fqn = p.get(key, "fqn");
      const Pickle::Value* const file = p.get(value, "relative_path");
      const Pickle::Value* const at = p.get(value, "offset");
      const Pickle::Value* const length = p.get(value, "length");
      if (fqn == nullptr || file == nullptr || at == nullptr || length == nullptr)
        base::fail_user("{}: an entry of storage_data is not described as expected", source);
      const TensorInfo* const tensor = find(fqn->text);
      if (tensor == nullptr) continue;  // bytes
      std::vector<int64_t> begin = integers(p, p.get_id(key, "offset")).value_or(std::vector<int64_t>());
      if (begin.empty()) begin.assign(tensor->shape.size(), 0);
      const auto size = sizes.find({fqn->text, begin});
      if (size == sizes.end()) base::fail_user("{}: a piece of tensor {} has no size", source, fqn->text);
      if (file->text.find('/') != std::string::npos || !base::file_exists(folder / file->text))
        base::fail_user("'{}' lacks {}, which its metadata name", folder.string(), file->text);
      Piece piece{
          .file = folder / file->text,
          .begin = at->integer,
          .end = at->integer + length->integer,
          .region = {.shape = tensor->shape, .begin = begin, .size = size->second, .first = 0, .count = 0}};
      piece.region.count = piece.region.box_count();
      if (piece.region.count == 0) continue;
      if (!checkpoint::is_valid(piece.region, tensor->count()))
        base::fail_user("{}: a piece of tensor {} is outside of it", source, fqn->text);
      pieces[fqn->text].push_back(std::move(piece));
    }
    for (const TensorInfo& t : this->tensors()) {
      pieces_.push_back(std::move(pieces[t.name]));
      int64_t covered = 0;
      for (const Piece& piece : pieces_.back()) covered += piece.region.count;
      if (covered != t.count())
        base::fail_user("{}: the pieces of tensor {} have {} elements of {}", source, t.name, covered,
                        t.count());
    }
  }

  void read(const TensorInfo& tensor, int64_t first, std::span<std::byte> out) override {
    Region region = Region::whole(tensor.shape);
    region.first = first, region.count = static_cast<int64_t>(out.size()) / base::size_of(tensor.dtype);
    read(tensor, region, out);
  }
  void read(const TensorInfo& tensor, const Region& region, std::span<std::byte> out) override {
    if (region.count == 0) return;
    const int64_t size = base::size_of(tensor.dtype);
    for (Piece& piece : pieces_[index_of(tensor)]) {
      std::unique_ptr<base::InputFile> file;
      checkpoint::for_each_common_run(region, piece.region, [&](int64_t to, int64_t from, int64_t length) {
        if (!file) file = std::make_unique<base::InputFile>(piece.file);
        if (piece.data < 0) piece.data = data_at(*file, piece, tensor);
        file->read(piece.data + from * size,
                   out.subspan(static_cast<size_t>(to * size), static_cast<size_t>(length * size)));
        bytes_ += length * size;
      });
    }
  }
  int64_t bytes_read() const override { return bytes_; }
  std::string kind() const override { return "distributed checkpoint of PyTorch"; }

 private:
  struct Piece {
    base::Path file;
    int64_t begin = 0, end = 0;  // an archive in the file
    Region region;
    int64_t data = -1;  // of its first element in the file; -1: not looked up yet
  };

  // The properties' state is a tuple that begins with the dtype, or has it by name.
  static std::optional<DType> dtype_of(const Pickle& p, Id props) {
    if (props == 0) return std::nullopt;
    if (const Pickle::Value* const named = p.get(props, "dtype")) return torch_dtype(named->text);
    for (const Id place : {p[props].state, p[props].arguments})
      if (place != 0 && p[place].kind == Kind::List && !p[place].items.empty())
        if (const auto dtype = torch_dtype(p[p[place].items[0]].text)) return dtype;
    return std::nullopt;
  }

  static int64_t data_at(const base::InputFile& file, const Piece& piece, const TensorInfo& tensor) {
    const std::string source = file.path().string();
    if (piece.begin < 0 || piece.end > file.size() || piece.begin > piece.end)
      base::fail_user("{} ends before a piece of tensor {}; is it truncated?", source, tensor.name);
    const Archive archive = open_archive(file, piece.begin, piece.end);
    const auto t = tensor_of(*archive.pickle, archive.pickle->root(), tensor.name, source);
    if (!t || t->dtype != tensor.dtype ||
        TensorInfo{.name = {}, .dtype = t->dtype, .shape = t->shape}.count() != piece.region.count)
      base::fail_user("{}: the piece of tensor {} is not what the metadata say", source, tensor.name);
    return data_of(archive, *t, tensor.name, source).begin;
  }

  std::vector<std::vector<Piece>> pieces_;  // by tensor
  int64_t bytes_ = 0;
};

}  // namespace

std::unique_ptr<TensorSource> open_torch(const base::Path& path, const std::vector<base::Path>& files) {
  return std::make_unique<TorchSource>(path, files);
}

std::unique_ptr<TensorSource> open_distributed(const base::Path& folder) {
  return std::make_unique<DistributedSource>(folder);
}

}  // namespace quintet::hf
