#include "data/arrow_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/plural.h"
#include "base/text.h"

namespace quintet::data {
namespace {

using Bytes = std::span<const std::byte>;

[[noreturn]] void fail_damaged(const std::string& name, const char* what) {
  base::fail_user("'{}' is a damaged Arrow file: {}", name, what);
}

// ---- flatbuffers: tables with optional fields, found by number

// A table of a flatbuffer, with bounds checked at every access.
class FlatTable {
 public:
  FlatTable(Bytes buffer, size_t at, const std::string& name) : buffer_(buffer), at_(at), name_(&name) {
    const auto back = get<int32_t>(at);
    if (back > static_cast<int64_t>(at)) fail_damaged(name, "a table lies outside of its message");
    vtable_ = static_cast<size_t>(static_cast<int64_t>(at) - back);
    fields_ = get<uint16_t>(vtable_);
  }
  // The table that a flatbuffer begins with.
  static FlatTable root(Bytes buffer, const std::string& name) {
    if (buffer.size() < 4) fail_damaged(name, "a message is too short");
    uint32_t at;
    std::memcpy(&at, buffer.data(), sizeof at);
    return FlatTable(buffer, at, name);
  }

  template <class T>
  T scalar(int field, T fallback) const {
    const size_t at = place(field);
    return at == 0 ? fallback : get<T>(at);
  }
  bool has(int field) const { return place(field) != 0; }
  std::optional<FlatTable> table(int field) const {
    const size_t at = place(field);
    if (at == 0) return std::nullopt;
    return FlatTable(buffer_, follow(at), *name_);
  }
  std::string_view string(int field) const {
    const auto [begin, count] = vector(field, 1);
    return {reinterpret_cast<const char*>(buffer_.data()) + begin, count};
  }
  // First byte and number of the elements of a vector; {0, 0} when there is none.
  std::pair<size_t, size_t> vector(int field, size_t element) const {
    const size_t at = place(field);
    if (at == 0) return {0, 0};
    const size_t begin = follow(at);
    const auto count = get<uint32_t>(begin);
    if (count > (buffer_.size() - begin - 4) / element)
      fail_damaged(*name_, "a list lies outside of its message");
    return {begin + 4, count};
  }
  std::vector<FlatTable> tables(int field) const {
    const auto [begin, count] = vector(field, 4);
    std::vector<FlatTable> list;
    for (size_t i = 0; i < count; ++i) list.emplace_back(buffer_, follow(begin + 4 * i), *name_);
    return list;
  }
  // The value at a byte of the buffer, such as an element of a vector.
  template <class T>
  T get(size_t at) const {
    if (at > buffer_.size() || buffer_.size() - at < sizeof(T))
      fail_damaged(*name_, "a value lies outside of its message");
    T value;
    std::memcpy(&value, buffer_.data() + at, sizeof value);
    return value;
  }

 private:
  size_t place(int field) const {
    const size_t entry = 4 + 2 * static_cast<size_t>(field);
    if (entry + 2 > fields_) return 0;
    const auto offset = get<uint16_t>(vtable_ + entry);
    return offset == 0 ? 0 : at_ + offset;
  }
  size_t follow(size_t at) const { return at + get<uint32_t>(at); }

  Bytes buffer_;
  size_t at_, vtable_ = 0;
  uint16_t fields_ = 0;
  const std::string* name_;
};

// ---- the schema

// Numbers of Arrow's Type union and MessageHeader union.
enum ArrowType : uint8_t {
  kNull = 1,
  kInt = 2,
  kBinary = 4,
  kUtf8 = 5,
  kList = 12,
  kStruct = 13,
  kUnion = 14,
  kFixedSizeList = 16,
  kMap = 17,
  kLargeBinary = 19,
  kLargeUtf8 = 20,
  kLargeList = 21,
  kRunEndEncoded = 22,
};
constexpr uint8_t kSchemaMessage = 1, kRecordBatchMessage = 3;
constexpr int kDeepest = 64;  // nested fields

struct Column {
  enum class Kind : uint8_t { None, Text, Tokens } kind = Kind::None;
  std::string name;
  bool large = false;  // 64-bit offsets
  int item_bytes = 0;  // of a token
  bool is_signed = true;
  size_t node = 0, buffer = 0;  // of the column; its items follow
};

struct Counts {
  size_t nodes = 0, buffers = 0;
};

void count_field(const FlatTable& field, Counts& counts, const std::string& name, int depth) {
  if (depth > kDeepest) fail_damaged(name, "its columns are nested too deeply");
  ++counts.nodes;
  const auto type = field.scalar<uint8_t>(2, 0);
  if (field.has(4)) {  // dictionary: indices
    counts.buffers += 2;
    return;
  }
  switch (type) {
    case kNull:
      break;
    case kBinary:
    case kUtf8:
    case kLargeBinary:
    case kLargeUtf8:
      counts.buffers += 3;
      break;
    case kStruct:
    case kFixedSizeList:
      counts.buffers += 1;
      break;
    case kUnion:
    case kRunEndEncoded:
      base::fail_user("'{}' has a column \"{}\" of Arrow's type {}, which is not supported: remove it", name,
                      field.string(0), type);
    default:
      if (type > kRunEndEncoded || type == 0)
        base::fail_user("'{}' has a column \"{}\" of Arrow's type {}, which is not supported: remove it",
                        name, field.string(0), type);
      counts.buffers += 2;
  }
  for (const FlatTable& child : field.tables(5)) count_field(child, counts, name, depth + 1);
}

Column column_of(const FlatTable& field, const Counts& at, const std::string& name) {
  Column c{.name = std::string(field.string(0)), .node = at.nodes, .buffer = at.buffers};
  const auto type = field.scalar<uint8_t>(2, 0);
  const auto refuse = [&](const char* wanted) {
    base::fail_user("'{}': column \"{}\" must hold {}, but has Arrow's type {}{}", name, c.name, wanted, type,
                    field.has(4) ? " as a dictionary" : "");
  };
  if (c.name == "text") {
    if (field.has(4) || (type != kUtf8 && type != kLargeUtf8)) refuse("strings");
    c.kind = Column::Kind::Text;
    c.large = type == kLargeUtf8;
    return c;
  }
  const std::vector<FlatTable> items = field.tables(5);
  const auto integer = items.size() == 1 ? items[0].table(3) : std::nullopt;
  if (field.has(4) || (type != kList && type != kLargeList) || !integer || items[0].has(4) ||
      items[0].scalar<uint8_t>(2, 0) != kInt)
    refuse("lists of integers");
  const auto bits = integer->scalar<int32_t>(0, 0);
  if (bits != 8 && bits != 16 && bits != 32 && bits != 64) refuse("lists of integers");
  c.kind = Column::Kind::Tokens;
  c.large = type == kLargeList;
  c.item_bytes = bits / 8;
  c.is_signed = integer->scalar<uint8_t>(1, 0) != 0;
  return c;
}

// The columns of token rows beside their ids, as tokenised data sets for fine-tuning have them.
constexpr std::string_view kLabels = "labels", kAttention = "attention_mask";
constexpr std::string_view kMasks[] = {"completion_mask", "assistant_masks", "loss_mask"};
constexpr int64_t kNoLabel = -100;

bool says_what_is_trained(std::string_view column) {
  return column == kLabels || column == kAttention || std::ranges::count(kMasks, column) > 0;
}

// The rows to read, and with "input_ids" what says which of their tokens are trained.
struct Columns {
  Column rows;
  std::vector<Column> flags;
};

Columns find_columns(const FlatTable& schema, const std::string& name) {
  if (schema.scalar<int16_t>(0, 0) != 0)
    base::fail_user("'{}' is big-endian; little-endian files are supported", name);
  Counts at;
  Column found;
  std::vector<std::pair<FlatTable, Counts>> flags;
  std::vector<std::string> names;
  for (const FlatTable& field : schema.tables(1)) {
    names.emplace_back(field.string(0));
    if (names.back() == "input_ids" || (names.back() == "text" && found.kind == Column::Kind::None))
      found = column_of(field, at, name);
    if (says_what_is_trained(names.back())) flags.emplace_back(field, at);
    count_field(field, at, name, 0);
  }
  Columns columns{.rows = found, .flags = {}};
  if (found.kind == Column::Kind::Tokens)
    for (const auto& [field, counts] : flags) columns.flags.push_back(column_of(field, counts, name));
  if (found.kind == Column::Kind::None)
    base::fail_user("'{}' has the columns {}; expected \"input_ids\" or \"text\"", name,
                    fmt::join(names, ", "));
  return columns;
}

// ---- record batches

class Batch {
 public:
  Batch(const FlatTable& header, Bytes body, const std::string& name)
      : header_(header), body_(body), name_(name) {
    if (header.has(3))
      base::fail_user("'{}' is compressed; uncompressed Arrow files are supported: load it and save it again",
                      name);
    nodes_ = header.vector(1, 16);
    buffers_ = header.vector(2, 16);
  }
  // Length of a column, or of the items of a list.
  int64_t length(size_t node) const {
    if (node >= nodes_.second) fail_damaged(name_, "a record batch lacks a column");
    const auto length = header_.get<int64_t>(nodes_.first + 16 * node);
    if (length < 0) fail_damaged(name_, "a column has a negative length");
    if (header_.get<int64_t>(nodes_.first + 16 * node + 8) != 0)
      base::fail_user("'{}' has empty values (nulls) in the column that is read: remove those rows", name_);
    return length;
  }
  Bytes buffer(size_t i) const {
    if (i >= buffers_.second) fail_damaged(name_, "a record batch lacks a buffer");
    const auto offset = header_.get<int64_t>(buffers_.first + 16 * i),
               size = header_.get<int64_t>(buffers_.first + 16 * i + 8);
    const auto whole = static_cast<int64_t>(body_.size());
    if (offset < 0 || size < 0 || offset > whole || size > whole - offset)
      fail_damaged(name_, "a buffer lies outside of its record batch");
    return body_.subspan(static_cast<size_t>(offset), static_cast<size_t>(size));
  }

 private:
  const FlatTable& header_;
  Bytes body_;
  const std::string& name_;
  std::pair<size_t, size_t> nodes_, buffers_;
};

template <class T>
T value_in(Bytes bytes, size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

// Calls row(begin, end) with the offsets of each row, all within `limit` elements.
template <class Row>
void each_row(Bytes offsets, bool large, int64_t rows, int64_t limit, const std::string& name,
              const Row& row) {
  if (rows == 0) return;
  const size_t width = large ? 8 : 4;
  if (static_cast<uint64_t>(rows) + 1 > offsets.size() / width)
    fail_damaged(name, "a column has too few offsets");
  const auto at = [&](int64_t i) {
    return large ? value_in<int64_t>(offsets, static_cast<size_t>(i))
                 : int64_t{value_in<int32_t>(offsets, static_cast<size_t>(i))};
  };
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t begin = at(i), end = at(i + 1);
    if (begin < 0 || end < begin || end > limit) fail_damaged(name, "a row lies outside of its column");
    row(static_cast<size_t>(begin), static_cast<size_t>(end));
  }
}

// The rows of a column of lists of integers.
class Lists {
 public:
  Lists(const Batch& batch, const Column& column, const std::string& name)
      : column_(column), offsets_(batch.buffer(column.buffer + 1)), rows_(batch.length(column.node)) {
    items_ = batch.length(column.node + 1);
    data_ = batch.buffer(column.buffer + 3);
    if (static_cast<uint64_t>(items_) > data_.size() / static_cast<size_t>(column.item_bytes))
      fail_damaged(name, "a column has too few items");
    each_row(offsets_, column.large, rows_, items_, name,
             [&](size_t begin, size_t end) { begins_.emplace_back(begin, end); });
  }
  size_t rows() const { return begins_.size(); }
  const std::string& name() const { return column_.name; }
  void row(size_t i, std::vector<int64_t>& out) const {
    out.clear();
    for (size_t at = begins_[i].first; at < begins_[i].second; ++at) out.push_back(item(at));
  }

 private:
  int64_t item(size_t i) const {
    const auto read = [&]<class S, class U>(S, U) -> int64_t {
      return column_.is_signed ? static_cast<int64_t>(value_in<S>(data_, i))
                               : static_cast<int64_t>(value_in<U>(data_, i));
    };
    return column_.item_bytes == 1   ? read(int8_t{}, uint8_t{})
           : column_.item_bytes == 2 ? read(int16_t{}, uint16_t{})
           : column_.item_bytes == 4 ? read(int32_t{}, uint32_t{})
                                     : read(int64_t{}, uint64_t{});
  }
  const Column& column_;
  Bytes offsets_, data_;
  int64_t rows_, items_;
  std::vector<std::pair<size_t, size_t>> begins_;
};

// A row of ids, with what its other columns say.
class TokenRow {
 public:
  explicit TokenRow(const std::string& name) : name_(name) {}

  void begin(std::span<const int64_t> ids, size_t row, bool flagged) {
    row_ = row;
    ids_.clear();
    for (const int64_t id : ids) {
      if (id < 0 || id > std::numeric_limits<int32_t>::max())
        base::fail_user("'{}': column \"input_ids\" has the id {}; ids are 0 to 2147483647", name_, id);
      ids_.push_back(static_cast<int32_t>(id));
    }
    trained_.assign(flagged ? ids.size() : 0, 1);
    first_ = 0, last_ = ids.size();
  }
  void add(const std::string& column, std::span<const int64_t> values) {
    if (values.size() != ids_.size())
      refuse(column, fmt::format("has {} values for {} ids", values.size(), ids_.size()));
    if (column == kAttention) return trim(column, values);
    for (size_t i = 0; i < values.size(); ++i) {
      const bool trains = column == kLabels ? values[i] != kNoLabel : values[i] != 0;
      const int64_t expected = column == kLabels ? ids_[i] : 1;
      if (trains && values[i] != expected)
        refuse(column, fmt::format("has {} at position {}, where {} is expected: {} or {}", values[i], i,
                                   column == kLabels ? "the id or -100" : "a flag", expected,
                                   column == kLabels ? kNoLabel : 0));
      trained_[i] = trained_[i] != 0 && trains;
    }
  }
  std::span<const int32_t> ids() const { return std::span(ids_).subspan(first_, last_ - first_); }
  std::span<const uint8_t> trained() const {
    return trained_.empty() ? std::span<const uint8_t>()
                            : std::span<const uint8_t>(trained_).subspan(first_, last_ - first_);
  }

 private:
  // Padding, before or after the document, is not part of it.
  void trim(const std::string& column, std::span<const int64_t> mask) {
    while (first_ < last_ && mask[first_] == 0) ++first_;
    while (first_ < last_ && mask[last_ - 1] == 0) --last_;
    const auto inside = mask.subspan(first_, last_ - first_);
    const auto other = std::ranges::find_if(inside, [](int64_t m) { return m != 1; });
    if (other != inside.end())
      refuse(column,
             fmt::format("has {} at position {}, inside the document: only padding before and after it "
                         "may be masked",
                         *other, first_ + static_cast<size_t>(other - inside.begin())));
  }
  [[noreturn]] void refuse(const std::string& column, const std::string& why) const {
    base::fail_user("'{}': column \"{}\" of row {} of a record batch {}", name_, column, row_, why);
  }
  const std::string& name_;
  size_t row_ = 0, first_ = 0, last_ = 0;
  std::vector<int32_t> ids_;
  std::vector<uint8_t> trained_;
};

void visit_batch(const Batch& batch, const Columns& columns, const std::string& name, const ArrowRows& rows) {
  const Column& c = columns.rows;
  if (c.kind == Column::Kind::Text) {
    const int64_t count = batch.length(c.node);
    const Bytes offsets = batch.buffer(c.buffer + 1), text = batch.buffer(c.buffer + 2);
    each_row(offsets, c.large, count, static_cast<int64_t>(text.size()), name, [&](size_t begin, size_t end) {
      rows.text({reinterpret_cast<const char*>(text.data()) + begin, end - begin});
    });
    return;
  }
  const Lists ids(batch, c, name);
  std::vector<Lists> flags;
  for (const Column& column : columns.flags) {
    flags.emplace_back(batch, column, name);
    if (flags.back().rows() != ids.rows()) fail_damaged(name, "its columns have different numbers of rows");
  }
  std::vector<int64_t> values;
  TokenRow row(name);
  // The attention mask only says what is padding.
  const bool flagged = std::ranges::any_of(flags, [](const Lists& c) { return c.name() != kAttention; });
  for (size_t i = 0; i < ids.rows(); ++i) {
    ids.row(i, values);
    row.begin(values, i, flagged);
    for (const Lists& column : flags) {
      column.row(i, values);
      row.add(column.name(), values);
    }
    rows.tokens(row.ids(), row.trained());
  }
}

}  // namespace

void read_arrow(Bytes file, const std::string& name, const ArrowRows& rows) {
  constexpr std::string_view kFileMagic("ARROW1\0\0", 8);
  size_t at = 0;
  if (file.size() >= kFileMagic.size() && std::memcmp(file.data(), kFileMagic.data(), kFileMagic.size()) == 0)
    at = kFileMagic.size();
  std::optional<Columns> columns;
  bool ended = false;
  while (file.size() - at >= 8) {
    // A continuation marker, the length of the metadata, the metadata, and a body.
    if (value_in<uint32_t>(file.subspan(at, 4), 0) != 0xffffffff)
      fail_damaged(name, "a message has no marker");
    const auto length = value_in<int32_t>(file.subspan(at + 4, 4), 0);
    at += 8;
    if (length == 0) {  // end of stream
      ended = true;
      break;
    }
    if (length < 0 || static_cast<size_t>(length) > file.size() - at)
      fail_damaged(name, "a message is truncated");
    const Bytes metadata = file.subspan(at, static_cast<size_t>(length));
    at += static_cast<size_t>(length);
    const FlatTable message = FlatTable::root(metadata, name);
    const auto body = message.scalar<int64_t>(3, 0);
    if (body < 0 || static_cast<uint64_t>(body) > file.size() - at)
      fail_damaged(name, "a message is truncated");
    const auto kind = message.scalar<uint8_t>(1, 0);
    const auto header = message.table(2);
    if (!header) fail_damaged(name, "a message has no header");
    if (kind == kSchemaMessage) {
      columns = find_columns(*header, name);
    } else if (kind == kRecordBatchMessage) {
      if (!columns) fail_damaged(name, "it has no schema");
      visit_batch(Batch(*header, file.subspan(at, static_cast<size_t>(body)), name), *columns, name, rows);
    }
    at += static_cast<size_t>(body);
  }
  if (!columns) fail_damaged(name, "it has no schema");
  if (!ended) fail_damaged(name, "it is truncated: its end marker is missing");
}

bool is_datasets_folder(const base::Path& folder) {
  return base::file_exists(folder / "state.json") || base::file_exists(folder / "dataset_dict.json");
}

Opened read_datasets_folder(const base::Path& folder, const tokenizer::Tokenizer& tokenizer,
                            std::optional<int32_t> end) {
  if (!base::file_exists(folder / "state.json"))
    base::fail_user("'{}' holds several splits of a dataset: name one of them, such as '{}'", folder.string(),
                    (folder / "train").string());
  const base::Path state = folder / "state.json";
  const auto json = base::parse_json(base::read_file(state));
  const auto files = json.is_object() ? json.find("_data_files") : json.end();
  if (files == json.end() || !files->is_array() || files->empty())
    base::fail_user("'{}' does not list the files of a dataset (\"_data_files\")", state.string());
  CorpusBuilder builder(folder.string(), tokenizer.vocab_size());
  std::vector<int32_t> ids;
  int64_t documents = 0;
  const ArrowRows rows = {.text =
                              [&](std::string_view text) {
                                ids.clear();
                                tokenizer.encode(text, ids);
                                if (end && !ids.empty()) ids.push_back(*end);
                                builder.add_document(ids);
                                ++documents;
                              },
                          .tokens =
                              [&](std::span<const int32_t> tokens, std::span<const uint8_t> trained) {
                                if (end)
                                  base::fail_user(
                                      "data.end has no effect on '{}', whose column input_ids has tokens "
                                      "already: remove data.end",
                                      folder.string());
                                builder.add_document(tokens, trained);
                                ++documents;
                              }};
  for (const auto& entry : *files) {
    const auto name = entry.is_object() ? entry.find("filename") : entry.end();
    if (name == entry.end() || !name->is_string())
      base::fail_user("'{}' has an entry without \"filename\"", state.string());
    // Beside state.json, wherever the folder was moved to.
    const base::Path file = folder / base::Path(name->get<std::string>()).filename();
    if (!base::file_exists(file))
      base::fail_user("'{}' lists '{}', which does not exist", state.string(), file.string());
    const base::MappedFile mapped(file);
    read_arrow(mapped.bytes(), file.string(), rows);
  }
  return {builder.finish(), fmt::format("{} in {}", base::counted(documents, "row"),
                                        base::counted(files->size(), "Arrow file"))};
}

}  // namespace quintet::data
