// The files of src/report/page as strings.
#pragma once

#include <string_view>

namespace quintet::report {

extern const std::string_view kPageHtml, kPageCss, kPageJs;

}  // namespace quintet::report
