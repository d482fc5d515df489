#include "generate/generator.h"

#include <algorithm>
#include <bit>
#include <map>

#include "base/checksum.h"
#include "base/clock.h"
#include "base/error.h"
#include "graph/cache_ops.h"
#include "train/element.h"

namespace quintet::generate {

using graph::InputKind;
using graph::Mode;

namespace {

constexpr int64_t kLeastRows = 16;  // of a Prefill

// Rows of the Prefill that takes a prompt: a function of its own length alone, so that its numbers do not
// depend on other prompts.
int64_t prefill_rows(const config::Recipe& recipe, int64_t length) {
  const int64_t rows =
      std::max<int64_t>(kLeastRows, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(length))));
  return recipe.model.max_positions > 0 ? std::max(length, std::min(rows, recipe.model.max_positions)) : rows;
}

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Experts take token rows from every tensor-parallel rank, in equal numbers.
int64_t row_multiple(const config::Recipe& recipe) {
  return recipe.model.moe.experts > 0 ? recipe.parallel.tp : 1;
}

// The largest Decode takes all sequences, the others powers of two.
std::vector<int64_t> decode_rows(int64_t sequences, int64_t multiple) {
  std::vector<int64_t> rows;
  for (int64_t n = 1; n < sequences; n *= 2) rows.push_back(round_up(n, multiple));
  rows.push_back(round_up(sequences, multiple));
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

int64_t length_of(const Request& r) { return static_cast<int64_t>(r.prompt.size()) + r.new_tokens; }

}  // namespace

void number_requests(std::vector<Request>& requests) {
  std::map<std::vector<int32_t>, uint64_t> seen;
  for (Request& r : requests) {
    base::Checksum sum;
    const uint64_t occurrence = seen[r.prompt]++;
    sum.add(std::as_bytes(std::span(r.prompt)));
    sum.add(std::as_bytes(std::span(&occurrence, 1)));
    r.number = static_cast<int32_t>(sum.value() & 0x7FFFFFFF);
  }
}

compiler::Serving serving_for(const config::Recipe& recipe, std::span<const Request> requests,
                              const GeneratorOptions& options) {
  QUINTET_CHECK(!requests.empty() && options.batch > 0 && options.page_rows > 0, "nothing to generate");
  compiler::Serving serving{.entries = {}, .cache = {}, .sampling = options.sampling};
  std::vector<int64_t> rows, pages;
  for (const Request& r : requests) {
    const int64_t prompt = static_cast<int64_t>(r.prompt.size());
    QUINTET_CHECK(prompt > 0 && r.new_tokens > 0, "a request of {} + {} tokens", prompt, r.new_tokens);
    // The last token is never read again.
    const int64_t kept = length_of(r) - 1;
    if (recipe.model.max_positions > 0 && kept > recipe.model.max_positions)
      base::fail_user(
          "a prompt of {} tokens and {} new ones exceed the {} positions that the model has learned "
          "(model.max_positions); ask for at most {} new tokens, or shorten the prompt",
          prompt, r.new_tokens, recipe.model.max_positions,
          std::max<int64_t>(0, recipe.model.max_positions + 1 - prompt));
    rows.push_back(round_up(prefill_rows(recipe, prompt), row_multiple(recipe)));
    pages.push_back((kept + options.page_rows - 1) / options.page_rows);
  }
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  std::sort(pages.rbegin(), pages.rend());
  const size_t sequences = std::min(requests.size(), static_cast<size_t>(options.batch));
  serving.cache = {.pages = 0,
                   .page_rows = options.page_rows,
                   .sequences = static_cast<int64_t>(sequences),
                   .pages_per_sequence = pages.front()};
  for (size_t i = 0; i < sequences; ++i) serving.cache.pages += pages[i];
  for (const int64_t n : rows) serving.entries.push_back({Mode::Prefill, n});
  for (const int64_t n : decode_rows(serving.cache.sequences, row_multiple(recipe)))
    serving.entries.push_back({Mode::Decode, n});
  return serving;
}

namespace {

// The recipe for texts as long as the cache is: with longrope they decide between two sets of frequencies.
config::Recipe for_length(config::Recipe recipe, const graph::CacheShape& cache) {
  config::RopeScaling& s = recipe.model.rope_scaling;
  if (s.kind == config::RopeScalingKind::Longrope && s.positions == 0)
    s.positions = cache.page_rows * cache.pages_per_sequence;
  return recipe;
}

}  // namespace

Generator::Generator(const config::Recipe& recipe, comm::World& world, compiler::Serving serving,
                     const GeneratorOptions& options)
    : serving_(std::move(serving)),
      rank_(for_length(recipe, serving_.cache), world,
            {.threads = options.threads,
             .serving = serving_,
             .poison = options.poison,
             .local_rank = options.local_rank,
             .capture = options.capture,
             .log = options.log,
             .draw = options.draw}),
      vocab_(recipe.model.vocab),
      dtype_(recipe.precision.compute) {
  const graph::CacheShape& c = serving_.cache;
  table_.assign(static_cast<size_t>(c.sequences * c.pages_per_sequence), -1);
  for (int64_t i = c.pages; i-- > 0;) free_pages_.push_back(static_cast<int32_t>(i));
  for (int64_t i = c.sequences; i-- > 0;) free_slots_.push_back(static_cast<int32_t>(i));
}

int64_t Generator::cache_bytes() const {
  int64_t bytes = 0;
  for (const graph::Value& v : rank_.compiled().local.graph.values())
    if (graph::is_cache(v)) bytes += v.type.bytes();
  return bytes;
}

const program::Expanded& Generator::entry(Mode mode, int64_t rows) const {
  const int index = serving_.find(mode, rows);
  QUINTET_CHECK(index >= 0, "no entry of {} rows", rows);
  return rank_.compiled().variants[static_cast<size_t>(index)];
}

std::vector<int32_t> Generator::answers(int64_t rows) {
  const int64_t bytes = rows * static_cast<int64_t>(sizeof(int32_t));
  const exec::HostBytes result = rank_.executor().read({rank_.compiled().program.result, 0, bytes});
  const auto* ids = reinterpret_cast<const int32_t*>(result.data());
  return {ids, ids + rows};
}

std::vector<double> Generator::logits(int64_t row) {
  const program::Operand* sampled = nullptr;
  for (const program::Body& body : rank_.compiled().program.bodies)
    for (const program::Instr& i : body.instrs)
      if (i.op == &graph::kSample) sampled = &i.in[0];
  QUINTET_CHECK(sampled != nullptr, "the program samples nothing");
  const int64_t columns = sampled->type.size(1);  // with the padding of a divided vocabulary
  const int64_t size = base::size_of(dtype_);
  const exec::HostBytes bytes =
      rank_.executor().read({sampled->buffer, sampled->offset_bytes + row * columns * size, vocab_ * size});
  std::vector<double> out(static_cast<size_t>(vocab_));
  for (size_t v = 0; v < out.size(); ++v)
    out[v] = train::read_element(bytes.data(), dtype_, static_cast<int64_t>(v));
  return out;
}

Generator::Sequence Generator::admit(size_t index, const Request& request) {
  const graph::CacheShape& c = serving_.cache;
  Sequence s{.request = index, .slot = free_slots_.back(), .pages = {}};
  free_slots_.pop_back();
  const int64_t pages = (length_of(request) - 1 + c.page_rows - 1) / c.page_rows;
  QUINTET_CHECK(pages <= c.pages_per_sequence && pages <= static_cast<int64_t>(free_pages_.size()),
                "{} pages are needed, {} are free", pages, free_pages_.size());
  for (int64_t i = 0; i < pages; ++i) {
    s.pages.push_back(free_pages_.back());
    free_pages_.pop_back();
    table_[static_cast<size_t>(s.slot * c.pages_per_sequence + i)] = s.pages.back();
  }
  return s;
}

void Generator::release(const Sequence& s) {
  const auto begin = table_.begin() + static_cast<ptrdiff_t>(s.slot * serving_.cache.pages_per_sequence);
  std::fill_n(begin, serving_.cache.pages_per_sequence, -1);
  free_pages_.insert(free_pages_.end(), s.pages.rbegin(), s.pages.rend());
  free_slots_.push_back(s.slot);
}

void Generator::prefill(Sequence& s, const Request& request) {
  const int64_t length = static_cast<int64_t>(request.prompt.size());
  int64_t rows = 0;
  for (const auto& e : serving_.entries)
    if (e.mode == Mode::Prefill && e.rows >= length && (rows == 0 || e.rows < rows)) rows = e.rows;
  rank_.executor().run(entry(Mode::Prefill, rows), [&](int, const auto& inputs) {
    for (const auto& [spec, data] : inputs) {
      if (spec == graph::page_table_input()) {
        std::copy(table_.begin(), table_.end(), data);
      } else if (spec == graph::last_rows_input()) {
        data[0] = static_cast<int32_t>(length - 1);
      } else {
        const bool sequences = spec == graph::sequences_input();
        for (int64_t i = 0; i < rows; ++i) {
          const bool real = i < length;  // rows after the prompt have no effect: attention is causal
          data[i] = spec.kind == InputKind::Ids         ? (real ? request.prompt[static_cast<size_t>(i)] : 0)
                    : spec.kind == InputKind::Positions ? (real ? static_cast<int32_t>(i) : 0)
                    : spec.kind == InputKind::Samples   ? request.number
                    : sequences                         ? (real ? s.slot : -1)
                                                        : 0;
        }
      }
    }
  });
  s.last = answers(1)[0];
  s.position = length;
  s.made = 1;
}

void Generator::decode(std::vector<Sequence>& active, std::span<const Request> requests) {
  const int64_t count = static_cast<int64_t>(active.size());
  int64_t rows = 0;
  for (const auto& e : serving_.entries)
    if (e.mode == Mode::Decode && e.rows >= count && (rows == 0 || e.rows < rows)) rows = e.rows;
  rank_.executor().run(entry(Mode::Decode, rows), [&](int, const auto& inputs) {
    for (const auto& [spec, data] : inputs) {
      if (spec == graph::page_table_input()) {
        std::copy(table_.begin(), table_.end(), data);
        continue;
      }
      const bool sequences = spec == graph::sequences_input();
      for (int64_t i = 0; i < rows; ++i) {
        if (i >= count) {
          data[i] = sequences ? -1 : 0;
          continue;
        }
        const Sequence& s = active[static_cast<size_t>(i)];
        data[i] = spec.kind == InputKind::Ids         ? s.last
                  : spec.kind == InputKind::Positions ? static_cast<int32_t>(s.position)
                  : spec.kind == InputKind::Samples   ? requests[s.request].number
                  : sequences                         ? s.slot
                                                      : 0;
      }
    }
  });
  const std::vector<int32_t> ids = answers(count);
  for (size_t i = 0; i < active.size(); ++i) {
    active[i].last = ids[i];
    ++active[i].position;
    ++active[i].made;
  }
}

std::vector<Finish> Generator::run(std::span<const Request> requests, const OnToken& on_token, Times* times) {
  std::vector<Finish> finish(requests.size(), Finish::Length);
  std::vector<Sequence> active;
  size_t next = 0;
  // Whether the sequence continues.
  const auto take = [&](const Sequence& s) {
    if (s.last < 0)
      base::fail_user("the model's output is not finite: the weights are damaged, or the run diverged");
    const bool stop = on_token(s.request, s.last);
    if (stop) finish[s.request] = Finish::Stop;
    return !stop && s.made < requests[s.request].new_tokens;
  };
  while (next < requests.size() || !active.empty()) {
    while (next < requests.size() && !free_slots_.empty()) {
      const int64_t start = base::now_ns();
      Sequence s = admit(next, requests[next]);
      prefill(s, requests[next]);
      if (times != nullptr) {
        times->prefill_ns += base::now_ns() - start;
        times->prompt_tokens += static_cast<int64_t>(requests[next].prompt.size());
        ++times->prompts;
      }
      ++next;
      if (take(s))
        active.push_back(std::move(s));
      else
        release(s);
    }
    if (active.empty()) continue;
    const int64_t start = base::now_ns();
    decode(active, requests);
    if (times != nullptr) {
      times->step_ns.push_back(base::now_ns() - start);
      times->decode_ns += times->step_ns.back();
      ++times->steps;
      times->new_tokens += static_cast<int64_t>(active.size());
    }
    std::vector<Sequence> still;
    for (Sequence& s : active)
      if (take(s))
        still.push_back(std::move(s));
      else
        release(s);
    active = std::move(still);
  }
  return finish;
}

}  // namespace quintet::generate
