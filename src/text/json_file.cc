#include "text/json_file.h"

#include "base/text.h"
#include "text/byte_stream.h"

namespace quintet::text {
namespace {

constexpr size_t kRead = size_t{1} << 20;
// Bytes in which the first object ends, else it is not looked at.
constexpr size_t kPeeked = size_t{64} << 20;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// The bytes of a file, one at a time or as far as a predicate holds.
class Bytes {
 public:
  explicit Bytes(const base::Path& path) : stream_(open_bytes(path)), buffer_(kRead) {}

  void skip(int64_t bytes) {
    stream_->skip(bytes);
    offset_ = bytes;
  }
  // False at the end.
  bool peek(char& c) {
    if (begin_ == end_) {
      begin_ = 0;
      end_ = stream_->read(buffer_);
      if (end_ == 0) return false;
    }
    c = buffer_[begin_];
    return true;
  }
  void take() { ++begin_, ++offset_; }
  // False at the end. A byte order mark may begin the file.
  bool skip_space(char& c) {
    static constexpr std::string_view kMark = "\xEF\xBB\xBF";
    while (peek(c)) {
      const bool marks = offset_ < 3 && c == kMark[static_cast<size_t>(offset_)];
      if (!marks && !is_space(c)) return true;
      take();
    }
    return false;
  }

  enum class Value { Whole, Missing, Truncated, TooLong };
  // Appends the value that begins here: what is between brackets, or else up to a comma, bracket or space.
  Value value(std::string& out, size_t most) {
    int64_t depth = 0;
    bool in_string = false, escaped = false;
    char c = 0;
    while (peek(c)) {
      if (depth == 0 && !in_string && (c == ',' || c == ']' || is_space(c)))
        return out.empty() ? Value::Missing : Value::Whole;
      if (out.size() >= most) return Value::TooLong;
      // All bytes of the buffer that end nothing, at once.
      const char* const from = buffer_.data() + begin_;
      size_t n = 0;
      bool ends = false;
      for (const size_t room = std::min(end_ - begin_, most - out.size()); n < room && !ends; ++n) {
        c = from[n];
        if (in_string) {
          if (escaped)
            escaped = false;
          else if (c == '\\')
            escaped = true;
          else if (c == '"')
            in_string = false, ends = depth == 0;
        } else if (c == '"') {
          in_string = true;
        } else if (c == '{' || c == '[') {
          ++depth;
        } else if (depth > 0 && (c == '}' || c == ']')) {
          ends = --depth == 0;
        } else if (depth == 0 && (c == ',' || c == ']' || is_space(c))) {
          break;
        }
      }
      out.append(from, n);
      begin_ += n, offset_ += static_cast<int64_t>(n);
      if (ends) return Value::Whole;
    }
    return depth > 0 || in_string || out.empty() ? Value::Truncated : Value::Whole;
  }

  int64_t offset() const { return offset_; }
  const ByteStream& stream() const { return *stream_; }

 private:
  std::unique_ptr<ByteStream> stream_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;
  int64_t offset_ = 0;
};

class JsonValues final : public FileRecords {
 public:
  JsonValues(const base::Path& path, const Position& start) : bytes_(path), number_(start.record) {
    char c = 0;
    if (start.offset > 0) {
      Bytes begin(path);
      is_array_ = begin.skip_space(c) && c == '[';
      bytes_.skip(start.offset);
    } else if (bytes_.skip_space(c) && c == '[') {
      is_array_ = true;
      bytes_.take();
    }
  }

  bool next(Record& record) override {
    char c = 0;
    if (ended_) return false;
    bool more = bytes_.skip_space(c);
    if (is_array_) {
      if (more && c == ']') return end_of_array();
      if (number_ > 0) {
        if (more && c != ',') fail(fmt::format("no comma follows object {}", number_));
        if (more) bytes_.take(), more = bytes_.skip_space(c);
      }
      if (!more) fail(fmt::format("the file ends after object {}, within the array", number_));
    }
    if (!more) return false;
    record.bytes.clear();
    switch (bytes_.value(record.bytes, size_t{kLongestRecord})) {
      case Bytes::Value::Whole:
        break;
      case Bytes::Value::Missing:
        fail(fmt::format("no value follows the comma after object {}", number_));
      case Bytes::Value::Truncated:
        fail(fmt::format("the file ends within object {}", number_ + 1));
      case Bytes::Value::TooLong:
        fail(fmt::format("object {} is longer than {}, which is not supported", number_ + 1,
                         base::human_bytes(kLongestRecord)));
    }
    record.number = ++number_;
    return true;
  }
  int64_t offset() const override { return bytes_.offset(); }
  int64_t consumed() const override { return bytes_.stream().consumed(); }
  std::optional<uint64_t> checksum() const override { return bytes_.stream().checksum(); }

 private:
  bool end_of_array() {
    bytes_.take();
    char c = 0;
    if (bytes_.skip_space(c)) fail("text follows the end of the array");
    ended_ = true;
    return false;
  }
  [[noreturn]] static void fail(const std::string& what) { throw DamagedFile(what); }

  Bytes bytes_;
  int64_t number_;
  bool is_array_ = false, ended_ = false;
};

}  // namespace

JsonPeek peek_json(const base::Path& path) {
  JsonPeek peek;
  try {
    Bytes bytes(path);
    char c = 0;
    if (!bytes.skip_space(c)) return peek;
    const bool array = c == '[';
    if (array) bytes.take();
    if (array && (!bytes.skip_space(c) || c == ']')) return peek;
    if (!array && c != '{') return peek;
    const auto found = bytes.value(peek.first, kPeeked);
    if (found != Bytes::Value::Whole && found != Bytes::Value::TooLong) return {};
    if (found == Bytes::Value::TooLong) return {array ? JsonShape::Array : JsonShape::Stream, ""};
    // Text that may not follow the first value is no reason to take records for plain text: reading them
    // names it.
    peek.shape = array ? JsonShape::Array : JsonShape::Single;
    if (array) return peek;
    const bool one_line = peek.first.find('\n') == std::string::npos;
    bool line_ends = false;
    while (bytes.peek(c) && is_space(c)) line_ends = line_ends || c == '\n', bytes.take();
    if (bytes.peek(c) && c == '{') peek.shape = one_line && line_ends ? JsonShape::Lines : JsonShape::Stream;
  } catch (const DamagedFile&) {
    return {};
  }
  return peek;
}

std::unique_ptr<FileRecords> open_json_values(const base::Path& path, const Position& start) {
  return std::make_unique<JsonValues>(path, start);
}

}  // namespace quintet::text
