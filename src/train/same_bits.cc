#include "train/same_bits.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "config/parse.h"
#include "config/print.h"
#include "train/resume.h"

namespace quintet::train {
namespace {

// Keys that may change at any checkpoint, and change the order of sums or the kernels when they do.
bool changes_rounding(const std::string& key) {
  if (key == "parallel.world") return false;  // what the axes say as well
  for (const char* section : {"parallel.", "batch.", "memory.", "loss."})
    if (key.starts_with(section)) return !is_exact_key(key);
  return key == "run.device" || key == "run.deterministic";
}

// Bodies that steps do not run come and go with these.
bool adds_bodies(const std::string& key) { return key == "eval.every" || key == "run.noise_scale_every"; }

std::string shown(const std::string& text) { return text.empty() ? "not known" : text; }

}  // namespace

std::string other_bits_line(const RunState& saved, const RunState& now) {
  const config::Recipe before = config::parse(saved.recipe, {}, "the checkpoint"),
                       recipe = config::parse(now.recipe, {}, "this run");
  std::vector<std::string> reasons;
  const auto add = [&](const std::string& what, const std::string& is, const std::string& was) {
    if (is != was)
      reasons.push_back(
          fmt::format("{} is {}, {} when the checkpoint was saved", what, shown(is), shown(was)));
  };
  const std::vector<config::KeyText> a = config::key_texts(before), b = config::key_texts(recipe);
  const bool other_program = saved.program != now.program;
  bool is_explained = false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i]) continue;
    is_explained = is_explained || adds_bodies(a[i].key) || is_exact_key(a[i].key);
    // Other keys that leave the program as it is have no effect in this layout.
    if (changes_rounding(a[i].key) &&
        (other_program || (recipe.parallel.world() > 1 && a[i].key.starts_with("parallel."))))
      add(a[i].key, b[i].text, a[i].text);
  }
  if (other_program && reasons.empty() && !is_explained) reasons.push_back("the step program is another one");
  // Not in checkpoints of older versions, and whatever else a manifest has there.
  const auto compare = [&](const char* key, const char* what) {
    const auto is = now.environment.find(key), was = saved.environment.find(key);
    if (was != saved.environment.end() && was->is_string())
      add(what, is->get<std::string>(), was->get<std::string>());
  };
  const bool on_gpu = recipe.run.device == config::DeviceKind::Cuda;
  if (recipe.run.device == before.run.device)
    compare(on_gpu ? "device" : "kernels", on_gpu ? "the GPU" : "the kernels' instruction set");
  if (recipe.parallel.world() > 1 && recipe.parallel.world() == before.parallel.world())
    compare("backend", "the backend");
  if (saved.version != now.version)
    add("the version", now.version, saved.version);
  else
    compare("commit", "the commit");
  compare("build", "the build");
  if (on_gpu && !recipe.run.deterministic) reasons.push_back("run.deterministic is false");
  if (reasons.empty()) return {};
  return fmt::format(
      "numbers agree with those of an unbroken run within rounding, perhaps not in every bit: {}",
      fmt::join(reasons, "; "));
}

}  // namespace quintet::train
