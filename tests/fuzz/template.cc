// Templates of text, conditions on fields, and their use on an object. The input is lines: a template, a
// condition, and a JSON object.
#include "text/template.h"

#include "fuzz/target.h"
#include "text/document.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quintet;
  const std::string_view input = fuzz::text_of(data, size);
  const size_t first = std::min(input.find('\n'), input.size()), after = std::min(first + 1, input.size());
  const size_t second = std::min(input.find('\n', after), input.size());
  const std::string_view spelled = input.substr(0, first), condition = input.substr(after, second - after);
  const std::string object(input.substr(std::min(second + 1, input.size())));
  return fuzz::run([&] {
    text::DocumentFormat format;
    format.text = text::Template(spelled);
    if (!condition.empty()) format.where.emplace_back(condition);
    fuzz::require(!format.columns().empty(), "a template without fields was accepted");
    const text::Document document =
        text::document_of({.kind = text::FileKind::Lines, .bytes = object}, format);
    fuzz::require(document.outcome != text::Outcome::Binary, "an object is never binary");
    fuzz::require(document.outcome != text::Outcome::Damaged || !document.text.empty(),
                  "damage without a reason");
  });
}
