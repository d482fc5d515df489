#include "observe/metrics.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/philox.h"
#include "base/temp_folder.h"

namespace quintet::observe {
namespace {

double read_back(double value) { return nlohmann::json::parse(json_number(value)).get<double>(); }

TEST(Metrics, DoublesReadBackBitEqual) {
  std::vector<double> values = {
      0.0, -0.0, 1.0, 0.1, 1e22, 1e-5, 123456789012345678.0, 5e-324, 1.7976931348623157e308, 1.0 / 3};
  for (uint64_t i = 0; i < 20'000; ++i) {
    const auto words = base::philox(7, i);
    values.push_back(std::bit_cast<double>((uint64_t{words[0]} << 32) | words[1]));
    values.push_back(static_cast<double>(std::bit_cast<float>(words[2])));
  }
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    ASSERT_EQ(std::bit_cast<uint64_t>(read_back(value)), std::bit_cast<uint64_t>(value))
        << json_number(value);
  }
}

TEST(Metrics, RecordKeepsOrderAndTypes) {
  Record record;
  record.set("step", 3).set("loss", 2.0).set("skipped", false).set("note", "a \"b\"\n");
  EXPECT_EQ(record.json(), R"({"step": 3, "loss": 2.0, "skipped": false, "note": "a \"b\"\n"})");
  EXPECT_THROW(record.set("loss", 1.0), base::InternalError);
}

TEST(Metrics, RecordsHoldListsOfNumbersAndRecords) {
  const std::vector<int64_t> numbers = {3, -1}, none;
  std::vector<Record> records(2);
  records[0].set("load", std::span<const int64_t>(numbers));
  Record record;
  record.set("step", 1).set("experts", std::span<const Record>(records));
  record.set("none", std::span<const int64_t>(none));
  EXPECT_EQ(record.json(), R"({"step": 1, "experts": [{"load": [3, -1]}, {}], "none": []})");
  EXPECT_THROW(record.set("experts", std::span<const int64_t>(numbers)), base::InternalError);
}

TEST(Metrics, NonFiniteIsNullAndNamed) {
  const double inf = std::numeric_limits<double>::infinity();
  Record record;
  record.set("loss", std::nan("")).set("grad_norm", inf).set("lr", -inf);
  const auto json = nlohmann::json::parse(record.json());
  EXPECT_TRUE(json.at("loss").is_null());
  EXPECT_EQ(json.at("loss_nonfinite"), "nan");
  EXPECT_EQ(json.at("grad_norm_nonfinite"), "inf");
  EXPECT_EQ(json.at("lr_nonfinite"), "-inf");
}

TEST(Metrics, BadUtf8IsStillJson) {
  EXPECT_EQ(nlohmann::json::parse(json_string("a\xff z")).get<std::string>(), "a\xEF\xBF\xBD z");
}

TEST(Metrics, OneLinePerRecordFlushedAtOnce) {
  const test::TempFolder folder;
  const auto path = folder / "metrics.jsonl";
  MetricsFile file(path, MetricsFile::Start::Fresh);
  file.append(Record().set("step", 1));
  EXPECT_EQ(base::read_file(path), "{\"step\": 1}\n");
  file.append(Record().set("step", 2));
  EXPECT_EQ(base::read_file(path), "{\"step\": 1}\n{\"step\": 2}\n");
}

TEST(Metrics, ContinuingDropsAnIncompleteLine) {
  const test::TempFolder folder;
  const auto path = folder / "metrics.jsonl";
  base::write_file_atomically(path, "{\"step\": 1}\n{\"st");
  MetricsFile(path, MetricsFile::Start::Continue).append(Record().set("step", 2));
  EXPECT_EQ(base::read_file(path), "{\"step\": 1}\n{\"step\": 2}\n");
  base::write_file_atomically(path, "{\"st");
  MetricsFile(path, MetricsFile::Start::Continue).append(Record().set("step", 1));
  EXPECT_EQ(base::read_file(path), "{\"step\": 1}\n");
  MetricsFile(path, MetricsFile::Start::Fresh);
  EXPECT_EQ(base::read_file(path), "");
}

TEST(Metrics, FullDiskIsAnError) {
  MetricsFile file("/dev/full", MetricsFile::Start::Fresh);
  EXPECT_CONTAINS(test::user_error([&] { file.append(Record().set("step", 1)); }), "No space left on device");
}

}  // namespace
}  // namespace quintet::observe
