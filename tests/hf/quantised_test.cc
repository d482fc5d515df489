// Quantised files, against what the publishers' conversions make of them (models_test.py --write-goldens).
#include <gtest/gtest.h>

#include <cmath>

#include "base/temp_folder.h"
#include "hf/diff.h"
#include "hf/mapped_source.h"
#include "hf/safetensors_source.h"

namespace quintet::hf {
namespace {

const base::Path kFiles = base::Path(QUINTET_SOURCE_DIR) / "tests/hf/quantised";

void expect_equal(const char* name, const char* expected_name) {
  const auto got = without_blocks(open_tensors(kFiles / name)),
             expected = open_tensors(kFiles / expected_name);
  const Difference d = compare(*got, *expected);
  EXPECT_TRUE(d.is_equal()) << (d.tensors.empty() ? "names" : d.tensors[0].name);
  EXPECT_EQ(d.compared, static_cast<int64_t>(expected->tensors().size()));
  EXPECT_TRUE(d.types.empty());
}

TEST(Quantised, Fp8BlocksAreThoseOfDeepSeek) {
  expect_equal("fp8.safetensors", "fp8_expected.safetensors");
  // Any part of a tensor has the numbers of the whole.
  const auto source = open_tensors(kFiles / "fp8.safetensors"),
             expected = open_tensors(kFiles / "fp8_expected.safetensors");
  const TensorInfo &t = *source->find("wide.weight"), &e = *expected->find("wide.weight");
  for (int64_t first = 0; first < t.count(); first += 37) {
    std::vector<std::byte> a(static_cast<size_t>(2 * std::min<int64_t>(37, t.count() - first))), b(a.size());
    source->read(t, first, a), expected->read(e, first, b);
    for (size_t i = 0; i < a.size(); i += 2)
      if ((static_cast<uint8_t>(a[i + 1]) & 0x7f) != 0x7f) {
        EXPECT_TRUE(a[i] == b[i] && a[i + 1] == b[i + 1]);
      }
  }
}

TEST(Quantised, Mxfp4IsThatOfTransformers) {
  expect_equal("mxfp4.safetensors", "mxfp4_expected.safetensors");
}

TEST(Quantised, NumbersOfFp8) {
  EXPECT_EQ(fp8_e4m3(0x38), 1.0f);
  EXPECT_EQ(fp8_e4m3(0x7e), 448.0f);
  EXPECT_EQ(fp8_e4m3(0x01), std::ldexp(1.0f, -9));
  EXPECT_EQ(fp8_e4m3(0x88), -std::ldexp(8.0f, -9));
  EXPECT_TRUE(std::isnan(fp8_e4m3(0x7f)) && std::isnan(fp8_e4m3(0xff)));
}

TEST(Quantised, ScalesMustBeThere) {
  const test::TempFolder folder;
  const std::string header = R"({"x.weight":{"dtype":"F8_E4M3","shape":[2,2],"data_offsets":[0,4]}}     )";
  std::string text(8, '\0');
  text[0] = static_cast<char>(header.size());
  base::write_file_atomically(folder / "x.safetensors", text + header + "abcd");
  EXPECT_CONTAINS(test::user_error([&] { open_tensors(folder / "x.safetensors"); }),
                  "x.weight_scale_inv is missing");
}

}  // namespace
}  // namespace quintet::hf
