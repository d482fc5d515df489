// Rules for [memory].
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string>

#include "base/text.h"
#include "config/byte_size.h"
#include "config/layer_ranges.h"
#include "config/names.h"
#include "config/rule.h"
#include "config/validate.h"

namespace quintet::config {
namespace {

void recompute_keys_fit_kind(const Recipe& r, const Fail& fail) {
  const Memory& m = r.memory;
  if (m.recompute != RecomputeKind::Selective && !m.recompute_ops.empty())
    fail("memory.recompute_ops",
         fmt::format("has no effect with memory.recompute = \"{}\"", name_of(m.recompute)), "[]");
  if (m.recompute != RecomputeKind::Selective && !m.recompute_layers.empty())
    fail("memory.recompute_layers",
         fmt::format("has no effect with memory.recompute = \"{}\"", name_of(m.recompute)), "[]");
  if (m.recompute != RecomputeKind::Full && m.recompute_every != 1)
    fail("memory.recompute_every",
         fmt::format("{} has no effect with memory.recompute = \"{}\"", m.recompute_every,
                     name_of(m.recompute)),
         "1");
  if (m.recompute != RecomputeKind::Full)
    idle(fail, "memory.recompute_first", m.recompute_first, int64_t{0},
         fmt::format("with memory.recompute = \"{}\"", name_of(m.recompute)));
  else if (m.recompute_first > 0 && m.recompute_every > 1)
    fail("memory.recompute_first",
         fmt::format("{} contradicts memory.recompute_every {}: each selects blocks", m.recompute_first,
                     m.recompute_every),
         "0, or memory.recompute_every 1");
  else if (m.recompute_first > r.model.layers)
    fail("memory.recompute_first",
         fmt::format("{} exceeds the model's {} blocks", m.recompute_first, r.model.layers), "0");
  if (m.recompute != RecomputeKind::Full)
    idle(fail, "memory.recompute_chunk", m.recompute_chunk, int64_t{1},
         fmt::format("with memory.recompute = \"{}\"", name_of(m.recompute)));
  else if (m.recompute_chunk > 1 && (m.recompute_every > 1 || m.recompute_first > 0))
    fail("memory.recompute_chunk",
         fmt::format("{} contradicts memory.{} {}: chunks cover all blocks", m.recompute_chunk,
                     m.recompute_every > 1 ? "recompute_every" : "recompute_first",
                     m.recompute_every > 1 ? m.recompute_every : m.recompute_first),
         "1");
  else if (m.recompute_chunk > r.model.layers)
    fail("memory.recompute_chunk",
         fmt::format("{} exceeds the model's {} blocks", m.recompute_chunk, r.model.layers),
         std::to_string(r.model.layers));
  const bool fit = m.recompute == RecomputeKind::Fit;
  if (fit && m.budget.value == 0)
    fail("memory.budget", "is required by memory.recompute = \"fit\": the memory of one rank", "\"6GiB\"");
  if (!fit && m.budget.value != 0)
    fail("memory.budget",
         fmt::format("{} has no effect with memory.recompute = \"{}\"", byte_size_text(m.budget.value),
                     name_of(m.recompute)),
         "leave it out, or memory.recompute \"fit\"");
  if (m.recompute == RecomputeKind::Full && m.recompute_every > r.model.layers)
    fail("memory.recompute_every",
         fmt::format("{} exceeds the model's {} blocks", m.recompute_every, r.model.layers),
         std::to_string(r.model.layers));
}

void split_saved_has_effect(const Recipe& r, const Fail& fail) {
  if (!r.memory.split_saved) return;
  const auto refuse = [&](const std::string& why) { fail("memory.split_saved", why, "false"); };
  if (r.parallel.tp == 1) return refuse("true has no effect with parallel.tp = 1");
  if (r.parallel.sequence_parallel)
    return refuse("true has no effect with parallel.sequence_parallel, which divides these rows already");
  if (r.memory.recompute == RecomputeKind::Fit)
    return refuse(
        "true contradicts memory.recompute = \"fit\", which chooses by what whole activations take");
}

void recompute_ops_are_known(const Recipe& r, const Fail& fail) {
  const auto known = recompute_classes();
  for (const std::string& word : r.memory.recompute_ops)
    if (std::find(known.begin(), known.end(), word) == known.end())
      fail("memory.recompute_ops",
           fmt::format("contains \"{}\", which is not an op class; known: {}", word, fmt::join(known, ", ")),
           fmt::format("[\"{}\"]", known.front()));
}

// Words of recompute_ops, "all", and patterns, which have a character that no word has.
bool is_recompute_word(const std::string& word) {
  const auto known = recompute_classes();
  return word == "all" || word.find_first_of(".*?") != std::string::npos ||
         std::find(known.begin(), known.end(), word) != known.end();
}

// The entries with the nearest op class in place of every unknown word, as TOML.
std::string with_known_words(const std::vector<RecomputeLayers>& entries) {
  const std::vector<std::string> known(recompute_classes().begin(), recompute_classes().end());
  std::string text;
  for (const RecomputeLayers& entry : entries) {
    std::vector<std::string> words;
    for (const std::string& word : entry.ops)
      words.push_back(is_recompute_word(word) ? word
                                              : base::nearest_word(word, known).value_or(known.front()));
    text += fmt::format("{}{{ layers = \"{}\", ops = [\"{}\"] }}", text.empty() ? "" : ", ",
                        layer_ranges_text(entry.layers), fmt::join(words, "\", \""));
  }
  return "[" + text + "]";
}

void recompute_layers_are_sound(const Recipe& r, const Fail& fail) {
  const Memory& m = r.memory;
  if (m.recompute_layers.empty()) return;
  const auto wrong = [&](const std::string& text, const std::string& nearest) {
    fail("memory.recompute_layers", text, nearest);
  };
  if (!m.recompute_ops.empty())
    return wrong(fmt::format("says what each block recomputes, and so does memory.recompute_ops [\"{}\"]",
                             fmt::join(m.recompute_ops, "\", \"")),
                 "[], or memory.recompute_ops []");
  std::vector<int64_t> seen;
  for (const RecomputeLayers& entry : m.recompute_layers) {
    if (entry.layers.empty()) wrong("has an entry without blocks", "layers = \"0-3\" in every entry");
    for (const int64_t layer : entry.layers) {
      if (layer < 0 || layer >= r.model.layers)
        return wrong(
            fmt::format("names block {}, but the model's blocks are 0 to {}", layer, r.model.layers - 1),
            fmt::format("blocks 0 to {}", r.model.layers - 1));
      if (std::find(seen.begin(), seen.end(), layer) != seen.end())
        return wrong(fmt::format("names block {} in two entries", layer), "each block in one entry");
      seen.push_back(layer);
    }
    for (const std::string& word : entry.ops)
      if (!is_recompute_word(word))
        return wrong(
            fmt::format("contains \"{}\", which is neither an op class nor a pattern; known: all, {}", word,
                        fmt::join(recompute_classes(), ", ")),
            with_known_words(m.recompute_layers));
  }
}

}  // namespace

std::vector<Rule> memory_rules() {
  return {
      {"memory keys match memory.recompute",
       {"memory.recompute", "memory.recompute_ops", "memory.recompute_layers", "memory.recompute_every",
        "memory.recompute_chunk", "memory.recompute_first", "memory.budget", "model.layers"},
       recompute_keys_fit_kind},
      {"memory.recompute_ops are known op classes", {"memory.recompute_ops"}, recompute_ops_are_known},
      {"memory.split_saved divides what tensor ranks have whole",
       {"memory.split_saved", "memory.recompute", "parallel.tp", "parallel.sequence_parallel"},
       split_saved_has_effect},
      {"memory.recompute_layers names blocks and op classes",
       {"memory.recompute", "memory.recompute_ops", "memory.recompute_layers", "model.layers"},
       recompute_layers_are_sound},
  };
}

std::span<const std::string_view> recompute_classes() {
  static constexpr std::array<std::string_view, 8> kClasses = {
      "norm", "activation", "rope", "bias", "dropout", "residual", "linear", "attention"};
  return kClasses;
}

}  // namespace quintet::config
