#include "observe/metrics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace quintet::observe {
namespace {

// A run that was killed in the middle of a write leaves half a line; whoever continues the file takes it
// away.
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

std::string json_number(double value) {
  if (!std::isfinite(value)) return "null";
  std::string text = fmt::format("{}", value);
  // A bare "-0" or "3" would be read as an integer, which loses the sign of zero and the type.
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string json_string(std::string_view text) {
  return nlohmann::json(std::string(text)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void Record::key(std::string_view name) {
  QUINTET_CHECK(std::find(keys_.begin(), keys_.end(), name) == keys_.end(), "metric '{}' is set twice", name);
  keys_.emplace_back(name);
  if (!body_.empty()) body_ += ", ";
  body_ += json_string(name) + ": ";
}

Record& Record::set(std::string_view name, double value) {
  key(name);
  body_ += json_number(value);
  if (!std::isfinite(value)) {
    key(std::string(name) + "_nonfinite");
    body_ += std::isnan(value) ? "\"nan\"" : value > 0 ? "\"inf\"" : "\"-inf\"";
  }
  return *this;
}

Record& Record::set(std::string_view name, int64_t value) {
  key(name);
  body_ += fmt::format("{}", value);
  return *this;
}

Record& Record::set(std::string_view name, bool value) {
  key(name);
  body_ += value ? "true" : "false";
  return *this;
}

Record& Record::set(std::string_view name, std::string_view value) {
  key(name);
  body_ += json_string(value);
  return *this;
}

Record& Record::set(std::string_view name, std::span<const int64_t> values) {
  key(name);
  body_ += fmt::format("[{}]", fmt::join(values, ", "));
  return *this;
}

Record& Record::set(std::string_view name, std::span<const Record> records) {
  key(name);
  body_ += "[";
  for (size_t i = 0; i < records.size(); ++i) body_ += (i > 0 ? ", " : "") + records[i].json();
  body_ += "]";
  return *this;
}

MetricsFile::MetricsFile(const base::Path& path, Start start) : file_(open_records(path, start)) {}

void MetricsFile::append(const Record& record) { file_.append(record.json() + "\n"); }

}  // namespace quintet::observe
