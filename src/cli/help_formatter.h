// How the help describes options.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace quintet::cli {

// CLI11's, but that what an option needs and excludes follows its description, and that a positional that
// takes several values ends with "...".
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_option_desc(const CLI::Option* option) const override;
  std::string make_option_usage(const CLI::Option* option) const override;
};

}  // namespace quintet::cli
