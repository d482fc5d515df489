#include "text/record_reader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/printable.h"
#include "base/text.h"
#include "text/byte_stream.h"
#include "text/json_file.h"

namespace quintet::text {
namespace {

constexpr size_t kBuffer = size_t{1} << 20;

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

[[noreturn]] void fail_too_long(const base::Path& path, int64_t line) {
  throw DamagedFile(fmt::format("{}:{}: a document of more than {} is not supported", path.string(), line,
                                base::human_bytes(kLongestRecord)));
}

class WholeText final : public FileRecords {
 public:
  WholeText(const base::Path& path, int64_t first)
      : path_(path), stream_(open_bytes(path)), done_(first > 0) {}

  bool next(Record& record) override {
    if (std::exchange(done_, true)) return false;
    record.number = 1;
    record.bytes.clear();
    while (true) {
      const size_t before = record.bytes.size();
      record.bytes.resize(before + kBuffer);
      const size_t got = stream_->read(std::span(record.bytes).subspan(before));
      record.bytes.resize(before + got);
      if (record.bytes.find('\0', before) != std::string::npos) break;  // binary: the rest is not needed
      if (static_cast<int64_t>(record.bytes.size()) > kLongestRecord) fail_too_long(path_, 1);
      if (got == 0) break;
    }
    size_ = static_cast<int64_t>(record.bytes.size());
    return true;
  }
  int64_t offset() const override { return size_; }
  int64_t consumed() const override { return stream_->consumed(); }
  std::optional<uint64_t> checksum() const override { return stream_->checksum(); }

 private:
  base::Path path_;
  std::unique_ptr<ByteStream> stream_;
  bool done_;
  int64_t size_ = 0;
};

class Lines final : public FileRecords {
 public:
  Lines(const base::Path& path, const Position& start)
      : path_(path), stream_(open_bytes(path)), buffer_(kBuffer), line_(start.record), offset_(start.offset) {
    stream_->skip(start.offset);
  }

  bool next(Record& record) override {
    do {
      if (!next_line(record.bytes)) return false;
      ++line_;
    } while (is_blank(record.bytes));
    record.number = line_;
    return true;
  }
  int64_t offset() const override { return offset_; }
  int64_t consumed() const override { return stream_->consumed(); }
  std::optional<uint64_t> checksum() const override { return stream_->checksum(); }

 private:
  bool next_line(std::string& line) {
    line.clear();
    while (true) {
      if (begin_ == end_) {
        begin_ = 0;
        end_ = stream_->read(buffer_);
        if (end_ == 0) return !line.empty();
      }
      const char* from = buffer_.data() + begin_;
      const auto* newline = static_cast<const char*>(std::memchr(from, '\n', end_ - begin_));
      const size_t n = newline != nullptr ? static_cast<size_t>(newline - from) : end_ - begin_;
      line.append(from, n);
      const size_t used = n + (newline != nullptr ? 1 : 0);
      begin_ += used;
      offset_ += static_cast<int64_t>(used);
      if (static_cast<int64_t>(line.size()) > kLongestRecord) fail_too_long(path_, line_ + 1);
      if (newline != nullptr) return true;
    }
  }

  base::Path path_;
  std::unique_ptr<ByteStream> stream_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;
  int64_t line_, offset_;
};

// Whether the first object has a field that is asked for, as far as it was looked at. One that is not strict
// JSON (Python writes NaN) may have it: the reader of records reports it.
bool has_any(const JsonPeek& peek, const std::vector<std::string>& columns) {
  if (columns.empty() || peek.first.empty()) return true;
  const auto first = base::parse_json(peek.first);
  if (first.is_discarded()) return true;
  return first.is_object() &&
         std::ranges::any_of(columns, [&](const std::string& name) { return first.contains(name); });
}

}  // namespace

bool is_json(const base::Path& path) { return without_compression(path).extension() == ".json"; }

FileKind kind_of(const base::Path& path, const std::vector<std::string>& columns) {
  const auto extension = without_compression(path).extension();
  if (extension == ".jsonl" || extension == ".ndjson") return FileKind::Lines;
  if (path.extension() == ".parquet") return FileKind::Parquet;
  if (extension != ".json") return FileKind::Text;
  const JsonPeek peek = peek_json(path);
  switch (peek.shape) {
    case JsonShape::Other:
      return FileKind::Text;
    case JsonShape::Lines:
      return FileKind::Lines;
    case JsonShape::Stream:
      return FileKind::Objects;
    case JsonShape::Array:
    case JsonShape::Single:
      return has_any(peek, columns) ? FileKind::Objects : FileKind::Text;
  }
  return FileKind::Text;
}

void require_fields(const base::Path& path, const std::vector<std::string>& columns) {
  if (!is_json(path)) return;
  const JsonPeek peek = peek_json(path);
  if (peek.shape != JsonShape::Array || has_any(peek, columns)) return;
  const auto first = base::parse_ordered_json(peek.first);
  if (!first.is_object())
    base::fail_user(
        "'{}' is an array whose first element is no object but {}: a record is an object with the field {}. "
        "Write one per element, or rename the file to .txt if the JSON itself is the text",
        path.string(), base::printable(peek.first.substr(0, 40)), fmt::join(columns, ", "));
  std::vector<std::string> fields;
  for (const auto& [key, value] : first.items()) fields.push_back(base::printable(key));
  base::fail_user(
      "'{}' is an array of objects without the field {}; the first has: {}. Name one of these "
      "(--field or --template, data.template in a recipe), or rename the file to .txt if the JSON itself is "
      "the text",
      path.string(), fmt::join(columns, ", "),
      fields.empty() ? "none" : fmt::format("{}", fmt::join(fields, ", ")));
}

RecordReader::RecordReader(std::vector<base::Path> files, std::vector<std::string> columns, Position start)
    : files_(std::move(files)), columns_(std::move(columns)), position_(start) {
  for (int64_t i = 0; i < std::min(start.file, static_cast<int64_t>(files_.size())); ++i)
    consumed_ += base::size_of_file(files_[static_cast<size_t>(i)]);
}

void RecordReader::open_current() {
  const base::Path& path = files_[static_cast<size_t>(position_.file)];
  kind_ = kind_of(path, columns_);
  switch (kind_) {
    case FileKind::Lines:
      current_ = std::make_unique<Lines>(path, position_);
      break;
    case FileKind::Objects:
      current_ = open_json_values(path, position_);
      break;
    case FileKind::Parquet:
      current_ = open_parquet(path, columns_, position_.record);
      break;
    case FileKind::Text:
      current_ = std::make_unique<WholeText>(path, position_.record);
      break;
  }
}

bool RecordReader::next(Record& record) {
  while (position_.file < static_cast<int64_t>(files_.size())) {
    const base::Path& path = files_[static_cast<size_t>(position_.file)];
    record.file = position_.file;
    record.damage.clear();
    try {
      if (!current_) open_current();
      record.kind = kind_;
      if (current_->next(record)) {
        position_.record = record.number;
        position_.offset = current_->offset();
        return true;
      }
      finished_.push_back({position_.file, current_->checksum()});
    } catch (const DamagedFile& error) {
      record.kind = kind_;
      record.bytes.clear();
      record.number = position_.record + 1;
      record.damage = error.what();
    }
    // The position is that of the next file also when the rest of this one is lost.
    consumed_ += base::size_of_file(path);
    current_.reset();
    position_ = {.file = position_.file + 1};
    if (!record.damage.empty()) {
      finished_.push_back({position_.file - 1, std::nullopt});
      return true;
    }
  }
  return false;
}

int64_t RecordReader::consumed() const { return consumed_ + (current_ ? current_->consumed() : 0); }

}  // namespace quintet::text
