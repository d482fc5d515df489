// From a record to the text of a document: which field or template of an object, and which objects.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/record_reader.h"
#include "text/template.h"

namespace quintet::text {

// FIELD OP VALUE, with OP one of = != < <= > >=: "lang=en", "score>=0.5". A value that reads as a number
// compares with numbers, any other with strings. An object without the field does not match.
class Condition {
 public:
  explicit Condition(std::string_view spelled);  // UserError
  bool matches(const nlohmann::json& object) const;
  const std::string& field() const { return field_; }

 private:
  enum class Comparison : uint8_t { Equal, NotEqual, Less, AtMost, Greater, AtLeast };
  template <class T>
  bool holds(const T& value, const T& limit) const;

  std::string field_, word_;
  Comparison comparison_ = Comparison::Equal;
  bool is_number_ = false;
  double number_ = 0;
};

struct DocumentFormat {
  Template text = Template::of_field("text");
  std::vector<Condition> where;      // all must match; text files have no fields, so they always do
  std::vector<std::string> numbers;  // fields that must have a number, which is kept

  // Names of the columns that are read of a Parquet file.
  std::vector<std::string> columns() const;
};

enum class Outcome {
  Document,
  Filtered,  // by a condition
  Damaged,   // `text` is the reason
  Binary,    // a text file with a NUL byte
};
struct Document {
  Outcome outcome = Outcome::Document;
  std::string text = {};
  std::vector<double> numbers = {};
};
// A pure function; `record` may be moved from.
Document document_of(Record&& record, const DocumentFormat& format);

// The numbers in fields of an object. UserError, without file and line, for a field that has none.
std::vector<double> numbers_of(const nlohmann::json& object, const std::vector<std::string>& fields);

// "FILE:LINE: reason" of a damaged record.
std::string damage_text(const base::Path& file, int64_t number, std::string_view reason);

}  // namespace quintet::text
