#include "tools/nccl_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "base/text.h"

namespace quintet::tools {

std::string nccl_text(const std::vector<config::NcclVariable>& list, const std::string& file) {
  const std::string where = file.empty() ? "this environment" : file;
  if (list.empty()) return fmt::format("{} sets no variable of NCCL: it selects everything itself\n", where);
  std::string text = fmt::format("NCCL's variables in {}\n\n", where);
  int64_t problems = 0;
  for (const config::NcclVariable& v : list) {
    text += fmt::format("{}={}\n", base::printable(v.name), base::printable(v.value));
    if (!v.meaning.empty()) text += fmt::format("  {} ({})\n", v.meaning, to_string(v.scope));
    if (!v.problem.empty()) text += fmt::format("  PROBLEM: {}\n", base::printable(v.problem));
    problems += !v.problem.empty();
  }
  return text + (problems == 0
                     ? "\nAll of them are understood. quintet passes them to NCCL unchanged.\n"
                     : fmt::format("\n{} of {} need attention. NCCL itself ignores what it does not know, "
                                   "without a message.\n",
                                   problems, list.size()));
}

std::string nccl_json(const std::vector<config::NcclVariable>& list) {
  nlohmann::ordered_json j = nlohmann::ordered_json::array();
  for (const config::NcclVariable& v : list) {
    j.push_back(
        {{"name", v.name}, {"value", v.value}, {"meaning", v.meaning}, {"scope", to_string(v.scope)}});
    if (!v.problem.empty()) j.back()["problem"] = v.problem;
  }
  return j.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace quintet::tools
