#include "published/published_run.h"

#include <fmt/format.h>

#include <charconv>

#include "graph/flops.h"
#include "models/build.h"
#include "published/csv.h"

namespace quintet::published {
namespace {

template <class T>
std::optional<T> number(const std::string& text, std::string_view column, std::string& problem) {
  if (text.empty()) return std::nullopt;
  T value{};
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || stop != text.data() + text.size() || !(value >= 0)) {
    problem = fmt::format("{} is '{}', not a number", column, text);
    return std::nullopt;
  }
  return value;
}

}  // namespace

std::vector<PublishedRun> read_published_runs(std::string_view text, std::string_view name) {
  const Csv table = parse_csv(text, name);
  std::vector<PublishedRun> runs;
  for (size_t i = 0; i < table.rows.size(); ++i) {
    PublishedRun r;
    const auto words = [&](std::string_view column) { return table.at(i, column); };
    r.id = words("id");
    const auto whole = [&](std::string_view column) {
      return number<int64_t>(words(column), column, r.problem);
    };
    const auto real = [&](std::string_view column) {
      return number<double>(words(column), column, r.problem);
    };
    r.source = words("source");
    r.model = words("model");
    r.gpu = words("gpu");
    r.precision = words("precision");
    r.ffn = words("ffn");
    r.kv_heads = words("kv_heads");
    r.fsdp = words("fsdp");
    r.sp = words("sp");
    r.schedule = words("schedule");
    r.micro_batch = words("micro_batch");
    r.global_batch = words("global_batch");
    r.recompute = words("recompute");
    r.verified = words("verified");
    r.layers = whole("layers");
    r.hidden = whole("hidden");
    r.heads = whole("heads");
    r.vocab = whole("vocab");
    r.seq = whole("seq");
    r.gpus = whole("gpus");
    r.dp = whole("dp");
    r.tp = whole("tp");
    r.pp = whole("pp");
    r.vpp = whole("vpp");
    r.cp = whole("cp");
    r.ep = whole("ep");
    r.tokens_per_s = real("tokens_per_s_per_gpu");
    r.tflops = real("tflops_per_gpu");
    r.mfu = real("mfu");
    r.memory_gib = real("mem_gib_per_gpu");
    runs.push_back(std::move(r));
  }
  return runs;
}

double flops_per_token(const config::Model& m, int64_t seq_len, FlopCount count) {
  const graph::Graph model = models::build(
      m, {.mode = graph::Mode::Train, .compute = base::DType::BF16, .tokens = seq_len, .seq_len = seq_len});
  const auto tokens = static_cast<double>(seq_len);
  // All pairs relative to those that a causal mask keeps, including the diagonal.
  const double pairs = count == FlopCount::Causal ? 1 : 2 * tokens / (tokens + 1);
  const double passes = count == FlopCount::Hardware ? 4.0 / 3 : 1;  // the forward pass again: 4 of 3
  const std::vector<graph::Flops> blocks = graph::flops_by_block(model);
  double sum = 0;
  for (size_t b = 0; b < blocks.size(); ++b) {
    const bool head = b + 1 == blocks.size();
    sum += (head ? 1 : passes) * (blocks[b].matmul + pairs * blocks[b].attention);
  }
  return sum / tokens;
}

}  // namespace quintet::published
