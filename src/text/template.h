// The text of a JSON object: "{title}\n{body}" is the string in "title", a line break, the string in "body".
// {a.b} is the key "a.b", or else the key "b" of the object in "a"; numbers and booleans are written as JSON
// writes them. "{{" and "}}" are braces; \n, \t, \r and \\ are what they are in C.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace quintet::text {

// The value at `path` (see above) of an object; null when there is none.
const nlohmann::json* value_at(const nlohmann::json& object, const std::string& path);

class Template {
 public:
  explicit Template(std::string_view spelled);  // UserError that shows the place
  // The string in the field and nothing else, whatever characters the name has.
  static Template of_field(const std::string& name);

  // True and the text in `out`; false and the reason in `out`.
  bool render(const nlohmann::json& object, std::string& out) const;
  // The paths of fields, in order.
  std::vector<std::string> fields() const;

 private:
  Template() = default;
  struct Part {
    std::string literal, field;  // the text before a field, and the field; the last part has none
    bool has_field = false;
  };
  std::vector<Part> parts_;
  bool only_strings_ = false;
};

}  // namespace quintet::text
