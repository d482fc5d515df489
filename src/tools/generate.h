// Texts that continue prompts, log-probabilities of texts, and evaluation: room generate with its ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "generate/evaluate.h"
#include "generate/generator.h"

namespace quintet::tools {

struct GenerateOptions {
  std::vector<std::string> prompts;                 // each of at least one token
  int64_t tokens = 80;                              // new ones, at most
  graph::Sampling sampling = {.temperature = 0.8};  // without key and vocab
  uint64_t seed = 0;                                // the same seed gives the same text
  std::vector<std::string> stops;                   // a text ends before the first of these
  bool ignore_ends = false;                         // continue after a token that ends texts
  int64_t batch = 32;                               // prompts at once, at most
  generate::SourceOptions source;
  // Receives the text of prompt i piece by piece; a piece may end within a character.
  std::function<void(size_t i, std::string_view piece)> on_text;
};

struct Generated {
  std::string prompt, text;
  int64_t prompt_tokens = 0;
  std::vector<int32_t> ids;  // of the text; of a stop string too
  bool stopped = false;      // by a stop string or a token that ends texts; else all tokens were generated
};

// UserError for a prompt without tokens and for settings outside their range.
std::vector<Generated> generate_texts(const base::Path& path, const GenerateOptions& options);

// Log-probabilities of texts: {"text"} lines in, lines with tokens and log-probabilities out.
struct ScoredText {
  std::string text;
  std::vector<std::string> tokens;
  std::vector<double> log_probs;  // of tokens[1], tokens[2], ...
};
std::vector<ScoredText> score_texts(const base::Path& path, const std::vector<std::string>& texts,
                                    const generate::SourceOptions& options);

// The same for a file of lines {"text": ...}; a line of JSON each.
std::vector<std::string> score_file(const base::Path& path, const base::Path& file,
                                    const generate::SourceOptions& options);
// One line of JSON.
std::string to_json(const Generated& generated);

// max_length 0: data.seq_len of the run, or 2048.
generate::Evaluation evaluate_file(const base::Path& path, const base::Path& file,
                                   generate::EvaluateOptions options, const generate::SourceOptions& source);
std::string to_text(const generate::Evaluation& evaluation);
std::string to_json(const generate::Evaluation& evaluation);

// Sample text of a finished run (recipe.run.dir), safe to print on a terminal. Empty unless the model can
// generate with a cache, and generating takes at most a few seconds.
std::optional<std::string> sample_of(const config::Recipe& recipe, int64_t tokens);

}  // namespace quintet::tools
