#include "observe/metrics.h"

#include <cmath>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace quintet::observe {
namespace {

// A run that is killed during a write leaves an incomplete last line, which the run that continues the file
// removes.
base::AppendFile open_records(const base::Path& path, MetricsFile::Start start) {
  if (start == MetricsFile::Start::Fresh) return {path, base::AppendFile::Start::Empty};
  if (base::file_exists(path)) {
    const std::string text = base::read_file(path);
    const size_t whole = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;
    if (whole != text.size()) base::write_file_atomically(path, std::string_view(text).substr(0, whole));
  }
  return {path, base::AppendFile::Start::AtEnd};
}

}  // namespace

std::string json_number(double value) { return base::json_text(value); }

std::string json_string(std::string_view text) { return base::json_text(text); }

Record& Record::insert(std::string_view key, nlohmann::ordered_json value) {
  QUINTET_CHECK(!object_.contains(std::string(key)), "metric '{}' is set twice", key);
  object_[std::string(key)] = std::move(value);
  return *this;
}

Record& Record::set(std::string_view key, double value) {
  insert(key, value);
  if (!std::isfinite(value))
    insert(std::string(key) + "_nonfinite", std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
  return *this;
}

Record& Record::set(std::string_view key, int64_t value) { return insert(key, value); }

Record& Record::set(std::string_view key, bool value) { return insert(key, value); }

Record& Record::set(std::string_view key, std::string_view value) { return insert(key, value); }

Record& Record::set(std::string_view key, std::span<const int64_t> values) {
  return insert(key, std::vector<int64_t>(values.begin(), values.end()));
}

Record& Record::set(std::string_view key, std::span<const Record> records) {
  auto list = nlohmann::ordered_json::array();
  for (const Record& record : records) list.push_back(record.object_);
  return insert(key, std::move(list));
}

Record& Record::add(const Record& other) {
  for (const auto& [key, value] : other.object_.items()) insert(key, value);
  return *this;
}

std::string Record::json() const { return base::json_text(object_); }

MetricsFile::MetricsFile(const base::Path& path, Start start) : file_(open_records(path, start)) {}

void MetricsFile::append(const Record& record) { file_.append(record.json() + "\n"); }

}  // namespace quintet::observe
