#include "exec/cuda/attention_choices.h"

#include <fmt/format.h>

#include <sstream>
#include <vector>

namespace quintet::exec::cuda {
namespace {

constexpr const char* kSeparator = " | ";

const char* name_of(AttentionKernels kernels) {
  return kernels == AttentionKernels::Own ? "Quintet" : "cuDNN";
}
AttentionKernels other_than(AttentionKernels kernels) {
  return kernels == AttentionKernels::Own ? AttentionKernels::Library : AttentionKernels::Own;
}

}  // namespace

std::optional<AttentionKernels> AttentionChoices::find(const std::string& problem) const {
  const auto at = choices_.find(problem);
  if (at == choices_.end()) return {};
  asked_.insert_or_assign(problem, at->second.kernels);
  return at->second.kernels;
}

void AttentionChoices::set(const std::string& problem, const Choice& choice) {
  choices_.insert_or_assign(problem, choice);
}

std::string AttentionChoices::tuned() const {
  std::string text;
  for (const auto& [problem, choice] : choices_)
    text += fmt::format("{} | {} | {:.1f} | {} {:.1f}\n", conditions_, problem, choice.microseconds,
                        name_of(choice.kernels), choice.others_microseconds);
  return text;
}

void AttentionChoices::read_tuned(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(conditions_ + kSeparator)) continue;
    const size_t problem = conditions_.size() + 3, time = line.find(kSeparator, problem);
    if (time == std::string::npos) continue;
    const size_t result = line.find(kSeparator, time + 3);
    if (result == std::string::npos) continue;
    std::istringstream fields(line.substr(result + 3));
    std::string name;
    Choice choice{};
    if (!(fields >> name >> choice.others_microseconds)) continue;
    if (name != name_of(AttentionKernels::Own) && name != name_of(AttentionKernels::Library)) continue;
    choice.kernels =
        name == name_of(AttentionKernels::Own) ? AttentionKernels::Own : AttentionKernels::Library;
    choice.microseconds = std::strtod(line.c_str() + time + 3, nullptr);
    if (choice.microseconds > 0) set(line.substr(problem, time - problem), choice);
  }
}

std::string AttentionChoices::summary() const {
  std::vector<std::string> parts;
  int64_t own = 0, library = 0;
  for (const auto& [problem, kernels] : asked_) {
    const auto at = choices_.find(problem);
    if (at == choices_.end()) continue;
    const Choice& c = at->second;
    (c.kernels == AttentionKernels::Own ? own : library) += 1;
    parts.push_back(fmt::format("{} by {} in {:.2f} ms ({}: {:.2f})", problem.substr(0, problem.find(' ')),
                                name_of(c.kernels), c.microseconds / 1000, name_of(other_than(c.kernels)),
                                c.others_microseconds / 1000));
  }
  if (parts.empty()) return {};
  if (parts.size() > 2)
    return fmt::format(
        "attention, the faster kernels for each of {} problems: Quintet's for {}, cuDNN's for {}",
        parts.size(), own, library);
  return fmt::format("attention, the faster kernels: {}{}{}", parts[0], parts.size() > 1 ? ", " : "",
                     parts.size() > 1 ? parts[1] : "");
}

}  // namespace quintet::exec::cuda
