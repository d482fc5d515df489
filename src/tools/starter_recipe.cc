#include "tools/starter_recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/wrap.h"
#include "config/key_docs.h"
#include "config/presets.h"
#include "config/toml_text.h"

namespace quintet::tools {
namespace {

// Roughly the parameters of a preset, to choose defaults by its size.
double parameters_of(const config::Model& m) {
  const double ffn = static_cast<double>(m.ffn) + static_cast<double>(m.moe.experts * m.moe.ffn);
  const double width = static_cast<double>(m.embed);
  return static_cast<double>(m.layers) * (4 * width * width + 3 * width * ffn) +
         width * static_cast<double>(m.vocab);
}

class RecipeWriter {
 public:
  explicit RecipeWriter(std::string& out) : out_(out) {}
  // A key with its meaning above it; `active` false: commented out, as an offer.
  void key(const std::string& name, const std::string& value, bool active = true) {
    const config::KeyFacts* k = config::find_key(name);
    QUINTET_CHECK(k != nullptr, "no key {}", name);
    if (k->section() != open_) {
      open_ = k->section();
      out_ += fmt::format("\n[{}]\n", open_);
    }
    const std::string line = fmt::format("{}{} = {}", active ? "" : "# ", k->name(), value);
    const std::string comment = base::wrapped("# " + k->meaning, 78);
    if (comment.find('\n') == std::string::npos && line.size() + 4 + k->meaning.size() <= 78) {
      out_ += fmt::format("{:<24}# {}\n", line, k->meaning);
      return;
    }
    for (size_t at = 0; at < comment.size();) {
      const size_t end = std::min(comment.find('\n', at), comment.size());
      out_ += (at == 0 ? "" : "# ") + comment.substr(at, end - at) + "\n";
      at = end + 1;
    }
    out_ += line + "\n";
  }
  void offer(const std::string& name, const std::string& value) { key(name, value, false); }
  void number(const std::string& name, int64_t value) { key(name, std::to_string(value)); }
  void text(const std::string& name, const std::string& value) { key(name, config::toml_text(value)); }

 private:
  std::string& out_;
  std::string open_;
};

}  // namespace

std::string starter_recipe(const RecipeWishes& w, const base::Path& folder) {
  namespace fs = std::filesystem;
  const std::string preset = w.model.empty() ? kDefaultPreset : w.model;
  const config::Model* model = config::find_preset(preset);
  if (model == nullptr)
    base::fail_user("--model {}: there is no such preset{}; 'quintet init --help' lists them", preset,
                    config::likely_preset(preset).empty()
                        ? ""
                        : fmt::format(", did you mean '{}'?", config::likely_preset(preset)));
  const bool large = parameters_of(*model) > 5e8, tiny = parameters_of(*model) < 2e7;
  const bool gpu = w.device == "cuda";
  const int64_t ranks = std::max<int64_t>(1, w.ranks), steps = w.steps > 0 ? w.steps : kDefaultSteps;
  int64_t seq = w.seq_len > 0 ? w.seq_len : tiny ? 256 : large ? 2048 : 1024;
  if (w.seq_len == 0 && model->max_positions > 0) seq = std::min(seq, model->max_positions);
  // Every rank has equally many sequences.
  const int64_t wanted = w.batch > 0 ? w.batch : 32;
  const int64_t batch = w.batch > 0 ? w.batch : (wanted + ranks - 1) / ranks * ranks;
  int64_t micro = large ? 1 : 4;
  while (micro > 1 && batch % (micro * ranks) != 0) micro /= 2;
  fs::path data = fs::absolute(w.data).lexically_normal();
  if (const fs::path near = data.lexically_relative(folder); !near.empty()) data = near;

  std::string out = fmt::format(
      "# Written by quintet init. 'quintet recipe' describes every key; 'quintet check FILE'\n"
      "# prints the resolved recipe or everything that is wrong with it.\n");
  RecipeWriter write(out);
  write.text("name", w.name);
  write.text("model.preset", preset);
  write.text("data.path", data.string());
  write.number("data.seq_len", seq);
  write.key("data.validation_fraction", "0.05");
  write.number("batch.global", batch);
  write.number("batch.micro", micro);
  write.number("parallel.dp_shard", ranks);
  if (ranks > 1)
    write.number("parallel.zero", 3);
  else
    write.offer("parallel.zero", "3");
  write.offer("parallel.tp", "2");
  write.offer("parallel.pp", "2");
  write.text("precision.compute", gpu ? "bf16" : "f32");
  write.offer("memory.recompute", "\"selective\"");
  write.text("optimizer.name", "adamw");
  write.key("optimizer.lr", large ? "3e-4" : tiny ? "2e-3" : "6e-4");
  write.text("optimizer.schedule.kind", "cosine");
  write.key("optimizer.schedule.warmup", "0.05");
  write.key("optimizer.schedule.min_lr_ratio", "0.1");
  write.number("eval.every", std::max<int64_t>(1, steps / 4));
  write.number("run.steps", steps);
  write.text("run.device", gpu ? "cuda" : "cpu");
  write.number("run.log_every", std::max<int64_t>(1, steps / 20));
  write.offer("run.dir", config::toml_text("runs/" + w.name));
  return out;
}

}  // namespace quintet::tools
