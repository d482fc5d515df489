// NCCL's environment variables: what each one does, whether its value is one that NCCL takes, and whether it
// has an effect. They reach NCCL unchanged; nothing here sets one. Names and values are those of NCCL 2.27.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "config/environment.h"

namespace quintet::config {

// Where a variable matters.
enum class NcclScope : uint8_t { Everywhere, OneHost, SeveralHosts, Messages };

struct NcclVariable {
  std::string name, value;
  std::string meaning;  // empty: unknown
  NcclScope scope = NcclScope::Everywhere;
  // What is wrong, with what NCCL accepts or the name that was probably meant; empty: nothing.
  std::string problem;
};

// Every variable of NCCL that is set, by name. Unknown ones are among them.
std::vector<NcclVariable> nccl_variables();
// The same of the given ones. Names that begin with neither NCCL_ nor TORCH_NCCL_ are left out.
std::vector<NcclVariable> explain_nccl(const std::map<std::string, std::string>& variables);

// The text of a file of settings for a job: lines of NAME=value or "export NAME=value", with comments after #
// and values that may be quoted. UserError with the line where another line is found.
std::map<std::string, std::string> parse_variables(const std::string& text, const std::string& file);

std::string_view to_string(NcclScope scope);  // "between hosts"

}  // namespace quintet::config
