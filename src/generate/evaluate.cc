#include "generate/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"
#include "base/json.h"

namespace quintet::generate {
namespace {

using nlohmann::json;

bool is_space(unsigned char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// As Python's re.split(r"\s+", text) counts: runs of space separate words, and empty ones at the ends count.
int64_t count_words(std::string_view text) {
  int64_t words = 1;
  for (size_t i = 0; i < text.size(); ++i)
    words += is_space(static_cast<unsigned char>(text[i])) &&
             (i == 0 || !is_space(static_cast<unsigned char>(text[i - 1])));
  return words;
}

int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

std::string field(const json& line, const char* key, const std::string& where) {
  if (!line.contains(key) || !line[key].is_string())
    base::fail_user("{}: expected a text in \"{}\"", where, key);
  return line[key].get<std::string>();
}

Task parse_task(std::string_view text, const std::string& where) {
  const json line = base::parse_json(text);
  if (!line.is_object())
    base::fail_user(R"({}: expected {{"text": ...}} or {{"context": ..., "choices": [...], "answer": 0}})",
                    where);
  Task task;
  if (line.contains("text")) {
    task.text = field(line, "text", where);
    if (task.text.empty()) base::fail_user("{}: \"text\" is empty", where);
    return task;
  }
  task.context = field(line, "context", where);
  if (!line.contains("choices") || !line["choices"].is_array() || line["choices"].size() < 2)
    base::fail_user("{}: expected two or more texts in \"choices\"", where);
  for (const json& choice : line["choices"]) {
    if (!choice.is_string() || choice.get<std::string>().empty())
      base::fail_user("{}: \"choices\" must be texts that are not empty", where);
    task.choices.push_back(choice.get<std::string>());
  }
  if (!line.contains("answer") || !line["answer"].is_number_integer())
    base::fail_user("{}: expected the index of a choice in \"answer\"", where);
  task.answer = line["answer"].get<int64_t>();
  if (task.answer < 0 || task.answer >= static_cast<int64_t>(task.choices.size()))
    base::fail_user("{}: \"answer\" is {}, but there are {} choices, counted from 0", where, task.answer,
                    task.choices.size());
  return task;
}

// Every token is predicted once; the first window from the prefix alone, the others from one token before
// and then from their own.
std::vector<Piece> windows(std::vector<int32_t> ids, const EvaluateOptions& o) {
  if (o.prefix) ids.insert(ids.begin(), *o.prefix);
  std::vector<Piece> pieces;
  for (size_t begin = 0; begin + 1 < ids.size(); begin += static_cast<size_t>(o.max_length)) {
    const size_t end = std::min(ids.size(), begin + static_cast<size_t>(o.max_length) + 1);
    pieces.push_back(
        {{ids.begin() + static_cast<ptrdiff_t>(begin), ids.begin() + static_cast<ptrdiff_t>(end)}, 0});
  }
  // The last window is filled up with tokens before it, so that it sees as much as the others.
  if (pieces.size() > 1) {
    Piece& last = pieces.back();
    const size_t predicted = last.ids.size() - 1, whole = static_cast<size_t>(o.max_length) + 1;
    last.ids.assign(ids.end() - static_cast<ptrdiff_t>(whole), ids.end());
    last.first = whole - 1 - predicted;
  }
  return pieces;
}

// Spaces at the end of the context belong to the choice, and the two are encoded together: tokens may join
// them. A context that is too long loses its beginning.
Piece choice_piece(const std::string& context, const std::string& choice,
                   const tokenizer::Tokenizer& tokenizer, const EvaluateOptions& o) {
  std::string before = context, after = o.delimiter + choice;
  while (!before.empty() && is_space(static_cast<unsigned char>(before.back()))) {
    after.insert(after.begin(), before.back());
    before.pop_back();
  }
  std::vector<int32_t> ids = tokenizer.encode(before + after);
  size_t first = tokenizer.encode(before).size();
  if (before.empty() && o.prefix) ids.insert(ids.begin(), *o.prefix), first = 1;
  if (first == 0) first = 1;  // nothing precedes the first token: it cannot be predicted
  if (first >= ids.size()) base::fail_user("the choice \"{}\" adds no token to its context", choice);
  const size_t most = static_cast<size_t>(o.max_length) + 1;
  if (ids.size() > most) {
    const size_t cut = std::min(ids.size() - most, first - 1);
    ids.erase(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(cut));
    first -= cut;
  }
  return {std::move(ids), first - 1};
}

}  // namespace

std::vector<Task> parse_tasks(std::string_view lines, const std::string& source) {
  std::vector<Task> tasks;
  for (int64_t number = 1; !lines.empty(); ++number) {
    const size_t end = std::min(lines.find('\n'), lines.size());
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 1, lines.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    tasks.push_back(parse_task(line, fmt::format("{}, line {}", source, number)));
  }
  if (tasks.empty()) base::fail_user("{} has no lines", source);
  return tasks;
}

std::vector<Piece> pieces_of(const Task& task, const tokenizer::Tokenizer& tokenizer,
                             const EvaluateOptions& o) {
  QUINTET_CHECK(o.max_length > 0, "max_length is {}", o.max_length);
  if (task.choices.empty()) return windows(tokenizer.encode(task.text), o);
  std::vector<Piece> pieces;
  for (const std::string& choice : task.choices)
    pieces.push_back(choice_piece(task.context, choice, tokenizer, o));
  return pieces;
}

void add_result(const Task& task, const std::vector<Piece>& pieces, const std::vector<double>& sums,
                Evaluation& total) {
  if (task.choices.empty()) {
    ++total.texts;
    for (const Piece& p : pieces) total.tokens += static_cast<int64_t>(p.ids.size() - 1 - p.first);
    total.bytes += static_cast<int64_t>(task.text.size());
    total.words += count_words(task.text);
    total.log_prob = std::accumulate(sums.begin(), sums.end(), total.log_prob);
    return;
  }
  ++total.questions;
  const auto best = [&](auto&& length) {
    size_t at = 0;
    for (size_t i = 1; i < sums.size(); ++i)
      if (sums[i] / length(task.choices[i]) > sums[at] / length(task.choices[at])) at = i;
    return static_cast<int64_t>(at) == task.answer;
  };
  total.right += best([](const std::string&) { return 1.0; });
  total.right_norm += best([](const std::string& c) { return static_cast<double>(count_characters(c)); });
  total.right_bytes += best([](const std::string& c) { return static_cast<double>(c.size()); });
}

double Evaluation::perplexity() const { return std::exp(-log_prob / static_cast<double>(tokens)); }
double Evaluation::byte_perplexity() const { return std::exp(-log_prob / static_cast<double>(bytes)); }
double Evaluation::bits_per_byte() const { return -log_prob / static_cast<double>(bytes) / std::log(2.0); }
double Evaluation::word_perplexity() const { return std::exp(-log_prob / static_cast<double>(words)); }

Evaluation evaluate(const Source& source, comm::World& world, const std::vector<Task>& tasks,
                    const EvaluateOptions& options, const ScoreOptions& how) {
  std::vector<std::vector<Piece>> pieces;
  std::vector<std::vector<int32_t>> texts;
  for (const Task& task : tasks) {
    pieces.push_back(pieces_of(task, *source.tokenizer, options));
    for (const Piece& p : pieces.back()) texts.push_back(p.ids);
  }
  const std::vector<Scored> scored = score(source, world, texts, how);
  Evaluation total;
  size_t at = 0;
  for (size_t t = 0; t < tasks.size(); ++t) {
    std::vector<double> sums;
    for (const Piece& p : pieces[t]) {
      const std::vector<double>& lp = scored[at++].log_probs;
      sums.push_back(std::accumulate(lp.begin() + static_cast<ptrdiff_t>(p.first), lp.end(), 0.0));
    }
    add_result(tasks[t], pieces[t], sums, total);
  }
  return total;
}

}  // namespace quintet::generate
