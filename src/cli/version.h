// The text of `quintet --version`: "quintet VERSION" on the first line, then how it was built and what it can
// use here.
#pragma once

#include <string>

namespace quintet::cli {

std::string version_text();

}  // namespace quintet::cli
