#include "data/npy_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "base/temp_folder.h"

namespace quintet::data {
namespace {

using test::user_error;

// The bytes that numpy.save writes: a header padded to 64 bytes, then the elements.
template <class T>
std::string npy(const char* type, const std::vector<T>& values, std::string shape = {}, char version = 1) {
  if (shape.empty()) shape = "(" + std::to_string(values.size()) + ",)";
  std::string header =
      "{'descr': '" + std::string(type) + "', 'fortran_order': False, 'shape': " + shape + ", }";
  const size_t before = version == 1 ? 10 : 12;
  while ((before + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  std::string out = "\x93NUMPY";
  out += version;
  out += '\0';
  for (size_t i = 0; i < before - 8; ++i) out += static_cast<char>(header.size() >> (8 * i));
  out += header;
  out.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  return out;
}

struct NpyFolder {
  base::Path write(std::string_view bytes) const {
    std::ofstream(folder / "a.npy", std::ios::binary) << bytes;
    return folder / "a.npy";
  }
  test::TempFolder folder;
};

std::vector<int32_t> ids_of(const Corpus& corpus) {
  std::vector<int32_t> ids(static_cast<size_t>(corpus.tokens()));
  corpus.read(0, ids);
  return ids;
}

TEST(NpyFile, ReadsEveryTypeOfTokens) {
  const NpyFolder f;
  const std::vector<int32_t> expected = {1, 0, 200, 7};
  const auto read = [&](std::string_view bytes) { return ids_of(open_npy_file(f.write(bytes), 300)); };
  EXPECT_EQ(read(npy<uint8_t>("|u1", {1, 0, 200, 7})), expected);
  EXPECT_EQ(read(npy<uint16_t>("<u2", {1, 0, 200, 7})), expected);
  EXPECT_EQ(read(npy<uint32_t>("<u4", {1, 0, 200, 7})), expected);
  EXPECT_EQ(read(npy<int32_t>("<i4", {1, 0, 200, 7})), expected);
  EXPECT_EQ(read(npy<int64_t>("<i8", {1, 0, 200, 7})), expected);
  EXPECT_EQ(read(npy<uint16_t>("<u2", {1, 0, 200, 7}, {}, 2)), expected);
  EXPECT_EQ(open_npy_file(f.write(npy<uint16_t>("<u2", {1, 2})), 300).documents(), 1);
}

TEST(NpyFile, RefusesWhatIsNoListOfTokens) {
  const NpyFolder f;
  const auto refused = [&](std::string_view bytes) {
    return user_error([&] { ids_of(open_npy_file(f.write(bytes), 300)); });
  };
  EXPECT_CONTAINS(refused("hello"), "not a .npy file");
  EXPECT_CONTAINS(refused(npy<float>("<f4", {1, 2})), "f4");
  EXPECT_CONTAINS(refused(npy<uint16_t>(">u2", {1, 2})), "little-endian");
  EXPECT_CONTAINS(refused(npy<uint16_t>("<u2", {1, 2, 3, 4}, "(2, 2)")), "the shape (2, 2)");
  EXPECT_CONTAINS(refused(npy<uint16_t>("<u2", {1, 2}, "(3,)")), "is truncated");
  EXPECT_CONTAINS(refused(npy<uint16_t>("<u2", {1, 2}, "(1,)")), "is too long");
  EXPECT_CONTAINS(refused(npy<uint16_t>("<u2", {1, 2}, "(9223372036854775807,)")), "is truncated");
  EXPECT_CONTAINS(refused(npy<uint16_t>("<u2", {}, "(0,)")), "no tokens");
  EXPECT_CONTAINS(refused(npy<uint16_t>("<u2", {1, 300})), "token 300 at position 1");
  EXPECT_CONTAINS(refused(npy<int64_t>("<i8", {1, -1})), "token -1 at position 1");
  EXPECT_CONTAINS(refused(npy<int32_t>("<i4", {1, -1})), "outside the vocabulary");
  const std::string good = npy<uint16_t>("<u2", {1, 2, 3});
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_FALSE(refused(good.substr(0, size)).empty()) << size;
}

TEST(NpyFile, ReadsNumbers) {
  const NpyFolder f;
  const std::vector<double> expected = {1.5, -2, 0};
  EXPECT_EQ(read_npy_numbers(f.write(npy<double>("<f8", {1.5, -2, 0}))), expected);
  EXPECT_EQ(read_npy_numbers(f.write(npy<float>("<f4", {1.5F, -2, 0}))), expected);
  EXPECT_EQ(read_npy_numbers(f.write(npy<int8_t>("|i1", {1, -2}))), (std::vector<double>{1, -2}));
  EXPECT_EQ(read_npy_numbers(f.write(npy<uint64_t>("<u8", {1, 2}))), (std::vector<double>{1, 2}));
}

}  // namespace
}  // namespace quintet::data
