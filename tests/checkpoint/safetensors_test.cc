#include "checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/temp_folder.h"

namespace quintet::checkpoint {
namespace {

using base::DType;
using test::TempFolder;
using test::user_error;

// A file in the layout that other tools write.
std::string file_of(const std::string& header, const std::string& data) {
  std::string text(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(text.data(), &length, 8);
  return text + header + data;
}

TEST(Safetensors, RoundTrip) {
  const TempFolder folder;
  const std::string path = folder / "model.safetensors";
  const std::vector<TensorInfo> tensors = {{"b.weight", DType::F32, {2, 3}},
                                           {"a", DType::BF16, {5}},
                                           {"scalar", DType::I64, {}},
                                           {"empty", DType::F64, {0, 4}}};
  write_safetensors(path, tensors, {{"step", "7"}}, [&](size_t index, std::span<std::byte> out) {
    ASSERT_EQ(static_cast<int64_t>(out.size()), tensors[index].bytes());
    for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::byte>(index * 50 + i);
  });
  const SafetensorsFile file(path);
  EXPECT_EQ(file.metadata().at("step"), "7");
  ASSERT_EQ(file.tensors().size(), 4u);
  for (size_t index = 0; index < tensors.size(); ++index) {
    const TensorInfo* t = file.find(tensors[index].name);
    ASSERT_NE(t, nullptr);
    EXPECT_EQ(t->dtype, tensors[index].dtype);
    EXPECT_EQ(t->shape, tensors[index].shape);
    const auto bytes = file.bytes(*t);
    ASSERT_EQ(static_cast<int64_t>(bytes.size()), tensors[index].bytes());
    for (size_t i = 0; i < bytes.size(); ++i) EXPECT_EQ(bytes[i], static_cast<std::byte>(index * 50 + i));
  }
  EXPECT_EQ(file.find("c"), nullptr);
}

TEST(Safetensors, ReadsWhatOthersWrite) {
  const TempFolder folder;
  const std::string path = folder / "other.safetensors";
  base::write_file_atomically(path, file_of(R"({"y":{"dtype":"F32","shape":[1],"data_offsets":[4,8]},)"
                                            R"("x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}    )",
                                            "abcdefgh"));
  const SafetensorsFile file(path);
  EXPECT_EQ(std::memcmp(file.bytes(*file.find("x")).data(), "abcd", 4), 0);
  EXPECT_EQ(std::memcmp(file.bytes(*file.find("y")).data(), "efgh", 4), 0);
}

TEST(Safetensors, DamagedFilesAreRefusedWithTheirName) {
  const TempFolder folder;
  const std::string path = folder / "bad.safetensors";
  const auto refused = [&](const std::string& contents) {
    base::write_file_atomically(path, contents);
    const std::string message = user_error([&] { const SafetensorsFile file(path); });
    EXPECT_NE(message.find("bad.safetensors"), std::string::npos) << message;
  };
  const auto tensor = [](const std::string& fields) {
    return file_of("{\"x\":{" + fields + "}}", "abcdefgh");
  };
  refused("");
  refused("abc");
  refused(file_of("{", ""));
  refused(file_of("[]", ""));
  refused(std::string(8, '\xff') + "{}");                                 // header past the end
  refused(tensor(R"("dtype":"F32","shape":[1])"));                        // no range
  refused(tensor(R"("dtype":"F3","shape":[1],"data_offsets":[0,4])"));    // unknown type
  refused(tensor(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"));   // shape and range differ
  refused(tensor(R"("dtype":"F32","shape":[4],"data_offsets":[0,16])"));  // past the end
  refused(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[-4,0])"));  // before the start
  refused(tensor(R"("dtype":"F32","shape":[-1],"data_offsets":[4,0])"));  // negative
  refused(tensor(R"("dtype":"F32","shape":[4611686018427387905],"data_offsets":[0,4])"));  // count overflows
  refused(tensor(R"("dtype":"F32","shape":["1"],"data_offsets":[0,4])"));                  // not a number
  refused(tensor(R"("dtype":"F32","shape":[1.5],"data_offsets":[0,4])"));                  // a fraction
  refused(tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,8.5])"));                  // a fraction
  refused(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])"));                    // bytes left over
  refused(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])"));        // a gap at the start
  refused(file_of(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"  // overlapping
                  R"("y":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                  "abcdefgh"));

  // Every truncation of a valid file.
  const std::string good = tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])");
  for (size_t length = 0; length < good.size(); ++length) refused(good.substr(0, length));
}

TEST(Safetensors, NothingIsLeftWhenWritingFails) {
  const TempFolder folder;
  const std::string path = folder / "model.safetensors";
  EXPECT_THROW(write_safetensors(path, {{"x", DType::F32, {4}}}, {},
                                 [](size_t, std::span<std::byte>) { throw std::runtime_error("stop"); }),
               std::runtime_error);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace quintet::checkpoint
