// Reads templates. A construct that Jinja does not have, or that Quintet does not support, is a UserError
// that names it, with line and column; so are filters and tests by unknown names.
#pragma once

#include "chat/jinja/ast.h"

namespace quintet::chat::jinja {

std::shared_ptr<const Ast> parse(std::string_view source);

}  // namespace quintet::chat::jinja
