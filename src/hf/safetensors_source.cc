#include "hf/safetensors_source.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "checkpoint/manifest.h"
#include "hf/strided.h"

namespace quintet::hf {

using base::DType;
using checkpoint::SafetensorsEntry;

namespace {

constexpr const char* kFp8Scale = "_scale_inv";  // after the name of the tensor
constexpr const char* kBlocks = "_blocks";
constexpr const char* kScales = "_scales";
constexpr int64_t kMxfp4Group = 32;  // elements that share a scale

}  // namespace

float fp8_e4m3(uint8_t bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  float value = 0;
  if (exponent == 15 && mantissa == 7)
    value = std::bit_cast<float>(0x7fc00000u);
  else if (exponent == 0)
    value = std::ldexp(static_cast<float>(mantissa), -9);
  else
    value = std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return bits & 0x80 ? -value : value;
}

std::map<std::string, std::string> parse_weight_index(std::string_view text, const std::string& source) {
  const auto json = base::parse_json(text);
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (!json.is_object() || map == json.end() || !map->is_object())
    base::fail_user("{} is not an index of weights: it has no object \"weight_map\"", source);
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !checkpoint::is_plain_name(file.get<std::string>()))
      base::fail_user("{}: the file of tensor {} must be a name in the same folder, got {}", source, tensor,
                      file.dump());
    files[tensor] = file.get<std::string>();
  }
  if (files.empty()) base::fail_user("{} lists no tensors", source);
  return files;
}

SafetensorsSource::SafetensorsSource(base::Path path, std::vector<base::Path> files,
                                     const std::map<std::string, std::string>& listed)
    : TensorSource(std::move(path)), files_(files) {
  std::map<std::string, std::pair<size_t, SafetensorsEntry>> entries;
  for (size_t f = 0; f < files.size(); ++f)
    for (SafetensorsEntry& e : checkpoint::read_safetensors_header(files[f].string()).tensors) {
      const auto found = listed.find(e.name);
      if (!listed.empty() && (found == listed.end() || found->second != files[f].filename()))
        base::fail_user("{} has tensor {}, which the index {}", files[f].string(), e.name,
                        found == listed.end() ? "does not list" : "places in " + found->second);
      const std::string name = e.name;
      if (!entries.emplace(name, std::pair(f, std::move(e))).second)
        base::fail_user("'{}' has tensor {} in two files", this->path().string(), name);
    }
  for (const auto& [name, file] : listed)
    if (!entries.contains(name))
      base::fail_user("{} lacks tensor {}, which the index places there", (this->path() / file).string(),
                      name);

  std::map<std::string, Stored> stored;
  std::vector<TensorInfo> tensors;
  std::set<std::string> scales;
  const auto scale_of = [&](const std::string& name) -> const std::pair<size_t, SafetensorsEntry>* {
    const auto found = entries.find(name);
    if (found == entries.end()) return nullptr;
    scales.insert(name);
    return &found->second;
  };
  for (const auto& [name, at] : entries) {
    const auto& [file, e] = at;
    Stored s{.file = file, .begin = e.begin, .end = e.end};
    TensorInfo info{.name = name, .dtype = DType::BF16, .shape = e.shape};
    const auto refuse = [&](const std::string& why) {
      base::fail_user("{}: tensor {} ({}, [{}]) {}", files[file].string(), name, e.dtype,
                      fmt::join(e.shape, ", "), why);
    };
    const auto set_scale = [&](const std::pair<size_t, SafetensorsEntry>& scale) {
      s.scale_file = scale.first, s.scale_begin = scale.second.begin, s.scale_end = scale.second.end;
    };
    if (e.dtype == "F8_E4M3") {
      const auto* const scale = scale_of(name + kFp8Scale);
      if (scale == nullptr) refuse("has no scales: " + name + kFp8Scale + " is missing");
      const std::vector<int64_t>& blocks = scale->second.shape;
      if (e.shape.size() != 2 || blocks.size() != 2 ||
          (scale->second.dtype != "F32" && scale->second.dtype != "BF16"))
        refuse("must be a matrix with a matrix of F32 or BF16 scales");
      s.code = Code::Fp8;
      s.columns = e.shape[1], s.block_rows = s.block_columns = 128, s.scale_columns = blocks[1];
      s.scale_bf16 = scale->second.dtype == "BF16";
      if ((e.shape[0] + 127) / 128 != blocks[0] || (e.shape[1] + 127) / 128 != blocks[1])
        refuse(fmt::format("needs one scale per block of 128 x 128, but there are [{}]",
                           fmt::join(blocks, ", ")));
      set_scale(*scale);
    } else if (e.dtype == "U8" && name.ends_with(kBlocks)) {
      const std::string stem = name.substr(0, name.size() - std::strlen(kBlocks));
      const auto* const scale = scale_of(stem + kScales);
      if (scale == nullptr) refuse("has no scales: " + stem + kScales + " is missing");
      std::vector<int64_t> groups = e.shape;
      if (groups.size() < 3 || groups.back() != kMxfp4Group / 2)
        refuse("must be a matrix of groups of 16 bytes each (MXFP4)");
      groups.pop_back();
      if (scale->second.shape != groups || scale->second.dtype != "U8")
        refuse(fmt::format("needs a U8 scale per group, but {} has [{}]", stem + kScales,
                           fmt::join(scale->second.shape, ", ")));
      s.code = Code::Mxfp4;
      info.name = stem;
      info.shape = groups;
      info.shape.back() *= kMxfp4Group;
      std::swap(info.shape[info.shape.size() - 1], info.shape[info.shape.size() - 2]);
      set_scale(*scale);
    } else if (const auto dtype = checkpoint::parse_safetensors_dtype(e.dtype)) {
      info.dtype = *dtype;
    } else if (e.dtype == "I8" || e.dtype == "BOOL") {
      info.dtype = DType::U8;
    } else {
      refuse("has a dtype that is not supported; convert it to F64, F32, BF16 or F16 first");
    }
    quantised_ = quantised_ || s.code != Code::Plain;
    if (!stored.emplace(info.name, s).second) refuse("is there twice, plain and quantised");
    tensors.push_back(std::move(info));
  }
  std::erase_if(tensors, [&](const TensorInfo& t) { return scales.contains(t.name); });
  set_tensors(std::move(tensors));
  for (const TensorInfo& t : this->tensors()) stored_.push_back(stored.at(t.name));
}

std::string SafetensorsSource::file_of(const TensorInfo& tensor) const {
  return files_.path(stored_[index_of(tensor)].file).string();
}

void SafetensorsSource::read(const TensorInfo& tensor, int64_t first, std::span<std::byte> out) {
  if (is_transposed(tensor)) return read_transposed(tensor, first, out);
  read_stored(tensor, first, out);
}

void SafetensorsSource::read_stored(const TensorInfo& tensor, int64_t first, std::span<std::byte> out) {
  const Stored& s = stored_[index_of(tensor)];
  if (s.code == Code::Fp8) return read_fp8(s, first, out);
  if (s.code == Code::Mxfp4) return read_mxfp4(s, first, out);
  files_.read(s.file, s.begin + first * base::size_of(tensor.dtype), out);
}

std::span<const std::byte> SafetensorsSource::scales(const Stored& s) {
  if (scales_of_ != &s) {
    scales_.resize(static_cast<size_t>(s.scale_end - s.scale_begin));
    files_.read(s.scale_file, s.scale_begin, scales_);
    scales_of_ = &s;
  }
  return scales_;
}

// As DeepSeek's own conversion: the product in f32, rounded to bf16.
void SafetensorsSource::read_fp8(const Stored& s, int64_t first, std::span<std::byte> out) {
  static const auto kTable = [] {
    std::array<float, 256> table{};
    for (size_t i = 0; i < 256; ++i) table[i] = fp8_e4m3(static_cast<uint8_t>(i));
    return table;
  }();
  const std::byte* const all = scales(s).data();
  const auto count = static_cast<int64_t>(out.size() / 2);
  std::vector<std::byte> bytes(static_cast<size_t>(count));
  files_.read(s.file, s.begin + first, bytes);
  auto* const to = reinterpret_cast<base::Bf16*>(out.data());
  for (int64_t i = 0; i < count;) {  // by parts of a row that share a scale
    const int64_t row = (first + i) / s.columns, column = (first + i) % s.columns;
    const int64_t at = row / s.block_rows * s.scale_columns + column / s.block_columns;
    const float scale = s.scale_bf16 ? static_cast<float>(reinterpret_cast<const base::Bf16*>(all)[at])
                                     : reinterpret_cast<const float*>(all)[at];
    const int64_t last = std::min(s.columns, (column / s.block_columns + 1) * s.block_columns);
    const int64_t end = std::min(count, i + last - column);
    for (; i < end; ++i)
      to[i] = base::Bf16(kTable[static_cast<uint8_t>(bytes[static_cast<size_t>(i)])] * scale);
  }
}

// As transformers does: a table of the 16 numbers times 2^(scale - 127), the lower half of a byte first.
void SafetensorsSource::read_mxfp4(const Stored& s, int64_t first, std::span<std::byte> out) {
  constexpr float kNumbers[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                  -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
  static const auto kFactors = [] {
    std::array<float, 256> factors{};
    for (int i = 0; i < 256; ++i) factors[static_cast<size_t>(i)] = std::ldexp(1.0f, i - 127);
    return factors;
  }();
  const auto count = static_cast<int64_t>(out.size() / 2);
  if (count == 0) return;
  const int64_t last = first + count - 1;
  std::vector<std::byte> bytes(static_cast<size_t>(last / 2 - first / 2 + 1));
  std::vector<std::byte> scales(static_cast<size_t>(last / kMxfp4Group - first / kMxfp4Group + 1));
  files_.read(s.file, s.begin + first / 2, bytes);
  files_.read(s.scale_file, s.scale_begin + first / kMxfp4Group, scales);
  auto* const to = reinterpret_cast<base::Bf16*>(out.data());
  for (int64_t i = 0; i < count;) {
    const int64_t group = (first + i) / kMxfp4Group;
    const float factor =
        kFactors[static_cast<uint8_t>(scales[static_cast<size_t>(group - first / kMxfp4Group)])];
    for (const int64_t end = std::min(count, (group + 1) * kMxfp4Group - first); i < end; ++i) {
      const int64_t at = first + i;
      const auto byte = static_cast<uint8_t>(bytes[static_cast<size_t>(at / 2 - first / 2)]);
      to[i] = base::Bf16(kNumbers[at % 2 == 0 ? byte & 15 : byte >> 4] * factor);
    }
  }
}

void SafetensorsSource::read_transposed(const TensorInfo& tensor, int64_t first, std::span<std::byte> out) {
  const int64_t size = base::size_of(tensor.dtype), count = static_cast<int64_t>(out.size()) / size;
  const size_t rank = tensor.shape.size();
  const int64_t rows = tensor.shape[rank - 2], columns = tensor.shape[rank - 1], matrix = rows * columns;
  std::vector<std::byte> part;
  for (const Box& box :
       boxes_of({tensor.count() / std::max<int64_t>(matrix, 1), rows, columns}, first, count))
    for (int64_t m = 0; m < box.size[0]; ++m) {
      const int64_t high = box.size[1], wide = box.size[2];
      std::byte* const to = out.data() + (box.at + m * high * wide) * size;
      // Whole rows as stored at once, otherwise one by one.
      const int64_t together = high == rows ? wide : 1;
      for (int64_t column = 0; column < wide; column += together) {
        part.resize(static_cast<size_t>(high * together * size));
        const int64_t stored = (box.begin[0] + m) * matrix + (box.begin[2] + column) * rows + box.begin[1];
        read_stored(tensor, stored, part);
        copy_strided(part.data(), to + column * size, {{together, high, 1}, {high, 1, wide}}, size);
      }
    }
}

}  // namespace quintet::hf
