// metrics.jsonl: one JSON object per step. Floats are printed so that they read back bit-equal. JSON has no
// NaN: a non-finite number is written as null, and its name ("nan", "inf", "-inf") is added as a string under
// "<key>_nonfinite".
#pragma once

#include <concepts>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "base/file.h"

namespace quintet::observe {

// A JSON number that reads back to the same bits, the sign of zero included; "null" when not finite.
std::string json_number(double value);
// A JSON string with its quotes. Bytes that are not valid UTF-8 become U+FFFD.
std::string json_string(std::string_view text);

// One JSON object; keys keep the order in which they were set. Setting a key twice is an internal error.
class Record {
 public:
  Record& set(std::string_view key, double value);
  Record& set(std::string_view key, int64_t value);
  Record& set(std::string_view key, bool value);
  Record& set(std::string_view key, std::string_view value);
  Record& set(std::string_view key, const char* value) { return set(key, std::string_view(value)); }
  template <std::integral T>
  requires(!std::same_as<T, bool> && !std::same_as<T, int64_t>) Record& set(std::string_view key, T value) {
    return set(key, static_cast<int64_t>(value));
  }
  Record& set(std::string_view key, std::span<const int64_t> values);
  Record& set(std::string_view key, std::span<const Record> records);
  Record& add(const Record& other);  // its keys, after those that are set
  const nlohmann::ordered_json& object() const { return object_; }
  std::string json() const;  // the object on one line

 private:
  Record& insert(std::string_view key, nlohmann::ordered_json value);
  nlohmann::ordered_json object_ = nlohmann::ordered_json::object();
};

class MetricsFile {
 public:
  enum class Start { Fresh, Continue };  // Continue keeps earlier records and drops an incomplete last line
  MetricsFile(const base::Path& path, Start start);
  void append(const Record& record);  // the whole line is written to the file before this returns
  void sync() { file_.sync(); }       // flushes to disk; any thread

 private:
  base::AppendFile file_;
};

}  // namespace quintet::observe
