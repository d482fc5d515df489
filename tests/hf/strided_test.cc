// Views of our parameters in their tensors, against index arithmetic written here from the definition.
#include "hf/strided.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>

namespace quintet::hf {
namespace {

using base::DType;

// Tensors in memory, f32.
class MemorySource final : public TensorSource {
 public:
  explicit MemorySource(std::map<std::string, std::pair<std::vector<int64_t>, std::vector<float>>> tensors)
      : TensorSource("memory"), data_(std::move(tensors)) {
    std::vector<TensorInfo> infos;
    for (const auto& [name, t] : data_)
      infos.push_back({.name = name, .dtype = DType::F32, .shape = t.first});
    set_tensors(std::move(infos));
  }
  using TensorSource::read;
  void read(const TensorInfo& t, int64_t first, std::span<std::byte> out) override {
    std::memcpy(out.data(), data_.at(t.name).second.data() + first, out.size());
  }
  int64_t bytes_read() const override { return 0; }
  std::string kind() const override { return "memory"; }

 private:
  std::map<std::string, std::pair<std::vector<int64_t>, std::vector<float>>> data_;
};

// A family with every kind of row.
std::vector<config::HfWeight> rows(const config::Model&) {
  return {{"a", "a", "01 2"},    {"q", "qkv", "2 +01"}, {"k", "qkv", "2 +01"},         {"v", "qkv", "2 +01"},
          {"n", "b", "0+1 2"},   {"r", "b", "0+1~ 2"},  {"e", "experts.{e}.w", "2 1"}, {"g", "gu", "0 2 1+"},
          {"u", "gu", "0 2 1+"}, {"t", "t", "1 0"},     {"p", "pq", "+0 1"},           {"s", "pq", "+01~ 2"},
          {"one", "one", "0"}};
}
const config::HfFamily kFamily{"test", {"Test"}, "", nullptr, rows, {}};
const std::map<std::string, std::vector<int64_t>> kShapes = {
    {"a", {4, 6, 5}}, {"q", {4, 2, 7}}, {"k", {2, 2, 7}}, {"v", {2, 3, 7}}, {"n", {3, 5, 4}},
    {"r", {3, 6, 4}}, {"e", {3, 4, 5}}, {"g", {2, 3, 4}}, {"u", {2, 3, 4}}, {"t", {5, 3}},
    {"p", {5, 6}},    {"s", {1, 4, 6}}, {"one", {9}}};

std::vector<TensorInfo> ours() {
  std::vector<TensorInfo> list;
  for (const auto& [name, shape] : kShapes)
    list.push_back({.name = name, .dtype = DType::F32, .shape = shape});
  return list;
}

// Where element (i, j, k) of a parameter is, from the words of config/hf/family.h: the tensor and its index.
std::pair<std::string, std::vector<int64_t>> place(const std::string& name, int64_t i, int64_t j, int64_t k) {
  const auto pair = [](int64_t x, int64_t n) { return x < n / 2 ? 2 * x : 2 * (x - n / 2) + 1; };
  if (name == "a") return {"a", {i * 6 + j, k}};
  if (name == "q") return {"qkv", {k, i * 2 + j}};
  if (name == "k") return {"qkv", {k, 8 + i * 2 + j}};
  if (name == "v") return {"qkv", {k, 12 + i * 3 + j}};
  if (name == "n") return {"b", {i * 11 + j, k}};
  if (name == "r") return {"b", {i * 11 + 5 + pair(j, 6), k}};
  if (name == "e") return {"experts." + std::to_string(i) + ".w", {k, j}};
  if (name == "g") return {"gu", {i, k, 2 * j}};
  if (name == "u") return {"gu", {i, k, 2 * j + 1}};
  if (name == "t") return {"t", {j, i}};
  if (name == "p") return {"pq", {i, j}};
  if (name == "s") return {"pq", {5 + pair(j, 4), k}};
  return {"one", {i}};
}
const std::map<std::string, std::vector<int64_t>> kTheirShapes = {
    {"a", {24, 5}},          {"qkv", {7, 18}},
    {"b", {33, 4}},          {"experts.0.w", {5, 4}},
    {"experts.1.w", {5, 4}}, {"experts.2.w", {5, 4}},
    {"gu", {2, 4, 6}},       {"t", {3, 5}},
    {"pq", {9, 6}},          {"one", {9}}};

int64_t flat(const std::vector<int64_t>& shape, const std::vector<int64_t>& index) {
  int64_t at = 0;
  for (size_t d = 0; d < shape.size(); ++d) at = at * shape[d] + index[d];
  return at;
}

void for_each_element(const std::vector<int64_t>& shape,
                      const std::function<void(int64_t, int64_t, int64_t, int64_t)>& fn) {
  const auto size = [&](size_t d) { return d < shape.size() ? shape[d] : 1; };
  int64_t at = 0;
  for (int64_t i = 0; i < size(0); ++i)
    for (int64_t j = 0; j < size(1); ++j)
      for (int64_t k = 0; k < size(2); ++k) fn(at++, i, j, k);
}

struct Filled {
  std::map<std::string, std::pair<std::vector<int64_t>, std::vector<float>>> theirs, ours;
};

// Every element of ours has a number of its own.
Filled filled() {
  Filled f;
  for (const auto& [name, shape] : kTheirShapes)
    f.theirs[name] = {
        shape, std::vector<float>(static_cast<size_t>(std::accumulate(shape.begin(), shape.end(), int64_t{1},
                                                                      std::multiplies<>())),
                                  -1)};
  float next = 1;
  for (const auto& [name, shape] : kShapes) {
    auto& [own_shape, own] = f.ours[name];
    own_shape = shape;
    for_each_element(shape, [&](int64_t, int64_t i, int64_t j, int64_t k) {
      const auto [theirs, index] = place(name, i, j, k);
      auto& [their_shape, values] = f.theirs.at(theirs);
      float& slot = values[static_cast<size_t>(flat(their_shape, index))];
      EXPECT_EQ(slot, -1) << name;
      own.push_back(slot = next++);
    });
  }
  for (const auto& [name, t] : f.theirs)
    for (const float v : t.second) EXPECT_NE(v, -1) << name;
  return f;
}

TEST(Strided, NamesAndShapesFollowTheRows) {
  const NameMap map(kFamily, {}, ours(), {});
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const TheirTensor& t : map.theirs()) shapes[t.name] = t.shape;
  EXPECT_EQ(shapes, kTheirShapes);
}

TEST(Strided, RandomRegionsAreReadInEveryType) {
  const Filled f = filled();
  const NameMap map(kFamily, {}, ours(), {});
  MemorySource source(f.theirs);
  WeightReader reader(source, map);
  std::mt19937 random(7);
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int round = 0; round < 40; ++round)
    for (const auto& [name, shape] : kShapes) {
      Region region{.shape = shape, .begin = {}, .size = {}};
      for (const int64_t n : shape) {
        region.begin.push_back(draw(0, n - 1));
        region.size.push_back(draw(1, n - region.begin.back()));
      }
      region.first = draw(0, region.box_count() - 1);
      region.count = draw(1, region.box_count() - region.first);
      std::vector<float> got(static_cast<size_t>(region.count)), want;
      reader.read(name, region, DType::F32, std::as_writable_bytes(std::span(got)));
      int64_t at = 0;
      for_each_element(shape, [&](int64_t index, int64_t i, int64_t j, int64_t k) {
        const int64_t ijk[3] = {i, j, k};
        for (size_t d = 0; d < shape.size(); ++d)
          if (ijk[d] < region.begin[d] || ijk[d] >= region.begin[d] + region.size[d]) return;
        if (at >= region.first && at < region.first + region.count)
          want.push_back(f.ours.at(name).second[static_cast<size_t>(index)]);
        ++at;
      });
      ASSERT_EQ(got, want) << name << ", round " << round;
      std::vector<double> wide(got.size());
      reader.read(name, region, DType::F64, std::as_writable_bytes(std::span(wide)));
      for (size_t i = 0; i < wide.size(); ++i) ASSERT_EQ(wide[i], want[i]) << name;
    }
}

TEST(Strided, TheirTensorsAreMadeOfOurs) {
  const Filled f = filled();
  const NameMap map(kFamily, {}, ours(), {});
  MemorySource source(f.ours);
  for (const int64_t block : {int64_t{1}, int64_t{40}, int64_t{100}, int64_t{250}, kBlockBytes})
    for (const TheirTensor& t : map.theirs()) {
      std::vector<float> got;
      stream_their_tensor(
          t, map, source, DType::F32,
          [&](std::span<const std::byte> bytes) {
            const auto* values = reinterpret_cast<const float*>(bytes.data());
            got.insert(got.end(), values, values + bytes.size() / sizeof(float));
          },
          block);
      EXPECT_EQ(got, f.theirs.at(t.name).second) << t.name << " in blocks of " << block;
    }
}

TEST(Strided, RangesAreBoxes) {
  const std::vector<int64_t> size = {3, 4, 5};
  for (int64_t first = 0; first < 60; ++first)
    for (int64_t count = 1; count <= 60 - first; ++count) {
      int64_t next = first;
      for (const Box& box : boxes_of(size, first, count)) {
        EXPECT_EQ(box.at, next - first);
        for_each_element(box.size, [&](int64_t, int64_t i, int64_t j, int64_t k) {
          EXPECT_EQ(((box.begin[0] + i) * 4 + box.begin[1] + j) * 5 + box.begin[2] + k, next++);
        });
      }
      ASSERT_EQ(next, first + count);
    }
}

}  // namespace
}  // namespace quintet::hf
