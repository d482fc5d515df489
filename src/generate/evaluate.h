// Perplexity and multiple choice as lm-evaluation-harness computes them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "generate/scorer.h"

namespace quintet::generate {

// A line of a file: {"text": "..."}, or {"context": "...", "choices": ["...", ...], "answer": 0}.
struct Task {
  std::string text;
  std::string context;
  std::vector<std::string> choices;  // empty: a text
  int64_t answer = 0;
};
// UserError with the line's number.
std::vector<Task> parse_tasks(std::string_view lines, const std::string& source);

struct EvaluateOptions {
  int64_t max_length = 0;              // tokens that a prediction sees, at most; required
  std::string delimiter = " ";         // between context and choice
  std::optional<int32_t> prefix = {};  // the token before a text; none: its first token is not predicted
};

// Texts: every token once, in windows of max_length; log-probabilities per token, per byte and per word
// (separated by white space). Choices: the one with the largest log-probability, or with the largest one per
// character of the choice (norm) or byte of it (bytes).
struct Evaluation {
  int64_t texts = 0, tokens = 0, bytes = 0, words = 0;
  double log_prob = 0;
  int64_t questions = 0, right = 0, right_norm = 0, right_bytes = 0;

  double perplexity() const;
  double byte_perplexity() const;
  double bits_per_byte() const;
  double word_perplexity() const;
};

// What is to be scored for a task, and back: the log-probabilities are summed from `first` on.
struct Piece {
  std::vector<int32_t> ids;
  size_t first = 0;  // into Scored::log_probs
};
std::vector<Piece> pieces_of(const Task& task, const tokenizer::Tokenizer& tokenizer,
                             const EvaluateOptions& options);
// `sums` are those of the task's pieces.
void add_result(const Task& task, const std::vector<Piece>& pieces, const std::vector<double>& sums,
                Evaluation& total);

Evaluation evaluate(const Source& source, comm::World& world, const std::vector<Task>& tasks,
                    const EvaluateOptions& options, const ScoreOptions& score);

}  // namespace quintet::generate
