#include "tools/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/philox.h"
#include "base/plural.h"
#include "base/printable.h"
#include "checkpoint/reader.h"
#include "checkpoint/store.h"
#include "comm/local.h"
#include "generate/text_stream.h"
#include "train/checkpointer.h"
#include "train/loop.h"
#include "train/resume.h"

namespace quintet::tools {

using generate::Source;

namespace {

constexpr double kMaxSampleFlops = 2e11;  // a few seconds on a small machine
constexpr int64_t kDefaultLength = 2048;

int64_t parameters_in(const checkpoint::Manifest& manifest) {
  int64_t count = 0;
  for (const checkpoint::SavedTensor& t : manifest.tensors)
    if (!checkpoint::is_state_name(t.info.name)) count += t.info.count();
  return count;
}

void require_sampling(const graph::Sampling& s) {
  if (!(s.temperature >= 0) || !std::isfinite(s.temperature))
    base::fail_user("--temperature must be 0 or more; got {}", s.temperature);
  if (s.top_k < 0) base::fail_user("--top-k must be 0 (all) or more; got {}", s.top_k);
  if (!(s.top_p > 0 && s.top_p <= 1))
    base::fail_user("--top-p must be above 0 and at most 1; got {}", s.top_p);
  if (!(s.min_p >= 0 && s.min_p <= 1)) base::fail_user("--min-p must be between 0 and 1; got {}", s.min_p);
  if (!(s.repetition_penalty > 0) || !std::isfinite(s.repetition_penalty))
    base::fail_user("--repetition-penalty must be above 0; got {}", s.repetition_penalty);
}

template <class Fn>
void run_ranks(const Source& source, const Fn& fn) {
  const int64_t ranks = source.recipe.parallel.tp;
  const int threads = train::kernel_threads(source.recipe, ranks);
  comm::run_local_world(static_cast<int>(ranks), [&](comm::World& world) { fn(world, threads); });
}

bool is_first(const comm::World& world) { return world.rank() == base::RankId(0); }

}  // namespace

std::vector<Generated> generate_texts(const base::Path& path, const GenerateOptions& options) {
  if (options.tokens < 1) base::fail_user("--tokens must be at least 1; got {}", options.tokens);
  if (options.batch < 1) base::fail_user("--batch must be at least 1; got {}", options.batch);
  require_sampling(options.sampling);
  for (const std::string& stop : options.stops)
    if (stop.empty()) base::fail_user("--stop needs a text that is not empty");
  const Source source = generate::open_source(path, options.source);
  std::vector<generate::Request> requests;
  std::vector<Generated> texts;
  for (const std::string& prompt : options.prompts) {
    std::vector<int32_t> ids = source.tokenizer->encode(prompt);
    if (ids.empty())
      base::fail_user("--prompt: prompt {} is empty; the model needs at least one token to continue",
                      requests.size() + 1);
    for (const int32_t id : ids)
      if (id >= source.recipe.model.vocab)
        base::fail_user("the tokenizer gives token {}, but the model has {} (model.vocab)", id,
                        source.recipe.model.vocab);
    texts.push_back({.prompt = prompt, .text = {}, .prompt_tokens = static_cast<int64_t>(ids.size())});
    requests.push_back({std::move(ids), options.tokens});
  }
  generate::number_requests(requests);
  generate::GeneratorOptions how{
      .batch = options.batch, .sampling = options.sampling, .log = options.source.log};
  how.sampling.key = static_cast<int64_t>(base::stream_key(options.seed, "generate"));
  how.sampling.vocab = source.tokenizer->vocab_size();  // the model may have more rows
  const compiler::Serving serving = generate::serving_for(source.recipe, requests, how);

  run_ranks(source, [&](comm::World& world, int threads) {
    generate::GeneratorOptions mine = how;
    mine.threads = threads;
    mine.local_rank = world.rank().value;
    mine.draw = false;
    generate::Generator generator(source.recipe, world, serving, mine);
    source.load(generator.rank());
    std::vector<generate::TextStream> streams;
    for (const generate::Request& r : requests)
      streams.emplace_back(*source.tokenizer, r.prompt, options.stops);
    std::vector<std::vector<int32_t>> ids(requests.size());
    const auto show = [&](size_t i, const std::string& piece) {
      if (is_first(world) && options.on_text && !piece.empty()) options.on_text(i, piece);
    };
    const std::vector<generate::Finish> finish = generator.run(requests, [&](size_t i, int32_t id) {
      const bool end = std::find(source.ends.begin(), source.ends.end(), id) != source.ends.end();
      if (end && !options.ignore_ends) return true;
      ids[i].push_back(id);
      show(i, streams[i].add(id));
      return streams[i].stopped();
    });
    for (size_t i = 0; i < streams.size(); ++i) show(i, streams[i].finish());
    if (!is_first(world)) return;
    for (size_t i = 0; i < texts.size(); ++i) {
      texts[i].text = streams[i].text();
      texts[i].ids = ids[i];
      texts[i].stopped = finish[i] == generate::Finish::Stop;
    }
  });
  return texts;
}

std::vector<ScoredText> score_texts(const base::Path& path, const std::vector<std::string>& texts,
                                    const generate::SourceOptions& options) {
  const Source source = generate::open_source(path, options);
  std::vector<std::vector<int32_t>> ids;
  std::vector<ScoredText> out;
  for (const std::string& text : texts) {
    ids.push_back(source.tokenizer->encode(text));
    ScoredText scored{.text = text, .tokens = {}, .log_probs = {}};
    for (const int32_t id : ids.back()) scored.tokens.push_back(source.tokenizer->token(id));
    out.push_back(std::move(scored));
  }
  run_ranks(source, [&](comm::World& world, int threads) {
    const std::vector<generate::Scored> scores = generate::score(
        source, world, ids, {.threads = threads, .local_rank = world.rank().value, .log = options.log});
    if (!is_first(world)) return;
    for (size_t i = 0; i < out.size(); ++i) out[i].log_probs = scores[i].log_probs;
  });
  return out;
}

std::vector<std::string> score_file(const base::Path& path, const base::Path& file,
                                    const generate::SourceOptions& options) {
  std::vector<std::string> texts, lines;
  for (const generate::Task& task : generate::parse_tasks(base::read_file(file), file.string())) {
    if (!task.choices.empty()) base::fail_user("{}: --score takes lines of {{\"text\": ...}}", file.string());
    texts.push_back(task.text);
  }
  for (const ScoredText& s : score_texts(path, texts, options)) {
    double sum = 0;
    nlohmann::ordered_json probs =
        nlohmann::ordered_json::array({nullptr});  // nothing precedes the first token
    for (const double p : s.log_probs) probs.push_back(p), sum += p;
    lines.push_back(base::json_text(nlohmann::ordered_json{
        {"text", s.text}, {"tokens", s.tokens}, {"log_probs", probs}, {"log_prob", sum}}));
  }
  return lines;
}

std::string to_json(const Generated& g) {
  return base::json_text(nlohmann::ordered_json{{"prompt", g.prompt},
                                                {"text", g.text},
                                                {"prompt_tokens", g.prompt_tokens},
                                                {"ids", g.ids},
                                                {"finish", g.stopped ? "stop" : "length"}});
}

generate::Evaluation evaluate_file(const base::Path& path, const base::Path& file,
                                   generate::EvaluateOptions options, const generate::SourceOptions& how) {
  const std::vector<generate::Task> tasks = generate::parse_tasks(base::read_file(file), file.string());
  const Source source = generate::open_source(path, how);
  if (options.max_length == 0)
    options.max_length = source.recipe.data.seq_len > 1 ? source.recipe.data.seq_len : kDefaultLength;
  if (source.recipe.model.max_positions > 0)
    options.max_length = std::min(options.max_length, source.recipe.model.max_positions);
  if (!options.prefix) options.prefix = source.prefix;
  generate::Evaluation result;
  run_ranks(source, [&](comm::World& world, int threads) {
    const generate::Evaluation mine =
        generate::evaluate(source, world, tasks, options,
                           {.threads = threads, .local_rank = world.rank().value, .log = how.log});
    if (is_first(world)) result = mine;
  });
  return result;
}

std::string to_text(const generate::Evaluation& e) {
  std::string text;
  if (e.texts > 0) {
    text += fmt::format("{}, {} predicted, {}, {}\n", base::counted(e.texts, "text"),
                        base::counted(e.tokens, "token"), base::counted(e.bytes, "byte"),
                        base::counted(e.words, "word"));
    text +=
        fmt::format("perplexity per token {:.4f}, per byte {:.4f}, per word {:.4f}; {:.4f} bits per byte\n",
                    e.perplexity(), e.byte_perplexity(), e.word_perplexity(), e.bits_per_byte());
  }
  if (e.questions > 0) {
    const double n = static_cast<double>(e.questions);
    text += fmt::format("{}: acc {:.4f}, acc_norm {:.4f}, acc_bytes {:.4f}\n",
                        base::counted(e.questions, "question"), static_cast<double>(e.right) / n,
                        static_cast<double>(e.right_norm) / n, static_cast<double>(e.right_bytes) / n);
  }
  return text;
}

std::string to_json(const generate::Evaluation& e) {
  nlohmann::ordered_json json;
  if (e.texts > 0)
    json["text"] = {{"texts", e.texts},
                    {"tokens", e.tokens},
                    {"bytes", e.bytes},
                    {"words", e.words},
                    {"log_prob", e.log_prob},
                    {"perplexity", e.perplexity()},
                    {"byte_perplexity", e.byte_perplexity()},
                    {"word_perplexity", e.word_perplexity()},
                    {"bits_per_byte", e.bits_per_byte()}};
  if (e.questions > 0) {
    const double n = static_cast<double>(e.questions);
    json["choices"] = {{"questions", e.questions},
                       {"acc", static_cast<double>(e.right) / n},
                       {"acc_norm", static_cast<double>(e.right_norm) / n},
                       {"acc_bytes", static_cast<double>(e.right_bytes) / n}};
  }
  return base::json_text(json, 2) + "\n";
}

std::optional<std::string> sample_of(const config::Recipe& recipe, int64_t tokens) {
  const bool refused = recipe.model.attention_sinks ||
                       recipe.model.attention_chunk > 0 ||  // by graph::Builder
                       recipe.model.family == config::Family::Bert;
  if (tokens == 0 || refused) return std::nullopt;
  const base::Path saved = checkpoint::find_checkpoint(train::checkpoint_folder(recipe));
  const double parameters = static_cast<double>(parameters_in(checkpoint::Reader(saved).manifest()));
  GenerateOptions options;
  options.prompts = {"The "};
  const auto prompt_tokens = static_cast<int64_t>(options.prompts[0].size());  // at most
  options.tokens = tokens;
  if (recipe.model.max_positions > 0)
    options.tokens = std::min(tokens, recipe.model.max_positions + 1 - prompt_tokens);
  if (options.tokens < 1 || 2 * parameters * static_cast<double>(tokens + prompt_tokens) > kMaxSampleFlops)
    return std::nullopt;
  options.seed = static_cast<uint64_t>(recipe.run.seed);
  if (recipe.run.device == config::DeviceKind::Cuda) options.source.tp = 1;  // this process has one GPU
  return base::printable(options.prompts[0] + generate_texts(saved, options)[0].text);
}

}  // namespace quintet::tools
