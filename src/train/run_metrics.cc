#include "train/run_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file_system.h"
#include "base/json.h"

namespace quintet::train {

void RunMetrics::open(int64_t step) {
  truncate_metrics(path_, step);
  file_.emplace(path_, observe::MetricsFile::Start::Continue);
}

std::string RunMetrics::append(const observe::Record& record) {
  try {
    file_->append(record);
    return {};
  } catch (const base::UserError& e) {
    return lost_records_++ > 0 ? std::string()
                               : fmt::format("warning: {}; training continues without this record", e.what());
  }
}

void RunMetrics::amend(int64_t step, const observe::Record& more) {
  amend_metrics(path_, step, more);
  file_.emplace(path_, observe::MetricsFile::Start::Continue);
}

void RunMetrics::sync() {
  if (!file_) return;
  try {
    file_->sync();
    if (!is_named_) base::FileSystem::real().sync_directory(path_.parent_path());
    is_named_ = true;
  } catch (const base::UserError&) {
    sync_failed_ = true;
  }
}

std::string RunMetrics::incomplete() const {
  if (lost_records_ > 0) return fmt::format("{} lacks {} records", path_.string(), lost_records_);
  if (sync_failed_) return fmt::format("{} could not be flushed to disk", path_.string());
  return {};
}

int64_t last_recorded_step(const base::Path& path) {
  constexpr int64_t kTail = int64_t{4} << 20;  // more than a record has
  if (!base::file_exists(path)) return 0;
  const base::InputFile file(path);
  std::string text(static_cast<size_t>(std::min(kTail, file.size())), '\0');
  file.read(file.size() - std::ssize(text), std::as_writable_bytes(std::span(text)));
  for (size_t end = text.rfind('\n'); end != std::string::npos && end > 0;) {
    const size_t before = text.rfind('\n', end - 1), begin = before == std::string::npos ? 0 : before + 1;
    const auto record = base::parse_json(std::string_view(text).substr(begin, end - begin));
    if (record.is_object() && record.contains("step") && record["step"].is_number_integer())
      return record["step"].get<int64_t>();
    end = before;
  }
  return 0;
}

void amend_metrics(const base::Path& path, int64_t step, const observe::Record& more) {
  if (!base::file_exists(path)) return;
  const std::string text = base::read_file(path);
  std::string amended;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    auto record = base::parse_ordered_json(std::string_view(text).substr(at, end - at));
    if (record.is_object() && record.value("step", int64_t{0}) == step) {
      for (const auto& [key, value] : more.object().items()) record[key] = value;
      amended += base::json_text(record) + "\n";
    } else {
      amended.append(text, at, end - at);
    }
    at = end;
  }
  base::write_file_atomically(path, amended);
}

void truncate_metrics(const base::Path& path, int64_t step) {
  if (!base::file_exists(path)) return;
  const std::string text = base::read_file(path);
  std::string kept;
  int64_t last = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    if (end == std::string::npos) break;  // a record that a crash has cut off
    const auto record = base::parse_json(std::string_view(text).substr(at, end - at));
    const int64_t number = record.is_object() ? record.value("step", int64_t{0}) : 0;
    if (number > last && number <= step) {
      kept.append(text, at, end + 1 - at);
      last = number;
    }
    at = end + 1;
  }
  if (kept != text) base::write_file_atomically(path, kept);
}

}  // namespace quintet::train
