// A template in the Jinja dialect of transformers' chat templates: trim_blocks and lstrip_blocks, the
// immutable sandbox, loop controls, `generation` blocks, and its functions (tojson, raise_exception,
// strftime_now). Text is rendered byte for byte as transformers does; what is not supported is refused.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/jinja/value.h"

namespace quintet::chat::jinja {

struct Ast;

struct Span {
  size_t begin = 0, end = 0;  // bytes of the rendered text
  bool operator==(const Span&) const = default;
};

struct Rendering {
  std::string text;
  std::vector<Span> generations;  // what `generation` blocks wrote, in order
};

class Template {
 public:
  // UserError with line and column for invalid templates and unsupported features.
  explicit Template(std::string_view source);

  // UserError with line and column for a fault of the template or its data. `wall_seconds` is what
  // strftime_now sees. With `spans`, a generation block whose place in the text cannot be known (within a
  // macro, say) is a fault. Templates are immutable: threads may share one.
  Rendering render(const std::vector<std::pair<std::string, Value>>& variables, int64_t wall_seconds,
                   bool spans = false) const;
  bool has_generation() const;

 private:
  std::shared_ptr<const Ast> ast_;
};

}  // namespace quintet::chat::jinja
