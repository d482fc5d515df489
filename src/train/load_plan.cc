#include "train/load_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/glob.h"

namespace quintet::train {
namespace {

using base::DType;
using checkpoint::SavedTensor;
using checkpoint::TensorInfo;
using Policy = LoadRule::Policy;

constexpr size_t kShownNames = 3;

bool is_floating(DType t) {
  return t == DType::F64 || t == DType::F32 || t == DType::BF16 || t == DType::F16;
}

std::string first_of(const std::vector<std::string>& names) {
  const size_t shown = std::min(names.size(), kShownNames);
  std::string text =
      fmt::format("{}", fmt::join(names.begin(), names.begin() + static_cast<ptrdiff_t>(shown), ", "));
  if (shown < names.size()) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

std::string tensors_text(size_t count) { return fmt::format("{} tensor{}", count, count == 1 ? "" : "s"); }

// Compares the names of both sides; what does not fit is collected and refused together.
class Planner {
 public:
  Planner(const checkpoint::Manifest& manifest, std::string source, const LoadOptions& options)
      : manifest_(manifest), source_(std::move(source)), options_(options), ruled_(options.rules.size()) {}

  // `param`: of an average, what it averages.
  void add(const TensorInfo& here, const std::string& param, bool is_moment) {
    if (is_fresh(here.name) || (options_.weights_only && !param.empty() && is_fresh(param))) return;
    if (options_.weights_only && is_moment) return;
    std::string name = options_.weights_only && !param.empty() ? param : here.name;
    if (const std::string average = name + "/ema"; options_.averages && manifest_.find(average) != nullptr) {
      used_.insert(name);  // its place is taken
      name = average;
    }
    const SavedTensor* const saved = manifest_.find(name);
    if (saved == nullptr) {
      missing_.push_back(name);
      return;
    }
    used_.insert(name);
    const TensorInfo& there = saved->info;
    if (there.shape != here.shape) {
      misfits_.push_back(fmt::format("{} has shape [{}], and this recipe needs [{}]", name,
                                     fmt::join(there.shape, ", "), fmt::join(here.shape, ", ")));
    } else if (there.dtype != here.dtype) {
      if (is_floating(there.dtype) && is_floating(here.dtype))
        ++converted_[fmt::format("{} to {}", to_string(there.dtype), to_string(here.dtype))];
      else
        misfits_.push_back(fmt::format("{} has type {}, which cannot be converted to {}", name,
                                       to_string(there.dtype), to_string(here.dtype)));
    }
    plan_.sources[here.name] = name;
  }

  LoadPlan finish() {
    std::vector<std::string> unused;
    for (const SavedTensor& t : manifest_.tensors) {
      const std::string& name = t.info.name;
      if (used_.contains(name) || (options_.weights_only && checkpoint::is_state_name(name))) continue;
      if (!is_ruled(name, Policy::Ignore)) unused.push_back(name);
    }
    refuse(unused);
    for (const auto& [types, count] : converted_)
      plan_.notes.push_back(
          fmt::format("{} converted from {}", tensors_text(static_cast<size_t>(count)), types));
    for (size_t i = 0; i < ruled_.size(); ++i) {
      const LoadRule& rule = options_.rules[i];
      const bool fresh = rule.policy == Policy::Fresh;
      if (ruled_[i].empty()) refuse_rule(rule);
      plan_.notes.push_back(fmt::format(
          "{}: {} {} ({}={})", fresh ? "initialised, not loaded" : "left out of the checkpoint",
          tensors_text(ruled_[i].size()), first_of(ruled_[i]), rule.pattern, fresh ? "fresh" : "ignore"));
    }
    return std::move(plan_);
  }

 private:
  bool is_fresh(const std::string& name) { return is_ruled(name, Policy::Fresh); }

  // The first rule of this policy that matches takes the name.
  bool is_ruled(const std::string& name, Policy policy) {
    for (size_t i = 0; i < options_.rules.size(); ++i) {
      const LoadRule& rule = options_.rules[i];
      if (rule.policy != policy || !base::glob_match(rule.pattern, name)) continue;
      if (ruled_[i].empty() || ruled_[i].back() != name) ruled_[i].push_back(name);
      if (policy == Policy::Fresh) used_.insert(name);  // the checkpoint's is not wanted
      return true;
    }
    return false;
  }

  void refuse(const std::vector<std::string>& unused) const {
    if (missing_.empty() && unused.empty() && misfits_.empty()) return;
    std::string text, remedies;
    if (!missing_.empty()) {
      text += fmt::format("\n  it lacks {}: {}", tensors_text(missing_.size()), first_of(missing_));
      remedies +=
          "--load 'PATTERN=fresh' initialises tensors that it lacks, or that do not fit, as at step 1; ";
    }
    for (size_t i = 0; i < std::min(misfits_.size(), kShownNames); ++i) text += "\n  " + misfits_[i];
    if (misfits_.size() > kShownNames)
      text += fmt::format("\n  and {} more that do not fit", misfits_.size() - kShownNames);
    if (missing_.empty() && !misfits_.empty())
      remedies += "--load 'PATTERN=fresh' initialises tensors that do not fit as at step 1; ";
    if (!unused.empty()) {
      text += fmt::format("\n  this recipe has no place for {} of it: {}", tensors_text(unused.size()),
                          first_of(unused));
      remedies += "--load 'PATTERN=ignore' leaves tensors of the checkpoint out; ";
    }
    const auto is_state = [](const std::string& name) { return checkpoint::is_state_name(name); };
    if (!options_.weights_only && misfits_.empty() &&
        std::all_of(missing_.begin(), missing_.end(), is_state) &&
        std::all_of(unused.begin(), unused.end(), is_state))
      remedies += "--weights-only loads the weights and resets the optimizer; ";
    remedies.resize(remedies.size() - 2);
    base::fail_user("{} was saved by another model or optimizer:{}\n{}", source_, text, remedies);
  }

  [[noreturn]] void refuse_rule(const LoadRule& rule) const {
    const bool fresh = rule.policy == Policy::Fresh;
    base::fail_user(
        "--load {}={}: {}", rule.pattern, fresh ? "fresh" : "ignore",
        fresh ? "this recipe has no such tensor"
              : "of the checkpoint's tensors for which the recipe has no place, none has such a name");
  }

  const checkpoint::Manifest& manifest_;
  const std::string source_;
  const LoadOptions& options_;
  LoadPlan plan_;
  std::vector<std::string> missing_, misfits_;
  std::map<std::string, int64_t> converted_;
  std::set<std::string> used_;                   // of the checkpoint
  std::vector<std::vector<std::string>> ruled_;  // names by rule
};

}  // namespace

LoadRule parse_load_rule(const std::string& text) {
  const size_t at = text.rfind('=');
  const std::string policy = at == std::string::npos ? "" : text.substr(at + 1);
  if (at == 0 || (policy != "fresh" && policy != "ignore"))
    base::fail_user(
        "--load {}: expected PATTERN=fresh (initialise tensors of the run as at step 1) or PATTERN=ignore "
        "(leave tensors of the checkpoint out), as in --load 'head.*=fresh'",
        text);
  return {.pattern = text.substr(0, at), .policy = policy == "fresh" ? Policy::Fresh : Policy::Ignore};
}

LoadPlan plan_load(const std::vector<graph::StateDecl>& states, const std::vector<TensorInfo>& tensors,
                   const checkpoint::Manifest& manifest, const std::string& source,
                   const LoadOptions& options) {
  std::set<std::string> moments;
  std::map<std::string, std::string> averages;  // by name: what they average
  for (const graph::StateDecl& s : states) {
    if (s.role == graph::Role::Moment) moments.insert(s.name);
    if (s.role == graph::Role::Ema) averages[s.name] = s.param;
  }
  Planner planner(manifest, source, options);
  for (const TensorInfo& t : tensors) {
    const auto average = averages.find(t.name);
    // States of the optimizer that belong to no parameter are found by name alone.
    planner.add(t, average == averages.end() ? "" : average->second,
                moments.contains(t.name) || (average == averages.end() && checkpoint::is_state_name(t.name)));
  }
  return planner.finish();
}

}  // namespace quintet::train
